// `upstream.proxy` to the proxy that dials go through, its credentials read.
// It must never let a secret out but as the one Proxy-Authorization, and never let traffic past a proxy that is declared.
import type { Host } from '../exchange/authority.ts';
import type { Secret } from '../foundation/secret.ts';
import { COLON } from '../credentials/credential.ts';
import { composeSecret, EMPTY_SECRET } from '../credentials/secret-source.ts';
import type { SecretSource } from '../credentials/secret-source.ts';
import type { CorporateProxy } from '../network/corporate-proxy.ts';
import type { DomainPattern } from '../policy/host-pattern.ts';
import type { Findings } from './problem.ts';
import type { Config } from './schema.ts';
import type { SourceReader } from './source-reader.ts';

type Declared = NonNullable<Config['upstream']['proxy']>;

/** The proxy in force; `undefined` where none is declared. Problems and warnings go to the findings. */
export async function compileCorporateProxy(
  declared: Declared | null,
  context: { readonly sources: SourceReader; readonly findings: Findings },
): Promise<CorporateProxy | undefined> {
  if (declared === null) return undefined;
  const { at, secure } = declared.url;
  return {
    at,
    secure,
    authorization: await authorizationOf(declared, context),
    resolve: declared.resolve,
    connectBy: declared.connect_by,
    plainHttp: declared.plain_http,
    direct: matcherOf(declared.no_proxy),
  };
}

async function authorizationOf(
  { username, password = EMPTY_SECRET }: Declared,
  { sources, findings }: { readonly sources: SourceReader; readonly findings: Findings },
): Promise<Secret | undefined> {
  if (username === undefined) return undefined;
  const read = async (source: SecretSource, key: string): Promise<Secret | undefined> => {
    const path = ['upstream', 'proxy', key];
    const reading = await sources.secret(source, path);
    if (reading.kind === 'read') return reading.secret;
    if (reading.kind === 'lost')
      findings.warn(path, `is unavailable and the corporate proxy is asked without it: ${reading.problem}`);
    else findings.problem(path, reading.problem);
    return undefined;
  };
  const [name, word] = [await read(username, 'username'), await read(password, 'password')];
  // RFC 7617 section 2: the first colon ends the user name.
  const user = name === undefined ? undefined : composeSecret([name], (text = '') => (text.includes(':') ? undefined : text));
  if (name !== undefined && user === undefined) findings.problem(['upstream', 'proxy', 'username'], COLON);
  if (user === undefined || word === undefined) return undefined;
  return composeSecret([user, word], (...pair) => `Basic ${Buffer.from(pair.join(':')).toString('base64')}`);
}

function matcherOf(patterns: readonly DomainPattern[]): (host: Host) => boolean {
  const exact = new Set(patterns.flatMap((pattern) => (pattern.kind === 'exact' ? [pattern.host] : [])));
  const endings = patterns.flatMap((pattern) => (pattern.kind === 'below' ? [`.${pattern.suffix}`] : []));
  const all = patterns.some(({ kind }) => kind === 'any');
  return (host) => all || exact.has(host) || endings.some((ending) => host.endsWith(ending));
}
