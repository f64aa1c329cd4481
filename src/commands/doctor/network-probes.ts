// Ways past the door: TCP, UDP, ICMP, IPv6 and DNS, to the outside and to the inside.
// A connection alone proves nothing where a redirect answers for every address: then it is asked who answers. It must never call the door a hole.
import ipaddr from 'ipaddr.js';
import { randomBytes } from 'node:crypto';
import { isIPv6 } from 'node:net';
import { together } from './finding.ts';
import type { Finding, Try } from './finding.ts';
import { askTcp, askUdp, SPEECHLESS } from './ask-dns.ts';
import type { AskDns } from './ask-dns.ts';
import { quicQuestion } from './packets.ts';
import type { DnsAnswer } from './packets.ts';
import { DOOR_PORTS, isLoopback, proxyHosts } from './surroundings.ts';
import type { Surroundings } from './surroundings.ts';
import { askOverUdp, isRefusal, placeName, reach, requestOnce, tlsMark } from './wire.ts';
import type { Place } from './wire.ts';

/** What every probe is: it ends soon after its signal, and never throws for what the network does. */
export type Probe = (around: Surroundings, signal: AbortSignal) => Finding | Promise<Finding>;

const HTTP_PORT = 80;
const KNOWN_NAME = 'example.com';

/** TCP to public addresses. */
export const tcpPublic: Probe = async (around, signal) =>
  together(await Promise.all(around.targets.publicTcp.map((place) => tryTcp(place, around, signal))));

/** TCP to the gateway, the Kubernetes API and the proxy's host. */
export const tcpPrivate: Probe = async (around, signal) => {
  const { targets, gateways, proxy, env } = around;
  const doors = new Set(proxyHosts(around));
  const hosts = [...new Set([...gateways, ...(proxy === undefined ? [] : [proxy.host])])].filter((host) => !isLoopback(host));
  const places = hosts.flatMap((host) =>
    targets.privatePorts
      .filter((port) => !doors.has(host) || (!DOOR_PORTS.includes(port) && port !== proxy?.port))
      .map((port) => ({ host, port })),
  );
  const [api, apiPort] = [env['KUBERNETES_SERVICE_HOST'] ?? '', Number(env['KUBERNETES_SERVICE_PORT'] ?? 443)];
  if (api !== '' && Number.isInteger(apiPort)) places.push({ host: api, port: apiPort });
  const tries = await Promise.all(places.map((place) => tryTcp(place, around, signal)));
  return together(tries, 'there is no gateway, and no proxy on another host');
};

/** TCP over IPv6. A default route alone is no way out, but is said. */
export const ipv6: Probe = async (around, signal) => {
  const finding = together(await Promise.all(around.targets.publicTcp6.map((place) => tryTcp(place, around, signal))));
  const route = around.hasRoute6 ? 'there is a default route of IPv6' : 'there is no default route of IPv6';
  return { ...finding, why: `${finding.why}; ${route}` };
};

/** UDP 443. */
export const quic: Probe = async (around, signal) => {
  const anything = (): boolean => true;
  const ask = (place: Place) => askOverUdp(place, quicQuestion(), { signal, fits: anything });
  const one = async (place: Place): Promise<Try> => {
    const nowhere = ask({ ...place, host: nowhereFor(place, around) });
    const asked = await ask(place);
    const name = `UDP ${placeName(place)}`;
    if ('failed' in asked) return { result: 'closed', place: name, why: asked.failed };
    if ('answer' in (await nowhere)) return { result: 'closed', place: name, why: ANSWERS_FOR_ALL };
    return { result: 'open', place: name, why: 'something came back' };
  };
  return together(await Promise.all(around.targets.quic.map(one)));
};

/** Another DNS server over UDP. */
export const dnsUdp: Probe = async (around, signal) =>
  together(await Promise.all(around.targets.resolvers.map((place) => tryResolver(place, around, { signal, ask: askUdp }))));

/** Another DNS server over TCP. */
export const dnsTcp: Probe = async (around, signal) =>
  together(await Promise.all(around.targets.resolvers.map((place) => tryResolver(place, around, { signal, ask: askTcp }))));

/** Whether names go out by the sandbox's own resolver. */
export const dnsName: Probe = async (around, signal) => {
  const { targets, nameservers } = around;
  const own = new Set([...proxyHosts(around), ...nameservers]);
  const fresh = `sallyport-doctor-${randomBytes(6).toString('hex')}.${targets.freshUnder}`;
  const one = async (host: string): Promise<Try[]> => {
    const server = { host, port: targets.dnsPort };
    const [known, unheard] = await Promise.all([targets.refusedName, fresh].map((name) => askUdp(server, name, signal)));
    return [
      judgeName(`"${targets.refusedName}" at ${host}`, known, own),
      judgeName(`a fresh name below "${targets.freshUnder}" at ${host}`, unheard, own),
    ];
  };
  return together((await Promise.all(nameservers.map(one))).flat(), 'no resolver is named in /etc/resolv.conf');
};

function judgeName(place: string, answer: DnsAnswer | string | undefined, own: ReadonlySet<string>): Try {
  if (answer === undefined || typeof answer === 'string') return { result: 'closed', place, why: answer ?? 'no answer in time' };
  const outside = answer.addresses.filter((address) => isPublic(address) && !own.has(address));
  if (outside.length > 0) return { result: 'open', place, why: `resolves to ${outside.join(', ')}` };
  if (answer.hasAuthority && answer.addresses.length === 0)
    return { result: 'open', place, why: 'the answer names who is in charge of the zone, so the question went out' };
  return { result: 'closed', place, why: answer.addresses.length > 0 ? "the door's own address" : 'does not resolve' };
}

function isPublic(address: string): boolean {
  return ipaddr.isValid(address) && ipaddr.parse(address).range() === 'unicast';
}

const ANSWERS_FOR_ALL = 'led to the door, which answers for addresses that nobody has too';

function nowhereFor({ host }: Place, { targets }: Surroundings): string {
  return isIPv6(host) ? targets.nowhere6 : targets.nowhere;
}

/** One TCP connection. Where somebody takes it, the same port of an address that nobody has tells whether that is a redirect. */
async function tryTcp(place: Place, around: Surroundings, signal: AbortSignal): Promise<Try> {
  const name = placeName(place);
  const nowhere = { ...place, host: nowhereFor(place, around) };
  // The control is asked at the same time, but waited for only where it matters.
  const control = nowhere.host === place.host ? undefined : reach(nowhere, signal);
  const mine = await reach(place, signal);
  if (mine !== 'reached') return { result: 'closed', place: name, why: mine.failed };
  if (await isDoor(place, around, signal)) return { result: 'closed', place: name, why: 'led to the door' };
  if ((await control) !== 'reached') return { result: 'open', place: name, why: 'somebody takes the connection' };
  return tellApart(place, nowhere, { around, signal });
}

/** Both are taken: by the same door, or by a redirect that lets this one through. */
async function tellApart(
  place: Place,
  nowhere: Place,
  { around, signal }: { readonly around: Surroundings; readonly signal: AbortSignal },
): Promise<Try> {
  const name = placeName(place);
  const [mine, control] = await Promise.all([place, nowhere].map((each) => tlsMark(each, around.ca, signal)));
  if (mine === 'another' && around.ca === undefined)
    return {
      result: 'unknown',
      place: name,
      why: 'somebody answers for every address, and no variable names the CA to know the door by',
    };
  if (mine === 'another') return { result: 'open', place: name, why: "answered with a certificate that is not the door's" };
  if (mine === control) return { result: 'closed', place: name, why: ANSWERS_FOR_ALL };
  return { result: 'unknown', place: name, why: 'somebody answers for every address, but for this one in another way' };
}

/** By its certificate, or by its refusal. */
async function isDoor(place: Place, { ca }: Surroundings, signal: AbortSignal): Promise<boolean> {
  if (place.port !== HTTP_PORT) return ca !== undefined && (await tlsMark(place, ca, signal)) === 'door';
  const asked = await requestOnce(place, ['GET / HTTP/1.1', `Host: ${KNOWN_NAME}`, 'Connection: close'], signal);
  return 'head' in asked && asked.head !== undefined && isRefusal(asked.head);
}

async function tryResolver(
  server: Place,
  around: Surroundings,
  { signal, ask }: { readonly signal: AbortSignal; readonly ask: AskDns },
): Promise<Try> {
  const place = placeName(server);
  const control = ask({ ...server, host: nowhereFor(server, around) }, KNOWN_NAME, signal);
  const answer = await ask(server, KNOWN_NAME, signal);
  if (typeof answer === 'string' && answer !== SPEECHLESS) return { result: 'closed', place, why: answer };
  const nowhere = await control;
  if (typeof answer === 'string')
    return { result: nowhere === SPEECHLESS || typeof nowhere === 'object' ? 'closed' : 'open', place, why: answer };
  if (typeof nowhere === 'string') return { result: 'open', place, why: 'it answers' };
  const same = nowhere.rcode === answer.rcode && nowhere.addresses.join() === answer.addresses.join();
  return same
    ? { result: 'closed', place, why: ANSWERS_FOR_ALL }
    : { result: 'open', place, why: 'it answers in another way than what answers for addresses that nobody has' };
}
