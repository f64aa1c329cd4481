import { describe, expect, it } from 'vitest';
import { CODES, Fault, isRefusal, Refusal, toFault, toVerdict } from '../../src/exchange/codes.ts';
import type { Code } from '../../src/exchange/codes.ts';

/** What users rely on; a status that changes breaks them. */
const STATUSES: Readonly<Record<Code, number>> = {
  bad_request: 400,
  sandbox_unauthenticated: 407,
  not_allowlisted: 403,
  denylisted: 403,
  port_denied: 403,
  method_denied: 403,
  path_denied: 403,
  plaintext_credential: 403,
  placeholder_untrusted: 403,
  address_denied: 403,
  host_mismatch: 421,
  method_forbidden: 405,
  uri_too_long: 414,
  headers_too_large: 431,
  expectation_failed: 417,
  limit_reached: 503,
  request_timeout: 408,
  shutting_down: 503,
  credential_unavailable: 502,
  dns_failed: 502,
  upstream_connect: 502,
  upstream_tls: 502,
  upstream_protocol: 502,
  upstream_timeout: 504,
  client_closed: 499,
  client_tls: 499,
  internal_error: 500,
};

/** Error types that RFC 9209 section 2.3 registers, as far as the table uses them. */
const REGISTERED = new Set([
  'dns_error',
  'destination_unavailable',
  'destination_ip_prohibited',
  'connection_limit_reached',
  'connection_terminated',
  'tls_protocol_error',
  'tls_certificate_error',
  'http_request_error',
  'http_request_denied',
  'http_protocol_error',
  'http_response_timeout',
  'proxy_internal_response',
  'proxy_internal_error',
  'proxy_configuration_error',
]);

describe('CODES', () => {
  const rows = Object.entries(CODES).map(([code, entry]) => ({ code: code as Code, entry }));

  it.each(rows)('gives $code its status', ({ code, entry }) => {
    expect(entry.status).toBe(STATUSES[code]);
  });

  it.each(rows)('names for $code an error type that RFC 9209 registers, and a hint of one line', ({ entry }) => {
    expect(REGISTERED).toContain(entry.proxyError);
    expect(entry.hint).toMatch(/^[^\r\n]+\.$/);
    expect(entry.title).toMatch(/^[^\r\n.]+$/);
  });

  it('has a level for the log where the world failed, and none where policy said no', () => {
    const faults = rows.filter(({ entry }) => entry.level !== undefined).map(({ code }) => code);
    expect(faults).toEqual([
      'credential_unavailable',
      'dns_failed',
      'upstream_connect',
      'upstream_tls',
      'upstream_protocol',
      'upstream_timeout',
      'client_closed',
      'client_tls',
      'internal_error',
    ]);
  });

  it('names in the hint of a limit both keys that raise one', () => {
    expect(CODES.limit_reached.hint).toContain('limits.connections');
    expect(CODES.limit_reached.hint).toContain('limits.upstream_connections');
  });

  it('answers 407 for a missing token only', () => {
    expect(rows.filter(({ entry }) => entry.status === 407).map(({ code }) => code)).toEqual(['sandbox_unauthenticated']);
  });
});

describe('Refusal and Fault', () => {
  it('tells a refusal from everything else', () => {
    expect(isRefusal(new Refusal('not_allowlisted', 'no rule'))).toBe(true);
    expect([new Fault('dns_failed', 'no'), { code: 'not_allowlisted', detail: '' }, undefined].some(isRefusal)).toBe(false);
  });

  it('leaves a thrown fault as it is', () => {
    const fault = new Fault('dns_failed', 'the name was not resolved');
    expect(toFault(fault)).toBe(fault);
  });

  it("makes a refusal of a thrown fault whose code is a refusal's, and of no other", () => {
    const refusal = toVerdict(new Fault('address_denied', 'no longer allowed'));
    expect(refusal).toBeInstanceOf(Refusal);
    expect(refusal).toMatchObject({ code: 'address_denied', detail: 'no longer allowed', rule: undefined });
    const fault = new Fault('dns_failed', 'the name was not resolved');
    expect(toVerdict(fault)).toBe(fault);
    expect(toVerdict(new Error('bug'))).toMatchObject({ name: 'Fault', code: 'internal_error' });
  });

  it.each([new TypeError('x is not a function at /srv/app.ts'), 'text', undefined, null, { code: 'dns_failed' }])(
    'makes of anything else thrown an internal error that keeps its cause and shows nothing of it',
    (thrown) => {
      const fault = toFault(thrown);
      expect(fault.code).toBe('internal_error');
      expect(fault.message).toBe('something went wrong inside the proxy');
      expect(fault.cause).toBe(thrown);
    },
  );
});
