// The other engine for a scenario: http-mitm-proxy with the adapter as its only module, on port 0, over the config file of a house.
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Proxy } from 'http-mitm-proxy';
import { loadConfig, sallyport } from '../../src/adapters/http-mitm-proxy.ts';
import type { Outcome } from '../../src/exchange/trace.ts';
import type { Names } from './house.ts';

/** A running engine. */
export interface MitmHouse {
  readonly port: number;
  /** PEM of the engine's own CA */
  readonly ca: string;
  readonly outcomes: Outcome[];
  /** Resolves with the first outcome (from now or before, from index `after`) that fits. */
  outcome(fits: (outcome: Outcome) => boolean, after?: number): Promise<Outcome>;
  /** Names that were resolved, in order */
  readonly resolved: string[];
  /** The engine itself, for what only it knows */
  readonly proxy: Proxy;
  /** Detaches the module from what it holds outside the engine. */
  closeModule(): void;
  /** Loads the config file again, as an operator's reload would. */
  reload(): Promise<void>;
  stop(): Promise<void>;
}

/** Starts the engine over a config file. */
export async function startMitmHouse(
  configPath: string,
  options: { readonly names?: Names; readonly env?: NodeJS.ProcessEnv } = {},
): Promise<MitmHouse> {
  const folder = await mkdtemp(join(tmpdir(), 'mitm-house-'));
  const load = async () => {
    const loaded = await loadConfig(configPath, { env: {} });
    if ('problems' in loaded) throw new Error(loaded.problems.map((problem) => problem.message).join('\n'));
    return loaded.compiled;
  };
  let compiled = await load();
  const outcomes: Outcome[] = [];
  const waiting = new Set<() => void>();
  const resolved: string[] = [];
  const { names = {}, env = {} } = options;
  const module = sallyport({
    compiled: () => compiled,
    env,
    record: (outcome) => {
      outcomes.push(outcome);
      for (const look of waiting) look();
    },
    resolver: {
      resolve: async (host) => {
        resolved.push(host);
        const answer = names[host];
        if (answer === undefined) throw new Error(`getaddrinfo ENOTFOUND ${host}`);
        return typeof answer === 'function' ? answer() : answer;
      },
    },
  });
  const unmute = muteEngine();
  const proxy = new Proxy();
  proxy.use(module);
  await new Promise<void>((resolve, reject) => {
    proxy.listen({ host: '127.0.0.1', port: 0, sslCaDir: folder }, (error) => (error ? reject(error) : resolve()));
  });
  return {
    port: proxy.httpPort,
    ca: await readFile(join(folder, 'certs', 'ca.pem'), 'utf8'),
    outcomes,
    outcome: (fits, after = 0) =>
      new Promise((resolve) => {
        const look = (): void => {
          const found = outcomes.slice(after).find(fits);
          if (found === undefined) return;
          waiting.delete(look);
          resolve(found);
        };
        waiting.add(look);
        look();
      }),
    resolved,
    proxy,
    closeModule: () => module.close(),
    reload: async () => {
      compiled = await load();
    },
    stop: async () => {
      const servers = [proxy.httpServer, ...Object.values(proxy.sslServers).map((entry) => entry.server)];
      const open = [...new Set(servers)].filter((server) => server?.listening === true);
      const closed = open.map((server) => new Promise((resolve) => server?.once('close', resolve)));
      proxy.close();
      for (const server of open) server?.closeAllConnections();
      await Promise.all(closed);
      module.close();
      unmute();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** The engine tells the console of every listener and every broken connection; the function returned gives the console back. */
function muteEngine(): () => void {
  const { debug, error } = console;
  console.debug = () => undefined;
  console.error = () => undefined;
  return () => Object.assign(console, { debug, error });
}
