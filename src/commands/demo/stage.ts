// The demo's house: the real app over a config of its own in a folder that goes away, an upstream, and a resolver that knows
// a few names. It must never resolve a name for real, leave a file behind, or touch the config and CA of this machine.
import { randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startApp } from '../../app.ts';
import type { App } from '../../app.ts';
import { parseHost } from '../../exchange/authority.ts';
import type { Host } from '../../exchange/authority.ts';
import { createLogger } from '../../foundation/logger.ts';
import { openUpstream } from './upstream.ts';
import type { DemoUpstream } from './upstream.ts';

/** Names of the demo, under a domain that exists nowhere (RFC 6761). */
export const HOSTS = {
  api: 'api.demo.test',
  hooks: 'hooks.demo.test',
  inside: 'inside.demo.test',
  stranger: 'stranger.test',
} as const;

/** Everything that runs during the demo. */
export interface Stage {
  readonly app: App;
  readonly upstream: DemoUpstream;
  /** The credential that must appear upstream and nowhere else */
  readonly secret: string;
  /** PEM of the CA that the sandbox trusts */
  readonly ca: string;
  /** The agent's own folder, where nothing is yet */
  readonly workspace: string;
  /** Names that were resolved, in order */
  readonly resolved: readonly string[];
  /** Resolves once the ledger has heard of `count` exchanges; rejects after five seconds. */
  recorded(count: number): Promise<void>;
  /** Stops the app, so that its ledger is written out, and reads it. */
  close(): Promise<readonly string[]>;
}

const DEADLINE_MS = 5000;

/** Builds the house, lets `play` happen in it, and takes it away whatever comes. */
export async function withStage<T>(version: string, play: (stage: Stage) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), 'sallyport-demo-'));
  const open: (() => Promise<unknown>)[] = [() => rm(folder, { recursive: true, force: true })];
  try {
    return await play(await build(folder, version, open));
  } finally {
    for (const close of open.reverse()) await close();
  }
}

async function build(folder: string, version: string, open: (() => Promise<unknown>)[]): Promise<Stage> {
  const secret = `demo-${randomBytes(16).toString('hex')}`;
  const tokenFile = join(folder, 'token');
  await writeFile(tokenFile, secret, { mode: 0o600 });
  const upstreamCa = join(folder, 'upstream', 'ca.pem');
  const upstream = await openUpstream({ certificate: upstreamCa, hosts: [hostOf(HOSTS.api), hostOf(HOSTS.hooks)] });
  open.push(() => upstream.close());
  const configPath = join(folder, 'sallyport.json');
  await writeFile(configPath, JSON.stringify(configOf(folder, { upstream, upstreamCa, tokenFile }), undefined, 2));
  const resolved: string[] = [];
  const hearers = new Set<() => void>();
  let heard = 0;
  const app = await startApp({
    configPath,
    version,
    env: {},
    log: createLogger({ level: 'error' }),
    resolver: {
      resolve: (host) => {
        resolved.push(host);
        return host.endsWith('.demo.test')
          ? Promise.resolve(['127.0.0.1'])
          : Promise.reject(new Error('the demo has no such name'));
      },
    },
    onOutcome: () => {
      heard += 1;
      for (const hear of hearers) hear();
    },
  });
  open.push(() => app.stop());
  return {
    app,
    upstream,
    secret,
    ca: await readFile(app.trust.certificate, 'utf8'),
    workspace: join(folder, 'workspace'),
    resolved,
    recorded: (count) =>
      new Promise((resolve, reject) => {
        const deadline = setTimeout(
          () => reject(new Error(`the ledger has ${heard} of ${count} exchanges; this is a bug`)),
          DEADLINE_MS,
        );
        const hear = (): void => {
          if (heard < count) return;
          clearTimeout(deadline);
          hearers.delete(hear);
          resolve();
        };
        hearers.add(hear);
        hear();
      }),
    close: async () => {
      await app.stop();
      return (await readFile(join(folder, 'audit.log'), 'utf8')).split('\n').filter((line) => line !== '');
    },
  };
}

interface Parts {
  readonly upstream: DemoUpstream;
  readonly upstreamCa: string;
  readonly tokenFile: string;
}

function configOf(folder: string, { upstream, upstreamCa, tokenFile }: Parts): unknown {
  const ports = [upstream.tlsPort, upstream.plainPort];
  return {
    listen: { proxy: '127.0.0.1:0' },
    admin: { listen: '127.0.0.1:0', token: { file: join(folder, 'admin-token') } },
    ca: { certificate: join(folder, 'public', 'ca.pem'), key: join(folder, 'ca.key') },
    network: {
      allowlist: [
        { domain: HOSTS.api, credential: 'demo', ports, methods: ['GET'], addresses: ['127.0.0.1/32'] },
        { domain: HOSTS.hooks, credential: 'demo', ports, methods: ['POST'], addresses: ['127.0.0.1/32'] },
        { domain: HOSTS.inside, ports },
      ],
    },
    credentials: { demo: { type: 'bearer_token', token: { file: tokenFile } } },
    store: { uri: `file:${join(folder, 'store.json')}`, key: { file: join(folder, 'store-key') } },
    audit: { path: join(folder, 'audit.log') },
    upstream: { ca: [upstreamCa] },
  };
}

function hostOf(name: string): Host {
  const host = parseHost(name);
  if (host === undefined) throw new Error(`internal error: "${name}" is no host`);
  return host;
}
