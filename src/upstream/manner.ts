// In which protocol an exchange goes on: like for like first, so that what the sandbox speaks is what its upstream hears where both can.
// It knows what came in and what the lane has; it must never open anything.
import { fieldValue } from '../exchange/header-fields.ts';
import type { Intent } from '../exchange/stages.ts';
import type { Carrier } from './carrier.ts';
import type { Lanes, Spoken } from './lanes.ts';

/**
 * `plain` and `prior` are for http: HTTP/1.1, or HTTP/2 by prior knowledge. The others are for https: what the sandbox spoke, which is
 * what is tried first.
 */
export type Manner = 'plain' | 'prior' | 'http/1.1' | 'h2' | 'upgrade' | 'h2 upgrade';

const GRPC = /^application\/grpc(?:[+;\s]|$)/i;

/** How an exchange wants to go on. */
export function mannerOf({ arrival, scheme }: Intent): Manner {
  const isUpgrade = arrival.purpose === 'upgrade';
  if (scheme === 'http') return !isUpgrade && GRPC.test(fieldValue(arrival.fields, 'content-type') ?? '') ? 'prior' : 'plain';
  // Its protocol is its own where it is a WebSocket's, so the pseudo-header fields tell.
  if (arrival.pseudo === undefined) return isUpgrade ? 'upgrade' : 'http/1.1';
  return isUpgrade ? 'h2 upgrade' : 'h2';
}

/** Takes what stands ready in the lane, if it is of use. `again`: a second attempt, for which an idle connection may be as dead as the first. */

export function takeStanding(manner: Manner, lanes: Lanes, lane: string, again: boolean): Carrier | undefined {
  const idle = again ? undefined : lanes;
  switch (manner) {
    case 'plain':
      return idle?.take(lane);
    case 'prior':
      return lanes.takeSession(lane);
    case 'http/1.1':
      return idle?.take(lane) ?? lanes.takeSession(lane);
    case 'h2':
      return lanes.takeSession(lane) ?? (lanes.spoken(lane) === 'http/1.1 only' ? idle?.take(lane) : undefined);
    case 'upgrade':
      return idle?.take(lane) ?? lanes.takeSession(lane, true);
    case 'h2 upgrade':
      return lanes.takeSession(lane, true) ?? idle?.take(lane);
    default:
      return manner satisfies never;
  }
}

/** What is offered to an upstream, first the one that is liked best. */
export type Offer = readonly ('h2' | 'http/1.1')[];

const H1_ONLY: Offer = ['http/1.1'];
const H2_ONLY: Offer = ['h2'];
const BOTH: Offer = ['h2', 'http/1.1'];

/** What to offer where nothing stands ready. */
export function offerOf(manner: Manner, spoken: Spoken | undefined): Offer {
  if (manner === 'plain') return H1_ONLY;
  if (manner === 'prior') return H2_ONLY;
  if (manner === 'h2') return BOTH;
  return spoken === 'h2 only' ? H2_ONLY : H1_ONLY;
}
