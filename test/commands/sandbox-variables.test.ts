// Twin of src/commands/sandbox-variables.ts.
import { describe, expect, it } from 'vitest';
import { SANDBOX_VARIABLES, sandboxVariables } from '../../src/commands/sandbox-variables.ts';

const FACTS = {
  proxy: 'http://agent:t%40k@proxy.test:8080',
  direct: ['localhost', '::1'],
  ca: '/ca.pem',
  bundle: '/bundle.pem',
  trustStore: '/trust.p12',
  wgetrc: '/wgetrc',
};
const variables = sandboxVariables(FACTS);

describe('the variables of a sandbox', () => {
  it.each([
    'HTTP_PROXY',
    'HTTPS_PROXY',
    'ALL_PROXY',
    'http_proxy',
    'https_proxy',
    'all_proxy',
    'grpc_proxy',
    'YARN_HTTP_PROXY',
    'YARN_HTTPS_PROXY',
  ])('name the proxy in %s', (name) => {
    expect(variables.get(name)).toBe(FACTS.proxy);
  });

  // Fault K01: each tool reads another variable, and some replace their roots by what it names.
  it.each([
    'SSL_CERT_FILE',
    'CURL_CA_BUNDLE',
    'REQUESTS_CA_BUNDLE',
    'PIP_CERT',
    'GIT_SSL_CAINFO',
    'CARGO_HTTP_CAINFO',
    'npm_config_cafile',
    'AWS_CA_BUNDLE',
    'CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE',
    'GRPC_DEFAULT_SSL_ROOTS_FILE_PATH',
    'BUNDLE_SSL_CA_CERT',
  ])('give %s the bundle, because it replaces the roots', (name) => {
    expect(variables.get(name)).toBe('/bundle.pem');
  });

  it.each(['NODE_EXTRA_CA_CERTS', 'DENO_CERT'])('give %s the CA alone, because it adds to the roots', (name) => {
    expect(variables.get(name)).toBe('/ca.pem');
  });

  it('have Node use the proxy variables (K02)', () => {
    expect(variables.get('NODE_USE_ENV_PROXY')).toBe('1');
  });

  it("leave the system's folder of roots alone (K01)", () => {
    expect(variables.has('SSL_CERT_DIR')).toBe(false);
  });

  it('list what stays direct in both spellings', () => {
    expect([variables.get('NO_PROXY'), variables.get('no_proxy')]).toEqual(['localhost,::1', 'localhost,::1']);
  });

  it('lead wget to lines of its own, and leave them out where none fit', () => {
    expect(variables.get('SYSTEM_WGETRC')).toBe('/wgetrc');
    expect(sandboxVariables({ ...FACTS, wgetrc: undefined }).has('SYSTEM_WGETRC')).toBe(false);
  });

  it('tell Java host, port, what stays direct and whom to trust, and never a token', () => {
    expect(variables.get('JAVA_TOOL_OPTIONS')?.split(' ')).toEqual([
      '-Dhttp.proxyHost=proxy.test',
      '-Dhttp.proxyPort=8080',
      '-Dhttps.proxyHost=proxy.test',
      '-Dhttps.proxyPort=8080',
      '-Dhttp.nonProxyHosts=localhost|[::1]',
      '-Djdk.http.auth.tunneling.disabledSchemes=',
      '-Djavax.net.ssl.trustStore=/trust.p12',
      '-Djavax.net.ssl.trustStoreType=PKCS12',
      '-Djavax.net.ssl.trustStorePassword=changeit',
    ]);
  });

  it('leave Java as careful with tunnels as it is where the proxy asks for no password', () => {
    const options = sandboxVariables({ ...FACTS, proxy: 'http://proxy.test:80' }).get('JAVA_TOOL_OPTIONS');
    expect(options).not.toContain('disabledSchemes');
  });

  it.each([
    {
      name: 'an empty list, which keeps its own standard away',
      facts: { ...FACTS, direct: [] },
      wanted: / -Dhttp\.nonProxyHosts= /,
      fault: 'B15',
    },
    { name: 'the port of the scheme', facts: { ...FACTS, proxy: 'http://proxy.test:80' }, wanted: /proxyPort=80 / },
    { name: 'an IPv6 proxy without brackets', facts: { ...FACTS, proxy: 'http://[fd00::2]:8080' }, wanted: /proxyHost=fd00::2 / },
    {
      name: 'a path with spaces and quotes in the quotes that a JVM knows',
      facts: { ...FACTS, trustStore: `/it's "a" b/trust.p12` },
      wanted: / -Djavax\.net\.ssl\.trustStore=\/it"'"s' "'a'" 'b\/trust\.p12 /,
    },
  ])('tell Java $name', ({ facts, wanted }) => {
    expect(sandboxVariables(facts).get('JAVA_TOOL_OPTIONS')).toMatch(wanted);
  });

  it('stand in the table once each, with a reason', () => {
    expect(new Set(SANDBOX_VARIABLES.map(({ name }) => name)).size).toBe(SANDBOX_VARIABLES.length);
    for (const { why } of SANDBOX_VARIABLES) expect(why.length).toBeGreaterThan(5);
  });
});
