// Which changed keys a reload cannot put in force: sockets, their parser's limits, the CA, the logs are opened at the start.
// It must never show a value, which may be a secret in the wrong place.
import { isMapping } from './fields.ts';
import type { Config } from './schema.ts';

/** Sections and single keys, as paths. Of a section each key below it counts by itself. */
const FIXED_AT_START: readonly (readonly string[])[] = [
  ['listen'],
  ['admin'],
  ['ca'],
  ['store'],
  ['audit'],
  ['log', 'level'],
  ['limits', 'header_bytes'],
  ['limits', 'timeouts', 'header'],
  ['limits', 'timeouts', 'handshake'],
  ['limits', 'timeouts', 'keep_alive'],
];

/** The changed keys that wait for a restart, as in `listen.proxy` and `limits.timeouts.header`. */
export function restartNeeded(started: Config, now: Config): string[] {
  return FIXED_AT_START.flatMap((path) => {
    const [a, b] = [valueAt(started, path), valueAt(now, path)];
    const keys = isMapping(a) && isMapping(b) ? [...new Set([...Object.keys(a), ...Object.keys(b)])] : [];
    const paths = path.length === 1 ? keys.map((key) => [...path, key]) : [path];
    return paths
      .filter((each) => JSON.stringify(valueAt(started, each)) !== JSON.stringify(valueAt(now, each)))
      .map((each) => each.join('.'));
  });
}

function valueAt(config: unknown, path: readonly string[]): unknown {
  return path.reduce((value, key) => (isMapping(value) ? value[key] : undefined), config);
}
