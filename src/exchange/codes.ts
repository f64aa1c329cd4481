// The one table of reasons: what a code means to the client (status, RFC 9209 error, hint) and to the operator (log level).
// A refusal is a value, because policy saying no is a normal outcome; a fault is an Error, because the world failed.
// No other place may choose a status for a code, and no text here may hold anything from a request or a secret.

/** How loudly the operator's log speaks of a code. */
export type Level = 'debug' | 'info' | 'warn' | 'error';

interface CodeEntry {
  readonly status: number;
  /** Error type of RFC 9209 section 2.3 */
  readonly proxyError: string;
  readonly title: string;
  /** How to have it allowed, or what to look at; one sentence for whoever meets the refusal */
  readonly hint: string;
  /** Of a fault; `undefined` for a refusal, which stands in the ledger and not in the log */
  readonly level: Level | undefined;
}

// One row a line, so that it can be read as a table.
// prettier-ignore
export const CODES = {
  bad_request: refusal(400, 'http_request_error', 'Malformed request', 'Send a well-formed HTTP request with one valid authority.'),
  sandbox_unauthenticated: refusal(407, 'proxy_internal_response', 'Sandbox not authenticated', "Use the sandbox's own proxy URL, which bears its token."),
  not_allowlisted: refusal(403, 'http_request_denied', 'Host not on the allowlist', 'Add the host as `domain` to network.allowlist.'),
  denylisted: refusal(403, 'http_request_denied', 'Host on the denylist', 'The operator denies this host; remove it from network.denylist to allow it.'),
  port_denied: refusal(403, 'http_request_denied', 'Port not allowed', "Add the port to the rule's `ports`."),
  method_denied: refusal(403, 'http_request_denied', 'Method not allowed', "Add the method to the rule's `methods`."),
  path_denied: refusal(403, 'http_request_denied', 'Path not allowed', "Add a pattern that matches the whole path to the rule's `paths`."),
  plaintext_credential: refusal(403, 'http_request_denied', 'Credential over plain HTTP', 'Use https, or set `allow_plaintext: true` on the rule.'),
  placeholder_untrusted: refusal(403, 'http_request_denied', 'Placeholder in an untrusted place', "Send the placeholder only to the credential's trusted_domains, in a listed place."),
  address_denied: refusal(403, 'destination_ip_prohibited', 'Address inside the walls', 'The name leads to an internal address; open its range with `addresses` on the rule if that is meant.'),
  host_mismatch: refusal(421, 'http_request_error', 'Authorities disagree', 'CONNECT, SNI, Host and :authority must name the same host and port.'),
  method_forbidden: refusal(405, 'http_request_denied', 'Method forbidden', 'TRACE and TRACK would reflect credentials and are never let through.'),
  uri_too_long: refusal(414, 'http_request_error', 'Request target too long', 'Shorten the target, or raise limits.target_bytes.'),
  headers_too_large: refusal(431, 'http_request_error', 'Header section too large', 'Send fewer or smaller header fields, or raise limits.header_bytes.'),
  expectation_failed: refusal(417, 'http_request_error', 'Expectation unknown', 'Only `Expect: 100-continue` is understood.'),
  limit_reached: refusal(503, 'connection_limit_reached', 'Limit reached', 'Too many connections are open; retry later, or raise limits.connections (from sandboxes) or limits.upstream_connections (to one upstream).'),
  request_timeout: refusal(408, 'http_request_error', 'Request too slow', 'Send the whole header section sooner.'),
  shutting_down: refusal(503, 'proxy_internal_error', 'Shutting down', 'Retry: this proxy is being replaced.'),
  credential_unavailable: fault(502, 'proxy_configuration_error', 'Credential unavailable', "The rule's credential cannot be resolved; nothing was sent. Ask the operator.", 'error'),
  dns_failed: fault(502, 'dns_error', 'Name not resolved', 'The name could not be resolved.'),
  upstream_connect: fault(502, 'destination_unavailable', 'Upstream not reachable', 'No connection to the upstream could be opened.'),
  upstream_tls: fault(502, 'tls_certificate_error', 'Upstream TLS failed', "The upstream's certificate did not verify; add its root to upstream.ca if it is private."),
  upstream_protocol: fault(502, 'http_protocol_error', 'Upstream answer invalid', 'The upstream broke off or answered with something that is not valid HTTP.'),
  upstream_timeout: fault(504, 'http_response_timeout', 'Upstream too slow', 'The upstream did not answer in time.'),
  client_closed: fault(499, 'connection_terminated', 'Sandbox left', 'The sandbox closed the connection before the end.', 'debug'),
  client_tls: fault(499, 'tls_protocol_error', 'Handshake with the sandbox failed', "The sandbox's client broke off the TLS handshake; it probably does not trust the CA (see `sallyport env`).", 'info'),
  internal_error: fault(500, 'proxy_internal_error', 'Internal error', 'A bug in Sallyport; the log has the story under this request id.', 'error'),
} satisfies Record<string, CodeEntry>;

/** Every reason that an exchange can be refused or fail for; also the closed set of the metric label `reason`. */
export type Code = keyof typeof CODES;

function refusal(status: number, proxyError: string, title: string, hint: string): CodeEntry {
  return { status, proxyError, title, hint, level: undefined };
}

// eslint-disable-next-line max-params -- a row of the table above reads best flat
function fault(status: number, proxyError: string, title: string, hint: string, level: Level = 'warn'): CodeEntry {
  return { status, proxyError, title, hint, level };
}

// What the statuses above are to a gRPC client (grpc/statuscodes); any that is not here is a denial.
const GRPC_STATUS: Readonly<Record<number, number>> = {
  400: 3,
  407: 16,
  408: 4,
  414: 3,
  417: 3,
  431: 3,
  499: 1,
  500: 13,
  502: 14,
  503: 14,
  504: 4,
};

/** The `grpc-status` of a code: 7 (PERMISSION_DENIED) where policy said no, 14 (UNAVAILABLE) where the upstream failed. */
export function grpcStatusOf(code: Code): number {
  return GRPC_STATUS[CODES[code].status] ?? 7;
}

/**
 * Policy said no. A value, never thrown: stages return it in place of the next stage.
 * `detail` is one lower-case sentence for the client and must hold no address, secret or internal name.
 */
export class Refusal {
  readonly code: Code;
  readonly detail: string;
  /** Id of the rule that decided, where one did */
  readonly rule: string | undefined;

  constructor(code: Code, detail: string, rule?: string) {
    this.code = code;
    this.detail = detail;
    this.rule = rule;
  }
}

/** Whether a stage ended the journey. */
export function isRefusal(value: unknown): value is Refusal {
  return value instanceof Refusal;
}

/**
 * The world failed: a name did not resolve, an upstream broke off, a credential could not be had.
 * `message` may go to the client and names no address; `cause` is for the operator's log only.
 */
export class Fault extends Error {
  readonly code: Code;

  constructor(code: Code, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = 'Fault';
    this.code = code;
  }
}

/**
 * What a thrown thing means to an exchange. Rooms that end in a callback can only throw: a fault whose code is a refusal's is one,
 * so that ledger and metrics count it as what policy said. Its cause is lost.
 */
export function toVerdict(thrown: unknown): Refusal | Fault {
  const fault = toFault(thrown);
  return CODES[fault.code].level === undefined ? new Refusal(fault.code, fault.message) : fault;
}

/** Any thrown thing as a Fault: what is not one already is a bug and becomes `internal_error`. */
export function toFault(thrown: unknown): Fault {
  return thrown instanceof Fault ? thrown : new Fault('internal_error', 'something went wrong inside the proxy', thrown);
}
