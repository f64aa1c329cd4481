// The environments resource, as the REST dialect has it, under /v1beta/environments; ours: PATCH, a new token, and the sources for a hook-runner.
// It knows the store and the answers; what a body means and what may be shown of a record are functions of its neighbour.
// It must never answer with what a record holds but its view, and shows a token in one answer only: the one that made it.
import { randomBytes } from 'node:crypto';
import type { JsonObject, RecordPage, Records, StoredRecord } from '../exchange/records.ts';
import { storeTrouble } from '../exchange/records.ts';
import { AdminError } from './admin-error.ts';
import type { AdminReply, AdminRequest, AdminRoute } from './admin-routes.ts';
import { fromStore, knownQuery, pageToken, readPage, recordReply, versionAsked } from './resource-requests.ts';

/** A body, read, as far as this room looks at it. */
export interface EnvironmentParts {
  readonly environmentId?: string;
  readonly sources?: readonly unknown[];
  readonly credentials: readonly { readonly id: string; readonly variable: boolean }[];
}

/** What the routes are made of. */
export interface EnvironmentsOptions<Parts extends EnvironmentParts> {
  readonly records: Records;
  /** A problem is one line for the caller */
  readonly read: (body: unknown) => Parts | { readonly problem: string };
  readonly newId: () => string;
  readonly newToken: () => { readonly token: string; readonly digest: string };
  /** The value to be kept: `before` with what the parts name; `sources` counts where the parts have some, and is then the id of their record */
  readonly value: (
    before: JsonObject,
    parts: Parts,
    kept: { readonly tokenDigest?: string; readonly sources?: string | undefined },
  ) => JsonObject;
  readonly view: (record: StoredRecord) => JsonObject;
  readonly sourcesIdOf: (record: StoredRecord) => string | undefined;
  /** The URL by which a sandbox comes to the proxy as this environment */
  readonly proxyUrl: (id: string, token: string) => string;
  /** The type of a credential that is declared or stored; `undefined` where there is none of this id */
  readonly credentialType: (id: string) => Promise<string | undefined>;
  /** An environment was written: in force when this resolves, and the answer waits for it */
  readonly changed: (record: StoredRecord) => Promise<void>;
  readonly removed: (id: string) => void;
}

/** Two megabytes of files, as JSON writes them. */
const MAX_BODY = 6 * 1024 * 1024;
/** A change says nothing of what it omits, so that it is done again over what somebody else has written meanwhile. */
const TRIES = 5;
/** Records of sources may be large, and a listing opens them. */
const SWEPT_AT_ONCE = 4;
const NOTHING = { credentials: [] } as const;

/** The routes. */
export function environmentsRoutes<Parts extends EnvironmentParts>(options: EnvironmentsOptions<Parts>): readonly AdminRoute[] {
  const resource = new EnvironmentsResource(options);
  const url = '/v1beta/environments';
  const one = `${url}/:id`;
  return [
    {
      method: 'POST',
      url,
      maxBody: MAX_BODY,
      summary: 'make an environment {network?, env?, sources?}; the answer alone bears its proxy_url',
      answer: (request) => resource.create(request),
    },
    {
      method: 'GET',
      url,
      summary: 'the environments, ?page_size and page_token',
      answer: (request) => resource.list(request),
    },
    { method: 'GET', url: one, summary: 'one environment', answer: (request) => resource.get(request) },
    {
      method: 'PATCH',
      url: one,
      maxBody: MAX_BODY,
      summary: 'change an environment {network?, env?, sources?}; each replaces the old one whole, what is omitted stays',
      answer: (request) => resource.patch(request),
    },
    { method: 'DELETE', url: one, summary: 'delete an environment', answer: (request) => resource.delete(request) },
    {
      method: 'POST',
      url: `${one}/token`,
      summary: 'give an environment a new proxy_url; the old one is void',
      answer: (request) => resource.renew(request),
    },
    {
      method: 'GET',
      url: `${one}/sources`,
      summary: 'the files of an environment with their content, ?under=folder; for a hook-runner',
      answer: (request) => resource.sources(request),
    },
  ];
}

class EnvironmentsResource<Parts extends EnvironmentParts> {
  readonly #options: EnvironmentsOptions<Parts>;

  constructor(options: EnvironmentsOptions<Parts>) {
    this.#options = options;
  }

  async create(request: AdminRequest): Promise<AdminReply> {
    knownQuery(request.query, []);
    const parts = this.#read(request);
    if (parts.environmentId !== undefined) return this.#change(request, parts.environmentId, parts);
    await this.#mustExist(parts);
    const { records, newId, newToken, value, view, proxyUrl, changed } = this.#options;
    const id = newId();
    const { token, digest } = newToken();
    const sources = await this.#keepSources(id, parts);
    const kept = value({}, parts, { tokenDigest: digest, sources });
    const record = await fromStore(records.put('environments', id, kept, 'new'));
    await changed(record);
    return recordReply(record, { ...view(record), proxy_url: proxyUrl(id, token) });
  }

  async list(request: AdminRequest): Promise<AdminReply> {
    const { records, view } = this.#options;
    const page = await fromStore(records.list('environments', readPage(request)));
    const next = page.next === undefined ? {} : { next_page_token: pageToken(page.next) };
    const broken = page.broken.length === 0 ? {} : { unreadable: page.broken };
    return { body: { environments: page.records.map(view), ...next, ...broken } };
  }

  async get({ params, query }: AdminRequest): Promise<AdminReply> {
    knownQuery(query, []);
    const record = await this.#found(params['id'] ?? '');
    return recordReply(record, this.#options.view(record));
  }

  async patch(request: AdminRequest): Promise<AdminReply> {
    knownQuery(request.query, []);
    const id = request.params['id'] ?? '';
    const parts = this.#read(request);
    if (parts.environmentId !== undefined && parts.environmentId !== id) {
      throw new AdminError('invalid_request', 'the id of an environment cannot be changed; leave "environment_id" out');
    }
    return this.#change(request, id, parts);
  }

  async delete(request: AdminRequest): Promise<AdminReply> {
    knownQuery(request.query, []);
    const { records, removed } = this.#options;
    const id = request.params['id'] ?? '';
    const asked = versionAsked(request);
    const record = await fromStore(records.get('environments', id)).catch((error: unknown) => {
      // One that does not open can still be deleted.
      if (asked === undefined && error instanceof AdminError && error.code === 'internal') return undefined;
      throw error;
    });
    const deleted = await fromStore(records.delete('environments', id, record === undefined ? undefined : asked));
    if (deleted) removed(id);
    // Also where it was gone already: a deletion that broke off here is finished by asking for it again.
    await this.#sweep(id);
    if (!deleted) throw unknown();
    return { body: {} };
  }

  /**
   * Deletes every record of sources that was made for the environment: by their ids, for one that does not open, was changed meanwhile or
   * left an older record behind names them no more.
   */
  async #sweep(id: string): Promise<void> {
    const { records } = this.#options;
    // Nothing was ever kept for what could be no id.
    if (!ENVIRONMENT_ID.test(id)) return;
    const prefix = sourcesPrefix(id);
    for (let after: string | undefined = prefix; after !== undefined;) {
      const page: RecordPage = await fromStore(records.list('sources', { after, limit: SWEPT_AT_ONCE }));
      const own = [...page.records.map((record) => record.id), ...page.broken].filter((each) => each.startsWith(prefix));
      for (const each of own) await fromStore(records.delete('sources', each));
      after = own.length === SWEPT_AT_ONCE ? page.next : undefined;
    }
  }

  async renew(request: AdminRequest): Promise<AdminReply> {
    knownQuery(request.query, []);
    const { newToken, proxyUrl } = this.#options;
    const id = request.params['id'] ?? '';
    const { token, digest } = newToken();
    const record = await this.#write(request, id, (before) =>
      this.#options.value(before.value, NOTHING as unknown as Parts, { tokenDigest: digest }),
    );
    return recordReply(record, { id, proxy_url: proxyUrl(id, token) });
  }

  async sources({ params, query }: AdminRequest): Promise<AdminReply> {
    knownQuery(query, ['under']);
    const { records, sourcesIdOf } = this.#options;
    const { under = '' } = query;
    if (typeof under !== 'string') throw new AdminError('invalid_request', '"under" must name one folder');
    const folder = under.replace(/^\/+|\/+$/g, '');
    for (let tries = 1; tries <= TRIES; tries += 1) {
      const record = await this.#found(params['id'] ?? '');
      const id = sourcesIdOf(record);
      const kept = id === undefined ? undefined : await fromStore(records.get('sources', id));
      // They may have been replaced since the record was read.
      if (id !== undefined && kept === undefined) continue;
      const all = Array.isArray(kept?.value['sources']) ? (kept.value['sources'] as readonly { readonly target: string }[]) : [];
      const sources = folder === '' ? all : all.filter(({ target }) => target.startsWith(`${folder}/`));
      return recordReply(record, { id: record.id, sources });
    }
    throw new AdminError('internal', 'the sources of the environment are lost; send them anew');
  }

  async #change(request: AdminRequest, id: string, parts: Parts): Promise<AdminReply> {
    versionAsked(request);
    await this.#found(id);
    await this.#mustExist(parts);
    const { sourcesIdOf, value, view } = this.#options;
    const sources = await this.#keepSources(id, parts);
    let replaced: string | undefined;
    try {
      const record = await this.#write(request, id, (before) => {
        replaced = sourcesIdOf(before);
        return value(before.value, parts, { sources });
      });
      if (parts.sources !== undefined) await this.#drop(replaced);
      return recordReply(record, view(record));
    } catch (error) {
      // An unclear end may have been a good one, and then the new sources are in use.
      if (error instanceof AdminError && error.code !== 'unavailable') await this.#drop(sources);
      throw error;
    }
  }

  /** Writes over what is there, again where somebody else was quicker and the caller has named no version. */
  async #write(request: AdminRequest, id: string, next: (before: StoredRecord) => JsonObject): Promise<StoredRecord> {
    const { records, changed } = this.#options;
    const asked = versionAsked(request);
    for (let tries = 1; ; tries += 1) {
      const before = await this.#found(id);
      if (asked !== undefined && asked !== before.version) {
        throw new AdminError('aborted', 'the environment was changed since that version; read it anew and repeat the change');
      }
      try {
        const record = await records.put('environments', id, next(before), before.version);
        await changed(record);
        return record;
      } catch (error) {
        if (storeTrouble(error) !== 'conflict' || asked !== undefined || tries === TRIES)
          return await fromStore(Promise.reject(error as Error));
      }
    }
  }

  /** A record of their own, written before the environment that names it: whoever reads the environment finds them whole. */
  async #keepSources(id: string, { sources }: Parts): Promise<string | undefined> {
    if (sources === undefined || sources.length === 0) return undefined;
    const own = sourcesPrefix(id) + randomBytes(8).toString('hex');
    await fromStore(this.#options.records.put('sources', own, { sources }, 'new'));
    return own;
  }

  async #drop(sources: string | undefined): Promise<void> {
    // What stays behind is in nobody's way, goes with its environment, and the answer is right all the same.
    if (sources !== undefined) await this.#options.records.delete('sources', sources).catch(() => false);
  }

  /** As the dialect has it: an environment that names a credential which is not there is not made. */
  async #mustExist({ credentials }: Parts): Promise<void> {
    for (const { id, variable } of credentials) {
      const type = await fromStore(this.#options.credentialType(id));
      // An id that nobody knows may be a secret in the wrong place, and is not repeated.
      const where = variable ? 'a variable of "env"' : 'a rule of "network"';
      if (type === undefined) {
        throw new AdminError('not_found', `${where} names a credential that is not there; create it first, or correct the id`);
      }
      if (variable && type !== 'environment_variable') {
        const own = `credential "${id}" is of the type "${type}"`;
        throw new AdminError('invalid_request', `${own}, and a variable can stand for an "environment_variable" alone`);
      }
    }
  }

  async #found(id: string): Promise<StoredRecord> {
    const record = await fromStore(this.#options.records.get('environments', id));
    if (record === undefined) throw unknown();
    return record;
  }

  #read({ body }: AdminRequest): Parts {
    const parts = this.#options.read(body);
    if ('problem' in parts) throw new AdminError('invalid_request', parts.problem);
    return parts;
  }
}

const ENVIRONMENT_ID = /^[A-Za-z0-9_-]{1,128}$/;

/** No id of an environment holds a `.`, so that no other one's sources begin so. */
function sourcesPrefix(id: string): string {
  return `${id}.`;
}

function unknown(): AdminError {
  return new AdminError('not_found', 'there is no environment of this id');
}
