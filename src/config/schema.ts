// The schema of sallyport.yaml: every key with its meaning, unit and default. The JSON Schema, the reference table and all
// problem texts are made from it. Its output is typed values (patterns, ranges, `ms`, bytes), so that nobody parses them again.
// It must never read a file, the environment or the clock.
import { z } from 'zod';
import { credentialSchema } from './credential-schema.ts';
import {
  addressRange,
  count,
  credentialId,
  duration,
  filePath,
  identifier,
  listenAddress,
  secretReference,
  secretValue,
  size,
  variableName,
} from './fields.ts';
import { listenSchema } from './listen-schema.ts';
import { corporateProxySchema } from './proxy-schema.ts';
import { networkSchema } from './rule-schema.ts';

const admin = z.strictObject({
  listen: listenAddress(
    '127.0.0.1:9090',
    'Where health, metrics and the admin API are served. Keep it off the network of the sandboxes.',
  ),
  token: z
    .strictObject({ file: filePath().describe('File of the token; made at the first start, readable by its owner only.') })
    .prefault({ file: 'state/admin-token' })
    .describe('Where the admin token is kept.'),
  allowed_hosts: z
    .array(z.string().min(1))
    .optional()
    .describe('Further names by which the admin listener may be addressed. Left out: loopback names and its own address only.'),
});

const ca = z.strictObject({
  certificate: filePath()
    .prefault('certs/public/ca.pem')
    .describe('Certificate of the CA that sandboxes must trust; made at the first start. Its folder is what a sandbox may see.'),
  key: filePath()
    .nullable()
    .prefault('certs/ca.key')
    .describe('Private key of the CA; made at the first start. null keeps it in memory only: a new CA with each start.'),
});

const store = z.strictObject({
  uri: z
    .string()
    .regex(/^(?:file:|rediss?:\/\/|postgres(?:ql)?:\/\/)./, { error: 'must begin with "file:", "redis://" or "postgresql://"' })
    .prefault('file:state/store.json')
    .describe(
      'Where credentials and environments made over the API are kept: a file, made with the first of them, or redis:// or postgresql:// for several proxies that share them.',
    ),
  key: secretReference()
    .prefault({ file: 'state/store-key' })
    .describe(
      'Key that seals the records at rest, 32 bytes in base64 or hex. A file that is not there is made together with the store.',
    ),
});

const limits = z.strictObject({
  connections: count(4096, 'Connections from sandboxes open at once. Raise it with the memory at hand.'),
  streams: count(100, 'Streams at once on one HTTP/2 connection of a sandbox. A change holds for new connections.'),
  header_bytes: size(
    '64KiB',
    'Request line and header section together. Raise it for clients with large cookies. A change needs a restart.',
  ),
  header_fields: count(1000, 'Header fields in one section.'),
  target_bytes: size('16KiB', 'Length of a request target. Raise it for very long query strings.'),
  reply_header_bytes: size('128KiB', "Header section of an upstream's answer."),
  timeouts: z
    .strictObject({
      header: duration('10s', 'Whole request header section, from its first byte. A change needs a restart.'),
      handshake: duration('10s', 'First bytes of a tunnel and the TLS handshake with the sandbox. A change needs a restart.'),
      dns: duration('5s', 'Resolving one name.'),
      connect: duration('10s', 'TCP connect and TLS handshake with the upstream, together.'),
      reply: duration('5m', "First byte of the upstream's answer. Raise it for APIs that think long before they answer."),
      body_idle: duration('5m', 'Silence inside a body, either way.'),
      tunnel_idle: duration('10m', 'Silence in an upgraded or passed-through connection, both ways.'),
      keep_alive: duration('75s', 'Idle kept-alive connection of a sandbox. A change needs a restart.'),
      upstream_keep_alive: duration('30s', 'Idle pooled connection to an upstream.'),
      drain: duration('10s', 'How long a stop waits for exchanges under way.'),
    })
    .prefault({})
    .describe('Deadlines by phase: a number with ms, s, m or h.'),
  upstream_connections: count(256, 'Connections to one upstream for one sandbox.'),
});

const sandbox = z
  .strictObject({
    token: secretValue()
      .optional()
      .describe('Secret that the sandbox shows as the password of its proxy URL: text, { env } or { file }.'),
    sources: z
      .array(addressRange())
      .min(1, { error: 'must not be empty; name at least one, or leave the key out' })
      .optional()
      .describe('Addresses (CIDR) that the sandbox connects from; the longest prefix wins.'),
    network: networkSchema
      .optional()
      .describe(
        "The sandbox's own policy; what the top-level denylist refuses stays refused. Left out: the top-level `network`.",
      ),
    env: z
      .record(
        variableName(),
        z.union([
          z.string(),
          z.strictObject({ value: z.string().describe('The text of the variable.') }),
          z.strictObject({ credential: credentialId().describe('Id of the credential that the variable stands for.') }),
        ]),
      )
      .optional()
      .describe(
        'Variables of the sandbox, as `sallyport env` prints them: text, { value }, or { credential }, for which a placeholder stands that the door swaps.',
      ),
  })
  .refine((entry) => entry.token !== undefined || entry.sources !== undefined, {
    error: 'needs `token` or `sources`, or nobody could be known as this sandbox',
  });

/** The whole config. */
export const configSchema = z.strictObject({
  listen: listenSchema.prefault({}).describe('Where sandboxes connect. A change needs a restart.'),
  admin: admin.prefault({}).describe("The operator's listener. A change needs a restart."),
  ca: ca.prefault({}).describe('The certificate authority of the door. A change needs a restart.'),
  network: networkSchema
    .optional()
    .describe('What may be reached: "disabled", or an allowlist and a denylist. Left out: nothing.'),
  redact: z
    .boolean()
    .optional()
    .describe(
      'The `redact` of every rule that does not say it, here, of sandboxes and of environments made over the API. Left out: answers are looked through for values that took the place of a placeholder alone. Set true unless most hosts hand out what their credentials hold.',
    ),
  sandboxes: z
    .record(identifier(), sandbox)
    .prefault({})
    .describe('Several sandboxes behind one door, by id. Empty: one sandbox, of which no token is asked.'),
  credentials: z
    .record(identifier(), credentialSchema)
    .prefault({})
    .describe('Credentials by id, for the `credential` of a rule.'),
  store: store.prefault({}).describe('Where records made over the API are kept. A change needs a restart.'),
  audit: z
    .strictObject({
      path: z.string().min(1).prefault('-').describe('File that gets one JSON line for each exchange; "-" for standard output.'),
    })
    .prefault({})
    .describe('The audit log. A change needs a restart.'),
  log: z
    .strictObject({
      level: z
        .enum(['debug', 'info', 'warn', 'error'])
        .prefault('info')
        .describe("How much the operator's log says. A change needs a restart."),
    })
    .prefault({})
    .describe("The operator's log, on standard error."),
  limits: limits.prefault({}).describe('Bounds and deadlines; every one has a default.'),
  upstream: z
    .strictObject({
      ca: z.array(filePath()).prefault([]).describe('PEM files of further roots that upstreams may be verified against.'),
      proxy: corporateProxySchema
        .nullable()
        .prefault(null)
        .describe('Corporate proxy that every connection to an upstream, a token endpoint too, is opened through. null: none.'),
    })
    .prefault({})
    .describe('How upstreams are reached.'),
});

/** A parsed config: defaults filled in, values typed. Holds no readable secret. */
export type Config = z.output<typeof configSchema>;
