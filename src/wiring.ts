// The second half of the composition root: what is kept over the admin API. It opens the store, lays the vault over it, adds the
// REST resources that write to it, and tells how all of that is. Nothing here decides about a request.
import { existsSync } from 'node:fs';
import type { AdminRoute } from './admin/admin-routes.ts';
import { credentialsRoutes } from './admin/credentials-routes.ts';
import { environmentsRoutes } from './admin/environments-routes.ts';
import { readEnvironmentBody } from './config/environment-body.ts';
import { environmentValue, environmentView, newEnvironmentId, newProxyToken, sourcesIdOf } from './config/environment-record.ts';
import { filePath } from './store/open-engine.ts';
import { createEnvironments } from './config/environments.ts';
import type { Environments, EnvironmentState } from './config/environments.ts';
import type { LiveConfig } from './config/live-config.ts';
import { DeclaredSources } from './credentials/declared.ts';
import { execFields } from './credentials/exec.ts';
import { createOauth2 } from './credentials/oauth2.ts';
import { readNew, readPatch, view } from './credentials/stored-credential.ts';
import type { FetchToken } from './credentials/token-endpoint.ts';
import { createVault, PLAIN_MAKERS } from './credentials/vault.ts';
import type { Vault } from './credentials/vault.ts';
import type { Logger } from './foundation/logger.ts';
import type { Metrics } from './record/metrics.ts';
import { openOnDemand } from './store/on-demand.ts';
import type { RecordStore } from './store/record-store.ts';

/** What is kept, and the ways to it. */
export interface Kept {
  readonly records: RecordStore;
  readonly vault: Vault;
  /** The sandboxes that are stored */
  readonly environments: Environments;
  /** The REST resources */
  readonly routes: readonly AdminRoute[];
  /** Begins to fetch what the config in force declares, and ends what it declares no more. */
  fetch(): void;
  /** What is not live of it, in a few words each */
  missing(): readonly string[];
  /** For `/v1/status`; asks the store. Never rejects. */
  status(): Promise<KeptStatus>;
  close(): Promise<void>;
}

/** One credential in `/v1/status`. Never holds a secret. */
export interface CredentialStatus {
  readonly id: string;
  readonly type: unknown;
  readonly source: 'config' | 'store';
  readonly health: 'ok' | 'unavailable' | 'unused';
  readonly reason?: string;
  readonly expires_at?: string;
}

/** What `/v1/status` tells of what is kept. */
export interface KeptStatus {
  readonly credentials: readonly CredentialStatus[];
  readonly environments: readonly EnvironmentState[];
  /** There are more than are listed; only where it is so */
  readonly credentials_truncated?: true;
  readonly environments_truncated?: true;
  readonly store: { readonly health: 'ok' | 'away'; readonly reason?: string; readonly since?: string };
}

/** What opening needs. */
export interface KeptOptions {
  readonly live: LiveConfig;
  readonly env: NodeJS.ProcessEnv;
  readonly metrics: Metrics;
  readonly log: Logger;
  /** Where sandboxes reach the proxy; asked when it listens */
  readonly proxyAt: () => { readonly host: string; readonly port: number };
  /** Asks a token endpoint, on a way that is guarded as an upstream's */
  readonly fetchToken: FetchToken;
}

/** Stored credentials, and environments, that `/v1/status` lists at most; the REST resources have them all. */
const MOST_LISTED = 1_000;

/** Whether there is a store: a server always is, a file only once something was written. */
function isThere(uri: string): boolean {
  return !uri.startsWith('file:') || existsSync(filePath(uri, process.cwd()));
}

/** Opens the store that the config names. Rejects with one line where it cannot be used or its key is another one. */
export async function openKept({ live, env, metrics, log, proxyAt, fetchToken }: KeptOptions): Promise<Kept> {
  const { uri, key } = live.current().config.store;
  if (key.kind === 'text') throw new Error('internal error: the key of the store stands in the config');
  const records = await openOnDemand({ uri, key, env, baseDirectory: process.cwd(), log });
  const onEnd = (id: string, endsAt: number | undefined): void =>
    metrics.credentialExpiry(id, endsAt === undefined ? undefined : endsAt / 1000);
  const onFailure = (id: string, failed: string): void => metrics.credentialFailed(id, failed);
  const oauth2 = createOauth2({ records, fetchToken, onFailure });
  const declared = new DeclaredSources(({ id, declaration }, ends) => {
    if (declaration.type === 'oauth2') return oauth2.declared(id, declaration, ends);
    const failed = (word: string): void => onFailure(id, word);
    return execFields(declaration, { id, env, directory: process.cwd(), log, onEnd: ends, onFailure: failed });
  }, onEnd);
  const vault = createVault({
    records,
    makers: { ...PLAIN_MAKERS, oauth2: oauth2.maker },
    fetched: (own) => declared.resolve(own),
    onEnd,
  });
  const environments = createEnvironments({ records, log, mayHold: () => isThere(uri) });
  await environments.look();
  environments.watch();
  const credentials = credentialsRoutes({
    records,
    readNew,
    readPatch,
    prove: (id, value) => oauth2.exchangeOnce(id, value),
    view,
    declared: (id) => live.current().credentials.has(id),
    changed: (id) => vault.forget(id),
  });
  const routes = [...credentials, ...environmentRoutesOver({ records, environments, live, proxyAt })];
  return {
    records,
    vault,
    environments,
    routes,
    fetch: () => declared.use(live.current().credentials.values()),
    missing: () => {
      const health = records.health();
      return health.ok ? [] : [`store (${health.why})`];
    },
    status: async () => {
      const states = environments.states();
      return {
        ...(await statusOf(live, { records, vault, declared })),
        environments: states.slice(0, MOST_LISTED),
        ...(states.length > MOST_LISTED ? { environments_truncated: true } : {}),
      };
    },
    close: async () => {
      environments.close();
      vault.close();
      declared.close();
      // A refresh token that came a moment ago is written down first.
      await oauth2.settled();
      await records.close();
    },
  };
}

interface EnvironmentParts extends Pick<KeptOptions, 'live' | 'proxyAt'> {
  readonly records: RecordStore;
  readonly environments: Environments;
}

function environmentRoutesOver({ records, environments, live, proxyAt }: EnvironmentParts): readonly AdminRoute[] {
  return environmentsRoutes({
    records,
    read: readEnvironmentBody,
    newId: newEnvironmentId,
    newToken: newProxyToken,
    value: environmentValue,
    view: environmentView,
    sourcesIdOf,
    proxyUrl: (id, token) => {
      const { host, port } = proxyAt();
      return `http://${id}:${token}@${reachable(host)}:${port}`;
    },
    credentialType: async (id) => {
      const declared = live.current().credentials.get(id);
      if (declared !== undefined) return declared.type;
      const type = (await records.get('credentials', id))?.value['type'];
      return typeof type === 'string' ? type : undefined;
    },
    changed: (record) => environments.changed(record),
    removed: (id) => environments.removed(id),
  });
}

/** A listener on every interface is reached at loopback from here; from elsewhere, whoever makes the environment knows better. */
function reachable(host: string): string {
  if (host === '0.0.0.0' || host === '::') return '127.0.0.1';
  return host.includes(':') ? `[${host}]` : host;
}

interface StatusParts {
  readonly records: RecordStore;
  readonly vault: Vault;
  readonly declared: DeclaredSources;
}

async function statusOf(
  live: LiveConfig,
  { records, vault, declared: sources }: StatusParts,
): Promise<Omit<KeptStatus, 'environments'>> {
  const declared = live.current().credentials;
  const ofConfig = [...declared.values()].map((credential): CredentialStatus => {
    const { id, type } = credential;
    if ('fetched' in credential) return { id, type, source: 'config', ...sources.health(credential) };
    const health =
      'unavailable' in credential
        ? { health: 'unavailable' as const, reason: credential.unavailable }
        : { health: 'ok' as const };
    return { id, type, source: 'config', ...health };
  });
  const stored = await listStored(records, vault, (id) => declared.has(id));
  const health = records.health();
  const store = health.ok
    ? { health: 'ok' as const }
    : { health: 'away' as const, reason: health.why, since: new Date(health.since).toISOString() };
  return { credentials: [...ofConfig, ...stored.listed], ...(stored.more ? { credentials_truncated: true } : {}), store };
}

/** The first MOST_LISTED, and whether there are more. */
interface Listing {
  readonly listed: readonly CredentialStatus[];
  readonly more: boolean;
}

async function listStored(records: RecordStore, vault: Vault, declared: (id: string) => boolean): Promise<Listing> {
  try {
    const page = await records.list('credentials', { limit: MOST_LISTED });
    const listed = page.records.map((record): CredentialStatus => {
      const health = declared(record.id)
        ? { health: 'unavailable' as const, reason: 'the config declares this id, and comes first' }
        : vault.health(record);
      return { id: record.id, type: view(record)['type'], source: 'store', ...health };
    });
    const broken = page.broken.map((id): CredentialStatus => ({
      id,
      type: 'unknown',
      source: 'store',
      health: 'unavailable',
      reason: 'its record does not open',
    }));
    return { listed: [...listed, ...broken], more: page.next !== undefined };
  } catch {
    // The store's own health says why.
    return { listed: [], more: false };
  }
}
