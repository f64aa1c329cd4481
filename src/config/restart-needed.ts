// Which changed keys a reload cannot put in force: sockets, the CA, the store and the audit log are opened at the start.
// It must never show a value: the store's address may hold a password.
import { isMapping } from './fields.ts';
import type { Config } from './schema.ts';

const FIXED_AT_START = ['listen', 'admin', 'ca', 'store', 'audit'] as const;

/** The changed keys that wait for a restart, as in `listen.proxy` and `ca.key`. */
export function restartNeeded(started: Config, now: Config): string[] {
  return FIXED_AT_START.flatMap((section) => {
    const a = started[section];
    const b = now[section];
    return keysOf(a, b)
      .filter((key) => JSON.stringify(valueOf(a, key)) !== JSON.stringify(valueOf(b, key)))
      .map((key) => `${section}.${key}`);
  });
}

function keysOf(a: object, b: object): string[] {
  return [...new Set([...Object.keys(a), ...Object.keys(b)])];
}

function valueOf(section: object, key: string): unknown {
  return isMapping(section) ? section[key] : undefined;
}
