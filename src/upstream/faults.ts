// What went wrong on the way to or from an upstream, told apart by stable codes (fault H06).
// Texts here may reach the sandbox: they name the phase, never an address, a header or a library's own words.
import { Fault } from '../exchange/codes.ts';

/** The code of a Node, OpenSSL or undici error, or an empty string. */
export function errorCode(error: unknown): string {
  const code = (error as { readonly code?: unknown } | null)?.code;
  return typeof code === 'string' ? code : '';
}

/** A failure of an exchange on an open connection. */
export function exchangeFault(error: unknown): Fault {
  if (error instanceof Fault) return error;
  const code = errorCode(error);
  switch (code) {
    case 'UND_ERR_HEADERS_TIMEOUT':
      return new Fault('upstream_timeout', 'the upstream did not begin to answer in time', error);
    case 'UND_ERR_BODY_TIMEOUT':
      return new Fault('upstream_timeout', 'the upstream fell silent in the middle of its answer', error);
    case 'ETIMEDOUT':
      return new Fault('upstream_timeout', 'the connection to the upstream timed out', error);
    case 'UND_ERR_HEADERS_OVERFLOW':
      return new Fault('upstream_protocol', "the header section of the upstream's answer is too large", error);
    case 'UND_ERR_RES_CONTENT_LENGTH_MISMATCH':
      return new Fault('upstream_protocol', "the upstream's answer is shorter or longer than it said", error);
    case 'UND_ERR_REQ_CONTENT_LENGTH_MISMATCH':
      return new Fault('client_closed', 'the request body is shorter or longer than it said', error);
    case 'UND_ERR_SOCKET':
    case 'UND_ERR_DESTROYED':
    case 'UND_ERR_CLOSED':
    case 'ECONNRESET':
    case 'EPIPE':
      return new Fault('upstream_protocol', 'the upstream closed the connection before it had answered', error);
    default:
      if (isParserError(error))
        return new Fault('upstream_protocol', 'the upstream answered with something that is not valid HTTP', error);
      if (isTls(code)) return new Fault('upstream_tls', 'the TLS connection with the upstream broke', error);
      if (code.startsWith('UND_ERR_INVALID') || code === 'UND_ERR_NOT_SUPPORTED') {
        return new Fault('internal_error', 'the request cannot be sent on', error);
      }
      return new Fault('upstream_protocol', 'the exchange with the upstream failed', error);
  }
}

/**
 * Whether a failure says that the upstream speaks HTTP/2 and nothing else: by the alert of a handshake that offered it only HTTP/1.1 (RFC
 * 7301 section 3.2), or by the SETTINGS that it sent in place of an answer. Either way it cannot have looked at the request.
 */
export function speaksOnlyH2(thrown: unknown): boolean {
  const cause = thrown instanceof Fault ? thrown.cause : thrown;
  if (errorCode(cause) === 'ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL') return true;
  if (!isParserError(cause)) return false;
  const { data } = cause as { readonly data?: unknown };
  return typeof data === 'string' && SETTINGS.test(data);
}

/** A SETTINGS frame on stream 0 (RFC 9113 section 6.5); its length and its settings do not matter. */

const SETTINGS = /^\0[^]{2}\x04\0\0\0\0\0/;

/** A failure of the TLS handshake with an upstream; the operator sees the cause, the sandbox only its kind. */
export function handshakeFault(error: unknown): Fault {
  if (error instanceof Fault) return error;
  const code = errorCode(error);
  if (code === 'ETIMEDOUT') return new Fault('upstream_timeout', 'the TLS handshake with the upstream timed out', error);
  const kind = CERTIFICATE_TROUBLE[code] ?? 'the TLS handshake with the upstream failed';
  return new Fault('upstream_tls', kind, error);
}

const CERTIFICATE_TROUBLE: Readonly<Record<string, string>> = {
  ERR_TLS_CERT_ALTNAME_INVALID: "the upstream's certificate is for another name",
  CERT_HAS_EXPIRED: "the upstream's certificate has expired",
  CERT_NOT_YET_VALID: "the upstream's certificate is not valid yet",
  DEPTH_ZERO_SELF_SIGNED_CERT: "the upstream's certificate is self-signed",
  SELF_SIGNED_CERT_IN_CHAIN: "the upstream's certificate comes from a root that is not trusted",
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: "the upstream's certificate comes from a root that is not trusted",
  UNABLE_TO_GET_ISSUER_CERT: "the upstream's certificate comes from a root that is not trusted",
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: "the upstream's certificate comes from a root that is not trusted",
  ERR_SSL_UNSUPPORTED_PROTOCOL: 'the upstream speaks no TLS version that is still safe',
  ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION: 'the upstream speaks no TLS version that is still safe',
  ECONNRESET: 'the upstream broke off the TLS handshake',
  EPIPE: 'the upstream broke off the TLS handshake',
  ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL: 'the upstream speaks none of the HTTP versions that it was offered',
  ERR_SSL_WRONG_VERSION_NUMBER: 'the upstream does not speak TLS on this port',
};

/** Undici names its parser's errors, and gives them a code only where it knows one. */
function isParserError(error: unknown): boolean {
  return errorCode(error).startsWith('HPE_') || (error as { readonly name?: unknown } | null)?.name === 'HTTPParserError';
}

function isTls(code: string): boolean {
  return code.startsWith('ERR_SSL_') || code.startsWith('ERR_TLS_') || code === 'EPROTO';
}
