// Runs the doctor in a sandbox behind walls of nftables, on a real kernel: a namespace for the sandbox, one for the proxy, one for the outside.
// All of it goes with the process that made it; nothing is named, and nothing of this machine's own network is touched.
import { execFileSync, spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { NETWORK_TOOLS } from './walls.ts';

/** Why it cannot be tried here, in a few words; undefined where it can. */
export const DOCTOR_TOOLS: string | undefined = NETWORK_TOOLS ?? whatIsMissing();

function whatIsMissing(): string | undefined {
  return ['openssl', 'perl', 'curl', 'wget', 'mount'].map(missing).find((word) => word !== undefined);
}

function missing(tool: string): string | undefined {
  try {
    execFileSync('sh', ['-c', `command -v ${tool}`], { stdio: 'ignore' });
    return undefined;
  } catch {
    return `needs ${tool}`;
  }
}

/** What one doctor came to. */
export interface Visit {
  readonly code: number;
  readonly seconds: number;
  readonly err: string;
  readonly verdict: string;
  readonly open: readonly string[];
  readonly unknown: readonly string[];
  readonly door: string;
  readonly why: (id: string) => string;
}

/** A sandbox, a proxy and an outside. */
export interface DoctorWalls {
  /** Opens the hole of that case, and has the command and the script look for it side by side; the script alone where tools are named. */
  visit(name: string): Promise<{ readonly js?: Visit; readonly sh: Visit }>;
  close(): Promise<void>;
}

interface Ran {
  readonly code: number;
  readonly out: string;
  readonly err: string;
  readonly seconds: number;
}

interface Report {
  readonly verdict: string;
  readonly open: readonly string[];
  readonly unknown: readonly string[];
  readonly probes: readonly { readonly id: string; readonly result: string; readonly why: string }[];
}

/** Puts it up. */
export async function openDoctorWalls(): Promise<DoctorWalls> {
  const folder = await mkdtemp(join(tmpdir(), 'doctor-walls-'));
  const pod = join(import.meta.dirname, 'doctor-pod.mjs');
  const checkout = join(import.meta.dirname, '..', '..');
  const child = spawn('unshare', ['--net', '--mount', process.execPath, pod, folder, checkout], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const next = async (): Promise<Record<string, Ran>> => {
    const line = await lines.next();
    if (line.done === true) throw new Error('the namespaces are gone');
    const said = JSON.parse(line.value) as Record<string, Ran> & { readonly failed?: string };
    if (typeof said.failed === 'string') throw new Error(said.failed);
    return said;
  };
  await next();
  return {
    visit: async (name) => {
      child.stdin.write(`${JSON.stringify({ name })}\n`);
      const { js, sh } = await next();
      if (sh === undefined) throw new Error('the script was not run');
      return { sh: visitOf(sh), ...(js === undefined ? {} : { js: visitOf(js) }) };
    },
    close: async () => {
      const ended = new Promise((resolve) => child.once('close', resolve));
      child.stdin.end();
      await ended;
      await rm(folder, { recursive: true, force: true });
    },
  };
}

function visitOf({ code, out, err, seconds }: Ran): Visit {
  if (!out.startsWith('{')) throw new Error(`the doctor ended with ${code} and said: ${out}${err}`);
  const { verdict, open, unknown, probes } = JSON.parse(out) as Report;
  const found = (id: string) => probes.find((probe) => probe.id === id);
  return { code, seconds, err, verdict, open, unknown, door: found('door')?.result ?? '', why: (id) => found(id)?.why ?? '' };
}
