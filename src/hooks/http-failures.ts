// What can go wrong between an http handler and its endpoint, told apart by stable codes (fault M08).
// It knows errors and statuses, and opens nothing. Its texts must never repeat what came over the wire, nor a library's own words.
import { failed } from './failures.ts';
import type { HookFailure } from './failures.ts';

/** An error of a connection that could not be made, with what it comes to for the hook. */
export interface ConnectError extends Error {
  readonly failure: HookFailure;
}

/** Makes one. */
export function connectError(failure: HookFailure): ConnectError {
  return Object.assign(new Error(failure.message), { failure });
}

/** What an answer's status comes to; undefined for 2xx. `reason`: the X-Sallyport-Reason of an answer that came by the proxy. */
export function statusFailure(status: number, reason: unknown): HookFailure | undefined {
  if (status >= 200 && status < 300) return undefined;
  if (status >= 300 && status < 400) return failed('redirect', `status ${status}`);
  return reason === undefined ? failed('http_status', String(status)) : refusedByProxy(status, reason);
}

/** What a refusal of the proxy comes to. Its reason is a code of ours; anything that is not written like one is not repeated. */
export function refusedByProxy(status: number, reason: unknown): HookFailure {
  const named = typeof reason === 'string' && /^[a-z_]{1,64}$/.test(reason);
  return failed('refused_by_proxy', named ? reason : `status ${status}`);
}

/** What an error of a run comes to; `answered`: whether the head of an answer was there already. */
export function errorFailure(error: unknown, answered: boolean): HookFailure {
  if (error instanceof Error && 'failure' in error) return (error as ConnectError).failure;
  const where = answered ? 'the answer broke off' : 'the connection ended before an answer';
  return failed('unreachable', `${where} (${codeOf(error)})`);
}

/** What a failed handshake with `peer` comes to. */
export function handshakeFailure(peer: string, code: string): HookFailure {
  return failed(
    'tls',
    UNTRUSTED.has(code) ? `${peer} is vouched for by no trusted CA (${code}); name its CA` : `${peer}: ${code}`,
  );
}

/** Whether a code is one of TLS, where an error may come from the connection as well as from the handshake on it. */
export function isTlsCode(code: string): boolean {
  return UNTRUSTED.has(code) || /^(?:ERR_TLS_|ERR_SSL_|CERT_|EPROTO$)/.test(code);
}

const UNTRUSTED = new Set([
  'SELF_SIGNED_CERT_IN_CHAIN',
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
  'UNABLE_TO_GET_ISSUER_CERT',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
]);

/** The stable code of an error; never its text, which may repeat what came over the wire. */
export function codeOf(error: unknown): string {
  const code = (error as { readonly code?: unknown } | null)?.code;
  return typeof code === 'string' && /^[A-Z0-9_]{1,64}$/.test(code) ? code : 'unknown error';
}
