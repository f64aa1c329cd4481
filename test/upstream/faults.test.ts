import { describe, expect, it } from 'vitest';
import { Fault } from '../../src/exchange/codes.ts';
import { errorCode, exchangeFault, handshakeFault, speaksOnlyH2 } from '../../src/upstream/faults.ts';

const TELLTALE = '10.1.2.3:5432 Authorization: Bearer sentinel';
const thrown = (code: unknown): Error => Object.assign(new Error(TELLTALE), { code });

describe('exchangeFault', () => {
  it.each([
    { code: 'UND_ERR_HEADERS_TIMEOUT', becomes: 'upstream_timeout' },
    { code: 'UND_ERR_BODY_TIMEOUT', becomes: 'upstream_timeout' },
    { code: 'ETIMEDOUT', becomes: 'upstream_timeout' },
    { code: 'UND_ERR_HEADERS_OVERFLOW', becomes: 'upstream_protocol' },
    { code: 'UND_ERR_RES_CONTENT_LENGTH_MISMATCH', becomes: 'upstream_protocol' },
    { code: 'UND_ERR_REQ_CONTENT_LENGTH_MISMATCH', becomes: 'client_closed' },
    { code: 'UND_ERR_SOCKET', becomes: 'upstream_protocol' },
    { code: 'ECONNRESET', becomes: 'upstream_protocol' },
    { code: 'EPIPE', becomes: 'upstream_protocol' },
    { code: 'HPE_INVALID_CONSTANT', becomes: 'upstream_protocol' },
    { code: 'HPE_', becomes: 'upstream_protocol' },
    { code: 'EPROTO', becomes: 'upstream_tls' },
    { code: 'ERR_SSL_BAD_DECRYPT', becomes: 'upstream_tls' },
    { code: 'UND_ERR_INVALID_ARG', becomes: 'internal_error' },
    { code: 'UND_ERR_NOT_SUPPORTED', becomes: 'internal_error' },
    { code: 'E_NOBODY_KNOWS', becomes: 'upstream_protocol' },
    { code: 17, becomes: 'upstream_protocol' },
  ])('takes $code for $becomes, keeps the cause and says nothing of it', ({ code, becomes }) => {
    const error = thrown(code);
    const fault = exchangeFault(error);
    expect(fault.code).toBe(becomes); // H06
    expect(fault.cause).toBe(error);
    expect(fault.message).not.toMatch(/10\.1\.2\.3|sentinel|UND_|HPE_/);
  });

  it('tells a bad answer from a lost connection by its text', () => {
    expect(exchangeFault(thrown('HPE_INVALID_VERSION')).message).toContain('not valid HTTP');
    expect(exchangeFault(thrown('ECONNRESET')).message).toContain('closed the connection');
  });

  it('takes a fault as it is', () => {
    const fault = new Fault('client_closed', 'the sandbox left');
    expect(exchangeFault(fault)).toBe(fault);
    expect(handshakeFault(fault)).toBe(fault);
  });
});

describe('handshakeFault', () => {
  it.each([
    { code: 'ERR_TLS_CERT_ALTNAME_INVALID', says: 'for another name' },
    { code: 'CERT_HAS_EXPIRED', says: 'has expired' },
    { code: 'CERT_NOT_YET_VALID', says: 'not valid yet' },
    { code: 'DEPTH_ZERO_SELF_SIGNED_CERT', says: 'self-signed' },
    { code: 'SELF_SIGNED_CERT_IN_CHAIN', says: 'not trusted' },
    { code: 'UNABLE_TO_VERIFY_LEAF_SIGNATURE', says: 'not trusted' },
    { code: 'UNABLE_TO_GET_ISSUER_CERT_LOCALLY', says: 'not trusted' },
    { code: 'ERR_SSL_UNSUPPORTED_PROTOCOL', says: 'no TLS version' },
    { code: 'ERR_SSL_WRONG_VERSION_NUMBER', says: 'does not speak TLS' },
    { code: 'EPROTO', says: 'handshake with the upstream failed' },
    { code: 'ECONNRESET', says: 'broke off the TLS handshake' },
  ])('takes $code for upstream_tls and says "$says"', ({ code, says }) => {
    const fault = handshakeFault(thrown(code));
    expect(fault.code).toBe('upstream_tls'); // H06
    expect(fault.message).toContain(says);
    expect(fault.message).not.toContain('10.1.2.3');
  });

  it('takes a connection that timed out for upstream_timeout', () => {
    expect(handshakeFault(thrown('ETIMEDOUT')).code).toBe('upstream_timeout');
  });
});

describe('errorCode', () => {
  it.each([undefined, null, 'text', 5, {}, { code: 5 }])('is empty for %j', (error) => {
    expect(errorCode(error)).toBe('');
  });
});

describe('speaksOnlyH2', () => {
  const parserError = (data: unknown) => Object.assign(new Error('x'), { name: 'HTTPParserError', data });
  const SETTINGS = '\0\0\x06\x04\0\0\0\0\0\0\x08\0\0\0\x01';
  it.each([
    { name: 'the alert of ALPN', error: thrown('ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL'), is: true },
    { name: 'another alert', error: thrown('ERR_SSL_SSLV3_ALERT_HANDSHAKE_FAILURE'), is: false },
    { name: 'settings in place of an answer', error: parserError(SETTINGS), is: true },
    { name: 'settings in a fault', error: new Fault('upstream_protocol', 'x', parserError(SETTINGS)), is: true },
    { name: 'empty settings', error: parserError('\0\0\0\x04\0\0\0\0\0'), is: true },
    { name: 'half a frame', error: parserError(SETTINGS.slice(0, 8)), is: false },
    { name: 'settings that acknowledge', error: parserError('\0\0\0\x04\x01\0\0\0\0'), is: false },
    { name: 'another frame', error: parserError(SETTINGS.replace('\x04', '\x06')), is: false },
    { name: 'settings that come later', error: parserError(`x${SETTINGS}`), is: false },
    { name: 'a parser that had nothing', error: parserError(undefined), is: false },
    { name: 'settings in an error of another kind', error: Object.assign(thrown('ECONNRESET'), { data: SETTINGS }), is: false },
    { name: 'nothing', error: undefined, is: false },
  ])('says of $name: $is', ({ error, is }) => {
    expect(speaksOnlyH2(error)).toBe(is);
  });
});
