// Twin of src/commands/direct-hosts.ts.
import { describe, expect, it } from 'vitest';
import { directHosts } from '../../src/commands/direct-hosts.ts';
import { parseConfig } from '../../src/config/parse-config.ts';

function direct(network: unknown): readonly string[] {
  const parsed = parseConfig(JSON.stringify({ network }), 'sallyport.json');
  if ('problems' in parsed) throw new Error(JSON.stringify(parsed.problems));
  return directHosts([parsed.config.network]);
}

const ALL = ['localhost', '127.0.0.1', '::1'];

describe('hosts reached without the proxy', () => {
  it.each([
    { name: 'are all of loopback beside a network that is disabled', network: 'disabled', wanted: ALL },
    { name: 'are all of loopback where no rule names it', network: { allowlist: [{ domain: 'api.github.com' }] }, wanted: ALL },
    {
      name: 'leave out an allowlisted localhost',
      network: { allowlist: [{ domain: 'localhost', ports: [3002] }] },
      wanted: ['127.0.0.1', '::1'],
      fault: 'B15',
    },
    {
      name: 'leave out an allowlisted address',
      network: { allowlist: [{ domain: '127.0.0.1' }] },
      wanted: ['localhost', '::1'],
      fault: 'B15',
    },
    {
      name: 'leave out an allowlisted IPv6 address',
      network: { allowlist: [{ domain: '::1' }] },
      wanted: ['localhost', '127.0.0.1'],
      fault: 'B15',
    },
    {
      name: 'leave out localhost for a name below it',
      network: { allowlist: [{ domain: 'app.localhost' }] },
      wanted: ['127.0.0.1', '::1'],
      fault: 'B15',
    },
    {
      name: 'leave out localhost for a wildcard below it',
      network: { allowlist: [{ domain: '*.app.localhost' }] },
      wanted: ['127.0.0.1', '::1'],
      fault: 'B15',
    },
    {
      name: 'keep localhost beside a name that only ends alike',
      network: { allowlist: [{ domain: 'mylocalhost' }] },
      wanted: ALL,
    },
    { name: 'stay where a rule for all opens nothing', network: { allowlist: [{ domain: '*' }] }, wanted: ALL },
    {
      name: 'are none where a rule for all opens loopback',
      network: { allowlist: [{ domain: '*', addresses: ['127.0.0.0/8', '::1/128'] }] },
      wanted: [],
      fault: 'B15',
    },
    {
      name: 'stay where a rule for all opens other ranges',
      network: { allowlist: [{ domain: '*', addresses: ['10.0.0.0/8', '126.0.0.0/8'] }] },
      wanted: ALL,
    },
  ])('$name', ({ network, wanted }) => {
    expect(direct(network)).toEqual(wanted);
  });

  it('obey every sandbox where none is asked for', () => {
    const parsed = parseConfig('{"network":{"allowlist":[{"domain":"localhost"}]}}', 'a.json');
    expect(directHosts([undefined, 'config' in parsed ? parsed.config.network : 'disabled'])).not.toContain('localhost');
  });
});
