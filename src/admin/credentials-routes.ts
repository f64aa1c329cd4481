// The credentials resource, as the REST dialect has it: create, list, get, patch, delete under /v1beta/credentials.
// It knows the store and the answers; what a body means and what may be shown of a record are functions of its neighbour.
// It must never answer with what a record holds, only with its view.
import type { JsonObject, Records, StoredRecord } from '../exchange/records.ts';
import { storeTrouble } from '../exchange/records.ts';
import { AdminError } from './admin-error.ts';
import type { AdminReply, AdminRequest, AdminRoute } from './admin-routes.ts';
import { fromStore, knownQuery, pageToken, readPage, recordReply, versionAsked } from './resource-requests.ts';

/** A problem is one line for the caller. */
type Read<Good> = Good | { readonly problem: string };

/** What the routes are made of. */
export interface CredentialsOptions {
  readonly records: Records;
  readonly readNew: (body: unknown) => Read<{ readonly id: string; readonly value: JsonObject }>;
  readonly readPatch: (record: StoredRecord, body: unknown, mask?: readonly string[]) => Read<{ readonly value: JsonObject }>;
  /** Tries a new value before it is kept, and gives it as it is to be kept, such as with the token that it was exchanged for */
  readonly prove?: (id: string, value: JsonObject) => Promise<Read<{ readonly value: JsonObject }>>;
  readonly view: (record: StoredRecord) => JsonObject;
  /** Whether the config declares the id, so that a stored one would never be asked for */
  readonly declared: (id: string) => boolean;
  /** A record was written or deleted: hears of it before the answer goes out */
  readonly changed: (id: string) => void;
}

const MAX_BODY = 256 * 1024;
/** A patch says nothing of what it omits, so that it is done again over what somebody else has written meanwhile. */
const TRIES = 5;

/** The routes. */
export function credentialsRoutes(options: CredentialsOptions): readonly AdminRoute[] {
  const resource = new CredentialsResource(options);
  const url = '/v1beta/credentials';
  const one = `${url}/:id`;
  return [
    {
      method: 'POST',
      url,
      maxBody: MAX_BODY,
      summary: 'store a credential {id?, type, ...}; secrets are write-only',
      answer: (request) => resource.create(request),
    },
    {
      method: 'GET',
      url,
      summary: 'the stored credentials, ?page_size and page_token',
      answer: (request) => resource.list(request),
    },
    { method: 'GET', url: one, summary: 'one stored credential', answer: (request) => resource.get(request) },
    {
      method: 'PATCH',
      url: one,
      maxBody: MAX_BODY,
      summary: 'change a stored credential {type, ...}; what is omitted stays',
      answer: (request) => resource.patch(request),
    },
    { method: 'DELETE', url: one, summary: 'delete a stored credential', answer: (request) => resource.delete(request) },
  ];
}

class CredentialsResource {
  readonly #options: CredentialsOptions;

  constructor(options: CredentialsOptions) {
    this.#options = options;
  }

  async create({ body, query }: AdminRequest): Promise<AdminReply> {
    knownQuery(query, []);
    const { records, readNew } = this.#options;
    const { id, value } = good(readNew(body));
    this.#refuseDeclared(id);
    // Before it is proved: a refresh token that is exchanged for nothing may be used up.
    if ((await fromStore(records.get('credentials', id))) !== undefined) throw exists(id);
    const proved = await this.#prove(id, value);
    const put = records.put('credentials', id, proved, 'new').catch((error: unknown) => {
      throw storeTrouble(error) === 'conflict' ? exists(id) : error;
    });
    const record = await fromStore(put);
    return this.#changed(record);
  }

  async list(request: AdminRequest): Promise<AdminReply> {
    const { records, view } = this.#options;
    const page = await fromStore(records.list('credentials', readPage(request)));
    const body = { credentials: page.records.map(view) };
    const next = page.next === undefined ? {} : { next_page_token: pageToken(page.next) };
    const broken = page.broken.length === 0 ? {} : { unreadable: page.broken };
    return { body: { ...body, ...next, ...broken } };
  }

  async get({ params, query }: AdminRequest): Promise<AdminReply> {
    knownQuery(query, []);
    const record = await this.#found(params['id'] ?? '');
    return recordReply(record, this.#options.view(record));
  }

  async patch(request: AdminRequest): Promise<AdminReply> {
    const { records, readPatch } = this.#options;
    const id = request.params['id'] ?? '';
    const mask = readMask(request);
    const asked = versionAsked(request);
    this.#refuseDeclared(id);
    for (let tries = 1; ; tries += 1) {
      const record = await this.#found(id);
      if (asked !== undefined && asked !== record.version) throw changedSince(id);
      const { value } = good(readPatch(record, request.body, mask));
      try {
        return this.#changed(await records.put('credentials', id, await this.#prove(id, value), record.version));
      } catch (error) {
        if (storeTrouble(error) !== 'conflict' || asked !== undefined || tries === TRIES)
          return await fromStore(Promise.reject(error as Error));
      }
    }
  }

  async delete(request: AdminRequest): Promise<AdminReply> {
    knownQuery(request.query, []);
    const id = request.params['id'] ?? '';
    const asked = versionAsked(request);
    if (asked !== undefined) await this.#found(id);
    if (!(await fromStore(this.#options.records.delete('credentials', id, asked)))) throw this.#unknown(id);
    this.#options.changed(id);
    return { body: {} };
  }

  #changed(record: StoredRecord): AdminReply {
    this.#options.changed(record.id);
    return recordReply(record, this.#options.view(record));
  }

  async #prove(id: string, value: JsonObject): Promise<JsonObject> {
    const { prove } = this.#options;
    return prove === undefined ? value : good(await prove(id, value)).value;
  }

  async #found(id: string): Promise<StoredRecord> {
    const record = await fromStore(this.#options.records.get('credentials', id));
    if (record === undefined) throw this.#unknown(id);
    return record;
  }

  #unknown(id: string): AdminError {
    if (!this.#options.declared(id)) return new AdminError('not_found', 'there is no stored credential of this id');
    return new AdminError('not_found', `credential "${id}" is not stored: the config declares it, and it is changed there`);
  }

  #refuseDeclared(id: string): void {
    if (!this.#options.declared(id)) return;
    throw new AdminError(
      'aborted',
      `credential "${id}" is declared in the config, which comes first; change it there, or choose another id`,
    );
  }
}

function readMask({ query }: AdminRequest): readonly string[] | undefined {
  knownQuery(query, ['update_mask']);
  const { update_mask: mask } = query;
  if (mask === undefined || mask === '') return undefined;
  const names = [mask].flat().flatMap((list) => list.split(','));
  // It cannot be changed, and every body has it.
  return names.map((name) => name.trim()).filter((name) => name !== '' && name !== 'type');
}

function good<Good extends object>(read: Read<Good>): Good {
  if ('problem' in read) throw new AdminError('invalid_request', read.problem);
  return read;
}

function exists(id: string): AdminError {
  return new AdminError('aborted', `credential "${id}" exists already; patch it, or choose another id`);
}

function changedSince(id: string): AdminError {
  return new AdminError('aborted', `credential "${id}" was changed since that version; read it anew and repeat the change`);
}
