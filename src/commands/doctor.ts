// `doctor`: run inside a sandbox, tries every way out that it can think of, and says which are open and what closes them.
// It must never show a secret that it finds, change anything, or call a way closed that it could not try.
import { readFile } from 'node:fs/promises';
import { showUnseen } from '../foundation/visible-text.ts';
import { parseAuthority } from '../exchange/authority.ts';
import type { CommandContext } from './context.ts';
import { PROBE_IDS } from './doctor/probe-table.ts';
import type { ProbeId } from './doctor/probe-table.ts';
import { runProbes } from './doctor/run-probes.ts';
import type { Probed } from './doctor/run-probes.ts';
import type { Result } from './doctor/finding.ts';
import { lookAround, STANDARD_TIMEOUT_MS, TARGETS } from './doctor/surroundings.ts';
import type { Asked } from './doctor/surroundings.ts';
import type { Place } from './doctor/wire.ts';
import { EXIT } from './exit-codes.ts';
import type { ExitCode } from './exit-codes.ts';
import type { Cell, Tone, Voice } from './voice.ts';

/** Options of `doctor`. */
export interface DoctorOptions {
  /** A URL that the door lets through */
  readonly allowed?: string | undefined;
  /** Places in the stead of the public ones that TCP is tried to, `host:port` */
  readonly probe?: readonly string[] | undefined;
  /** The proxy, where no variable names it */
  readonly proxy?: string | undefined;
  readonly adminPort?: string | undefined;
  /** Ids of probes, with commas or once for each */
  readonly only?: readonly string[] | undefined;
  readonly skip?: readonly string[] | undefined;
  /** Seconds of each probe */
  readonly timeout?: string | undefined;
  readonly json?: boolean | undefined;
  /** Print the shell script for images without Node */
  readonly script?: boolean | undefined;
}

const SCRIPT = new URL('../../config/doctor.sh', import.meta.url);
const LONGEST_TIMEOUT_SECONDS = 60;

/** Tries the ways out. 5 where one is open, else 1 where the door does not work, else 6 where something could not be told, else 0. */
export async function doctor(options: DoctorOptions, context: CommandContext): Promise<ExitCode> {
  const { voice, env, directory } = context;
  if (options.script === true) {
    voice.data(await readFile(SCRIPT, 'utf8'));
    return EXIT.ok;
  }
  const read = readOptions(options);
  if ('problem' in read) {
    voice.complain(read.problem);
    return EXIT.usage;
  }
  const around = await lookAround({ env, directory, ...read.asked });
  if (voice.heard) voice.say(`trying ${read.ids.length} ways out, ${around.timeoutMs / 1000} s each, side by side`, 'quiet');
  let ended = 0;
  const probed = await runProbes(read.ids, around, ({ id, result }) => {
    ended += 1;
    if (voice.heard) voice.say(`  ${ended}/${read.ids.length} ${id}: ${result}`, toneOf(result));
  });
  const verdict = verdictOf(probed);
  if (options.json === true || !voice.onTerminal) voice.json(reportOf(probed, verdict));
  else show(probed, verdict, voice);
  return EXIT_OF[verdict];
}

/** The worst that was found. */
type Verdict = 'open' | 'broken' | 'unknown' | 'closed';

const EXIT_OF = { open: EXIT.wayOut, broken: EXIT.failed, unknown: EXIT.untold, closed: EXIT.ok } satisfies Record<
  Verdict,
  ExitCode
>;

function verdictOf(probed: readonly Probed[]): Verdict {
  const found = (['open', 'broken', 'unknown'] as const).find((each) => probed.some(({ result }) => result === each));
  return found ?? 'closed';
}

/** The JSON, which config/doctor.sh prints alike. */
function reportOf(probed: readonly Probed[], verdict: Verdict): object {
  const ids = (wanted: Result): string[] => probed.filter(({ result }) => result === wanted).map(({ id }) => id);
  return {
    verdict,
    open: ids('open'),
    unknown: ids('unknown'),
    probes: probed.map(({ id, result, tried, why, remedy }) => ({
      id,
      result,
      tried,
      why,
      remedy: needsRemedy(result) ? remedy : null,
    })),
  };
}

function needsRemedy(result: Result): boolean {
  return result === 'open' || result === 'broken';
}

function toneOf(result: Result): Tone {
  const tones = { open: 'bad', broken: 'bad', unknown: 'strong', closed: 'good', works: 'good' } satisfies Record<Result, Tone>;
  return tones[result];
}

const WIDTH = 72;

function show(probed: readonly Probed[], verdict: Verdict, voice: Voice): void {
  const rows = probed.map(({ id, tries, result, why, remedy }): Cell[] => [
    id,
    { text: result, tone: toneOf(result) },
    [...folded(result === 'closed' || result === 'works' ? tries : why), ...(needsRemedy(result) ? folded(`-> ${remedy}`) : [])],
  ]);
  voice.table(rows, ['probe', '', 'tried, or found']);
  const count = (wanted: Result): number => probed.filter(({ result }) => result === wanted).length;
  const words = {
    open: `${count('open')} open: there is a way past the door`,
    broken: 'nothing is open, but the door does not work',
    unknown: `nothing is open, but ${count('unknown')} could not be told; see why, or leave them out with --skip`,
    closed: 'nothing is open',
  } satisfies Record<Verdict, string>;
  voice.data(words[verdict]);
}

function folded(text: string): string[] {
  const lines: string[] = [];
  for (const word of showUnseen(text).split(' ')) {
    const last = lines.at(-1);
    if (last === undefined || last.length + word.length >= WIDTH) lines.push(word);
    else lines[lines.length - 1] = `${last} ${word}`;
  }
  return lines;
}

interface Read {
  readonly ids: readonly ProbeId[];
  readonly asked: Partial<Asked>;
}

function readOptions(options: DoctorOptions): Read | { readonly problem: string } {
  const only = idsOf(options.only, '--only');
  if ('problem' in only) return only;
  const skip = idsOf(options.skip, '--skip');
  if ('problem' in skip) return skip;
  const seconds = Number(options.timeout ?? STANDARD_TIMEOUT_MS / 1000);
  if (!(seconds > 0 && seconds <= LONGEST_TIMEOUT_SECONDS))
    return { problem: `--timeout "${String(options.timeout)}" is no number of seconds up to ${LONGEST_TIMEOUT_SECONDS}` };
  const adminPort = Number(options.adminPort ?? TARGETS.adminPort);
  if (!Number.isInteger(adminPort) || adminPort < 1 || adminPort > 65_535)
    return { problem: `--admin-port "${String(options.adminPort)}" is no port` };
  const urls = { allowed: httpUrl(options.allowed), proxy: httpUrl(options.proxy) };
  if (urls.allowed === 'none') return { problem: '--allowed is no http or https URL; write it like "https://api.github.com/"' };
  // Not quoted: it may hold a token.
  if (urls.proxy === 'none') return { problem: '--proxy is no URL of a proxy; write it like "http://proxy.internal:8080"' };
  const places = (options.probe ?? []).map(placeOf);
  const wrong = places.indexOf(undefined);
  if (wrong >= 0)
    return { problem: `--probe "${options.probe?.[wrong] ?? ''}" is no host:port; write it like "203.0.113.7:443"` };
  const publicTcp = places.filter((place) => place !== undefined);
  const ids = PROBE_IDS.filter((id) => (only.ids.length === 0 || only.ids.includes(id)) && !skip.ids.includes(id));
  const targets = { adminPort, ...(publicTcp.length === 0 ? {} : { publicTcp }) };
  return { ids, asked: { targets, timeoutMs: seconds * 1000, allowed: urls.allowed, proxy: urls.proxy } };
}

function idsOf(
  words: readonly string[] = [],
  option: string,
): { readonly ids: readonly ProbeId[] } | { readonly problem: string } {
  const named = words.flatMap((word) => word.split(',')).filter((word) => word !== '');
  const unknown = named.find((word) => !PROBE_IDS.some((id) => id === word));
  if (unknown !== undefined) return { problem: `${option}: there is no probe "${unknown}"; there are ${PROBE_IDS.join(', ')}` };
  return { ids: PROBE_IDS.filter((id) => named.includes(id)) };
}

function httpUrl(text: string | undefined): URL | undefined | 'none' {
  if (text === undefined) return undefined;
  const url = URL.canParse(text) ? new URL(text) : undefined;
  return url !== undefined && /^https?:$/.test(url.protocol) ? url : 'none';
}

function placeOf(text: string): Place | undefined {
  const authority = parseAuthority(text);
  return authority === undefined ? undefined : { host: authority.host.replace(/^\[|\]$/g, ''), port: authority.port };
}
