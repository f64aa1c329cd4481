// What the tests of this room share: a folder that goes away, a config in it, and a context whose output is kept.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import type { AskingContext, CommandContext } from '../../src/commands/context.ts';
import type { Input } from '../../src/commands/input.ts';
import { createVoice } from '../../src/commands/voice.ts';

export interface Captured {
  readonly context: CommandContext;
  readonly out: () => string;
  readonly err: () => string;
}

export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'sallyport-commands-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** A config file in a folder of its own, which is where its relative paths begin. */
export function writeConfig(config: unknown, name = 'sallyport.json'): { readonly directory: string; readonly config: string } {
  const directory = temporaryFolder();
  writeFileSync(join(directory, name), typeof config === 'string' ? config : JSON.stringify(config));
  return { directory, config: name };
}

export function capture(
  directory: string,
  options: { readonly terminal?: boolean; readonly env?: NodeJS.ProcessEnv } = {},
): Captured {
  let out = '';
  let err = '';
  const { terminal = false, env = {} } = options;
  const voice = createVoice({
    stdout: { write: (text) => void (out += text), isTTY: terminal },
    stderr: { write: (text) => void (err += text), isTTY: terminal },
    env,
  });
  return { context: { voice, env, directory, version: '0.0.0' }, out: () => out, err: () => err };
}

export function json(captured: Captured): Record<string, unknown> {
  return JSON.parse(captured.out()) as Record<string, unknown>;
}

/** A context whose standard input and answers are given; `asked` has the questions so far. Without answers there is nobody to be asked. */
export function asking(
  captured: Captured,
  given: { readonly stdin?: string; readonly answers?: readonly (string | undefined)[] } = {},
): { readonly context: AskingContext; readonly asked: readonly string[] } {
  const asked: string[] = [];
  const left = [...(given.answers ?? [])];
  const answer = (question: string): string | undefined => {
    asked.push(question);
    if (left.length === 0) throw new Error(`nobody expected to be asked: ${question}`);
    return left.shift();
  };
  const input: Input = {
    onTerminal: given.answers !== undefined,
    read: () => Promise.resolve(given.stdin ?? ''),
    secret: async (question) => answer(question),
    confirm: async (question) => answer(question) === 'y',
  };
  return { context: { ...captured.context, input }, asked };
}
