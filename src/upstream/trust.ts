// Which roots upstreams are verified by: Node's, those of the configuration in force, and those of the machine. It must never take away
// one that the configuration names, and what the machine names is added only where Node would drop it.
import { readFileSync } from 'node:fs';
import { createTrust } from './secure.ts';
import type { UpstreamTrust } from './secure.ts';

/**
 * The roots of NODE_EXTRA_CA_CERTS, as PEM texts. Node drops them where roots are named one by one; an operator who set the variable
 * means it for upstreams too. `warn` hears of a file that cannot be read, whose roots are then not trusted.
 */
export function rootsOfTheMachine(env: NodeJS.ProcessEnv, warn: (message: string) => void): readonly string[] {
  const path = env['NODE_EXTRA_CA_CERTS'];
  if (path === undefined || path === '') return [];
  try {
    return [readFileSync(path, 'utf8')];
  } catch {
    warn(`NODE_EXTRA_CA_CERTS names a file that cannot be read: "${path}"; its roots are not trusted`);
    return [];
  }
}

/** The trust over roots that may change, built anew only when they have. `roots` is asked each time. */
export function createTrustOver(roots: () => readonly string[], machine: readonly string[]): () => UpstreamTrust {
  let from: readonly string[] = [];
  let trust: UpstreamTrust | undefined;
  return () => {
    const now = roots();
    if (trust === undefined || (now !== from && now.join() !== from.join())) {
      trust = createTrust(now.length === 0 ? [] : [...now, ...machine]);
    }
    from = now;
    return trust;
  };
}
