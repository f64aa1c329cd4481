// The schema of `upstream.proxy`: where the corporate proxy is, as whom it is asked, and what is left to it.
// It must never quote a url that may hold a password, nor accept credentials there: they would stand in a place that is shown.
import { z } from 'zod';
import { parseAuthority } from '../exchange/authority.ts';
import type { Authority } from '../exchange/authority.ts';
import { fail, isMapping, onAnyMapping, secretValue } from './fields.ts';
import { domain } from './rule-schema.ts';

const URL_FORM = /^(https?):\/\/([^/?#@]*)\/?$/i;
const LIKE = 'write it like "http://proxy.example:3128"';

function proxyUrl() {
  return z.string().transform((text, context): { readonly at: Authority; readonly secure: boolean } => {
    const parsed = parseProxyUrl(text);
    return typeof parsed === 'string' ? fail(context, parsed) : parsed;
  });
}

/** The proxy, or what is wrong with its text. */
function parseProxyUrl(text: string): { readonly at: Authority; readonly secure: boolean } | string {
  // What stands before the @ of a URL is a password as often as not.
  if (text.includes('@')) return 'holds an "@"; write a user name and password as `username` and `password` beside the url';
  const parts = URL_FORM.exec(text);
  if (parts === null) {
    const scheme = /^([a-z][a-z0-9+.-]*):\/\//i.exec(text)?.[1];
    if (scheme === undefined) return `is not a URL; ${LIKE}`;
    if (!/^https?$/i.test(scheme)) return `"${scheme}" is not the scheme of a proxy that is spoken to here; use http or https`;
    return `holds more than a host and a port; ${LIKE}`;
  }
  const [, scheme = '', authority = ''] = parts;
  const at = parseAuthority(authority);
  if (at !== undefined) return { at, secure: scheme.toLowerCase() === 'https' };
  return parseAuthority(authority, 80) === undefined ? `does not name a host and a port; ${LIKE}` : `names no port; ${LIKE}`;
}

/** `upstream.proxy` where there is one. */
export const corporateProxySchema = z
  .strictObject(
    {
      url: proxyUrl().describe(
        'Where the proxy is: http://host:port, or https://host:port where TLS is spoken with the proxy itself. It may be inside the walls; only a listener of ours is refused.',
      ),
      username: secretValue()
        .optional()
        .describe(
          'User name that the proxy is asked under (Basic): text, { env } or { file }. Left out: no credentials are sent.',
        ),
      password: secretValue({ mayBeEmpty: true }).optional().describe('Password of that user: text, { env } or { file }.'),
      resolve: z
        .enum(['here', 'there'])
        .prefault('here')
        .describe(
          'What becomes of a name that does not resolve here: "here" refuses it (dns_failed), "there" leaves it to the proxy, and with it the guard against addresses inside.',
        ),
      connect_by: z
        .enum(['name', 'address'])
        .prefault('name')
        .describe(
          'What a CONNECT names. "name" lets the proxy judge by name, and resolve once more; "address" holds it to the address that was judged here.',
        ),
      plain_http: z
        .enum(['connect', 'forward'])
        .prefault('connect')
        .describe(
          'How requests over plain http go: "connect" as everything else, "forward" in absolute-form, for a proxy that opens no tunnel to port 80.',
        ),
      no_proxy: z
        .array(domain())
        .prefault([])
        .describe('Hosts that are dialled directly: exact, "*.x.com" for every depth below x.com, or an IP address.'),
    },
    {
      error: (issue) =>
        issue.code === 'invalid_type' && typeof issue.input === 'string'
          ? 'expected an object, got text; write { url: "http://host:port" }, with `username` and `password` where the proxy asks for them'
          : undefined,
    },
  )
  .refine((proxy) => keyOf(proxy, 'password') === undefined || keyOf(proxy, 'username') !== undefined, {
    path: ['password'],
    error: 'stands without `username`; Basic needs both',
    ...onAnyMapping,
  })
  .refine((proxy) => namesToo(proxy) === undefined, {
    path: ['connect_by'],
    error: ({ input }) =>
      `"address" does not go together with \`${namesToo(input) ?? ''}\`, which leaves names to the proxy; use one of the two`,
    ...onAnyMapping,
  });

function keyOf(proxy: unknown, key: string): unknown {
  return isMapping(proxy) ? proxy[key] : undefined;
}

/** What leaves names to a proxy that is to be asked by address. */
function namesToo(proxy: unknown): string | undefined {
  if (keyOf(proxy, 'connect_by') !== 'address') return undefined;
  if (keyOf(proxy, 'plain_http') === 'forward') return 'plain_http: forward';
  return keyOf(proxy, 'resolve') === 'there' ? 'resolve: there' : undefined;
}
