// `demo`: the main job in a few seconds, with no network: the real door, a sandbox and an upstream, all on loopback.
// It must never claim what it has not seen: where a promise does not hold it says which, and fails.
import type { CommandContext } from './context.ts';
import { play } from './demo/play.ts';
import type { Played, Scene } from './demo/play.ts';
import { withStage } from './demo/stage.ts';
import { EXIT } from './exit-codes.ts';
import type { ExitCode } from './exit-codes.ts';
import type { Cell, Voice } from './voice.ts';

/** Options of `demo`. */
export interface DemoOptions {
  readonly json?: boolean | undefined;
}

/** Plays the demo and shows it. 0 where everything was as promised, else 1. */
export async function demo(options: DemoOptions, { voice, version }: CommandContext): Promise<ExitCode> {
  const startedAt = performance.now();
  const played = await withStage(version, play);
  const duration_ms = Math.round(performance.now() - startedAt);
  if (options.json === true) voice.json({ ...played, duration_ms });
  else show(played, duration_ms, voice);
  return played.held ? EXIT.ok : EXIT.failed;
}

/** The same in a pipe: this is looked at, not parsed. */
function show({ scenes, ledger, metrics, promises, held }: Played, durationMs: number, voice: Voice): void {
  voice.data('what a sandbox that holds no credential asks for, and what comes of it');
  voice.table(scenes.map(rowOf), ['', 'request', 'answer', 'the upstream saw']);
  voice.data(`\nthe ledger: one line for each\n${ledger.map((line) => `  ${lineOf(line)}`).join('\n')}`);
  voice.data(`\nthe metrics\n${metrics.map((line) => `  ${line}`).join('\n')}`);
  voice.data('\nthe promises');
  for (const promise of promises) voice.data(`  ${promise.held ? 'held  ' : 'BROKEN'}  ${promise.promise}`);
  voice.data(`\n${held ? 'all as promised' : 'not as promised'}, in ${(durationMs / 1000).toFixed(1)} s`);
}

function rowOf({ name, method, url, got, held, upstream_saw: saw }: Scene): Cell[] {
  // The ports are any free ones and say nothing.
  const request = `${method} ${url.replace(/:\d+(?=\/)/, '')}`;
  const seen = saw === null ? 'nothing' : [`${saw.method} ${saw.path}`, 'Authorization:', saw.authorization ?? 'none'];
  return [name, request, { text: held ? got : `${got} (!)`, tone: held ? 'good' : 'bad' }, seen];
}

function lineOf(line: Readonly<Record<string, unknown>>): string {
  return JSON.stringify(
    Object.fromEntries(Object.entries(line).filter(([key, value]) => value !== null && key !== 'duration_ms')),
  );
}
