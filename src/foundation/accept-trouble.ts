// What a listener says when a connection cannot be taken up: no file descriptor left, no memory. It goes on listening.
// A server without a listener for 'error' would end the process; one that logged each of them would fill the disk in an attack.
import type { Logger } from './logger.ts';

/** Least time between two lines, in `ms`. */
const PAUSE_MS = 1000;

/** A listener for the 'error' of a server that is bound: at most one line a second, with how many errors had none. `name` says which door. */
export function logAcceptTrouble(log: Logger, name: string, now = (): number => performance.now()): (error: Error) => void {
  let quietUntil = -Infinity;
  let unsaid = 0;
  return (error) => {
    if (now() < quietUntil) {
      unsaid += 1;
      return;
    }
    quietUntil = now() + PAUSE_MS;
    const cause = 'code' in error ? String(error.code) : error.name;
    log.error('a connection could not be taken up', { listener: name, cause, ...(unsaid > 0 ? { unsaid } : {}) });
    unsaid = 0;
  };
}
