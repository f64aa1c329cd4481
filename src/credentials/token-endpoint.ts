// One question to a token endpoint: a refresh token for an access token (RFC 6749 section 6), and what the answer means.
// Who connects to the endpoint, and to which addresses it may, is a function of its neighbour. It must never follow a redirect, take
// a token that no header field can carry, or repeat anything of an answer but the error words that the RFC itself has.
import type { AddressRanges } from '../exchange/rule.ts';
import { Fault } from '../exchange/codes.ts';
import type { Secret } from '../foundation/secret.ts';
import type { Clock, Failed } from './fresh-source.ts';
import { composeSecret, readSecretText } from './secret-source.ts';

/** A POST to a token endpoint. */
export interface TokenRequest {
  readonly url: URL;
  /** Internal ranges that the endpoint may lie in; `undefined`: none */
  readonly opened: AddressRanges | undefined;
  /** Names and values in turn, without Host and Content-Length */
  readonly fields: readonly (string | Secret)[];
  readonly body: Secret;
  /** Aborts when nobody waits any more */
  readonly signal: AbortSignal;
}

/** What came back. `body` is undefined where it is longer than 64 KiB. */
export interface TokenReply {
  readonly status: number;
  readonly contentType: string;
  readonly body: string | undefined;
}

/** Posts to the endpoint: https alone, verified, to a judged address; follows nothing. Rejects with a Fault. */
export type FetchToken = (request: TokenRequest) => Promise<TokenReply>;

/** How a client shows that it is one (RFC 6749 section 2.3.1): in the body, or by Basic. */
export type ClientAuth = 'body' | 'basic';

/** A client at its token endpoint. */
export interface TokenClient {
  readonly client_id: string;
  readonly client_secret: Secret;
  readonly token_url: string;
  readonly scopes: readonly string[];
  readonly opened?: AddressRanges | undefined;
}

/** An access token, and with it a refresh token where the endpoint handed out another one. */
export interface Issued {
  readonly accessToken: Secret;
  /** Epoch `ms` */
  readonly endsAt: number;
  readonly askedAt: number;
  readonly refreshToken: Secret | undefined;
  readonly auth: ClientAuth;
}

/** Longest that a question may take, `ms`, both ways of a client to show itself together. */
export const TOKEN_DEADLINE_MS = 10_000;
/** How long a token is taken to last where the answer does not say (RFC 6749 section 5.1 leaves that open). */
export const ASSUMED_LIFE_S = 3600;
const LONGEST_LIFE_S = 365 * 24 * 3600;

/**
 * Asks for an access token. Never rejects. Tells the client's secret in the body, as nearly every endpoint takes it, and once more by
 * Basic where the answer is `invalid_client`: by RFC 6749 section 2.3.1 all endpoints take Basic and may take the body, and one request
 * must not do both. `auth` is the way that was found before, and is tried first.
 */
export async function askForToken(
  client: TokenClient,
  refreshToken: Secret,
  how: { readonly fetchToken: FetchToken; readonly clock: Clock; readonly auth?: ClientAuth | undefined },
): Promise<Issued | Failed> {
  const url = URL.canParse(client.token_url) ? new URL(client.token_url) : undefined;
  if (url?.protocol !== 'https:') return { failed: 'address_denied', unavailable: 'its token_url is no https URL' };
  const patience = new AbortController();
  const cancel = how.clock.later(TOKEN_DEADLINE_MS, () => patience.abort());
  const question = { client, refreshToken, url, signal: patience.signal };
  try {
    const auth = how.auth ?? 'body';
    const first = await ask({ ...question, auth }, how);
    if (!('failed' in first) || first.failed !== INVALID_CLIENT) return first;
    return plain(await ask({ ...question, auth: auth === 'body' ? 'basic' : 'body' }, how));
  } finally {
    cancel();
  }
}

const INVALID_CLIENT = 'invalid_client';

/** That word steers the second question, and is none of the metrics. */
function plain(outcome: Issued | Failed): Issued | Failed {
  return 'failed' in outcome && outcome.failed === INVALID_CLIENT ? { ...outcome, failed: 'refused' } : outcome;
}

interface TokenQuestion {
  readonly client: TokenClient;
  readonly refreshToken: Secret;
  readonly url: URL;
  readonly signal: AbortSignal;
  readonly auth: ClientAuth;
}

async function ask(
  question: TokenQuestion,
  { fetchToken, clock }: { readonly fetchToken: FetchToken; readonly clock: Clock },
): Promise<Issued | Failed> {
  const { url, signal, client } = question;
  const askedAt = clock.now();
  const late = new Promise<never>((_, reject) => {
    const expire = (): void => reject(new Fault('upstream_timeout', 'the token endpoint did not answer in time'));
    if (signal.aborted) expire();
    else signal.addEventListener('abort', expire, { once: true });
  });
  try {
    const request: TokenRequest = { url, opened: client.opened, signal, fields: fieldsOf(question), body: bodyOf(question) };
    const reply = await Promise.race([fetchToken(request), late]);
    return readReply(reply, { askedAt, auth: question.auth });
  } catch (error) {
    return troubleOf(error);
  }
}

function fieldsOf({ client, auth }: TokenQuestion): (string | Secret)[] {
  const fields: (string | Secret)[] = [
    'Content-Type',
    'application/x-www-form-urlencoded',
    'Accept',
    'application/json',
    'User-Agent',
    'sallyport',
  ];
  if (auth === 'body') return fields;
  const pair = composeSecret([client.client_secret], (secret = '') => {
    // Each is encoded as in a form before they are joined (RFC 6749 section 2.3.1).
    const word = `${formEncoded(client.client_id)}:${formEncoded(secret)}`;
    return `Basic ${Buffer.from(word).toString('base64')}`;
  });
  return pair === undefined ? fields : [...fields, 'Authorization', pair];
}

function bodyOf({ client, refreshToken, auth }: TokenQuestion): Secret {
  const body = composeSecret([client.client_secret, refreshToken], (secret = '', token = '') => {
    const form = new URLSearchParams({ grant_type: 'refresh_token', refresh_token: token });
    if (client.scopes.length > 0) form.set('scope', client.scopes.join(' '));
    if (auth === 'body') {
      form.set('client_id', client.client_id);
      form.set('client_secret', secret);
    }
    return form.toString();
  });
  return body ?? client.client_secret;
}

function formEncoded(text: string): string {
  return new URLSearchParams({ '': text }).toString().slice(1);
}

/** Words for a refresh token that is none any more: RFC 6749 section 5.2, and those that endpoints of renown have in its place. */
const REVOKED: ReadonlySet<string> = new Set(['invalid_grant', 'bad_refresh_token', 'invalid_refresh_token']);
const KNOWN_ERRORS: ReadonlySet<string> = new Set([
  ...REVOKED,
  INVALID_CLIENT,
  'invalid_request',
  'unauthorized_client',
  'unsupported_grant_type',
  'invalid_scope',
  'temporarily_unavailable',
  'server_error',
]);
/** What a token that is bound to a key says of itself (RFC 9449 section 5 among others): alone it lets nobody in. */
const NOT_BEARER: ReadonlySet<string> = new Set(['dpop', 'pop', 'mac', 'n_a']);

function readReply(
  { status, contentType, body }: TokenReply,
  { askedAt, auth }: { readonly askedAt: number; readonly auth: ClientAuth },
): Issued | Failed {
  if (status >= 300 && status < 400)
    return { failed: 'redirect', unavailable: 'the token endpoint redirects; name the last URL' };
  if (body === undefined) return { failed: 'too_large', unavailable: 'the token endpoint answered with more than 64 KiB' };
  const members = readMembers(body, contentType);
  const error = members?.['error'];
  if (typeof error === 'string' && KNOWN_ERRORS.has(error)) return refused(error);
  if (status < 200 || status > 299)
    return { failed: 'refused', unavailable: `the token endpoint answered with status ${status}` };
  if (members === undefined) return malformed('is neither JSON nor a form');
  const { access_token: token, token_type: kind, expires_in: life, refresh_token: rotated } = members;
  if (typeof kind === 'string' && NOT_BEARER.has(kind.toLowerCase())) return malformed('holds a token that is no bearer token');
  const read = typeof token === 'string' ? readSecretText(token, '') : undefined;
  if (read?.kind !== 'read') return malformed('holds no access token that a header field can carry');
  const next = typeof rotated === 'string' && rotated !== '' ? readSecretText(rotated, '') : undefined;
  if (next !== undefined && next.kind !== 'read') return malformed('holds a refresh token that is none');
  return {
    accessToken: read.secret,
    endsAt: askedAt + lifeOf(life) * 1000,
    askedAt,
    refreshToken: next?.secret,
    auth,
  };
}

/** Seconds; some endpoints put the number into a text. */
function lifeOf(life: unknown): number {
  const seconds = typeof life === 'string' && /^\d{1,15}$/.test(life) ? Number(life) : life;
  if (typeof seconds !== 'number' || !(seconds > 0)) return ASSUMED_LIFE_S;
  return Math.min(seconds, LONGEST_LIFE_S);
}

function refused(error: string): Failed {
  if (!REVOKED.has(error))
    return { failed: error === INVALID_CLIENT ? error : 'refused', unavailable: `the token endpoint refuses: ${error}` };
  return {
    failed: 'revoked',
    unavailable: 'its refresh token is revoked or has ended; give it a new one',
    final: true,
  };
}

function malformed(what: string): Failed {
  return { failed: 'malformed', unavailable: `the answer of the token endpoint ${what}` };
}

/** JSON, or the form that some endpoints answer with whatever they are asked for; `undefined` where it is neither. */
function readMembers(body: string, contentType: string): Readonly<Record<string, unknown>> | undefined {
  if (/^application\/x-www-form-urlencoded\b/i.test(contentType)) return Object.fromEntries(new URLSearchParams(body));
  try {
    const parsed: unknown = JSON.parse(body);
    return typeof parsed === 'object' && parsed !== null && !Array.isArray(parsed)
      ? (parsed as Readonly<Record<string, unknown>>)
      : undefined;
  } catch {
    // The error would quote the answer.
    return undefined;
  }
}

function troubleOf(error: unknown): Failed {
  switch (error instanceof Fault ? error.code : undefined) {
    case 'upstream_timeout':
      return { failed: 'timeout', unavailable: 'the token endpoint did not answer in time' };
    case 'address_denied':
      return { failed: 'address_denied', unavailable: 'the token endpoint leads to an address inside the walls' };
    case 'dns_failed':
    case 'upstream_connect':
      return { failed: 'unreachable', unavailable: 'the token endpoint cannot be reached' };
    case 'upstream_tls':
      return { failed: 'tls', unavailable: 'the certificate of the token endpoint did not verify' };
    default:
      return { failed: 'malformed', unavailable: 'the token endpoint broke off or answered with no valid HTTP' };
  }
}
