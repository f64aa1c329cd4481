// How the operator's window says no: one error type, one form on the wire, `{"error":{"message","code"}}` as the REST dialect has it.
// It must never let a stack, a path of this program or a secret into an answer.

/** What went wrong, in the words of the REST dialect where it has one. */
export type AdminErrorCode =
  | 'invalid_request'
  | 'unauthenticated'
  | 'permission_denied'
  | 'not_found'
  | 'method_not_allowed'
  | 'request_timeout'
  | 'aborted'
  | 'too_large'
  | 'unsupported_media_type'
  | 'misdirected_request'
  | 'config_rejected'
  | 'headers_too_large'
  | 'not_ready'
  | 'unavailable'
  | 'internal';

const STATUS = {
  invalid_request: 400,
  unauthenticated: 401,
  permission_denied: 403,
  not_found: 404,
  method_not_allowed: 405,
  request_timeout: 408,
  aborted: 409,
  too_large: 413,
  unsupported_media_type: 415,
  misdirected_request: 421,
  config_rejected: 422,
  headers_too_large: 431,
  not_ready: 503,
  unavailable: 503,
  internal: 500,
} as const satisfies Record<AdminErrorCode, number>;

interface Beside {
  readonly extra?: Readonly<Record<string, unknown>>;
  readonly fields?: Readonly<Record<string, string>>;
}

/** What a route throws to refuse. `message` goes to the caller: lower case, with the remedy, without secrets. */
export class AdminError extends Error {
  readonly code: AdminErrorCode;
  /** Members beside `error` in the body, such as the list of problems */
  readonly extra: Readonly<Record<string, unknown>>;
  /** Header fields beside the usual ones, lower case */
  readonly fields: Readonly<Record<string, string>>;

  constructor(code: AdminErrorCode, message: string, beside: Beside = {}) {
    super(message);
    this.name = 'AdminError';
    this.code = code;
    this.extra = beside.extra ?? {};
    this.fields = beside.fields ?? {};
  }
}

/** Status, fields and body of an error's answer. */
export interface ErrorAnswer {
  readonly status: number;
  readonly fields: Readonly<Record<string, string>>;
  readonly body: { readonly error: { readonly message: string; readonly code: AdminErrorCode } };
}

/** The one error writer: every error answer of this listener is made here. */
export function errorAnswer(error: AdminError): ErrorAnswer {
  return {
    status: STATUS[error.code],
    fields: error.fields,
    body: { ...error.extra, error: { message: error.message, code: error.code } },
  };
}
