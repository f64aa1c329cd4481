// Every address that a config would have the proxy listen at, and what is wrong with them together.
// It must never try one: whether an address can be had is known when it is bound.
import { formatPath } from './problem.ts';
import type { Findings, KeyPath } from './problem.ts';
import type { ListenAddress } from './fields.ts';
import type { Config } from './schema.ts';

/** A listener with the key that names it. */
export interface NamedListener extends ListenAddress {
  readonly path: KeyPath;
}

/** All of them, the proxy port first; of the DNS door its TCP and UDP are one. */
export function listenersOf({ listen, admin }: Config): NamedListener[] {
  const { proxy, transparent } = listen;
  const named: NamedListener[] = [{ path: ['listen', 'proxy'], ...proxy }];
  const add = (address: ListenAddress | undefined, ...path: string[]): void => {
    if (address !== undefined) named.push({ path: ['listen', 'transparent', ...path], ...address });
  };
  add(transparent?.tls, 'tls');
  add(transparent?.http, 'http');
  add(transparent?.dns, 'dns');
  for (const [port, { tls, http }] of Object.entries(transparent?.ports ?? {})) {
    add(tls, 'ports', port, 'tls');
    add(http, 'ports', port, 'http');
  }
  named.push({ path: ['admin', 'listen'], ...admin.listen });
  return named;
}

/** Two listeners that would bind one port of one address are a problem of the later one. */
export function reportListeners(config: Config, findings: Findings): void {
  const earlier: NamedListener[] = [];
  for (const listener of listenersOf(config)) {
    const twin = earlier.find((each) => each.port === listener.port && each.port !== 0 && meets(each.host, listener.host));
    if (twin !== undefined)
      findings.problem(listener.path, `would listen where \`${formatPath(twin.path)}\` does; give each a port of its own`);
    earlier.push(listener);
  }
}

/** A listener at every address meets all others of its family; one at `::` has IPv4 too. */
function meets(a: string, b: string): boolean {
  if (a === b || a === '::' || b === '::') return true;
  return (a === '0.0.0.0' && !b.includes(':')) || (b === '0.0.0.0' && !a.includes(':'));
}

/** Doors that more than this machine reaches while nobody is told apart there. */
export function warnOfOpenDoors(config: Config, findings: Findings): void {
  const sandboxes = Object.values(config.sandboxes);
  const led = listenersOf(config).filter(({ path }) => path[1] === 'transparent');
  const open = 'whoever reaches this address may use the door and its credentials; name `sandboxes` with';
  if (sandboxes.length === 0) {
    if (!isLoopback(config.listen.proxy.host)) findings.warn(['listen', 'proxy'], `${open} tokens or sources`);
    if (led.some(({ host }) => !isLoopback(host))) findings.warn(['listen', 'transparent'], `${open} sources`);
  } else if (led.length > 0 && sandboxes.every(({ sources }) => sources === undefined)) {
    findings.warn(['listen', 'transparent'], 'nobody is known here, where no token is shown; give each sandbox its `sources`');
  }
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || host.startsWith('127.');
}
