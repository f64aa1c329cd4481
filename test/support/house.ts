// A whole Sallyport for a scenario: the real app on port 0 with a resolver of ours at the rim, and the ledger within reach.
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startApp } from '../../src/app.ts';
import type { App } from '../../src/app.ts';
import type { Host } from '../../src/exchange/authority.ts';
import type { AddressRanges } from '../../src/exchange/rule.ts';
import type { Outcome } from '../../src/exchange/trace.ts';
import type { Logger } from '../../src/foundation/logger.ts';
import { parseRanges } from '../../src/network/address-ranges.ts';
import type { Resolver } from '../../src/network/resolver.ts';

/** A running house. */
export interface House {
  readonly app: App;
  readonly port: number;
  readonly adminPort: number;
  readonly folder: string;
  readonly configPath: string;
  /** PEM of Sallyport's CA */
  readonly ca: string;
  readonly adminToken: string;
  /** Every outcome so far, in order */
  readonly outcomes: Outcome[];
  /** Resolves with the first outcome (from now or before, from index `after`) that fits. */
  outcome(fits: (outcome: Outcome) => boolean, after?: number): Promise<Outcome>;
  /** Everything that the operator's log said */
  readonly logged: string[];
  /** Resolves with the first log line (from now or before, from index `after`) that holds the text. */
  said(text: string, after?: number): Promise<string>;
  /** Names that were resolved, in order */
  readonly resolved: string[];
  /** Rewrites the config and reloads it. */
  reconfigure(config: object): Promise<void>;
  /** The audit log so far, flushed */
  audit(): Promise<Record<string, unknown>[]>;
  scrape(): Promise<string>;
  stop(): Promise<void>;
}

/** Names to answers; a function is asked each time. A name that is not there does not resolve. */
export type Names = Readonly<Record<string, readonly string[] | (() => readonly string[] | Promise<readonly string[]>)>>;

/** Opens loopback for a rule, as an operator would for a test network. */
export const LOOPBACK = ['127.0.0.0/8'];

/** What a house may have that no config says. */
export interface HouseOptions {
  readonly names?: Names;
  readonly env?: NodeJS.ProcessEnv;
  readonly now?: () => number;
  /** CIDRs that the way to token endpoints is opened for; without it, that of a stored credential never leads to loopback */
  readonly tokenRanges?: readonly string[];
}

/** Starts a house. `config` is laid over defaults that keep every file in a folder of its own. */
export async function startHouse(config: object, options: HouseOptions = {}): Promise<House> {
  const folder = await mkdtemp(join(tmpdir(), 'house-'));
  const configPath = join(folder, 'sallyport.json');
  const base = {
    listen: { proxy: '127.0.0.1:0' },
    admin: { listen: '127.0.0.1:0', token: { file: join(folder, 'admin-token') } },
    ca: { certificate: join(folder, 'public', 'ca.pem'), key: join(folder, 'ca.key') },
    audit: { path: join(folder, 'audit.ndjson') },
    store: { uri: `file:${join(folder, 'store.json')}`, key: { file: join(folder, 'store-key') } },
  };
  await writeFile(configPath, JSON.stringify({ ...base, ...config }));
  const outcomes: Outcome[] = [];
  const waiting = new Set<() => void>();
  const logged: string[] = [];
  const resolved: string[] = [];
  const app = await startApp({
    configPath,
    version: 'test',
    env: options.env ?? {},
    ...(options.now === undefined ? {} : { now: options.now }),
    ...(options.tokenRanges === undefined ? {} : { tokenRanges: rangesOf(options.tokenRanges) }),
    log: recordingLog(logged, () => {
      for (const look of waiting) look();
    }),
    resolver: resolverOver(options.names ?? {}, resolved),
    onOutcome: (outcome) => {
      outcomes.push(outcome);
      for (const look of waiting) look();
    },
  }).catch(async (error: unknown) => {
    await rm(folder, { recursive: true, force: true });
    throw error;
  });
  return {
    app,
    port: app.proxy.port,
    adminPort: app.admin.port,
    folder,
    configPath,
    ca: await readFile(app.trust.certificate, 'utf8'),
    adminToken: (await readFile(base.admin.token.file, 'utf8')).trim(),
    outcomes,
    logged,
    resolved,
    outcome: (fits, after = 0) => firstOf(waiting, () => outcomes.slice(after).find(fits)),
    said: (text, after = 0) => firstOf(waiting, () => logged.slice(after).find((line) => line.includes(text))),
    reconfigure: async (next) => {
      await writeFile(configPath, JSON.stringify({ ...base, ...next }));
      await app.reload();
    },
    audit: async () => {
      await app.reopenAudit();
      const text = await readFile(base.audit.path, 'utf8');
      return text
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => JSON.parse(line) as Record<string, unknown>);
    },
    scrape: async () => (await fetch(`http://127.0.0.1:${app.admin.port}/metrics`)).text(),
    stop: async () => {
      await app.stop();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

function rangesOf(cidrs: readonly string[]): AddressRanges {
  const parsed = parseRanges(cidrs);
  if ('problem' in parsed) throw new Error(parsed.problem);
  return parsed.ranges;
}

/** Looks now and whenever something has happened, until it finds. */
function firstOf<Found>(waiting: Set<() => void>, find: () => Found | undefined): Promise<Found> {
  return new Promise((resolve) => {
    const look = (): void => {
      const found = find();
      if (found === undefined) return;
      waiting.delete(look);
      resolve(found);
    };
    waiting.add(look);
    look();
  });
}

function resolverOver(names: Names, resolved: string[]): Resolver {
  return {
    resolve: async (host: Host) => {
      resolved.push(host);
      const answer = names[host];
      if (answer === undefined) throw Object.assign(new Error(`getaddrinfo ENOTFOUND ${host}`), { code: 'ENOTFOUND' });
      return typeof answer === 'function' ? answer() : answer;
    },
  };
}

function recordingLog(lines: string[], onLine: () => void): Logger {
  const keep = (level: string) => (message: string, fields?: object) => {
    lines.push(`${level} ${message} ${JSON.stringify(fields ?? {})}`);
    onLine();
  };
  return { debug: keep('debug'), info: keep('info'), warn: keep('warn'), error: keep('error') };
}
