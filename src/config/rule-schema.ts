// The schema of `network`: the managed-agents dialect verbatim, and the rule fields that are ours.
// It must never accept a rule that reads two ways; what cannot be inspected cannot be matched by path or injected into (fault H05).
import { z } from 'zod';
import { isFieldName } from '../exchange/header-fields.ts';
import type { Pattern } from '../exchange/rule.ts';
import { compilePattern } from '../foundation/pattern.ts';
import { parseDomain } from '../policy/host-pattern.ts';
import type { DomainPattern } from '../policy/host-pattern.ts';
import { addressRange, credentialId, fail, headerFields, headerName, isMapping, onAnyMapping } from './fields.ts';

/** A pattern of hosts, as a rule's `domain`. */
export function domain() {
  return z.string().transform((text, context): DomainPattern => {
    const parsed = parseDomain(text);
    return 'problem' in parsed ? fail(context, parsed.problem) : parsed;
  });
}

function method() {
  return z.string().superRefine((name, context) => {
    const upper = name.toUpperCase();
    if (!isFieldName(name)) fail(context, `"${name}" is not a method; write it like "GET"`);
    else if (upper === 'TRACE' || upper === 'TRACK') fail(context, `"${name}" is never let through; remove it`);
    else if (upper === 'CONNECT') fail(context, '"CONNECT" is judged by name and port; list the methods inside the tunnel');
    else if (name !== upper) fail(context, `"${name}" would match nothing, for methods are case-sensitive; write "${upper}"`);
  });
}

function pathPattern() {
  return z.string().transform((source, context): Pattern => {
    const compiled = compilePattern(source);
    return 'problem' in compiled ? fail(context, compiled.problem) : compiled;
  });
}

const NOT_EMPTY = { error: 'must not be empty; name at least one, or leave the key out' };

const transform = z
  .union([headerFields(), z.array(headerFields())], { error: 'expected an object of headers, or a list of such objects' })
  .transform((value) => (Array.isArray(value) ? value : [value]));

const NEEDS_INSPECTION = ['transform', 'credential', 'methods', 'paths', 'mode', 'keep', 'allow_plaintext', 'redact'] as const;

function inspected(rule: unknown): string[] {
  return isMapping(rule) && rule['tls'] === 'passthrough' ? NEEDS_INSPECTION.filter((key) => rule[key] !== undefined) : [];
}

/** One entry of `network.allowlist`. */
export const ruleSchema = z
  .strictObject({
    domain: domain().describe(
      'Host that the rule is for: exact, "*.x.com" for every depth below x.com but not x.com itself, "*" for all, or an IP address. The most specific domain wins, whatever the order.',
    ),
    transform: transform
      .optional()
      .describe('Headers put on at the door, or a list of such objects merged in order. Values are text, { env } or { file }.'),
    credential: credentialId()
      .optional()
      .describe('Id of the credential put on at the door; `transform` goes on top and wins on the same header.'),
    ports: z
      .array(z.int().min(1).max(65535))
      .min(1, NOT_EMPTY)
      .optional()
      .describe('Ports that may be reached. Left out: 443 for TLS, 80 for plain HTTP. Set it for a service on another port.'),
    methods: z
      .array(method())
      .min(1, NOT_EMPTY)
      .optional()
      .describe('Methods that may be used, in upper case. Left out: all but TRACE and TRACK. Set it to make a host read-only.'),
    paths: z
      .array(pathPattern())
      .min(1, NOT_EMPTY)
      .optional()
      .describe('RE2 patterns, one of which must match the whole path without query. Left out: every path.'),
    addresses: z
      .array(addressRange())
      .min(1, NOT_EMPTY)
      .optional()
      .describe('Ranges inside the walls (CIDR) that this rule opens. Left out: none. Set it for a service in your own network.'),
    tls: z
      .enum(['passthrough'])
      .optional()
      .describe(
        '"passthrough" tunnels by name without inspection, for pinned or mutual TLS; nothing can be put on or matched inside.',
      ),
    mode: z
      .enum(['set', 'replace', 'if_absent'])
      .optional()
      .describe(
        'What happens when the sandbox sent the injected header itself: set (default) drops it, replace injects only over it, if_absent leaves it.',
      ),
    enforcement: z
      .enum(['monitor'])
      .optional()
      .describe('"monitor" lets pass what the rule would refuse and records it. Set it while a rule is being tried out.'),
    allow_plaintext: z
      .boolean()
      .optional()
      .describe(
        'Whether injected headers and the values of placeholders may go over plain http. Default false. Set it only for a network that you trust.',
      ),
    redact: z
      .boolean()
      .optional()
      .describe(
        'Whether answers are looked through for what was put on, which becomes "[redacted]" in header values, trailers and text bodies. Left out: as the top-level `redact` says. Set true for a host that may echo what it is sent; false for one that hands out what its credential holds, or text in a coding of its own.',
      ),
    keep: z
      .array(headerName().transform((name) => name.toLowerCase()))
      .min(1, NOT_EMPTY)
      .optional()
      .describe("The sandbox's own authenticating headers that pass although the rule bears a credential. Left out: none."),
  })
  .refine((rule) => inspected(rule).length === 0, {
    error: (issue) => {
      const keys = inspected(issue.input).map((key) => `\`${key}\``);
      return `passthrough is not inspected and cannot go together with ${keys.join(', ')}; remove ${keys.length === 1 ? 'it' : 'them'}, or remove \`tls\``;
    },
    path: ['tls'],
    ...onAnyMapping,
  });

/** `network`, of the whole door or of one sandbox. */
export const networkSchema = z.union(
  [
    z.literal('disabled'),
    z.strictObject({
      allowlist: z
        .array(ruleSchema)
        .optional()
        .describe('What may be reached; everything else is refused. Left out or empty: nothing may be reached.'),
      denylist: z
        .array(z.strictObject({ domain: domain().describe('Host that is refused: exact, "*.x.com", "*", or an IP address.') }))
        .optional()
        .describe(
          'What is refused whatever the allowlist says; at the top level, whatever that of any sandbox says. Left out: nothing more than the allowlist refuses.',
        ),
    }),
  ],
  { error: 'expected "disabled" or an object with `allowlist` and `denylist`' },
);

/** A parsed rule. */
export type RuleEntry = z.output<typeof ruleSchema>;

/** A parsed `network`. */
export type Network = z.output<typeof networkSchema>;
