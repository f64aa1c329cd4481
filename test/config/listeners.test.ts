// Where a config would have the proxy listen: which doors there are, what is wrong with them alone and together, who is known at them.
import { describe, expect, it } from 'vitest';
import { listenersOf, reportListeners, warnOfOpenDoors } from '../../src/config/listeners.ts';
import { parseConfig } from '../../src/config/parse-config.ts';
import { Findings, formatPath } from '../../src/config/problem.ts';
import type { Config } from '../../src/config/schema.ts';
import { problemsOf } from './fixtures.ts';

function configOf(text: string): Config {
  const parsed = parseConfig(text, 'a.yaml');
  if ('problems' in parsed) throw new Error(JSON.stringify(parsed.problems));
  return parsed.config;
}

const transparent = (text: string) => `listen: { transparent: ${text} }`;

describe('the listeners of a config', () => {
  it.each([
    [
      'the proxy port and the admin listener',
      'network: disabled',
      ['listen.proxy 127.0.0.1:8080', 'admin.listen 127.0.0.1:9090'],
    ],
    [
      'every transparent door, by its key',
      transparent(
        '{ tls: 0.0.0.0:8443, http: "[::]:8081", dns: 10.0.0.2:53, answer: 10.0.0.2, answer6: "fd00::2", ports: { 8443: { tls: 0.0.0.0:9443 }, "8080": { http: 0.0.0.0:9080 } } }',
      ),
      [
        'listen.proxy 127.0.0.1:8080',
        'listen.transparent.tls 0.0.0.0:8443',
        'listen.transparent.http :::8081',
        'listen.transparent.dns 10.0.0.2:53',
        'listen.transparent.ports.8080.http 0.0.0.0:9080',
        'listen.transparent.ports.8443.tls 0.0.0.0:9443',
        'admin.listen 127.0.0.1:9090',
      ],
    ],
    [
      'one door alone',
      transparent('{ tls: 0.0.0.0:443 }'),
      ['listen.proxy 127.0.0.1:8080', 'listen.transparent.tls 0.0.0.0:443', 'admin.listen 127.0.0.1:9090'],
    ],
  ])('are %s', (_name, text, expected) => {
    expect(listenersOf(configOf(text)).map(({ path, host, port }) => `${formatPath(path)} ${host}:${port}`)).toEqual(expected);
  });
});

describe('transparent doors', () => {
  it.each([
    ['none', '{}', 'listen.transparent: names no door; write at least one of `tls`, `http`, `dns` and `ports`'],
    [
      'a DNS door that has nothing to answer',
      '{ dns: 0.0.0.0:53 }',
      'listen.transparent.answer: is missing; `dns` answers with it: write the address where sandboxes reach `tls` and `http`',
    ],
    [
      'an IPv6 answer in the place of the IPv4 one',
      '{ dns: 0.0.0.0:53, answer: "fd00::2" }',
      'listen.transparent.answer: "fd00::2" is not an IPv4 address; write it like "10.0.0.2"',
    ],
    [
      'an IPv4 answer in the place of the IPv6 one',
      '{ dns: 0.0.0.0:53, answer: 10.0.0.2, answer6: 10.0.0.2 }',
      'listen.transparent.answer6: "10.0.0.2" is not an IPv6 address; write it like "fd00::2"',
    ],
    [
      'an address without a port',
      '{ tls: 0.0.0.0 }',
      'listen.transparent.tls: "0.0.0.0" is not a listening address; write "127.0.0.1:8080"',
    ],
    ['a list of ports', '{ ports: [8443] }', 'listen.transparent.ports: expected an object, got a list'],
    [
      'a port beyond the last one',
      '{ ports: { "65536": { tls: 0.0.0.0:9443 } } }',
      'listen.transparent.ports.65536: is not a port; the highest is 65535',
    ],
    [
      'a name for a port',
      '{ ports: { https: { tls: 0.0.0.0:9443 } } }',
      'listen.transparent.ports.https: is not a port; write the one that sandboxes dial, as in "8443"',
    ],
    [
      'port 443 among the others',
      '{ ports: { "443": { tls: 0.0.0.0:9443 } } }',
      'listen.transparent.ports.443: has a key of its own; write `tls`',
    ],
    [
      'port 80 among the others',
      '{ ports: { "80": { http: 0.0.0.0:9443 } } }',
      'listen.transparent.ports.80: has a key of its own; write `http`',
    ],
    [
      'a port that would speak both',
      '{ ports: { "8443": { tls: 0.0.0.0:1, http: 0.0.0.0:2 } } }',
      'listen.transparent.ports.8443: needs exactly one of `tls` and `http`: what connections to this port speak',
    ],
    [
      'a port that would speak nothing',
      '{ ports: { "8443": {} } }',
      'listen.transparent.ports.8443: needs exactly one of `tls` and `http`: what connections to this port speak',
    ],
    ['a misspelled key', '{ tsl: 0.0.0.0:443 }', 'listen.transparent.tsl: unknown key; did you mean `tls`?'],
  ])('are a problem where there is %s', (_name, text, expected) => {
    const found = problemsOf(parseConfig(transparent(text), 'a.yaml'));
    expect(found.map(({ path, message }) => `${path}: ${message}`)).toEqual([expected]);
  });
});

describe('two listeners at one address', () => {
  const trouble = (first: string, second: string): string[] => {
    const findings = new Findings();
    reportListeners(configOf(`listen: { proxy: '127.0.0.1:0', transparent: { tls: '${first}', http: '${second}' } }`), findings);
    return findings.problems.map(({ path }) => path);
  };

  it.each([
    ['127.0.0.1:443', '127.0.0.1:443'],
    ['0.0.0.0:443', '10.0.0.2:443'],
    ['10.0.0.2:443', '0.0.0.0:443'],
    ['[::]:443', '10.0.0.2:443'],
    ['0.0.0.0:443', '[::]:443'],
    ['[fd00::2]:443', '[::]:443'],
  ])('are a problem: %s and %s', (first, second) => {
    expect(trouble(first, second)).toEqual(['listen.transparent.http']);
  });

  it.each([
    ['127.0.0.1:443', '127.0.0.1:444'],
    ['10.0.0.2:443', '10.0.0.3:443'],
    ['0.0.0.0:443', '[fd00::2]:443'],
    ['[fd00::2]:443', '[fd00::3]:443'],
    ['127.0.0.1:0', '127.0.0.1:0'],
  ])('are none: %s and %s', (first, second) => {
    expect(trouble(first, second)).toEqual([]);
  });
});

describe('a door that others reach', () => {
  const OPEN = 'whoever reaches this address may use the door and its credentials; name `sandboxes` with';
  const NOBODY = 'nobody is known here, where no token is shown; give each sandbox its `sources`';

  it.each([
    ['a proxy port without sandboxes', 'listen: { proxy: 0.0.0.0:8080 }', [`listen.proxy: ${OPEN} tokens or sources`]],
    ['a proxy port on loopback', 'network: disabled', []],
    [
      'transparent doors without sandboxes',
      transparent('{ tls: 0.0.0.0:443, http: 0.0.0.0:80 }'),
      [`listen.transparent: ${OPEN} sources`],
    ],
    ['transparent doors on loopback', transparent('{ tls: 127.0.0.1:443, ports: { "81": { http: "[::1]:81" } } }'), []],
    [
      'transparent doors and tokens',
      `${transparent('{ tls: 127.0.0.1:443 }')}\nsandboxes: { a: { token: abcdefghijklmnop } }`,
      [`listen.transparent: ${NOBODY}`],
    ],
    ['transparent doors and sources', `${transparent('{ tls: 0.0.0.0:443 }')}\nsandboxes: { a: { sources: [10.0.0.0/24] } }`, []],
    ['tokens and no transparent door', 'listen: { proxy: 0.0.0.0:8080 }\nsandboxes: { a: { token: abcdefghijklmnop } }', []],
  ])('is warned of where nobody is told apart: %s', (_name, text, expected) => {
    const findings = new Findings();
    warnOfOpenDoors(configOf(text), findings);
    expect(findings.warnings).toEqual(expected);
  });
});
