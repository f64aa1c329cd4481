import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createAttach, resolveDeclared } from '../../src/credentials/attach.ts';
import type { ResolveCredential } from '../../src/credentials/attach.ts';
import { Fault, isRefusal } from '../../src/exchange/codes.ts';
import { fieldValues } from '../../src/exchange/header-fields.ts';
import type { Injection } from '../../src/exchange/rule.ts';
import type { Resolution } from '../../src/exchange/snapshot.ts';
import type { Arrival, Dispatch } from '../../src/exchange/stages.ts';
import {
  ceilingAt,
  exchangeArrival,
  injectionOf,
  passthroughArrival,
  routeOf,
  ruleOf,
  secretFields,
  upgradeArrival,
} from '../support/arrivals.ts';

const TUNNEL = ceilingAt('api.test:443');
const STORED: ResolveCredential = () => ({ fields: secretFields({ Authorization: 'Bearer ours' }) });

type Outcome = Awaited<ReturnType<ReturnType<typeof createAttach>>>;

function attach(
  arrival: Arrival,
  injection: Injection | undefined,
  resolve: ResolveCredential = STORED,
): Outcome | Promise<Outcome> {
  return createAttach({ resolve })(routeOf(arrival, ruleOf({ id: 'api.test', injection })), new Map());
}

function attachNow(arrival: Arrival, injection?: Injection, resolve?: ResolveCredential): Dispatch {
  const outcome = attach(arrival, injection, resolve);
  if (outcome instanceof Promise || isRefusal(outcome)) throw new Error('expected a dispatch at once');
  return outcome;
}

/** The fields that go upstream for what a sandbox sent inside the tunnel. */
const sentOn = (more: readonly string[], injection?: Injection, resolve?: ResolveCredential): readonly string[] =>
  attachNow(exchangeArrival({ ceiling: TUNNEL, more }), injection, resolve).fields;

const credential = (parts: Partial<Omit<Injection, 'transform'>> = {}) => injectionOf({ credential: 'github', ...parts });

describe('a rule that puts nothing on', () => {
  it('passes the end-to-end fields on as they were, behind a Host of its own', () => {
    const more = ['Accept', '*/*', 'x-b', '1', 'X-B', '2', 'Authorization', 'Bearer theirs', 'Cookie', 'a=b'];
    expect(sentOn(more)).toEqual(['Host', 'api.test', ...more]);
  });

  it.each([
    {
      name: 'hop-by-hop ones',
      more: ['Keep-Alive', '5', 'TE', 'trailers', 'Trailer', 'x', 'Proxy-Connection', 'close'],
      fault: 'E01',
    },
    { name: 'the proxy credential', more: ['Proxy-Authorization', 'Basic a'], fault: 'E15' },
    { name: 'the proxy credential in upper case', more: ['PROXY-AUTHORIZATION', 'Basic a'], fault: 'E15' },
    { name: 'nominated ones', more: ['X-Foo', '1', 'Connection', 'x-foo'], fault: 'E01' },
    {
      name: 'an upgrade that was not accepted',
      more: ['Connection', 'Upgrade', 'Upgrade', 'h2c', 'HTTP2-Settings', 'x'],
      fault: 'E01',
    },
    { name: 'an expectation, which is met at the door', more: ['Expect', '100-continue'], fault: 'D11' },
    {
      name: "Sallyport's own",
      more: ['X-Sallyport-Action-Id', '1', 'x-sallyport-reason', 'x', 'Proxy-Status', 'sallyport'],
      fault: 'B14',
    },
  ])('leaves out $name', ({ more }) => {
    expect(sentOn(more)).toEqual(['Host', 'api.test']);
  });

  it.each([
    { target: 'http://svc.test:8080/api', host: 'svc.test:8080' },
    { target: 'http://svc.test:80/', host: 'svc.test' },
    { target: 'http://SVC.test./', host: 'svc.test' },
    { target: 'https://svc.test:8443/', host: 'svc.test:8443' },
    { target: 'https://svc.test:443/', host: 'svc.test' },
    { target: 'http://[2001:DB8::1]:8080/', host: '[2001:db8::1]:8080' },
  ])('rebuilds the Host of $target as $host', ({ target, host }) => {
    expect(attachNow(exchangeArrival({ target })).fields).toEqual(['Host', host]); // C06, C04
  });

  it('sends no field into a tunnel that nobody looks into, and no credential', () => {
    const outcome = attach(passthroughArrival(), credential(), () => {
      throw new Error('nobody may ask for it');
    });
    expect(outcome).toMatchObject({ fields: [], credentials: [] });
  });
});

describe('mode: set', () => {
  it.each([
    { name: 'nothing', more: [] },
    { name: 'it in lower case', more: ['authorization', 'Bearer x'] },
    { name: 'it twice, in two cases', more: ['AUTHORIZATION', 'y', 'authorization', 'Bearer x'] },
    {
      name: 'it nominated away',
      more: ['Connection', 'close, Authorization, Host, Content-Length', 'Authorization', 'x'],
      fault: 'E02',
    },
    { name: 'a nomination alone', more: ['Connection', 'Authorization'], fault: 'E02' },
  ])('puts the credential on exactly once where the sandbox sent $name', ({ more }) => {
    const dispatch = attachNow(exchangeArrival({ ceiling: TUNNEL, more }), credential());
    expect(dispatch.fields).toEqual(['Host', 'api.test', 'Authorization', 'Bearer ours']); // E03
    expect(dispatch.credentials).toEqual(['github']);
  });

  it.each([
    { name: 'a stored credential', injection: credential(), kept: ['Accept', 'a'] },
    {
      name: 'a transform that authenticates',
      injection: injectionOf({ transform: { 'X-Api-Key': 'ours' } }),
      kept: ['Accept', 'a'],
    },
    { name: 'a kept cookie', injection: credential({ keep: new Set(['cookie']) }), kept: ['Cookie', 'c=1', 'Accept', 'a'] },
  ])("drops the sandbox's own authenticating fields beside $name", ({ injection, kept }) => {
    const more = [
      'authorization',
      'x',
      'Cookie',
      'c=1',
      'X-API-KEY',
      'k',
      'x_api_key',
      'k',
      'X-Goog-Api-Key',
      'g',
      'Accept',
      'a',
    ];
    const [name, value] = injection.credential === undefined ? ['X-Api-Key', 'ours'] : ['Authorization', 'Bearer ours'];
    expect(sentOn(more, injection)).toEqual(['Host', 'api.test', ...kept, name, value]); // E04
  });

  it('leaves them alone beside a transform that authenticates nothing', () => {
    const more = ['Authorization', 'x', 'Cookie', 'c=1', 'user-agent', 'theirs'];
    const injection = injectionOf({ transform: { 'User-Agent': 'ours' } });
    expect(sentOn(more, injection)).toEqual(['Host', 'api.test', 'Authorization', 'x', 'Cookie', 'c=1', 'User-Agent', 'ours']);
  });

  it('puts the transform on top of the credential, by name in any case', () => {
    const injection = injectionOf({ credential: 'github', transform: { authorization: 'Basic ours', 'X-More': '1' } });
    const dispatch = attachNow(exchangeArrival({ ceiling: TUNNEL }), injection);
    expect(dispatch.fields).toEqual(['Host', 'api.test', 'authorization', 'Basic ours', 'X-More', '1']);
    expect(dispatch.credentials).toEqual([]);
  });

  it('tells of the credential where some of it went on', () => {
    const resolve: ResolveCredential = () => ({ fields: secretFields({ Authorization: 'a', 'X-Org': 'o' }) });
    const injection = injectionOf({ credential: 'github', transform: { Authorization: 'b' } });
    const dispatch = attachNow(exchangeArrival({ ceiling: TUNNEL }), injection, resolve);
    expect(dispatch.fields.slice(2)).toEqual(['Authorization', 'b', 'X-Org', 'o']);
    expect(dispatch.credentials).toEqual(['github']);
  });

  it('puts no name on twice, however the sandbox and the operator spell it', () => {
    const spelled = (name: string) =>
      fc
        .array(fc.boolean(), { minLength: name.length, maxLength: name.length })
        .map((upper) => Array.from(name, (c, i) => (upper[i] ? c.toUpperCase() : c === '-' && upper[0] ? '_' : c)).join(''));
    const name = fc.constantFrom('authorization', 'x-api-key', 'x-org').chain(spelled);
    const dictionary = fc.array(name, { minLength: 1, maxLength: 3 });
    fc.assert(
      fc.property(
        fc.array(name, { maxLength: 6 }),
        dictionary,
        dictionary,
        fc.constantFrom('set', 'replace', 'if_absent'),
        (sent, stored, transformed, mode) => {
          const ours = (names: readonly string[]) => secretFields(Object.fromEntries(names.map((text) => [text, 'ours'])));
          const injection: Injection = { ...injectionOf({ credential: 'c', mode }), transform: ours(transformed) };
          const fields = sentOn(
            sent.flatMap((text) => [text, 'theirs']),
            injection,
            () => ({ fields: ours(stored) }),
          );
          const loose = (index: number): string => (fields[index] as string).toLowerCase().replaceAll('_', '-');
          const injected = fields.flatMap((text, index) => (index % 2 === 1 && text === 'ours' ? [loose(index - 1)] : []));
          const left = fields.flatMap((text, index) => (index % 2 === 1 && text === 'theirs' ? [loose(index - 1)] : []));
          expect(new Set(injected).size).toBe(injected.length);
          expect(injected.filter((text) => left.includes(text))).toEqual([]);
        },
      ),
    );
  });
});

describe('mode: replace', () => {
  const replace = credential({ mode: 'replace' });

  it.each([
    {
      name: 'the field was sent',
      more: ['AUTHORIZATION', 'placeholder'],
      fields: ['Authorization', 'Bearer ours'],
      used: ['github'],
    },
    {
      name: 'another one was',
      more: ['X-Session', 'theirs', 'Cookie', 'c'],
      fields: ['X-Session', 'theirs', 'Cookie', 'c'],
      used: [],
    },
    { name: 'it was nominated away', more: ['Authorization', 'x', 'Connection', 'authorization'], fields: [], used: [] },
    { name: 'nothing was sent', more: [], fields: [], used: [] },
  ])('acts only over the field itself: $name', ({ more, fields, used }) => {
    const dispatch = attachNow(exchangeArrival({ ceiling: TUNNEL, more }), replace);
    expect(dispatch.fields).toEqual(['Host', 'api.test', ...fields]); // E05
    expect(dispatch.credentials).toEqual(used);
  });

  it('judges the fields of credential and transform one by one', () => {
    const injection = injectionOf({ credential: 'github', mode: 'replace', transform: { 'X-Org': 'ours' } });
    const dispatch = attachNow(exchangeArrival({ ceiling: TUNNEL, more: ['x-org', 'theirs'] }), injection);
    expect(dispatch.fields).toEqual(['Host', 'api.test', 'X-Org', 'ours']);
    expect(dispatch.credentials).toEqual([]);
  });
});

describe('mode: if_absent', () => {
  const ifAbsent = injectionOf({ credential: 'github', mode: 'if_absent', transform: { 'X-Org': 'ours' } });

  it.each([
    { name: 'neither was sent', more: [], fields: ['Authorization', 'Bearer ours', 'X-Org', 'ours'] },
    { name: 'one was', more: ['authorization', 'theirs'], fields: ['authorization', 'theirs', 'X-Org', 'ours'] },
    { name: 'an empty one was', more: ['x-org', ''], fields: ['x-org', '', 'Authorization', 'Bearer ours'] },
    {
      name: 'it was nominated away',
      more: ['Authorization', 'x', 'Connection', 'authorization'],
      fields: ['Authorization', 'Bearer ours', 'X-Org', 'ours'],
    },
  ])("yields to the sandbox's own: $name", ({ more, fields }) => {
    expect(sentOn(more, ifAbsent)).toEqual(['Host', 'api.test', ...fields]); // E05
  });
});

describe('plain http', () => {
  const plain = exchangeArrival({ target: 'http://api.test/' });
  const unasked: ResolveCredential = () => {
    throw new Error('nobody may ask for it');
  };

  it.each([
    { name: 'a credential', arrival: plain, injection: credential() },
    { name: 'a transform', arrival: plain, injection: injectionOf({ transform: { 'X-Any': 'x' } }) },
    { name: 'a WebSocket', arrival: upgradeArrival({ target: 'http://api.test/' }), injection: credential() },
    {
      name: 'a plain tunnel',
      arrival: exchangeArrival({ ceiling: ceilingAt('api.test:80', { scheme: 'http' }) }),
      injection: credential(),
    },
    {
      name: 'a plain tunnel to 443',
      arrival: exchangeArrival({ ceiling: ceilingAt('api.test:443', { scheme: 'http' }) }),
      injection: credential(),
    },
  ])('is refused before the credential is asked for: $name', ({ arrival, injection }) => {
    expect(attach(arrival, injection, unasked)).toMatchObject({ code: 'plaintext_credential', rule: 'api.test' }); // E16
  });

  it('bears the credential where the rule says so, and passes bare where it puts nothing on', () => {
    expect(attachNow(plain, credential({ allowPlaintext: true })).fields).toEqual([
      'Host',
      'api.test',
      'Authorization',
      'Bearer ours',
    ]);
    expect(attachNow(plain).fields).toEqual(['Host', 'api.test']);
  });
});

describe('a credential that cannot be had', () => {
  const BROKEN: readonly { name: string; resolve: ResolveCredential }[] = [
    { name: 'is unavailable', resolve: () => ({ unavailable: 'no such credential' }) },
    { name: 'is unavailable later', resolve: () => Promise.resolve({ unavailable: 'expired' }) },
    {
      name: 'throws',
      resolve: () => {
        throw new Error('store is gone');
      },
    },
    { name: 'rejects', resolve: () => Promise.reject(new Error('store is gone')) },
    { name: 'holds a line break', resolve: () => ({ fields: secretFields({ Authorization: 'sentinel\r\nX-Evil: 1' }) }) },
    { name: 'holds a lone LF', resolve: () => ({ fields: secretFields({ Authorization: 'sentinel\nx' }) }) },
    { name: 'holds a NUL', resolve: () => ({ fields: secretFields({ Authorization: 'sentinel\0' }) }) },
    { name: 'holds a character beyond latin1', resolve: () => ({ fields: secretFields({ Authorization: 'sentinel\u0100' }) }) },
    { name: 'has a name that is none', resolve: () => ({ fields: secretFields({ 'X-A: b\r\nX-Evil': 'sentinel' }) }) },
  ];

  it.each(BROKEN)('refuses the request, names the credential and counts it once: $name', async ({ resolve }) => {
    const heard: string[] = [];
    const step = createAttach({ resolve, onUnavailable: (id) => heard.push(id) });
    const route = routeOf(exchangeArrival({ ceiling: TUNNEL }), ruleOf({ injection: credential() }));
    const fault: unknown = await Promise.resolve()
      .then(() => step(route, new Map()))
      .catch((error: unknown) => error);
    expect(fault).toBeInstanceOf(Fault);
    expect(fault).toMatchObject({ code: 'credential_unavailable', message: 'the credential "github" cannot be resolved' }); // E08
    expect(String(fault) + String((fault as Fault).cause)).not.toContain('sentinel');
    expect(heard).toEqual(['github']);
  });

  it('refuses a rule that is at fault itself, and names neither it nor what it lacks', () => {
    const heard: string[] = [];
    const step = createAttach({ resolve: STORED, onUnavailable: (id) => heard.push(id) });
    const injection = injectionOf({ credential: 'github', transform: { 'X-A': 'a' }, unavailable: 'file "key" does not exist' });
    const route = routeOf(exchangeArrival({ ceiling: TUNNEL }), ruleOf({ injection }));
    let fault: unknown;
    try {
      void step(route, new Map());
    } catch (error) {
      fault = error;
    }
    expect(fault).toMatchObject({
      code: 'credential_unavailable',
      message: 'what the rule puts on cannot be resolved',
      cause: new Error('file "key" does not exist'),
    });
    expect(heard).toEqual(['_rule']);
  });

  it('takes what the snapshot of the exchange declares, and nothing that another one does', () => {
    const step = createAttach({ resolve: resolveDeclared });
    const route = routeOf(exchangeArrival({ ceiling: TUNNEL }), ruleOf({ injection: credential() }));
    const declaring = (value: string) => new Map([['github', { fields: secretFields({ Authorization: value }) }]]);
    const sent = (declared: ReadonlyMap<string, Resolution>) => (step(route, declared) as Dispatch).fields;
    expect(fieldValues(sent(declaring('old')), 'authorization')).toEqual(['old']);
    expect(fieldValues(sent(declaring('new')), 'authorization')).toEqual(['new']);
    expect(() => sent(new Map())).toThrow('what the rule puts on cannot be resolved');
  });

  it('waits for one that must be fetched, for the sandbox that asks', async () => {
    const asked: string[] = [];
    const resolve = (id: string, sandbox: string): Promise<Resolution> => {
      asked.push(id, sandbox);
      return Promise.resolve({ fields: secretFields({ 'X-Api-Key': 'ours' }) });
    };
    const dispatch = await attach(exchangeArrival({ ceiling: TUNNEL }), credential(), resolve);
    expect(dispatch).toMatchObject({ credentials: ['github'] });
    expect(fieldValues(isRefusal(dispatch) ? [] : dispatch.fields, 'x-api-key')).toEqual(['ours']);
    expect(asked).toEqual(['github', 'default']);
  });
});
