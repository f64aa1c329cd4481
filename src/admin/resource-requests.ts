// What the REST resources have in common: pages, versions, and what a failing store comes to in an answer.
// A version is the ETag of a resource; two editors who send it back as If-Match cannot overwrite each other unseen.
import type { StoredRecord } from '../exchange/records.ts';
import { storeTrouble } from '../exchange/records.ts';
import { unknownMember } from '../foundation/shape-problems.ts';
import { AdminError } from './admin-error.ts';
import type { AdminReply, AdminRequest } from './admin-routes.ts';

/** Which part of a list is asked for. `after` is the last id of the page before. */
export interface PageAsked {
  readonly limit: number;
  readonly after?: string;
}

const STANDARD_PAGE = 50;
const MOST_PER_PAGE = 1_000;
const PAGE_MEMBERS = ['page_size', 'page_token'];

/** Reads `page_size` and `page_token`; throws `invalid_request` for anything else in the query. */
export function readPage({ query }: AdminRequest): PageAsked {
  knownQuery(query, PAGE_MEMBERS);
  const { page_size: size = String(STANDARD_PAGE), page_token: token } = query;
  const limit = typeof size === 'string' && /^\d{1,4}$/.test(size) ? Number(size) : 0;
  if (limit < 1 || limit > MOST_PER_PAGE) {
    throw new AdminError('invalid_request', `"page_size" must be a number from 1 to ${MOST_PER_PAGE}`);
  }
  if (token === undefined || token === '') return { limit };
  const after = typeof token === 'string' ? idIn(token) : undefined;
  if (after === undefined) {
    throw new AdminError(
      'invalid_request',
      '"page_token" is none of this list; send the next_page_token of the page before, as it is',
    );
  }
  return { limit, after };
}

/** The token of the page after the one that ends with an id. */
export function pageToken(lastId: string): string {
  return Buffer.from(`after ${lastId}`).toString('base64url');
}

function idIn(token: string): string | undefined {
  return /^after (.+)$/.exec(Buffer.from(token, 'base64url').toString())?.[1];
}

/** Throws `invalid_request` where the query has a member that is not known. */
export function knownQuery(query: AdminRequest['query'], known: readonly string[]): void {
  const stranger = Object.keys(query).find((name) => !known.includes(name));
  if (stranger === undefined) return;
  const problem =
    known.length === 0 ? 'this request takes no query' : unknownMember(stranger, known).replace('field', 'parameter');
  throw new AdminError('invalid_request', problem);
}

/** The version that If-Match asks for; `undefined` where any will do. Throws `invalid_request` where it names none. */
export function versionAsked({ ifMatch }: AdminRequest): number | undefined {
  if (ifMatch === undefined || ifMatch.trim() === '*') return undefined;
  const version = /^(?:W\/)?"(\d{1,16})"$/.exec(ifMatch.trim())?.[1];
  if (version === undefined)
    throw new AdminError('invalid_request', 'If-Match must be one ETag of this resource, as it was answered, or "*"');
  return Number(version);
}

/** An answer about one record. */
export function recordReply(record: StoredRecord, body: unknown): AdminReply {
  return { fields: { etag: `"${record.version}"` }, body };
}

/** Waits for a call of the store, and says in the REST dialect how it failed. */
export async function fromStore<T>(call: Promise<T>): Promise<T> {
  try {
    return await call;
  } catch (error) {
    const message = error instanceof Error ? error.message : '';
    switch (storeTrouble(error)) {
      case 'conflict':
        throw new AdminError('aborted', message);
      case 'away':
        throw new AdminError('unavailable', message);
      case 'broken':
        throw new AdminError('internal', message);
      case undefined:
        throw error;
    }
  }
}
