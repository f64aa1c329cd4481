// Which proxy a hook goes out through where nobody names one, and how its URL is read.
import { describe, expect, it } from 'vitest';
import { proxyFromEnv, readProxy } from '../../src/hooks/proxy-from-env.ts';

describe('the proxy of the environment', () => {
  const rows = [
    {
      name: 'HTTPS_PROXY before all others',
      env: { all_proxy: 'd', ALL_PROXY: 'c', https_proxy: 'b', HTTPS_PROXY: 'a' },
      found: 'a',
    },
    { name: 'https_proxy before ALL_PROXY', env: { ALL_PROXY: 'c', https_proxy: 'b' }, found: 'b' },
    { name: 'ALL_PROXY before all_proxy', env: { all_proxy: 'd', ALL_PROXY: 'c' }, found: 'c' },
    { name: 'all_proxy', env: { all_proxy: 'd' }, found: 'd' },
    { name: 'one that is not empty', env: { HTTPS_PROXY: ' ', https_proxy: 'b' }, found: 'b' },
    { name: 'none: HTTP_PROXY is for plain requests', env: { HTTP_PROXY: 'a', http_proxy: 'b' }, found: undefined },
    { name: 'the proxy whatever NO_PROXY says', env: { HTTPS_PROXY: 'a', NO_PROXY: '*', no_proxy: '*' }, found: 'a' },
  ];
  it.each(rows)('is $name', ({ env, found }) => {
    expect(proxyFromEnv(env)).toBe(found);
  });
});

describe("a proxy's URL", () => {
  const plain = { isTls: false, hostname: '127.0.0.1', port: 8080, authorization: undefined };
  const basic = (text: string): string => `Basic ${Buffer.from(text).toString('base64')}`;
  const rows = [
    { url: 'http://127.0.0.1:8080', read: plain },
    { url: '127.0.0.1:8080', read: plain },
    { url: 'http://127.0.0.1:8080/', read: plain },
    { url: 'http://proxy.test', read: { ...plain, hostname: 'proxy.test', port: 80 } },
    { url: 'https://proxy.test', read: { ...plain, isTls: true, hostname: 'proxy.test', port: 443 } },
    { url: 'http://[::1]:8080', read: { ...plain, hostname: '::1' } },
    { url: 'http://box:token@127.0.0.1:8080', read: { ...plain, authorization: basic('box:token') } },
    { url: 'http://box@127.0.0.1:8080', read: { ...plain, authorization: basic('box:') } },
    { url: 'http://b%40x:t%3Ak@127.0.0.1:8080', read: { ...plain, authorization: basic('b@x:t:k') } },
  ];
  it.each(rows)('is read: $url', ({ url, read }) => {
    expect(readProxy(url)).toEqual(read);
  });

  it.each(['http://', 'socks5://127.0.0.1:1080', 'http://a:%zz-secret@127.0.0.1:1', 'http://secret:1:2:3'])(
    'is refused and not repeated: %s',
    (url) => {
      const read = readProxy(url);
      expect(read).toHaveProperty('problem');
      expect(JSON.stringify(read)).not.toContain('secret');
    },
  );
});
