// Every way in, times every protocol of an upstream, times everything that an exchange may come to: the same decision, the same line in
// the ledger, the same fields and bytes at both ends. A scenario is written once and knows no protocol; a cell is where it takes place.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Outcome } from '../../src/exchange/trace.ts';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { openOutside } from '../support/outside.ts';
import type { Outside } from '../support/outside.ts';
import { listenTo, valueOf } from '../support/wire.ts';
import type { Fields } from '../support/wire.ts';
import { WIRE_WAYS } from '../support/wire-client.ts';
import type { Asked, SandboxExchange } from '../support/wire-client.ts';
import { SCENARIOS } from '../support/wire-scenarios.ts';
import type { Cell, Scenario, Stage } from '../support/wire-scenarios.ts';
import { startWireUpstream } from '../support/wire-upstream.ts';
import type { WireUpstream } from '../support/wire-upstream.ts';

let outside: Outside;
let house: House;
const upstreams = new Map<string, WireUpstream>();

const SPOKEN = ['http/1.1', 'h2'] as const;
const SCHEMES = ['https', 'http'] as const;

beforeAll(async () => {
  outside = await openOutside();
  for (const scheme of SCHEMES)
    for (const spoken of SPOKEN)
      upstreams.set(`${scheme} ${spoken}`, await startWireUpstream(spoken, scheme === 'https' ? outside : undefined));
  const ports = [...upstreams.values()].map(({ port }) => port);
  house = await startHouse(
    {
      upstream: { ca: [outside.caPath] },
      credentials: { key: { type: 'bearer_token', token: 'put-on-at-the-door' } },
      network: {
        allowlist: [
          {
            domain: 'api.test',
            ports,
            addresses: LOOPBACK,
            credential: 'key',
            keep: ['Cookie'],
            allow_plaintext: true,
            paths: ['/m/.*'],
          },
          { domain: 'walled.test', ports },
        ],
      },
    },
    { names: { 'api.test': ['127.0.0.1'], 'walled.test': ['10.0.0.7'] } },
  );
});

afterAll(async () => {
  await house.stop();
  for (const upstream of upstreams.values()) await upstream.close();
  await outside.close();
});

function upstreamOf({ way, spoken }: Cell): WireUpstream {
  return upstreams.get(`${way.scheme} ${spoken}`)!;
}

function authorityOf(cell: Cell, host = 'api.test'): string {
  return `${host}:${upstreamOf(cell).port}`;
}

/** HTTP/2 without TLS is spoken with an upstream for gRPC alone, so there every request says that it is gRPC. */
function ofCell({ way, spoken }: Cell): Fields {
  return way.scheme === 'http' && spoken === 'h2' ? ['Content-Type', 'application/grpc'] : [];
}

/** Whether a refusal is answered in the words of gRPC. */
function isGrpcTo(cell: Cell): boolean {
  return ofCell(cell).length > 0 && cell.way.protocol === 'h2';
}

const OF_THE_CELL = ['time', 'request_id', 'duration_ms', 'phases_ms', 'door', 'protocol', 'scheme', 'port'];

async function openStage(cell: Cell, { host, reaches }: Scenario): Promise<Stage> {
  const authority = authorityOf(cell, host);
  const client = await cell.way.open(house, authority);
  const upstream = upstreamOf(cell);
  const own = reaches ? ofCell(cell) : [];
  const begin = (asked: Asked): Promise<SandboxExchange> => client.begin({ ...asked, fields: [...(asked.fields ?? []), ...own] });
  return {
    ...cell,
    client,
    authority,
    own,
    grpc: isGrpcTo(cell),
    upstream,
    begin,
    both: async (asked, first) => {
      const arrived = upstream.next(asked.path.replace(/\?.*$/, ''));
      const sandbox = await begin(asked);
      if (first !== undefined) sandbox.out.write(first);
      // What does not arrive has been answered; then there is no upstream's end to wait for.
      const early = sandbox.answer.then(
        async (answer) =>
          Promise.reject(new Error(`it was answered ${answer.status} before it arrived: ${await listenTo(answer.in).end}`)),
        (error: unknown) => Promise.reject(error as Error),
      );
      early.catch(() => undefined);
      return { sandbox, far: await Promise.race([arrived, early]) };
    },
  };
}

const OF_GRPC_ALONE = 'an upstream without TLS is asked over HTTP/2 for gRPC alone';

/** Why a scenario cannot take place in a cell; `undefined` where it can. */
function impossible({ way, spoken }: Cell, { websocket = false, reaches, onlyTo, path }: Scenario): string | undefined {
  if (path === '/m/torn' && way.connect === 'h2' && way.protocol === 'http/1.1')
    return 'TLS in a stream that is reset ends like one that is closed';
  if (onlyTo !== undefined && spoken !== onlyTo.spoken) return onlyTo.reason;
  if (way.scheme === 'https' || spoken === 'http/1.1' || !reaches) return undefined;
  if (way.protocol === 'http/1.1') return `${OF_GRPC_ALONE}, which HTTP/1.1 cannot carry`;
  return websocket ? `${OF_GRPC_ALONE}, and a WebSocket is none` : undefined;
}

/** What the ledger says of a cell by its nature. */
function ofTheCell({ way, spoken }: Cell, scenario: Scenario): Record<string, unknown> {
  const { port } = upstreamOf({ way, spoken });
  if (scenario.host === 'denied.test' && way.connect !== undefined)
    return { door: 'proxy', protocol: way.connect, scheme: null, port };
  return { door: way.door, protocol: scenario.websocket === true ? 'websocket' : way.protocol, scheme: way.scheme, port };
}

/** What a CONNECT that is refused knows less than the request inside it would. */
function ofTheConnect({ way }: Cell, { host }: Scenario): Record<string, unknown> {
  return host === 'denied.test' && way.connect !== undefined ? { method: 'CONNECT', path: null, action_id: null } : {};
}

/** The one line that a scenario leaves. */
async function lineOf({ path, host = 'api.test' }: Scenario, after: number): Promise<Record<string, unknown>> {
  const fits = ({ arrival, trace: { intent } }: Outcome): boolean => {
    if (intent?.authority.host !== host) return false;
    return arrival.purpose === 'tunnel' ? host === 'denied.test' : intent.path === path;
  };
  const { arrival } = await house.outcome(fits, after);
  expect(house.outcomes.slice(after).filter(fits)).toHaveLength(1);
  const lines = (await house.audit()).filter((one) => one['request_id'] === arrival.requestId);
  expect(lines).toHaveLength(1);
  return lines[0]!;
}

/** A line as it must be in every cell that the scenario takes place in. */
function comparable(found: Record<string, unknown>, { line }: Scenario): Record<string, unknown> {
  const kept = Object.entries(found).filter(([key]) => !OF_THE_CELL.includes(key));
  return Object.fromEntries(kept.map(([key, value]) => [key, key === 'bytes_sent' && line[key] === null ? null : value]));
}

const cells: Cell[] = WIRE_WAYS.flatMap((way) => SPOKEN.map((spoken) => ({ way, spoken })));

for (const cell of cells) {
  describe(`${cell.way.name}; upstream ${cell.spoken}`, () => {
    for (const scenario of SCENARIOS) {
      const reason = impossible(cell, scenario);
      if (reason !== undefined) {
        if (!reason.startsWith(OF_GRPC_ALONE)) it.skip(`${scenario.name} (${reason})`);
        continue;
      }
      it(scenario.name, async () => {
        const after = house.outcomes.length;
        const stage = await openStage(cell, scenario);
        try {
          await scenario.act(stage);
          const found = await lineOf(scenario, after);
          const expected = { ...scenario.line, ...ofTheConnect(cell, scenario) };
          // A call of gRPC that failed is answered 200, with a grpc-status.
          if (stage.grpc && expected['status'] === 502) expected['status'] = 200;
          expect(comparable(found, scenario)).toEqual(expected);
          expect(found).toMatchObject(ofTheCell(cell, scenario));
        } finally {
          stage.client.close();
        }
      });
    }
  });
}

/** What the cells that are not there come to, each with the scenarios that are left out for it. */
const LEFT_OUT = cells.flatMap((cell) => {
  const reasons = new Map<string, Scenario[]>();
  for (const scenario of SCENARIOS) {
    const reason = impossible(cell, scenario);
    if (reason?.startsWith(OF_GRPC_ALONE) === true) reasons.set(reason, [...(reasons.get(reason) ?? []), scenario]);
  }
  return [...reasons].map(([reason, scenarios]) => ({ cell, reason, scenarios }));
});

describe('where a scenario cannot take place', () => {
  for (const { cell, reason, scenarios } of LEFT_OUT) {
    it(`${cell.way.name}; upstream ${cell.spoken}; ${scenarios.length} scenarios: ${reason}. It is 502`, async () => {
      const client = await cell.way.open(house, authorityOf(cell));
      const { answer } = await client.begin({
        path: '/m/left-out',
        websocket: scenarios.every(({ websocket }) => websocket === true),
      });
      const { status, fields } = await answer;
      client.close();
      expect([status, valueOf(fields, 'x-sallyport-reason')]).toEqual([502, 'upstream_protocol']);
    });
  }
});
