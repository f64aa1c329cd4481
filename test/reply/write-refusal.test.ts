import { describe, expect, it } from 'vitest';
import { CODES, Fault, Refusal } from '../../src/exchange/codes.ts';
import type { Code } from '../../src/exchange/codes.ts';
import { fieldValue } from '../../src/exchange/header-fields.ts';
import { writeRefusal } from '../../src/reply/write-refusal.ts';
import { exchangeArrival, passthroughArrival, tunnelArrival } from '../support/arrivals.ts';

const codes = Object.keys(CODES) as Code[];
const ENDING: readonly Code[] = [
  'bad_request',
  'request_timeout',
  'headers_too_large',
  'uri_too_long',
  'limit_reached',
  'shutting_down',
];

function answerTo(verdict: Refusal | Fault, method = 'GET') {
  const arrival = exchangeArrival({ method, requestId: 'request-1' });
  const status = writeRefusal(arrival, verdict);
  const head = arrival.reply.recordedHead;
  if (head === undefined) throw new Error('there is no answer');
  return { status, head, body: arrival.reply.body, reply: arrival.reply };
}

describe('writeRefusal', () => {
  const answered = codes.filter((code) => CODES[code].status !== 499);

  it.each(answered)('answers %s with its status, its code twice over and how to allow it', (code) => {
    const { status, head, body, reply } = answerTo(new Refusal(code, 'what was wrong'));
    const entry = CODES[code];
    expect([status, head.status]).toEqual([entry.status, entry.status]);
    expect(fieldValue(head.fields, 'x-sallyport-reason')).toBe(code);
    expect(fieldValue(head.fields, 'proxy-status')).toBe(`sallyport; error=${entry.proxyError}; details="${code}"`);
    expect(fieldValue(head.fields, 'content-type')).toBe('application/problem+json');
    expect(fieldValue(head.fields, 'content-length')).toBe(String(Buffer.byteLength(body)));
    expect(JSON.parse(body)).toEqual({
      type: `urn:sallyport:problem:${code}`,
      title: entry.title,
      status: entry.status,
      detail: 'what was wrong',
      code,
      hint: entry.hint,
      request_id: 'request-1',
    });
    expect(head.close).toBe(ENDING.includes(code));
    expect(reply.ended).toBe(true);
  });

  it('shows the message of a fault and nothing of its cause', () => {
    const cause = Object.assign(new Error('connect ECONNREFUSED 10.1.2.3:443'), { headers: 'Bearer sentinel' });
    const { head, body } = answerTo(new Fault('upstream_connect', 'no connection could be opened', cause));
    expect(body).toContain('no connection could be opened');
    expect(body + head.fields.join('\n')).not.toMatch(/10\.1\.2\.3|sentinel|ECONNREFUSED/); // H06
  });

  it('keeps what came from the wire out of the fields', () => {
    const { head, body } = answerTo(new Refusal('method_denied', 'does not allow the method A"\r\nX-Evil: 1\u2028'));
    expect(head.fields.join('\n')).not.toContain('X-Evil');
    expect(body.trimEnd()).not.toMatch(/[\r\n]/);
  });

  it('says how to authenticate with a 407 alone, and which methods there are with a 405 alone', () => {
    const withField = (name: string): Code[] =>
      answered.filter((code) => fieldValue(answerTo(new Refusal(code, '')).head.fields, name) !== undefined);
    expect(withField('proxy-authenticate')).toEqual(['sandbox_unauthenticated']);
    expect(withField('allow')).toEqual(['method_forbidden']);
    expect(fieldValue(answerTo(new Refusal('method_forbidden', '')).head.fields, 'allow')).not.toMatch(/TRACE|TRACK|CONNECT/); // E11
  });

  it('answers HEAD without a body, with the length that a GET would have had', () => {
    const { body, head, reply } = answerTo(new Refusal('not_allowlisted', 'no'), 'HEAD');
    expect(body).toBe('');
    expect(fieldValue(head.fields, 'content-length')).toBe(
      String(Buffer.byteLength(answerTo(new Refusal('not_allowlisted', 'no')).body)),
    );
    expect(reply.ended).toBe(true);
  });

  it('answers a CONNECT on the CONNECT itself', () => {
    const arrival = tunnelArrival();
    expect(writeRefusal(arrival, new Refusal('not_allowlisted', 'no'))).toBe(403);
    expect(arrival.reply.status).toBe(403);
  });

  it.each([
    { name: 'a head has gone out', prepare: (arrival: ReturnType<typeof exchangeArrival>) => arrival.reply.head(200, 'OK', []) },
    { name: 'the sandbox has left', prepare: (arrival: ReturnType<typeof exchangeArrival>) => arrival.reply.sandboxLeaves() },
  ])('cuts the connection and claims no status where $name', ({ prepare }) => {
    const arrival = exchangeArrival();
    prepare(arrival);
    const before = arrival.reply.calls.length;
    expect(writeRefusal(arrival, new Fault('upstream_protocol', 'the upstream broke off'))).toBe(0);
    expect(arrival.reply.calls.slice(before)).toEqual(['abort']);
  });

  it.each(['client_closed', 'client_tls'] satisfies Code[])('has no answer for %s', (code) => {
    const arrival = exchangeArrival();
    expect(writeRefusal(arrival, new Fault(code, 'the sandbox left'))).toBe(0);
    expect(arrival.reply.calls).toEqual(['abort']);
  });

  it('writes no answer into a tunnel that nobody looks into', () => {
    const arrival = passthroughArrival();
    expect(writeRefusal(arrival, new Refusal('address_denied', 'no'))).toBe(0);
    expect(arrival.reply.calls).toEqual(['abort']);
  });
});
