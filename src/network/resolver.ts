// Names to addresses, as the machine itself would resolve them (so /etc/hosts counts), each question asked once at a time.
// It must never remember an answer: every dial is judged on a fresh one, and what it returns is not yet judged.
import { promises as dns } from 'node:dns';
import type { Host } from '../exchange/authority.ts';

/** Asks for the addresses of a name. */
export interface Resolver {
  /** Every address of the name, in the order of the answer, as text that nobody has judged yet. Rejects where the name has none. */
  resolve(host: Host): Promise<readonly string[]>;
}

/** The system's resolver. Questions for one name that overlap share one answer. */
export function systemResolver(): Resolver {
  return sharingResolver(async (host) => {
    // `verbatim` keeps the resolver's own preference among families (RFC 6724), which the dial order starts from.
    const answers = await dns.lookup(host, { all: true, order: 'verbatim' });
    return answers.map((answer) => answer.address);
  });
}

/** A resolver over `ask` that has at most one question in flight for each name and forgets the answer once it is given. */
export function sharingResolver(ask: (host: Host) => Promise<readonly string[]>): Resolver {
  const inFlight = new Map<Host, Promise<readonly string[]>>();
  return {
    resolve(host) {
      const asked = inFlight.get(host);
      if (asked !== undefined) return asked;
      const answer = ask(host).finally(() => inFlight.delete(host));
      inFlight.set(host, answer);
      return answer;
    },
  };
}
