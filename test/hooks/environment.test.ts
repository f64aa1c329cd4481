// Which variables reach a command, and that no secret of ours is among them.
import { describe, expect, it } from 'vitest';
import { commandEnvironment } from '../../src/hooks/environment.ts';
import type { EnvironmentOptions } from '../../src/hooks/environment.ts';

const own = { actionId: 'act_1', traceId: undefined };

function given(from: Record<string, string | undefined>, over: Partial<EnvironmentOptions> = {}): Record<string, string> {
  const { SALLYPORT_ACTION_ID: actionId, ...rest } = commandEnvironment(from, {
    kind: 'clean',
    pass: [],
    more: {},
    ...own,
    ...over,
  });
  expect(actionId).toBe('act_1');
  return rest;
}

describe('a clean environment', () => {
  const kept = [
    ...['PATH', 'HOME', 'USER', 'LOGNAME', 'SHELL', 'LANG', 'LC_ALL', 'LC_TIME', 'TZ', 'TMPDIR', 'TERM'],
    ...['SSL_CERT_FILE', 'SSL_CERT_DIR', 'NODE_EXTRA_CA_CERTS', 'REQUESTS_CA_BUNDLE', 'CURL_CA_BUNDLE', 'GIT_SSL_CAINFO'],
    ...['HTTP_PROXY', 'HTTPS_PROXY', 'ALL_PROXY', 'NO_PROXY', 'http_proxy', 'https_proxy', 'all_proxy', 'no_proxy'],
  ];
  it.each(kept)('keeps %s', (name) => {
    expect(given({ [name]: 'value' })).toEqual({ [name]: 'value' });
  });

  const dropped = [
    'AWS_SECRET_ACCESS_KEY',
    'GITHUB_TOKEN',
    'NODE_OPTIONS',
    'LD_PRELOAD',
    'BASH_ENV',
    'LC',
    'path',
    'Http_Proxy',
    'PATHS',
  ];
  it.each(dropped)('leaves out %s', (name) => {
    expect(given({ [name]: 'value' })).toEqual({}); // fault M18
  });

  it('keeps what was asked for by name, and leaves out what is not set', () => {
    expect(given({ ONE: '1', TWO: '2', THREE: undefined }, { pass: ['ONE', 'THREE', 'FOUR'] })).toEqual({ ONE: '1' });
  });
});

describe('an inherited environment', () => {
  it('keeps what it knows nothing of', () => {
    expect(given({ GITHUB_TOKEN: 't', EMPTY: '', THREE: undefined }, { kind: 'inherited' })).toEqual({
      GITHUB_TOKEN: 't',
      EMPTY: '',
    });
  });
});

describe('a secret of ours', () => {
  const rows = [
    { name: 'a token of Sallyport', variables: { SALLYPORT_TOKEN: 't' } },
    { name: 'one in small letters', variables: { sallyport_token: 't' } },
    { name: 'an action id from outside', variables: { SALLYPORT_TRACE_ID: 'stale' } },
    { name: 'a proxy URL with a token', variables: { HTTPS_PROXY: 'http://box:t@127.0.0.1:8080' } },
    { name: 'a proxy URL with a name alone', variables: { http_proxy: 'http://box@127.0.0.1:8080' } },
    { name: 'a proxy URL without a scheme', variables: { ALL_PROXY: 'box:t@127.0.0.1:8080' } },
    { name: "a tool's own proxy variable", variables: { npm_config_https_proxy: 'http://box:t@127.0.0.1:8080' } },
  ];
  describe.each(['clean', 'inherited'] as const)('in a %s environment', (kind) => {
    it.each(rows)('never reaches a command: $name', ({ variables }) => {
      expect(given(variables, { kind })).toEqual({}); // fault M18
      expect(given(variables, { kind, pass: Object.keys(variables) })).toEqual({});
      expect(given({}, { kind, more: variables })).toEqual({});
    });

    it('is not seen in a proxy URL without userinfo', () => {
      expect(given({ HTTPS_PROXY: 'http://127.0.0.1:8080' }, { kind })).toEqual({ HTTPS_PROXY: 'http://127.0.0.1:8080' });
    });
  });
});

describe('what the runner adds', () => {
  it('names the action and the trace', () => {
    const env = commandEnvironment({}, { kind: 'clean', pass: [], more: {}, actionId: 'act_1', traceId: 't-1' });
    expect(env).toEqual({ SALLYPORT_ACTION_ID: 'act_1', SALLYPORT_TRACE_ID: 't-1' });
  });

  it("puts the dialect's variables over those of the outside", () => {
    expect(given({ CLAUDE_PROJECT_DIR: '/old' }, { kind: 'inherited', more: { CLAUDE_PROJECT_DIR: '/new' } })).toEqual({
      CLAUDE_PROJECT_DIR: '/new',
    });
  });
});
