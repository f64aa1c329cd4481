import { describe, expect, it } from 'vitest';
import { parseAddress } from '../../src/exchange/authority.ts';
import { Fault, Refusal } from '../../src/exchange/codes.ts';
import { createDenials } from '../../src/record/denials.ts';
import { outcome } from './outcomes.ts';
import type { Wanted } from './outcomes.ts';

const refused = (code: ConstructorParameters<typeof Refusal>[0], wanted: Wanted = {}, rule?: string) =>
  outcome({ rule: null, verdict: new Refusal(code, 'no', rule), ...wanted });

describe('the suggestion of a denial', () => {
  it.each<{ name: string; wanted: ReturnType<typeof outcome>; suggestion: object | null }>([
    { name: 'a host on its usual TLS port', wanted: refused('not_allowlisted'), suggestion: { domain: 'api.github.com' } },
    {
      name: 'a host on another port',
      wanted: refused('not_allowlisted', { authority: 'a.example:8443' }),
      suggestion: { domain: 'a.example', ports: [8443] },
    },
    {
      name: 'a plain host on port 80',
      wanted: refused('not_allowlisted', { authority: 'a.example:80', scheme: 'http' }),
      suggestion: { domain: 'a.example' },
    },
    {
      name: 'a plain host on port 443',
      wanted: refused('not_allowlisted', { authority: 'a.example:443', scheme: 'http' }),
      suggestion: { domain: 'a.example', ports: [443] },
    },
    {
      name: 'a CONNECT to port 80',
      wanted: refused('not_allowlisted', { authority: 'a.example:80', scheme: null }),
      suggestion: { domain: 'a.example' },
    },
    {
      name: 'an IPv6 literal',
      wanted: refused('not_allowlisted', { authority: '[2606:4700::1]:443' }),
      suggestion: { domain: '2606:4700::1' },
    },
    {
      name: "a port under a wildcard rule: the rule's domain, because an exact one would take the host over",
      wanted: refused('port_denied', { authority: 'a.example:22' }, '*.example#2'),
      suggestion: { domain: '*.example', ports: [22] },
    },
    {
      name: 'a method',
      wanted: refused('method_denied', { method: 'DELETE' }, 'api.github.com'),
      suggestion: { domain: 'api.github.com', methods: ['DELETE'] },
    },
    {
      name: 'no method where a field asked for another one',
      wanted: refused('method_denied', { method: 'POST', fields: ['X-HTTP-Method-Override', 'DELETE'] }, 'api.github.com'),
      suggestion: null,
    },
    {
      name: 'a method that a field asks for too',
      wanted: refused('method_denied', { method: 'DELETE', fields: ['X_HTTP_Method', 'delete'] }, 'api.github.com'),
      suggestion: { domain: 'api.github.com', methods: ['DELETE'] },
    },
    {
      name: 'no path where a field asked for another one',
      wanted: refused('path_denied', { path: '/open', fields: ['X-Original-URL', '/secret'] }, 'api.github.com'),
      suggestion: null,
    },
    {
      name: 'no method that is not a plain one',
      wanted: refused('method_denied', { method: 'x"' }, 'a.example'),
      suggestion: null,
    },
    {
      name: 'a path, as a pattern that matches it alone',
      wanted: refused('path_denied', { path: '/a.b/(c)+[d]' }, 'api.github.com'),
      suggestion: { domain: 'api.github.com', paths: ['/a\\.b/\\(c\\)\\+\\[d\\]'] },
    },
    {
      name: 'no path that was cut or spelled out',
      wanted: refused('path_denied', { path: '/\u001b' }, 'a.example'),
      suggestion: null,
    },
    {
      name: 'an internal IPv4 address',
      wanted: outcome({ verdict: new Refusal('address_denied', 'no'), trace: { address: parseAddress('10.0.0.5') } }),
      suggestion: { domain: 'api.github.com', addresses: ['10.0.0.5/32'] },
    },
    {
      name: 'an internal IPv6 address',
      wanted: outcome({ verdict: new Refusal('address_denied', 'no'), trace: { address: parseAddress('fd00::5') } }),
      suggestion: { domain: 'api.github.com', addresses: ['fd00::5/128'] },
    },
    { name: 'no address that is not known', wanted: outcome({ verdict: new Refusal('address_denied', 'no') }), suggestion: null },
    {
      name: "none of the proxy's own addresses", // fault B16
      wanted: outcome({
        authority: 'me.example:9090',
        verdict: new Refusal('address_denied', 'no'),
        trace: { address: parseAddress('127.0.0.1') },
      }),
      suggestion: null,
    },
    { name: 'nothing for the denylist', wanted: refused('denylisted', {}, '*.github.com'), suggestion: null },
    { name: 'nothing for TRACE', wanted: refused('method_forbidden', { method: 'TRACE' }), suggestion: null },
  ])('names $name', ({ wanted, suggestion }) => {
    const denials = createDenials({ max: 10, isOwnListener: (address, port) => address === '127.0.0.1' && port === 9090 });
    denials.add(wanted);
    const [denial] = denials.list();
    expect(denial?.suggestion).toEqual(suggestion);
    expect(denial?.hint).toMatch(/\.$/);
  });
});

describe('createDenials', () => {
  it('counts the same host, port and reason as one, newest first', () => {
    const denials = createDenials({ max: 10 });
    denials.add(refused('not_allowlisted', { authority: 'a.example:443', path: '/1' }));
    denials.add(refused('not_allowlisted', { authority: 'b.example:443' }));
    denials.add(refused('not_allowlisted', { authority: 'a.example:443', path: '/2?' }));
    const list = denials.list();
    expect(list.map(({ host, count }) => [host, count])).toEqual([
      ['a.example', 2],
      ['b.example', 1],
    ]);
    expect(list[0]).toMatchObject({ path: '/2?', method: 'GET', sandbox: 'box-1', rule: null, decision: 'refuse', port: 443 });
    expect(list[0]?.first_time).toMatch(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/);
  });

  it('keeps sandboxes apart, and rehearsals from refusals', () => {
    const denials = createDenials({ max: 10 });
    denials.add(refused('not_allowlisted'));
    denials.add(refused('not_allowlisted', { trace: { sandbox: 'box-2' } }));
    denials.add(outcome({ wouldRefuse: 'not_allowlisted', decision: 'would_refuse' }));
    expect(denials.list().map(({ sandbox, decision }) => [sandbox, decision])).toEqual([
      ['box-1', 'would_refuse'],
      ['box-2', 'refuse'],
      ['box-1', 'refuse'],
    ]);
  });

  it('ignores what was allowed, what failed, and what names no host', () => {
    const denials = createDenials({ max: 10 });
    denials.add(outcome());
    denials.add(outcome({ verdict: new Fault('dns_failed', 'no answer') }));
    denials.add(outcome({ authority: null, verdict: new Refusal('bad_request', 'no') }));
    expect(denials.list()).toEqual([]);
  });

  it('stays bounded under 100,000 unique hosts and forgets the one not seen for longest', () => {
    const denials = createDenials({ max: 500 });
    for (let i = 0; i < 100_000; i += 1) {
      denials.add(refused('not_allowlisted', { authority: `h${i}.example:443` })); // fault L02
      if (i % 400 === 0) denials.add(refused('not_allowlisted', { authority: 'often.example:443' }));
    }
    const list = denials.list();
    expect(list).toHaveLength(500);
    expect(list[0]?.host).toBe('h99999.example');
    expect(list.find(({ host }) => host === 'often.example')?.count).toBe(250);
  });
});
