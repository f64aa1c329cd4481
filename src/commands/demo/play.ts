// The demo's play: five requests and a hook's event, what each is promised, and what must hold for all of them together.
// A promise is judged by what the other side saw, the ledger and the metrics, never by what the door says of itself alone.
import { fetchText, sendThrough } from './client.ts';
import type { DemoReply } from './client.ts';
import { postEvent } from './hook.ts';
import { HOSTS } from './stage.ts';
import type { Stage } from './stage.ts';
import type { SeenRequest } from './upstream.ts';

/** One request of the play with what came of it. */
export interface Scene {
  readonly name: string;
  readonly method: string;
  readonly url: string;
  readonly promised: string;
  /** Status, and the reason where it was refused */
  readonly got: string;
  /** What the upstream saw of it, the credential masked; `null` where nothing reached it */
  readonly upstream_saw: { readonly method: string; readonly path: string; readonly authorization: string | null } | null;
  readonly held: boolean;
}

/** Something that must hold, and whether it does. */
export interface Promised {
  readonly promise: string;
  readonly held: boolean;
}

/** What the play showed. */
export interface Played {
  readonly scenes: readonly Scene[];
  readonly ledger: readonly Readonly<Record<string, unknown>>[];
  /** Lines of /metrics */
  readonly metrics: readonly string[];
  readonly promises: readonly Promised[];
  readonly held: boolean;
}

interface Script {
  readonly name: string;
  readonly method: string;
  readonly url: string;
  readonly status: number;
  readonly reason?: string;
}

/** Plays it. Rejects only where the demo itself breaks down. */
export async function play(stage: Stage): Promise<Played> {
  const { app, upstream, secret } = stage;
  const scripts = scriptsFor(upstream.tlsPort, upstream.plainPort);
  const scenes: Scene[] = [];
  const replies: DemoReply[] = [];
  for (const script of scripts) {
    const before = upstream.seen.length;
    const reply = await sendThrough({ proxy: app.proxy, ca: stage.ca, method: script.method, url: script.url });
    replies.push(reply);
    scenes.push(sceneOf(script, reply, { seen: upstream.seen.slice(before), secret }));
  }
  const event = { url: `https://${HOSTS.hooks}:${upstream.tlsPort}/events`, before: upstream.seen.length };
  const posted = await postEvent({ ...event, workspace: stage.workspace, proxy: app.proxy, ca: stage.ca });
  const received = upstream.seen.slice(event.before);
  scenes.push(eventScene(event.url, posted.got, { seen: received, secret }));
  await stage.recorded(scenes.length);
  const scrape = await fetchText(`http://${app.admin.address}:${app.admin.port}/metrics`);
  const contacted = { seen: upstream.seen.length, connections: upstream.connections };
  const lines = await stage.close();
  const ledger = lines.map((line) => essentials(JSON.parse(line) as Record<string, unknown>));
  const metrics = scrape.split('\n').filter((line) => /^sallyport_(?:requests_total|credential_injections_total)\{/.test(line));
  const told = [...replies.map((reply) => reply.fields + reply.body), ...lines, scrape].join('\n');
  const promises: Promised[] = [
    { promise: 'every request is answered as promised', held: scenes.every((scene) => scene.held) },
    {
      promise: 'only the allowed request and the event reached the upstream',
      held: contacted.seen === 2 && contacted.connections === 2,
    },
    {
      promise: "a hook's event arrives with the token, which hooks.json does not hold",
      held: received[0]?.authorization === `Bearer ${secret}` && !posted.hooksFile.includes(secret),
    },
    {
      promise: 'a refused name is never resolved',
      held: !stage.resolved.includes(HOSTS.stranger) && stage.resolved.includes(HOSTS.inside),
    },
    { promise: 'the credential is in no reply, ledger line or metric', held: !told.includes(secret) },
    { promise: 'the ledger has one line for each request', held: ledger.length === scenes.length },
    { promise: 'the metrics count each request once', held: sumOf(metrics, 'sallyport_requests_total') === scenes.length },
  ];
  return { scenes, ledger, metrics, promises, held: promises.every((each) => each.held) };
}

function scriptsFor(tlsPort: number, plainPort: number): Script[] {
  const api = `https://${HOSTS.api}:${tlsPort}/items`;
  return [
    { name: 'credential put on', method: 'GET', url: api, status: 200 },
    {
      name: 'unlisted name',
      method: 'GET',
      url: `https://${HOSTS.stranger}:${tlsPort}/`,
      status: 403,
      reason: 'not_allowlisted',
    },
    {
      name: 'leads to loopback',
      method: 'GET',
      url: `https://${HOSTS.inside}:${tlsPort}/`,
      status: 403,
      reason: 'address_denied',
    },
    { name: 'method not in rule', method: 'DELETE', url: api, status: 403, reason: 'method_denied' },
    {
      name: 'credential over http',
      method: 'GET',
      url: `http://${HOSTS.api}:${plainPort}/items`,
      status: 403,
      reason: 'plaintext_credential',
    },
  ];
}

function sceneOf(
  script: Script,
  reply: DemoReply,
  { seen, secret }: { readonly seen: readonly SeenRequest[]; readonly secret: string },
): Scene {
  const { name, method, url, status, reason } = script;
  const arrived = seen[0];
  const reached = reason === undefined ? seen.length === 1 && arrived?.authorization === `Bearer ${secret}` : seen.length === 0;
  return {
    name,
    method,
    url,
    promised: outcome(status, reason),
    got: outcome(reply.status, reply.reason),
    upstream_saw: arrived === undefined ? null : shown(arrived, secret),
    held: reply.status === status && reply.reason === reason && reached,
  };
}

function eventScene(
  url: string,
  got: string,
  { seen, secret }: { readonly seen: readonly SeenRequest[]; readonly secret: string },
): Scene {
  const [arrived] = seen;
  return {
    name: 'a hook posts its event',
    method: 'POST',
    url,
    promised: '200',
    got,
    upstream_saw: arrived === undefined ? null : shown(arrived, secret),
    held: got === '200' && seen.length === 1 && arrived?.authorization === `Bearer ${secret}`,
  };
}

function outcome(status: number, reason: string | undefined): string {
  return reason === undefined ? String(status) : `${status} ${reason}`;
}

/** The demo's token is thrown away, and still nobody should get used to seeing one. */
function shown({ method, path, authorization }: SeenRequest, secret: string): Scene['upstream_saw'] {
  return { method, path, authorization: authorization?.replaceAll(secret, 'demo-********') ?? null };
}

const ESSENTIALS = [
  'action_id',
  'method',
  'host',
  'port',
  'decision',
  'reason',
  'rule',
  'credentials',
  'address',
  'status',
  'duration_ms',
];

function essentials(line: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(ESSENTIALS.map((key) => [key, line[key]]));
}

function sumOf(metrics: readonly string[], name: string): number {
  const values = metrics
    .filter((line) => line.startsWith(`${name}{`))
    .map((line) => Number(line.slice(line.lastIndexOf(' ') + 1)));
  return values.reduce((sum, value) => sum + value, 0);
}
