// The one place where a refusal or a fault becomes an answer: problem+json with the code, the reason and how to allow it.
// It must never put in anything but the table's texts, the stage's own detail and the request id: no secret, address or stack.
import { STATUS_CODES } from 'node:http';
import { CODES, Fault, grpcStatusOf } from '../exchange/codes.ts';
import type { Refusal } from '../exchange/codes.ts';
import { fieldValue } from '../exchange/header-fields.ts';
import type { Arrival } from '../exchange/stages.ts';

/** Codes after which the connection cannot be trusted to hold another request. */
const ENDS_CONNECTION: ReadonlySet<string> = new Set([
  'bad_request',
  'request_timeout',
  'headers_too_large',
  'uri_too_long',
  'limit_reached',
  'shutting_down',
]);

/**
 * Answers the arrival with the verdict, or cuts the connection where no answer can be given any more: a head has gone out, the
 * sandbox has left, or the bytes are those of a tunnel that nobody looks into. Returns the status of the answer, 0 where it gave none.
 */
export function writeRefusal(arrival: Arrival, verdict: Refusal | Fault): number {
  const { reply } = arrival;
  if (arrival.purpose === 'lookup') {
    arrival.decline(verdict.code);
    return 0;
  }
  const { status } = CODES[verdict.code];
  if (reply.headSent || reply.closed || arrival.purpose === 'passthrough' || status === 499) {
    reply.abort();
    return 0;
  }
  if (isGrpc(arrival)) return writeGrpcRefusal(arrival, verdict);
  const { fields, body } = describe(arrival.requestId, verdict);
  reply.head(status, STATUS_CODES[status] ?? '', fields, ENDS_CONNECTION.has(verdict.code));
  if (arrival.method !== 'HEAD') reply.write(body);
  reply.end();
  return status;
}

/** gRPC is HTTP/2 only; what else bears its name, such as gRPC-Web, reads HTTP statuses. */
function isGrpc(arrival: Arrival): boolean {
  return arrival.protocol === 'h2' && /^application\/grpc(?:[+;]|$)/i.test(fieldValue(arrival.fields, 'content-type') ?? '');
}

/** An answer of a head alone (gRPC over HTTP/2, Trailers-Only), whose status is 200 whatever became of the call. */
function writeGrpcRefusal({ requestId, fields: asked, reply }: Arrival, verdict: Refusal | Fault): number {
  const entry = CODES[verdict.code];
  const detail = verdict instanceof Fault ? verdict.message : verdict.detail;
  reply.head(200, STATUS_CODES[200] ?? '', [
    'Content-Type',
    fieldValue(asked, 'content-type') ?? 'application/grpc',
    'Grpc-Status',
    String(grpcStatusOf(verdict.code)),
    'Grpc-Message',
    grpcMessage(`${verdict.code}: ${detail}. ${entry.hint} (request ${requestId})`),
    ...ownFields(verdict),
  ]);
  reply.end();
  return 200;
}

/** Percent-encoded where it is not visible ASCII (gRPC over HTTP/2, Status-Message). */
function grpcMessage(text: string): string {
  return text.replace(/[^\x20-\x24\x26-\x7e]/gu, encodeURIComponent);
}

/** By which a refusal is told from an upstream's own answer (invariant 8). */
function ownFields({ code }: Refusal | Fault): string[] {
  return ['Proxy-Status', `sallyport; error=${CODES[code].proxyError}; details="${code}"`, 'X-Sallyport-Reason', code];
}

/** The fields and body of a refusal (RFC 9457, RFC 9209). */
export function describe(requestId: string, verdict: Refusal | Fault): { readonly fields: string[]; readonly body: Buffer } {
  const entry = CODES[verdict.code];
  const detail = verdict instanceof Fault ? verdict.message : verdict.detail;
  const problem = {
    type: `urn:sallyport:problem:${verdict.code}`,
    title: entry.title,
    status: entry.status,
    detail,
    code: verdict.code,
    hint: entry.hint,
    request_id: requestId,
  };
  const body = Buffer.from(`${JSON.stringify(problem)}\n`);
  const fields = [
    'Content-Type',
    'application/problem+json',
    'Content-Length',
    String(body.length),
    'Cache-Control',
    'no-store',
    ...ownFields(verdict),
  ];
  if (entry.status === 407) fields.push('Proxy-Authenticate', 'Basic realm="sallyport"');
  if (entry.status === 405) fields.push('Allow', 'GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS');
  return { fields, body };
}
