// The oracle: each request goes through Sallyport and through http-mitm-proxy with the adapter, over one config file, and both must
// come to the same decision, reason, ledger line and bytes upstream. Where that engine differs by nature, the row says how.
import net from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ruleOf } from '../../src/record/audit-line.ts';
import type { Outcome } from '../../src/exchange/trace.ts';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { startMitmHouse } from '../support/mitm-house.ts';
import type { MitmHouse } from '../support/mitm-house.ts';
import { openOutside, startRaw, startUpstream } from '../support/outside.ts';
import type { Answering, Outside, Seen, Upstream } from '../support/outside.ts';
import { openSecureTunnel, readAnswer, sendRaw } from '../support/sandbox-client.ts';
import type { Answer, Door } from '../support/sandbox-client.ts';

let outside: Outside;
let secure: Upstream;
let plain: Upstream;
let textual: Upstream;
let deadPort = 0;
let house: House;
let mitm: MitmHouse;

const TLS_HOSTS = [
  'api',
  'both',
  'replace',
  'absent',
  'limited',
  'closed',
  'a.wild',
  'bad.wild',
  'unset',
  'watched',
  'dead',
  'notls',
  'open',
];

beforeAll(async () => {
  outside = await openOutside();
  secure = await startUpstream({ tls: outside, answer });
  plain = await startUpstream({ answer });
  textual = await startRaw((socket) => socket.end('this is not TLS'));
  deadPort = await unusedPort();
  const names = Object.fromEntries(['plain', 'leaky', 'pinned', ...TLS_HOSTS].map((host) => [`${host}.test`, ['127.0.0.1']]));
  house = await startHouse(configFor(secure.port, plain.port), { names: { ...names, 'mixed.test': ['192.0.2.1', '127.0.0.1'] } });
  mitm = await startMitmHouse(house.configPath, { names: { ...names, 'mixed.test': ['192.0.2.1', '127.0.0.1'] } });
});

afterAll(async () => {
  await mitm.stop();
  await house.stop();
  await Promise.all([secure.close(), plain.close(), textual.close(), outside.close()]);
});

function configFor(tls: number, http: number): object {
  const inside = { ports: [tls], addresses: LOOPBACK };
  return {
    upstream: { ca: [outside.caPath] },
    credentials: {
      token: { type: 'bearer_token', token: 'credential-of-the-operator' },
      missing: { type: 'bearer_token', token: { env: 'NOT_SET_ANYWHERE' } },
    },
    network: {
      denylist: [{ domain: 'bad.wild.test' }],
      allowlist: [
        // The other engine looks no answer through.
        { domain: 'api.test', ...inside, credential: 'token', redact: false },
        {
          domain: 'both.test',
          ...inside,
          credential: 'token',
          redact: false,
          transform: [{ 'X-Team': 'red' }, { Authorization: 'Bearer on-top' }],
        },
        { domain: 'replace.test', ...inside, transform: { 'X-Key': 'operator' }, mode: 'replace' },
        { domain: 'absent.test', ...inside, transform: { 'X-Key': 'operator' }, mode: 'if_absent' },
        { domain: 'limited.test', ...inside, methods: ['GET'], paths: ['/v1/.*'] },
        { domain: 'open.test', ...inside },
        { domain: '*.wild.test', ...inside },
        { domain: 'unset.test', ...inside, credential: 'missing' },
        { domain: 'watched.test', ...inside, methods: ['GET'], enforcement: 'monitor' },
        { domain: 'closed.test', ports: [tls] },
        { domain: 'mixed.test', ports: [http] },
        { domain: 'nowhere.test', ports: [http] },
        { domain: 'dead.test', ports: [deadPort], addresses: LOOPBACK },
        { domain: 'notls.test', ports: [textual.port], addresses: LOOPBACK },
        { domain: 'plain.test', ports: [http], addresses: LOOPBACK },
        { domain: 'leaky.test', ports: [http], addresses: LOOPBACK, credential: 'token' },
        { domain: 'pinned.test', ports: [tls], addresses: LOOPBACK, tls: 'passthrough' },
        { domain: '127.0.0.1', ports: [http] },
        { domain: '169.254.169.254' },
      ],
    },
  };
}

/** What the upstreams answer, by path. */
const answer: Answering = (seen, response) => {
  switch (seen.url.split('?')[0]) {
    case '/forged':
      response.writeHead(403, {
        'X-Sallyport-Reason': 'not_allowlisted',
        'Proxy-Status': 'sallyport; error=forged',
        'Content-Length': 2,
      });
      response.end('no');
      return;
    case '/cookies':
      response.writeHead(200, 'Fine', [
        'Set-Cookie',
        'a=1',
        'Set-Cookie',
        'b=2',
        'X-Odd',
        'caf\xe9',
        'Connection',
        'x-gone',
        'X-Gone',
        '1',
      ]);
      response.end('cookies');
      return;
    case '/hangup':
      response.socket?.destroy();
      return;
    case '/empty':
      response.writeHead(204).end();
      return;
    case '/unchanged':
      response.writeHead(304, { ETag: '"1"' }).end();
      return;
    case '/large':
      response.writeHead(200);
      response.end('x'.repeat(1_000_000));
      return;
    default:
      response.writeHead(200, { 'Content-Type': 'text/plain', 'Content-Length': 2 }).end('ok');
  }
};

/** One request. `to` names a host of the config without `.test`, or an address. */
interface Row {
  readonly name: string;
  readonly to: string;
  /** `tls`: in a tunnel, to the TLS upstream; `plain`: in absolute-form, to the plain one; `origin`: a bare path at the proxy port */
  readonly as?: 'tls' | 'plain' | 'origin';
  readonly port?: () => number;
  readonly method?: string;
  readonly target?: string;
  readonly version?: string;
  /** Replaces Host; empty leaves it out */
  readonly host?: string;
  readonly lines?: readonly string[];
  readonly body?: string;
  /** What Sallyport comes to */
  readonly expect: string;
  /** How the other engine differs, and why. `ledger: false`: the request never reached the module */
  readonly differs?: {
    readonly because: string;
    readonly status: number;
    readonly reason: string | undefined;
    readonly ledger: boolean;
  };
}

const PARSER = 'Node answers by itself before the engine hears of the request';

const ROWS: readonly Row[] = [
  // Injection
  { name: 'puts the credential on', to: 'api', expect: '200 allow' },
  {
    name: "drops the sandbox's own authentication",
    to: 'api',
    lines: ['Authorization: Bearer mine', 'Cookie: a=b', 'X-Api-Key: k'],
    expect: '200 allow',
  },
  { name: 'puts the transform on top of the credential', to: 'both', expect: '200 allow' },
  { name: 'replaces a field that was sent', to: 'replace', lines: ['X-Key: sandbox'], expect: '200 allow' },
  { name: 'does not add a field that was to be replaced', to: 'replace', expect: '200 allow' },
  { name: 'adds a field that is absent', to: 'absent', expect: '200 allow' },
  { name: 'leaves a field that is present', to: 'absent', lines: ['X-Key: sandbox'], expect: '200 allow' },
  { name: 'refuses without its credential', to: 'unset', expect: '502 fault credential_unavailable' },
  { name: 'refuses a credential over plain http', to: 'leaky', as: 'plain', expect: '403 refuse plaintext_credential' },
  // Policy
  { name: 'lets a wildcard through', to: 'a.wild', expect: '200 allow' },
  { name: 'refuses a name that no rule has', to: 'other', expect: '403 refuse not_allowlisted' },
  { name: 'refuses a name that no rule has, over plain http', to: 'other', as: 'plain', expect: '403 refuse not_allowlisted' },
  { name: 'refuses what the denylist covers', to: 'bad.wild', expect: '403 refuse denylisted' },
  { name: 'refuses another port', to: 'api', port: () => 444, expect: '403 refuse port_denied' },
  { name: 'refuses another port, over plain http', to: 'plain', as: 'plain', port: () => 81, expect: '403 refuse port_denied' },
  {
    name: 'refuses another method',
    to: 'limited',
    method: 'POST',
    target: '/v1/x',
    lines: ['Content-Length: 0'],
    expect: '403 refuse method_denied',
  },
  { name: 'refuses another path', to: 'limited', target: '/v2/x', expect: '403 refuse path_denied' },
  { name: 'lets the path of a rule through with its query', to: 'limited', target: '/v1/x?q=/v2/', expect: '200 allow' },
  {
    name: 'lets pass and records what monitor would refuse',
    to: 'watched',
    method: 'DELETE',
    expect: '200 would_refuse method_denied',
  },
  // Addresses
  { name: 'refuses a name that leads inside', to: 'closed', expect: '403 refuse address_denied' },
  { name: 'refuses a name of which one address is inside', to: 'mixed', as: 'plain', expect: '403 refuse address_denied' },
  { name: 'refuses a loopback literal', to: '127.0.0.1', as: 'plain', expect: '403 refuse address_denied' },
  {
    name: 'refuses the metadata address',
    to: '169.254.169.254',
    as: 'plain',
    port: () => 80,
    expect: '403 refuse address_denied',
  },
  { name: 'refuses a short spelling of loopback', to: '127.1', as: 'plain', expect: '400 refuse bad_request' },
  { name: 'fails for a name without an address', to: 'nowhere', as: 'plain', expect: '502 fault dns_failed' },
  { name: 'fails for a port where nobody listens', to: 'dead', port: () => deadPort, expect: '502 fault upstream_connect' },
  { name: 'fails for an upstream without TLS', to: 'notls', port: () => textual.port, expect: '502 fault upstream_tls' },
  { name: 'refuses an IPv6 loopback literal', to: '[::1]', expect: '403 refuse not_allowlisted' },
  // Syntax
  { name: 'refuses a Host of another name', to: 'open', host: 'api.test', expect: '421 refuse host_mismatch' },
  {
    name: 'refuses a Host of another name, over plain http',
    to: 'plain',
    as: 'plain',
    host: 'api.test',
    expect: '421 refuse host_mismatch',
  },
  { name: 'refuses two Host fields', to: 'open', lines: ['Host: open.test'], expect: '400 refuse bad_request' },
  { name: 'refuses a path at the proxy port', to: 'plain', as: 'origin', expect: '400 refuse bad_request' },
  {
    name: 'refuses a target that leaves its tunnel',
    to: 'open',
    target: 'https://api.test/',
    expect: '421 refuse host_mismatch',
  },
  {
    name: 'takes an absolute target that stays in its tunnel',
    to: 'open',
    target: 'https://open.test:PORT/x',
    expect: '200 allow',
  },
  { name: 'refuses userinfo in a target', to: 'user@plain', as: 'plain', expect: '400 refuse bad_request' },
  {
    name: 'reads a query that follows the host at once',
    to: 'plain',
    as: 'plain',
    target: '?/../x',
    expect: '200 allow',
  },
  { name: 'refuses a dot segment', to: 'limited', target: '/v1/../v2', expect: '400 refuse bad_request' },
  { name: 'refuses an encoded dot segment', to: 'limited', target: '/v1/%2e%2e/v2', expect: '400 refuse bad_request' },
  { name: 'refuses TRACE', to: 'open', method: 'TRACE', expect: '405 refuse method_forbidden' },
  {
    name: 'refuses a CONNECT inside a tunnel',
    to: 'open',
    method: 'CONNECT',
    target: 'api.test:443',
    expect: '400 refuse bad_request',
  },
  // Bodies and framing
  {
    name: 'sends a body with its length',
    to: 'open',
    method: 'POST',
    lines: ['Content-Length: 5'],
    body: 'hello',
    expect: '200 allow',
  },
  {
    name: 'sends a chunked body',
    to: 'open',
    method: 'PUT',
    lines: ['Transfer-Encoding: chunked'],
    body: '5\r\nhello\r\n0\r\n\r\n',
    expect: '200 allow',
  },
  {
    name: 'sends the body of a DELETE',
    to: 'open',
    method: 'DELETE',
    lines: ['Content-Length: 5'],
    body: 'hello',
    expect: '200 allow',
  },
  {
    name: 'sends the chunked body of a GET',
    to: 'plain',
    as: 'plain',
    lines: ['Transfer-Encoding: chunked'],
    body: '2\r\nhi\r\n0\r\n\r\n',
    expect: '200 allow',
  },
  { name: 'sends a POST without a body', to: 'open', method: 'POST', expect: '200 allow' },
  { name: 'sends a HEAD', to: 'open', method: 'HEAD', target: '/large', expect: '200 allow' },
  { name: 'sends OPTIONS', to: 'open', method: 'OPTIONS', expect: '200 allow' },
  { name: 'takes a request of HTTP/1.0', to: 'plain', as: 'plain', version: '1.0', expect: '200 allow' },
  // The engine answers 100 before the judgement, Sallyport when the body is wanted; what follows is the same.
  {
    name: 'sends a body that waits to be asked for',
    to: 'open',
    method: 'POST',
    lines: ['Content-Length: 5', 'Expect: 100-continue'],
    body: 'hello',
    expect: '200 allow',
  },
  {
    name: 'refuses a body that waits to be asked for',
    to: 'limited',
    method: 'POST',
    lines: ['Content-Length: 5', 'Expect: 100-continue'],
    body: 'hello',
    expect: '403 refuse method_denied',
  },
  // Fields
  { name: 'keeps duplicate fields', to: 'open', lines: ['X-A: 1', 'x-a: 2', 'Cookie: a=1', 'Cookie: b=2'], expect: '200 allow' },
  {
    name: 'drops what Connection nominates',
    to: 'open',
    lines: ['Connection: x-gone, keep-alive', 'X-Gone: 1', 'Keep-Alive: 5', 'TE: trailers'],
    expect: '200 allow',
  },
  {
    name: 'lets Connection not nominate Host away',
    to: 'plain',
    as: 'plain',
    lines: ['Connection: host, content-type', 'Content-Type: a/b'],
    expect: '200 allow',
  },
  {
    name: 'drops what is meant for the proxy',
    to: 'plain',
    as: 'plain',
    lines: ['Proxy-Authorization: Basic eA==', 'Proxy-Connection: x', 'X-Sallyport-Action-Id: 7'],
    expect: '200 allow',
  },
  { name: 'keeps a value in latin1', to: 'open', lines: ['X-Odd: caf\xe9'], expect: '200 allow' },
  { name: 'keeps the query as it was sent', to: 'open', target: '/a;b/%7Ec?x=1&x=%2F..%2f&y', expect: '200 allow' },
  {
    name: 'refuses two tokens',
    to: 'plain',
    as: 'plain',
    lines: ['Proxy-Authorization: Basic eA==', 'Proxy-Authorization: Basic eB=='],
    expect: '400 refuse bad_request',
  },
  // Answers
  { name: "strips our own voice from an upstream's refusal", to: 'open', target: '/forged', expect: '403 allow' },
  { name: "keeps an answer's duplicate fields", to: 'open', target: '/cookies', expect: '200 allow' },
  { name: 'relays an answer without content', to: 'open', target: '/empty', expect: '204 allow' },
  { name: 'relays a 304', to: 'open', target: '/unchanged', expect: '304 allow' },
  { name: 'relays a large chunked answer', to: 'plain', as: 'plain', target: '/large', expect: '200 allow' },
  {
    name: 'fails for an upstream that hangs up',
    to: 'open',
    method: 'POST',
    target: '/hangup',
    lines: ['Content-Length: 0'],
    expect: '502 fault upstream_protocol',
  },
  // Where the engine differs
  {
    name: 'refuses a request without Host',
    to: 'plain',
    as: 'plain',
    host: '',
    expect: '400 refuse bad_request',
    differs: { because: PARSER, status: 400, reason: undefined, ledger: false },
  },
  {
    name: 'refuses an unknown expectation',
    to: 'plain',
    as: 'plain',
    lines: ['Expect: tea'],
    expect: '417 refuse expectation_failed',
    differs: { because: PARSER, status: 417, reason: undefined, ledger: false },
  },
  {
    name: 'refuses a length beside a transfer coding',
    to: 'plain',
    as: 'plain',
    method: 'POST',
    lines: ['Content-Length: 5', 'Transfer-Encoding: chunked'],
    body: '0\r\n\r\n',
    expect: '400 refuse bad_request',
    differs: { because: PARSER, status: 400, reason: undefined, ledger: false },
  },
  {
    name: 'judges a request whose header section has 20 KiB',
    to: 'other',
    as: 'plain',
    lines: [`X-Large: ${'x'.repeat(20_000)}`],
    expect: '403 refuse not_allowlisted',
    differs: { because: "the engine keeps Node's own limit of 16 KiB", status: 431, reason: undefined, ledger: false },
  },
];

describe('Sallyport and http-mitm-proxy with the adapter come to the same', () => {
  it.each(ROWS)('$name', async (row) => {
    const ours = await through(house, row, true);
    const theirs = await through(mitm, row, row.differs?.ledger ?? true);
    expect(ours.verdict).toBe(row.expect);
    if (row.differs === undefined) {
      expect(theirs).toEqual(ours);
      return;
    }
    expect({ status: theirs.answer.status, reason: theirs.answer.reason, lines: theirs.ledger.length }).toEqual({
      status: row.differs.status,
      reason: row.differs.reason,
      lines: row.differs.ledger ? 1 : 0,
    });
    expect(theirs.upstream).toEqual([]);
  });

  it('asks the resolver for the same names, and for none that was refused', () => {
    // Sallyport asks less often, where a pooled connection is at hand.
    expect(new Set(mitm.resolved)).toEqual(new Set(house.resolved));
    expect(house.resolved).not.toContain('other.test');
    expect(house.resolved).not.toContain('bad.wild.test');
  });
});

interface Engine extends Door {
  readonly outcomes: Outcome[];
  outcome(fits: (outcome: Outcome) => boolean, after?: number): Promise<Outcome>;
}

/** Sends the row's request and gathers all that can be compared. */
async function through(engine: Engine, row: Row, recorded: boolean) {
  const before = engine.outcomes.length;
  secure.seen.length = 0;
  plain.seen.length = 0;
  const got = await send(engine, row);
  if (recorded) await engine.outcome(() => true, before);
  const ledger = engine.outcomes.slice(before).map(lineOf);
  const { status, headers } = got;
  const reason = headers['x-sallyport-reason'];
  return {
    verdict: [status, ledger[0]?.decision, ledger[0]?.reason].filter((part) => part !== undefined).join(' '),
    answer: {
      status,
      text: got.reason,
      reason,
      fields: endToEnd(got.fields),
      body: got.body.replace(/"request_id":"[^"]+"/, ''),
    },
    ledger,
    upstream: [...secure.seen, ...plain.seen].map((seen: Seen) => ({ ...seen, fields: endToEnd(seen.fields) })),
  };
}

async function send(engine: Engine, row: Row): Promise<Answer> {
  const { as = 'tls', method = 'GET', version = '1.1', lines = [], body = '' } = row;
  const port = row.port?.() ?? (as === 'tls' ? secure.port : plain.port);
  const authority = `${/^[\d.]+$|^\[/.test(row.to) ? row.to : `${row.to}.test`}:${port}`;
  const target = (row.target ?? '/').replace('PORT', String(port));
  const requestTarget = as === 'plain' ? `http://${authority}${target}` : target;
  const host = row.host ?? authority.replace(/^.*@/, '');
  const head = [`${method} ${requestTarget} HTTP/${version}`, ...(host === '' ? [] : [`Host: ${host}`]), ...lines];
  const bytes = `${head.join('\r\n')}\r\n\r\n${body}`;
  if (as !== 'tls') return sendRaw(engine.port, bytes, method);
  try {
    const secured = await openSecureTunnel(engine, authority);
    try {
      secured.write(Buffer.from(bytes, 'latin1'));
      const first = await readAnswer(secured, method === 'CONNECT' ? 'GET' : method);
      return first.status === 100 ? await readAnswer(secured, method) : first;
    } finally {
      secured.destroy();
    }
  } catch (error) {
    const refused = (error as { readonly answer?: Answer }).answer;
    if (refused === undefined) throw error;
    return refused;
  }
}

function lineOf(outcome: Outcome) {
  const { arrival, trace } = outcome;
  return {
    purpose: arrival.purpose,
    door: arrival.door,
    method: arrival.method,
    target: arrival.target,
    decision: outcome.decision,
    reason: outcome.verdict?.code ?? trace.permit?.wouldRefuse,
    detail: outcome.verdict instanceof Error ? outcome.verdict.message : outcome.verdict?.detail,
    rule: ruleOf(outcome),
    sandbox: trace.sandbox,
    credentials: trace.credentials,
    address: trace.address,
    status: trace.status,
    sent: trace.bytesSent,
    received: trace.bytesReceived,
  };
}

const HOP_BY_HOP = new Set(['connection', 'keep-alive', 'transfer-encoding', 'date']);

/** Fields that may be compared: without the hop-by-hop ones, sorted by name, the values of one name in their order. */
function endToEnd(fields: readonly string[]): string[] {
  const lines: string[] = [];
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const name = (fields[i] as string).toLowerCase();
    if (!HOP_BY_HOP.has(name)) lines.push(`${name}: ${fields[i + 1] as string}`);
  }
  return lines.sort((a, b) => a.split(':', 1)[0]!.localeCompare(b.split(':', 1)[0]!));
}

async function unusedPort(): Promise<number> {
  const server = net.createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as net.AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}
