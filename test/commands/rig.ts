// What the tests of this room share: a folder that goes away, a config in it, and a context whose output is kept.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import type { CommandContext } from '../../src/commands/context.ts';
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
