// Twin of src/credentials/swap.ts, with completion.ts, trusted.ts and signer.ts, through the step that they are part of: who is asked for
// what, what a request without placeholders costs, and what goes out at each attempt.
import { Readable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { createAttach } from '../../src/credentials/attach.ts';
import type { AttachOptions } from '../../src/credentials/attach.ts';
import { MOST_HELD_BODY } from '../../src/credentials/completion.ts';
import type { ResolveCredential } from '../../src/credentials/resolve.ts';
import { signingOf } from '../../src/credentials/signer.ts';
import { placeholderOf } from '../../src/credentials/trusted.ts';
import { parseHost } from '../../src/exchange/authority.ts';
import type { Host } from '../../src/exchange/authority.ts';
import { isRefusal } from '../../src/exchange/codes.ts';
import { fieldValue } from '../../src/exchange/header-fields.ts';
import type { Resolution } from '../../src/exchange/snapshot.ts';
import { makePermit, makeRoute } from '../../src/exchange/stages.ts';
import type { Arrival, Dispatch } from '../../src/exchange/stages.ts';
import { Secret } from '../../src/foundation/secret.ts';
import { ceilingAt, DEFAULT_SANDBOX, exchangeArrival, injectionOf, intentOf, ruleOf } from '../support/arrivals.ts';

const TUNNEL = ceilingAt('api.test:443');
const NONE = new Map<string, Resolution>();

const valueOf = (
  text: string,
  places: readonly ('header' | 'query' | 'body')[],
  trusted: readonly string[] = ['api.test'],
): Resolution =>
  placeholderOf({ type: 'environment_variable', value: new Secret(text), injection_location: places, trusted_domains: trusted });

const SIGNS = signingOf({
  type: 'aws_sigv4',
  access_key_id: 'AKID',
  secret_access_key: new Secret('key'),
  session_token: undefined,
  region: 'r',
  service: 'dynamodb',
});

/** A step over these credentials, for a sandbox that was given `bound`. */
function stepOver(
  credentials: Readonly<Record<string, Resolution>>,
  { bound, ...options }: { readonly bound?: readonly string[] } & Omit<Partial<AttachOptions>, 'resolve'> = {},
) {
  const asked: string[] = [];
  const resolve: ResolveCredential = (id) => {
    asked.push(id);
    return credentials[id] ?? { unavailable: 'nobody knows it', unknown: true };
  };
  const attach = createAttach({ resolve, ...options });
  const send = (arrival: Arrival, credential?: string, declared: ReadonlyMap<string, Resolution> = NONE): Dispatch => {
    const sandbox = bound === undefined ? DEFAULT_SANDBOX : { ...DEFAULT_SANDBOX, bound: new Set(bound) };
    const rule = ruleOf(credential === undefined ? {} : { injection: injectionOf({ credential }) });
    const permit = makePermit({ intent: intentOf(arrival), sandbox, rule, wouldRefuse: undefined });
    const outcome = attach(makeRoute({ permit, addresses: [], lane: '' }), declared);
    if (outcome instanceof Promise || isRefusal(outcome)) throw new Error('expected a dispatch at once');
    return outcome;
  };
  return { asked, send };
}

const posted = (body: string, more: readonly string[] = ['Content-Length', String(body.length)]) =>
  exchangeArrival({ ceiling: TUNNEL, method: 'POST', more, body: Readable.from([Buffer.from(body)]) });

describe('a request without placeholders', () => {
  it.each([
    { name: 'a plain one', more: ['Authorization', 'Basic dTpw', 'X', '100% __init__', 'Cookie', 'a=%20'] },
    { name: 'one that mentions how they begin', more: ['X', '__GEMINI_CRED_', 'Y', '__GEMINI_CRED___'] },
  ])('asks for no credential and is complete as it is: $name', ({ more }) => {
    const { asked, send } = stepOver({});
    const dispatch = send(exchangeArrival({ ceiling: TUNNEL, target: '/a_b?c=%5Fd', more }));
    expect([asked, dispatch.query, dispatch.completion, dispatch.redaction]).toEqual([[], undefined, undefined, undefined]);
    expect(dispatch.fields).toEqual(['Host', 'api.test', ...more]);
  });

  it('asks for none for its body either, where the sandbox was given none, or the config declares none for bodies', () => {
    for (const bound of [undefined, []]) {
      const { asked, send } = stepOver({}, bound === undefined ? {} : { bound });
      const declared = new Map([['a', valueOf('v', ['header'])]]);
      expect(send(posted('__GEMINI_CRED_a__'), undefined, declared).completion).toBeUndefined();
      expect(asked).toEqual([]);
    }
  });

  it('goes on untouched where a credential that could stand in its body is trusted by another host alone', () => {
    const { asked, send } = stepOver({ a: valueOf('v', ['body'], ['other.test']) }, { bound: ['a'] });
    expect(send(posted('__GEMINI_CRED_a__')).completion).toBeUndefined();
    expect(asked).toEqual(['a']);
  });
});

describe('a body with placeholders', () => {
  const over = { a: valueOf('a value', ['body']) };

  it.each([
    { name: 'the largest that is held', length: MOST_HELD_BODY, hold: MOST_HELD_BODY },
    { name: 'one that is a byte larger', length: MOST_HELD_BODY + 1, hold: undefined },
  ])('$name', ({ length, hold }) => {
    const { send } = stepOver(over, { bound: ['a'] });
    const { completion } = send(posted('', ['Content-Length', String(length)]));
    expect(completion?.hold).toBe(hold);
    const completed = completion?.complete(hold === undefined ? undefined : Buffer.from('<__GEMINI_CRED_a__>'));
    expect(completed?.body?.toString()).toBe(hold === undefined ? undefined : '<a value>');
    expect(fieldValue(completed?.fields ?? [], 'content-length')).toBe(hold === undefined ? undefined : '9');
    expect(completion?.credentials()).toEqual(hold === undefined ? [] : ['a']);
  });

  it('counts a credential once its placeholder has gone by', () => {
    const { send } = stepOver(over, { bound: ['a'] });
    const { completion } = send(posted('', ['Transfer-Encoding', 'chunked']));
    const { through } = completion?.complete(undefined) ?? {};
    expect(completion?.credentials()).toEqual([]);
    expect(through?.push(Buffer.from('__GEMINI_CRED_a__')).toString()).toBe('a value');
    expect(completion?.credentials()).toEqual(['a']);
  });
});

describe('what no answer may show', () => {
  const shownTo = (arrival: Arrival): readonly string[] => {
    const found: string[][] = [];
    const redaction = (secrets: readonly string[]) => {
      found.push([...secrets]);
      return { text: (value: string) => value, stream: () => ({ push: (chunk: Buffer) => chunk, end: () => Buffer.alloc(0) }) };
    };
    const { send } = stepOver({ a: valueOf('a "value"', ['header']), s: SIGNS }, { bound: ['a'], redaction });
    send(arrival);
    return found.flat();
  };

  it('is what took the place of a placeholder, as it is and as JSON has it', () => {
    const arrival = exchangeArrival({ ceiling: TUNNEL, more: ['X', '__GEMINI_CRED_a__'] });
    expect(shownTo(arrival)).toEqual(['a "value"', 'a \\"value\\"']);
  });
});

describe('a signature', () => {
  it('is kept for an attempt soon after, and made anew for a later one', () => {
    let now = Date.UTC(2026, 0, 1);
    const { send } = stepOver({ s: SIGNS }, { now: () => now });
    const { completion } = send(exchangeArrival({ ceiling: TUNNEL }), 's');
    const dates = [0, 59_000, 60_000].map((later) => {
      now = Date.UTC(2026, 0, 1) + later;
      return fieldValue(completion?.complete(undefined).fields ?? [], 'x-amz-date');
    });
    expect(dates).toEqual(['20260101T000000Z', '20260101T000000Z', '20260101T000100Z']);
  });

  it.each([
    { name: 'the largest body that is held', length: MOST_HELD_BODY, fits: true },
    { name: 'one that is a byte larger', length: MOST_HELD_BODY + 1, fits: false },
  ])('over $name', ({ length, fits }) => {
    const failed: string[] = [];
    const { send } = stepOver({ s: SIGNS }, { onUnavailable: (id) => failed.push(id) });
    const act = () => send(posted('', ['Content-Length', String(length)]), 's').completion?.hold;
    if (fits) expect(act()).toBe(MOST_HELD_BODY);
    else expect(act).toThrow(/over 1048576 bytes/);
    expect(failed).toEqual(fits ? [] : ['s']);
  });
});

describe('trusted_domains', () => {
  const { placeholder } = valueOf('v', ['header'], ['api.test', '*.below.test']) as Extract<Resolution, { placeholder: unknown }>;

  it.each([
    ['api.test', true],
    ['a.api.test', false],
    ['xapi.test', false],
    ['api.test.evil', false],
    ['a.below.test', true],
    ['a.b.below.test', true],
    ['below.test', false],
    ['xbelow.test', false],
    ['a.below.test.evil', false],
  ])('%s: %s', (host, trusted) => {
    expect(placeholder.trusts(parseHost(host) as Host)).toBe(trusted);
  });
});
