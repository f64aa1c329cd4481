import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, it } from 'vitest';
import { parseAddress, parseAuthority } from '../../src/exchange/authority.ts';
import { Fault, Refusal } from '../../src/exchange/codes.ts';
import { auditLine, createAuditLine, createAuditText } from '../../src/record/audit-line.ts';
import { outcome } from './outcomes.ts';
import type { Wanted } from './outcomes.ts';

const KEYS = [
  'time',
  'request_id',
  'sandbox',
  'action_id',
  'door',
  'protocol',
  'method',
  'scheme',
  'host',
  'port',
  'path',
  'rule',
  'decision',
  'reason',
  'credentials',
  'address',
  'status',
  'bytes_sent',
  'bytes_received',
  'duration_ms',
  'phases_ms',
];

const authority = parseAuthority('inside.example:8443');
if (authority === undefined) throw new Error('internal error');
const ceiling = { scheme: 'https', authority, identity: undefined } as const;
const malformed = new Refusal('bad_request', 'the target is malformed');

describe('auditLine', () => {
  it('has exactly the keys of the contract, in their order, on every path', () => {
    const wanted: Wanted[] = [
      {},
      { verdict: new Refusal('not_allowlisted', 'no'), rule: null },
      { verdict: malformed, authority: null },
      { verdict: new Fault('dns_failed', 'no answer') },
      { purpose: 'tunnel', scheme: null, path: '', query: '' },
    ];
    for (const each of wanted) expect(Object.keys(auditLine(outcome(each)))).toEqual(KEYS);
  });

  it('writes down a whole allowed exchange', () => {
    const trace = {
      credentials: ['github'],
      address: parseAddress('140.82.121.6'),
      bytesSent: 12,
      bytesReceived: 3456,
      dnsMs: 1.23456,
      connectMs: 20,
      waitMs: 0,
    };
    expect(auditLine(outcome({ trace }), Date.UTC(2026, 0, 2, 3, 4, 5, 6))).toEqual({
      time: '2026-01-02T03:04:05.006Z',
      request_id: '7b1c0e52-8a53-4b9e-9a39-0c1f3b1f0a11',
      sandbox: 'box-1',
      action_id: null,
      door: 'tunnel',
      protocol: 'http/1.1',
      method: 'GET',
      scheme: 'https',
      host: 'api.github.com',
      port: 443,
      path: '/repos',
      rule: 'api.github.com',
      decision: 'allow',
      reason: null,
      credentials: ['github'],
      address: '140.82.121.6',
      status: 200,
      bytes_sent: 12,
      bytes_received: 3456,
      duration_ms: 12.346,
      phases_ms: { dns: 1.235, connect: 20, tls: null, wait: 0 },
    });
  });

  it.each<{ name: string; wanted: Wanted; shows: object }>([
    {
      name: "names a refusal's own rule before the permit's",
      wanted: { verdict: new Refusal('denylisted', 'no', '*.bad.example') },
      shows: { rule: '*.bad.example', reason: 'denylisted', decision: 'refuse' },
    },
    {
      name: 'names the rule of the permit where a later step refused',
      wanted: { verdict: new Refusal('address_denied', 'no') },
      shows: { rule: 'api.github.com', reason: 'address_denied' },
    },
    {
      name: 'gives what would have been refused as the reason',
      wanted: { wouldRefuse: 'path_denied', decision: 'would_refuse' },
      shows: { reason: 'path_denied', decision: 'would_refuse' },
    },
    {
      name: 'has neither host nor port where the syntax failed outside a tunnel',
      wanted: { verdict: malformed, authority: null, target: '/x?k=1' },
      shows: { host: null, port: null, scheme: null, path: '/x', rule: null },
    },
    {
      name: 'has the host of the tunnel where the syntax failed inside one',
      wanted: { verdict: malformed, authority: null, ceiling },
      shows: { host: 'inside.example', port: 8443, scheme: 'https' },
    },
    {
      name: 'has neither path nor scheme for a CONNECT',
      wanted: { method: 'CONNECT', purpose: 'tunnel', scheme: null, path: '', query: '' },
      shows: { path: null, scheme: null, host: 'api.github.com' },
    },
    { name: 'has no status where none was sent', wanted: { trace: { status: 0 } }, shows: { status: null } },
    { name: 'has no sandbox where none was found', wanted: { trace: { sandbox: '' } }, shows: { sandbox: null } },
  ])('$name', ({ wanted, shows }) => {
    expect(auditLine(outcome(wanted))).toMatchObject(shows);
  });

  it.each([
    { name: 'a plain id', value: 'run-7:step.3_b', kept: true },
    { name: 'an id of 64 characters', value: 'a'.repeat(64), kept: true },
    { name: 'an id of 65 characters', value: 'a'.repeat(65), kept: false },
    { name: 'an empty id', value: '', kept: false },
    { name: 'an id with a space', value: 'run 7', kept: false },
    { name: 'an id with a line break', value: 'run\n7', kept: false },
    { name: 'an id with a quote', value: 'run"7', kept: false },
  ])('keeps or drops $name', ({ value, kept }) => {
    expect(auditLine(outcome({ fields: ['X-Sallyport-Action-Id', value] })).action_id).toBe(kept ? value : null);
  });
});

describe('auditLine against forged lines', () => {
  const raw = /[^\x20-\x7e]/;

  it.each([
    { name: 'leaves percent sequences undecoded', path: '/%0d%0aFAKE', shown: '/%0d%0aFAKE' },
    { name: 'spells out line breaks', path: '/a\r\n{"decision":"allow"}', shown: '/a\\u000d\\u000a{"decision":"allow"}' },
    { name: 'spells out ESC', path: '/\u001b[2J', shown: '/\\u001b[2J' },
    { name: 'spells out NUL and DEL', path: '/\u0000\u007f', shown: '/\\u0000\\u007f' },
    { name: 'spells out U+2028, U+2029 and U+0085', path: '/\u2028\u2029\u0085', shown: '/\\u2028\\u2029\\u0085' },
    { name: 'spells out a direction override', path: '/\u202egpj', shown: '/\\u202egpj' },
    { name: 'spells out bytes that are no UTF-8', path: '/\u00ff\u00c0\ud800', shown: '/\\u00ff\\u00c0\\ud800' },
    { name: 'keeps quotes and backslashes for JSON to escape', path: '/"\\', shown: '/"\\' },
  ])('$name', ({ path, shown }) => {
    const line = auditLine(outcome({ path })); // fault L01
    expect(line.path).toBe(shown);
    const text = JSON.stringify(line);
    expect(text).not.toMatch(raw);
    expect((JSON.parse(text) as { path: string }).path).toBe(shown);
  });

  it.each([
    { name: 'a path at the cap is whole', path: '/'.padEnd(1024, 'a'), length: 1024, cut: false },
    { name: 'a path past the cap is cut', path: '/'.padEnd(1025, 'a'), length: 1024, cut: true },
    { name: 'a path of 64 KiB is cut', path: '/'.padEnd(65536, 'a'), length: 1024, cut: true },
    { name: 'a path of 64 KiB of controls is cut after its escapes', path: '\u001b'.repeat(65536), length: 1024, cut: true },
  ])('$name', ({ path, length, cut }) => {
    const line = auditLine(outcome({ path })); // fault L01
    expect(line.path).toHaveLength(length);
    expect(line.path?.endsWith('...')).toBe(cut);
  });

  it('caps and spells out the method', () => {
    expect(auditLine(outcome({ method: 'G\u001bT' })).method).toBe('G\\u001bT'); // fault L01
    expect(auditLine(outcome({ method: 'M'.repeat(33) })).method).toHaveLength(32);
  });
});

describe('auditLine of a target that nobody could read', () => {
  it.each([
    { name: 'strips the query of a path', target: '/a?token=SENTINEL', shown: '/a' },
    { name: 'strips a fragment', target: '/a#SENTINEL', shown: '/a' },
    { name: 'keeps an at sign in a path', target: '/users/@me', shown: '/users/@me' },
    { name: 'strips userinfo of a URL', target: 'http://user:SENTINEL@host.example/a', shown: 'http://host.example/a' },
    { name: 'strips userinfo of a CONNECT', target: 'user:SENTINEL@host.example:443', shown: 'host.example:443' },
    {
      name: 'strips a password that has a slash',
      target: 'http://user:SENT/INEL@host.example/a',
      shown: 'http://host.example/a',
    },
    { name: 'strips a password that has an at sign', target: 'http://u:SENT@INEL@host.example/', shown: 'http://host.example/' },
    {
      name: 'shows nothing where a password may hold the question mark',
      target: 'http://u:SENT?INEL@host.example/',
      shown: 'http://...',
    },
    { name: 'shows nothing where the query has an at sign', target: 'http://host.example/?k=a@SENTINEL', shown: 'http://...' },
    { name: 'strips userinfo behind two slashes', target: '//u:SENTINEL@host.example/', shown: 'host.example/' },
    { name: 'strips userinfo behind a backslash', target: '/\\u:SENTINEL@host.example/', shown: 'host.example/' },
    { name: 'strips userinfo without slashes', target: 'http:u:SENTINEL@host.example', shown: 'host.example' },
  ])('$name', ({ target, shown }) => {
    const line = auditLine(outcome({ target, authority: null, verdict: malformed })); // fault E18
    expect(line.path).toBe(shown);
  });
});

describe('createAuditLine', () => {
  it('gives the line that auditLine gives, whatever came before', () => {
    const lineAt = createAuditLine();
    const times = [0, 1, 999, 1000, 1_799_999_999_999, 1_800_000_000_000, 1_800_000_000_001, 5.75];
    for (const endedAt of times) expect(lineAt(outcome(), endedAt)).toEqual(auditLine(outcome(), endedAt));
  });
});

describe('createAuditText', () => {
  it.each<{ name: string; wanted: Wanted }>([
    {
      name: 'an allowed exchange',
      wanted: { trace: { credentials: ['a', 'b'], address: parseAddress('192.0.2.1'), dnsMs: 0.5, waitMs: 1e-7 } },
    },
    { name: 'a refusal without host', wanted: { verdict: malformed, authority: null, trace: { status: 0, sandbox: '' } } },
    {
      name: 'quotes, backslashes and controls',
      wanted: { path: '/"\\\n\u2028', rule: 'a"b\\c\u0001\u00e9', trace: { sandbox: '"' } },
    },
    { name: 'numbers that are none', wanted: { durationMs: NaN, trace: { bytesSent: Infinity } } },
  ])('is what JSON.stringify gives: $name', ({ wanted }) => {
    const line = auditLine(outcome(wanted)); // fault L01
    expect(createAuditText()(line)).toBe(JSON.stringify(line));
  });

  it('is what JSON.stringify gives for each of many lines, whatever is alike or differs between them', () => {
    const auditText = createAuditText();
    const changes: readonly Wanted[] = [
      {},
      { method: 'POST' },
      { authority: 'api.github.com:8443' },
      { authority: 'other.test:443' },
      { authority: null, verdict: malformed },
      { scheme: 'http' },
      { protocol: 'websocket' },
      { door: 'tunnel' },
      { fields: ['X-Sallyport-Action-Id', 'a-1'] },
      { trace: { sandbox: 'other' } },
      { trace: { credentials: ['a'] } },
      { trace: { credentials: ['a', 'b'] } },
      { trace: { address: parseAddress('192.0.2.1') } },
      { trace: { status: 404 } },
      { rule: 'another' },
      { wouldRefuse: 'path_denied', decision: 'would_refuse' },
    ];
    for (const first of changes) {
      for (const then of changes) {
        for (const line of [auditLine(outcome(first)), auditLine(outcome(then))])
          expect(auditText(line)).toBe(JSON.stringify(line));
      }
    }
  });

  it('keeps of a request no more than it compares, however long its target', () => {
    const auditText = createAuditText();
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc') as () => void;
    const write = (round: number): void => {
      for (let i = 0; i < 1000; i += 1) {
        const target = Buffer.from(
          `http://host-${round}-${i}.long-enough.test/a/path/that/is/cut?${'a'.repeat(16_000)}`,
        ).toString('latin1');
        const [authority = ''] = target.slice(7).split('/');
        const path = target.slice(target.indexOf('/', 7), target.indexOf('?'));
        auditText(auditLine(outcome({ authority: `${authority}:80`, path })));
      }
    };
    write(0);
    collect();
    const before = process.memoryUsage().heapUsed;
    write(1);
    collect();
    expect(process.memoryUsage().heapUsed - before).toBeLessThan(4 * 1024 * 1024);
  });
});
