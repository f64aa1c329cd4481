// Real clients, unmodified, with nothing but the variables of `sallyport env`: what they ask for arrives with its credential put on, and
// a refusal is seen by them. Those that are not on this machine are skipped, and their titles say which.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { env } from '../../src/commands/env.ts';
import { capture, json } from '../commands/rig.ts';
import { CLIENT_ROWS } from '../support/client-table.ts';
import { RUNNABLES } from '../support/clients.ts';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { openOutside, valuesOf } from '../support/outside.ts';
import type { Outside } from '../support/outside.ts';
import { openSites } from '../support/package-sites.ts';
import type { Sites } from '../support/package-sites.ts';
import { hearsOf, missingFor, printsOf, runClient } from '../support/run-client.ts';
import type { Errand, Runnable } from '../support/run-client.ts';

const runnables: Readonly<Record<string, readonly Runnable[]>> = RUNNABLES;

/** Has what a URL and a shell read in their own ways. */
const TOKEN = 'a-token:with/what%needs@care$';

/** A house and what `sallyport env` prints for a sandbox of it. */
interface Place {
  readonly house: House;
  readonly sandbox: string;
  readonly variables: Record<string, string>;
}

let outside: Outside;
let sites: Sites;
/** Where the sandbox is known by its token, and where by its address */
let places: { readonly token: Place; readonly address: Place };
let folder: string;

beforeAll(async () => {
  outside = await openOutside();
  sites = await openSites(outside);
  places = { token: await settle('agent', { token: TOKEN }), address: await settle('neighbour', { sources: ['127.0.0.1'] }) };
});
afterAll(async () => {
  for (const { house } of Object.values(places)) await house.stop();
  await sites.close();
  await outside.close();
});
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'client-'));
});
// Go makes the folders of its modules read-only.
afterEach(() => rm(folder, { recursive: true, force: true, maxRetries: 2 }));

async function settle(sandbox: string, entry: object): Promise<Place> {
  const rule = {
    domain: 'allowed.test',
    ports: [sites.port, sites.grpcPort],
    addresses: LOOPBACK,
    transform: { Authorization: 'Bearer put-on-at-the-door' },
  };
  const house = await startHouse(
    { upstream: { ca: [outside.caPath] }, sandboxes: { [sandbox]: entry }, network: { allowlist: [rule] } },
    { names: { 'allowed.test': ['127.0.0.1'], 'refused.test': ['127.0.0.1'] } },
  );
  const captured = capture(house.folder);
  const proxy = `http://127.0.0.1:${house.port}`;
  const code = await env({ config: house.configPath, json: true, proxy, sandbox }, captured.context);
  if (code !== 0) throw new Error(captured.err());
  return { house, sandbox, variables: json(captured)['variables'] as Record<string, string> };
}

/** The way of a client to a host, and whose variables it has. */
function errand(host: string, { variables }: Place): Omit<Errand, 'folder'> {
  return { base: `https://${host}:${sites.port}`, grpc: `${host}:${sites.grpcPort}`, variables };
}

const clients = CLIENT_ROWS.flatMap(({ tool, variables }) =>
  (runnables[tool] ?? []).map((client) => ({ client, only: variables, missing: missingFor(client) })),
);

describe('by the variables alone', () => {
  for (const { client, only, missing } of clients) {
    const title = missing === undefined ? client.title : `${client.title} (skipped: ${missing})`;
    it.skipIf(missing !== undefined)(
      `reads what the table of clients says: ${title}`,
      async () => {
        const place = client.bearsNoToken === true ? places.address : places.token;
        const served = await runClient(client, { ...errand('allowed.test', place), only, folder });
        expect(served, served.stdout + served.stderr).toMatchObject({ code: 0 });
        expect(served.stdout).toContain(printsOf(client));
      },
      90_000,
    );

    it.skipIf(missing !== undefined)(
      `goes through the door, and hears its refusal: ${title}`,
      async () => {
        const place = client.bearsNoToken === true ? places.address : places.token;
        const { house, sandbox } = place;
        const [asked, told] = [sites.seen.length, house.outcomes.length];
        const served = await runClient(client, { ...errand('allowed.test', place), folder });
        expect(served, served.stdout + served.stderr).toMatchObject({ code: 0 });
        expect(served.stdout).toContain(printsOf(client));
        const requests = sites.seen.slice(asked);
        expect(requests.length).toBeGreaterThan(0);
        for (const { fields } of requests) expect(valuesOf(fields, 'authorization')).toEqual(['Bearer put-on-at-the-door']);
        // Some ask without their token first, and again once they have heard that one is wanted.
        const passed = house.outcomes.slice(told).filter(({ verdict }) => verdict === undefined);
        expect(new Set(passed.map(({ trace }) => trace.sandbox))).toEqual(new Set([sandbox]));

        const [before, heard] = [sites.connections, house.outcomes.length];
        const elsewhere = await mkdtemp(join(folder, 'refused-'));
        const hears = hearsOf(client);
        const refusal = house.outcome(
          ({ decision, verdict }) => decision === 'refuse' && verdict?.code !== 'sandbox_unauthenticated',
          heard,
        );
        const refused = await runClient(
          client,
          { ...errand('refused.test', place), folder: elsewhere },
          hears === 'in half a minute' ? refusal : undefined,
        );
        expect(refused.code === 0 ? refused.stdout : 'it failed').not.toContain(printsOf(client));
        if (hears !== 'in half a minute') expect(refused.stdout + refused.stderr).toMatch(hears);
        expect((await refusal).verdict?.code).toBe('not_allowlisted');
        expect(sites.connections).toBe(before);
      },
      90_000,
    );
  }
});
