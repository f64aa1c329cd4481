// The door itself: whether it works, asks for a token, and keeps its own rooms, the admin listener and the metadata services, shut.
// It must never show the sandbox's token to anybody but the proxy that its URL names, nor show what an answer holds.
import { isIPv6 } from 'node:net';
import { connect as connectTls, rootCertificates } from 'node:tls';
import { together } from './finding.ts';
import { askUdp } from './ask-dns.ts';
import type { Finding, Try } from './finding.ts';
import type { Probe } from './network-probes.ts';
import { isLoopback, proxyAuthorization, proxyHosts } from './surroundings.ts';
import type { Surroundings } from './surroundings.ts';
import { dial, hasHead, hear, isRefusal, placeName, reach, readHead, reasonOf, requestOnce, tlsMark } from './wire.ts';
import type { Head, Place } from './wire.ts';

/** A name that nobody can have (RFC 6761), so that no rule but `*` allows it, and nothing is ever asked of it. */
const NOBODY = 'doctor.invalid';
const AUTHENTICATION_REQUIRED = 407;
const NO_HTTP = 'no answer of HTTP';

/** Whether the door works: the allowed URL through it, or else its refusal of a name that nobody has. */
export const door: Probe = async (around, signal) => {
  const { allowed, proxy, targets, ca } = around;
  if (allowed !== undefined) return throughDoor(allowed, around, signal);
  const hint = 'name an allowed URL with --allowed to see one pass';
  if (proxy !== undefined) {
    const tried = `CONNECT ${NOBODY}:443 by ${proxyName(around)}`;
    const asked = await connectHead(proxy, proxyAuthorization(proxy.username, proxy.password), signal);
    if (typeof asked === 'string') return { result: 'broken', tried, why: `the proxy does not answer: ${asked}` };
    if (asked.status === AUTHENTICATION_REQUIRED) return { result: 'broken', tried, why: 'the token is missing or not taken' };
    if (isRefusal(asked)) return { result: 'works', tried, why: `it answers, with a refusal; ${hint}` };
    return { result: 'unknown', tried, why: `it answers ${asked.status}, and not with a refusal of Sallyport; ${hint}` };
  }
  const tried = `TLS and HTTP to ${targets.nowhere}, for a transparent door`;
  const mark = await tlsMark({ host: targets.nowhere, port: 443 }, ca, signal);
  const plain = await get({ host: targets.nowhere, port: 80 }, { target: '/', host: NOBODY }, signal);
  if (mark === 'door' || (typeof plain === 'object' && isRefusal(plain)))
    return { result: 'works', tried, why: `it answers, with a refusal; ${hint}` };
  return { result: 'unknown', tried, why: `no variable names a proxy, and no transparent door was met; ${hint}` };
};

async function throughDoor(url: URL, around: Surroundings, signal: AbortSignal): Promise<Finding> {
  const { proxy } = around;
  const tried = `GET ${url.origin}${url.pathname}${proxy === undefined ? '' : ` by ${proxyName(around)}`}`;
  const outcome = url.protocol === 'https:' ? await getOverTls(url, around, signal) : await getPlain(url, around, signal);
  if (typeof outcome === 'string') return { result: 'broken', tried, why: outcome };
  if (!isRefusal(outcome)) return { result: 'works', tried, why: `answered ${outcome.status}` };
  return { result: 'broken', tried, why: `refused: ${plain(outcome.fields.get('x-sallyport-reason') ?? '')}` };
}

/** The door's own words are codes; anything else is not repeated. */
function plain(reason: string): string {
  return /^[a-z_]{1,40}$/.test(reason) ? reason : 'for a reason that is none of the known ones';
}

async function getPlain(url: URL, { proxy }: Surroundings, signal: AbortSignal): Promise<Head | string> {
  if (proxy !== undefined)
    return get(proxy, { target: url.href, fields: proxyAuthorization(proxy.username, proxy.password) }, signal);
  return get(placeOf(url), { target: `${url.pathname}${url.search}`, host: url.host }, signal);
}

async function getOverTls(url: URL, around: Surroundings, signal: AbortSignal): Promise<Head | string> {
  const { proxy, trust } = around;
  const place = placeOf(url);
  const dialled = await dial(proxy ?? place, signal);
  if ('failed' in dialled) return proxy === undefined ? dialled.failed : `the proxy does not answer: ${dialled.failed}`;
  const { socket } = dialled;
  try {
    if (proxy !== undefined) {
      const words = connectLines(placeName(place), proxyAuthorization(proxy.username, proxy.password));
      const head = readHead(await hear(socket, words, { signal, enough: hasHead }));
      if (head === undefined) return 'the proxy does not answer CONNECT';
      if (head.status !== 200) return isRefusal(head) ? head : `the proxy answers CONNECT with ${head.status}`;
    }
    // The variables' files where there are any, as the sandbox's tools have it; else the roots that Node ships.
    const ca = trust ?? [...rootCertificates];
    const tls = connectTls({ socket, ca, ...(isIPv6(place.host) ? {} : { servername: place.host }) });
    const secure = await new Promise<string | undefined>((resolve) => {
      tls.once('secureConnect', () => resolve(undefined));
      tls.on('error', (error: Error) => resolve(`TLS fails: ${tlsReason(error)}`));
      tls.once('close', () => resolve('the door ends the connection during the handshake'));
      signal.addEventListener('abort', () => resolve('no answer in time'), { once: true });
    });
    if (secure !== undefined) return secure;
    const request = `GET ${url.pathname}${url.search} HTTP/1.1\r\nHost: ${url.host}\r\nConnection: close\r\n\r\n`;
    return readHead(await hear(tls, request, { signal, enough: hasHead })) ?? 'no answer in time';
  } finally {
    socket.destroy();
  }
}

function tlsReason(error: Error): string {
  const code = 'code' in error ? String(error.code) : '';
  return /CERT|SIGNATURE|ISSUER/.test(code) ? `the certificate is not trusted (${code})` : reasonOf(error);
}

function placeOf(url: URL): Place {
  const port = url.port === '' ? (url.protocol === 'https:' ? 443 : 80) : Number(url.port);
  return { host: url.hostname.replace(/^\[|\]$/g, ''), port };
}

function connectLines(authority: string, fields: readonly string[]): string {
  return [`CONNECT ${authority} HTTP/1.1`, `Host: ${authority}`, ...fields, '', ''].join('\r\n');
}

async function connectHead(proxy: Place, fields: readonly string[], signal: AbortSignal): Promise<Head | string> {
  const dialled = await dial(proxy, signal);
  if ('failed' in dialled) return dialled.failed;
  const heard = await hear(dialled.socket, connectLines(`${NOBODY}:443`, fields), { signal, enough: hasHead });
  dialled.socket.destroy();
  return readHead(heard) ?? NO_HTTP;
}

/** What is asked of an HTTP server. */
interface Question {
  /** A path, or a URL where it is asked of a proxy */
  readonly target: string;
  /** Left out, that of the URL, or the place */
  readonly host?: string;
  readonly fields?: readonly string[];
}

async function get(place: Place, { target, host, fields = [] }: Question, signal: AbortSignal): Promise<Head | string> {
  const named = host ?? (URL.canParse(target) ? new URL(target).host : placeName(place));
  const lines = [`GET ${target} HTTP/1.1`, `Host: ${named}`, ...fields, 'Connection: close'];
  const asked = await requestOnce(place, lines, signal);
  if ('failed' in asked) return asked.failed;
  return asked.head ?? NO_HTTP;
}

function proxyName({ proxy }: Surroundings): string {
  return proxy === undefined ? 'no proxy' : placeName({ host: proxy.name, port: proxy.port });
}

/** Whether the proxy lets somebody through who does not say who it is, or says so wrongly. */
export const token: Probe = async (around, signal) => {
  const { proxy, targets } = around;
  const places =
    proxy === undefined ? [...proxyHosts(around), '127.0.0.1'].map((host) => ({ host, port: targets.proxyPort })) : [proxy];
  const made = 'sallyport-doctor-made-this-up';
  const shown: readonly (readonly [string, readonly string[]])[] = [
    ['a made-up sandbox and token', proxyAuthorization(made, made)],
    // Without a token of its own a sandbox is known by its address, or is the only one: that none is asked for is no hole.
    ...(proxy === undefined || proxy.password === ''
      ? []
      : ([
          ['no token', []],
          ['this sandbox and a made-up token', proxyAuthorization(proxy.username, made)],
        ] as const)),
  ];
  const one = async (at: Place, [what, fields]: readonly [string, readonly string[]]): Promise<Try[]> => {
    const place = `${what} at ${placeName(at)}`;
    const head = await connectHead(at, fields, signal);
    if (typeof head === 'string')
      return proxy === undefined ? [] : [{ result: 'unknown', place, why: `the proxy does not answer: ${head}` }];
    if (head.status === AUTHENTICATION_REQUIRED) return [{ result: 'closed', place, why: 'refused with 407' }];
    // Where no variable names a proxy, whoever listens there is one only if he says so.
    if (proxy === undefined && !isRefusal(head)) return [];
    return [{ result: 'open', place, why: `answered ${head.status} and not 407` }];
  };
  const tries = await Promise.all(places.flatMap((place) => shown.map((each) => one(place, each))));
  return together(tries.flat(), 'there is no proxy port to show a token to');
};

/** The admin listener. */
export const admin: Probe = async (around, signal) => {
  const { targets, gateways, proxy } = around;
  const port = targets.adminPort;
  const hosts = new Set([...proxyHosts(around), ...gateways, '127.0.0.1', '::1']);
  const direct = [...hosts].map((host) => tryAdmin({ host, port }, around, signal));
  const inside = proxy === undefined ? [] : [...new Set(['127.0.0.1', proxy.host])];
  const byProxy = inside.map((host) => tryByProxy(`http://${placeName({ host, port })}/healthz`, around, signal));
  return together((await Promise.all([...direct, ...byProxy])).flat());
};

async function tryAdmin(at: Place, { targets }: Surroundings, signal: AbortSignal): Promise<Try[]> {
  const place = placeName(at);
  const head = await get(at, { target: '/healthz' }, signal);
  if (typeof head === 'object' && /"status"\s*:\s*"ok"/.test(head.body))
    return [{ result: 'open', place, why: 'the admin listener answers' }];
  if (typeof head === 'string' && head !== NO_HTTP) return [{ result: 'closed', place, why: head }];
  if (isLoopback(at.host)) return [{ result: 'closed', place, why: 'something of this machine, no admin listener, answers' }];
  const nowhere = await reach({ ...at, host: isIPv6(at.host) ? targets.nowhere6 : targets.nowhere }, signal);
  if (nowhere === 'reached') return [{ result: 'closed', place, why: 'led elsewhere, as addresses that nobody has are' }];
  return [{ result: 'open', place, why: 'somebody takes the connection' }];
}

/** Whether the proxy reaches what it must never reach. */
async function tryByProxy(url: string, { proxy }: Surroundings, signal: AbortSignal): Promise<Try[]> {
  if (proxy === undefined) return [];
  const place = `${url} through the proxy`;
  const head = await get(proxy, { target: url, fields: proxyAuthorization(proxy.username, proxy.password) }, signal);
  if (typeof head === 'string') return [{ result: 'unknown', place, why: `the proxy does not answer: ${head}` }];
  if (isRefusal(head)) return [{ result: 'closed', place, why: 'refused by the door' }];
  return [{ result: 'open', place, why: `answered ${head.status}, which is no refusal of the door` }];
}

/** The metadata services. */
export const metadata: Probe = async (around, signal) => {
  const { targets } = around;
  const direct = targets.metadata.map((place) => tryMetadata(place, around, signal));
  const first = targets.metadata[0];
  const byProxy = first === undefined ? [] : [tryByProxy(`http://${placeName(first).replace(/:80$/, '')}/`, around, signal)];
  return together((await Promise.all([...direct, ...byProxy, tryMetadataName(around, signal)])).flat());
};

/** Google's has a name, which a resolver of ours may lead anywhere. */
async function tryMetadataName(around: Surroundings, signal: AbortSignal): Promise<Try[]> {
  const { targets, nameservers } = around;
  const name = targets.metadataName;
  const asked = nameservers.map((host) => askUdp({ host, port: targets.dnsPort }, name, signal));
  const addresses = (await Promise.all(asked)).flatMap((answer) => (typeof answer === 'object' ? answer.addresses : []));
  const others = [...new Set(addresses)].filter((address) => !targets.metadata.some(({ host }) => host === address));
  if (others.length === 0)
    return [{ result: 'closed', place: name, why: addresses.length > 0 ? 'as its address' : 'does not resolve' }];
  const port = targets.metadata[0]?.port ?? 80;
  return (await Promise.all(others.map((host) => tryMetadata({ host, port }, around, signal)))).flat();
}

async function tryMetadata(at: Place, { targets }: Surroundings, signal: AbortSignal): Promise<Try[]> {
  const place = placeName(at);
  const head = await get(at, { target: '/' }, signal);
  if (typeof head === 'object')
    return isRefusal(head)
      ? [{ result: 'closed', place, why: 'refused by the door' }]
      : [{ result: 'open', place, why: `answered ${head.status}` }];
  if (head !== NO_HTTP) return [{ result: 'closed', place, why: head }];
  const nowhere = await reach({ ...at, host: isIPv6(at.host) ? targets.nowhere6 : targets.nowhere }, signal);
  if (nowhere === 'reached') return [{ result: 'closed', place, why: 'led elsewhere, as addresses that nobody has are' }];
  return [{ result: 'open', place, why: 'somebody takes the connection' }];
}
