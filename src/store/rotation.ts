// A new key for the store, from the first step to the last. Where the key is a file, the new one lies beside it as `<path>.next` from the
// first moment, so that running proxies find it, and takes its place at the end; a variable can only be set by whoever sets it.
// It must never leave the store with a key that is nowhere, nor show one. What was interrupted is finished by doing it again.
import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import type { Logger } from '../foundation/logger.ts';
import { isThere } from './inspect.ts';
import { beginKeyRotation, finishKeyRotation, keyFromEnvironment, openKeyFile, readNextKey } from './key-file.ts';
import type { KeyPlace } from './on-demand.ts';
import { openStore } from './record-store.ts';
import { sealKey } from './seal.ts';

/** What a rotation is made of. Relative paths count from `baseDirectory`. */
export interface RotationOptions {
  readonly uri: string;
  readonly key: KeyPlace;
  /** Holds the new key, or gets it where it is not there. Left out, a key is made in the place of the old one. */
  readonly newKeyFile: string | undefined;
  readonly env: NodeJS.ProcessEnv;
  readonly baseDirectory: string;
  readonly log: Logger;
}

/** What became of it. */
export interface Rotation {
  /** Records that were sealed anew */
  readonly records: number;
  /** Id of the key that the store is sealed with now */
  readonly keyId: string;
  /** Whether the key at hand has been this one before */
  readonly unchanged: boolean;
}

/** Seals the store with another key. Rejects with one line, fit for the operator; both keys open the store until it is done. */
export async function rotateKey(options: RotationOptions): Promise<Rotation> {
  const { uri, key, baseDirectory, newKeyFile } = options;
  if (!isThere(uri, baseDirectory)) {
    throw new Error('nothing is stored yet, so that there is no key to rotate; it is made with the first record');
  }
  const path = newKeyFile === undefined ? undefined : resolve(baseDirectory, newKeyFile);
  if (key.kind === 'env') return rotateVariable(key.name, path, options);
  return rotateFile(resolve(baseDirectory, key.path), path, options);
}

async function rotateVariable(name: string, newKeyFile: string | undefined, options: RotationOptions): Promise<Rotation> {
  if (newKeyFile === undefined) {
    throw new Error(`the key is in the variable "${name}", which cannot be set from here; name a file for the new one`);
  }
  const current = keyFromEnvironment(name, options.env);
  return reseal(options, current, await readOrMake(newKeyFile, options.log));
}

async function rotateFile(path: string, newKeyFile: string | undefined, options: RotationOptions): Promise<Rotation> {
  if (!existsSync(path)) throw new Error(`the key file "${path}" of the store is not there; put it back first`);
  const { key: current } = await openKeyFile(path);
  const given = newKeyFile === undefined ? undefined : await readOrMake(newKeyFile, options.log);
  // Nothing to do but to see that it is so: repeated after its end.
  if (given?.equals(current) === true && (await readNextKey(path)) === undefined) return reseal(options, current, current);
  const rotation = await reseal(options, current, await beginKeyRotation(path, given));
  await finishKeyRotation(path);
  return rotation;
}

async function readOrMake(path: string, log: Logger): Promise<Buffer> {
  const { key, warning } = await openKeyFile(path);
  if (warning !== undefined) log.warn(warning);
  return key;
}

async function reseal({ uri, baseDirectory, log }: RotationOptions, current: Buffer, next: Buffer): Promise<Rotation> {
  // Of two keys either may be the one that an interrupted rotation has left in force.
  const furtherKeys = (): Promise<readonly Buffer[]> => Promise.resolve([next]);
  // That a rotation goes on is no news to whoever does it.
  const quiet: Logger = { ...log, warn: (message, fields) => log.debug(message, fields) };
  const store = await openStore({ uri, key: current, furtherKeys, baseDirectory, log: quiet });
  try {
    return { records: await store.reseal(next), keyId: sealKey(next).id, unchanged: next.equals(current) };
  } finally {
    await store.close();
  }
}
