// The last of a request, where that depends on its body or on the time: placeholders in the body swapped, its length corrected, and a
// signature over what goes out. It must never let a body go out whose length its fields do not tell, nor hold more than MOST_HELD_BODY.
import { fieldValue, listMembers } from '../exchange/header-fields.ts';
import type { HeaderFields } from '../exchange/header-fields.ts';
import type { Signer, Unsigned } from '../exchange/snapshot.ts';
import type { Completed, Completion, Intent } from '../exchange/stages.ts';
import { createBodyReplacer } from './placeholder.ts';
import type { LookUpValue } from './placeholder.ts';

/** A body of at most so many bytes is held where it has to be known whole; it is all that one exchange costs in memory. */
export const MOST_HELD_BODY = 1024 * 1024;

/** What is left to be done. */
export interface Unfinished {
  readonly intent: Intent;
  /** All of them, as they go upstream unless something is changed here */
  readonly fields: HeaderFields;
  readonly query: string;
  readonly signer: Signer | undefined;
  /** The values that may stand in the body; `undefined`: it is none of our business */
  readonly lookUp: LookUpValue | undefined;
  /** Those that were put on before */
  readonly credentials: readonly string[];
  /** Epoch `ms` */
  readonly now: () => number;
}

/** The completion of a request, or why there can be none: nothing has been sent then. */
export function completionOf(left: Unfinished): Completion | { readonly unfit: string } {
  const { intent, signer, lookUp, fields } = left;
  const length = announcedLength(fields);
  const need = signer?.need(unsigned(left, fields), hasBody(intent)) ?? 'nothing';
  if (typeof need === 'object') return need;
  if (need === 'body' && (length ?? 0) > MOST_HELD_BODY) return { unfit: TOO_LARGE };
  const small = length !== undefined && length <= MOST_HELD_BODY;
  return new Ending(left, need === 'body' || (lookUp !== undefined && small) ? MOST_HELD_BODY : undefined);
}

/** Why a body cannot be signed; to stand after what it is of. */
const TOO_LARGE = `its body is over ${MOST_HELD_BODY} bytes, and this service wants the hash of the whole signed`;

/** Whether placeholders can be looked for in a body: one behind a coding shows none. */
export function isReadable(fields: HeaderFields): boolean {
  const codings = listMembers(fieldValue(fields, 'content-encoding') ?? '');
  return codings.every((coding) => coding === 'identity');
}

/** Whether the request has a body. */
export function hasBody({ arrival }: Intent): boolean {
  return arrival.purpose === 'exchange' && arrival.body !== undefined;
}

function announcedLength(fields: HeaderFields): number | undefined {
  const length = fieldValue(fields, 'content-length');
  return length === undefined ? undefined : Number(length);
}

function unsigned({ intent, query }: Unfinished, fields: HeaderFields): Unsigned {
  const { arrival, path, scheme } = intent;
  return { method: arrival.method, scheme: scheme ?? 'https', path, query, fields };
}

/** A signature is good for some minutes; one that is younger than this is not made anew for a second attempt. */
const FRESH_SIGNATURE_MS = 60_000;

class Ending implements Completion {
  readonly hold: number | undefined;
  readonly #left: Unfinished;
  #swapped: ReadonlySet<string> = new Set();
  #last: { readonly completed: Completed; readonly at: number } | undefined = undefined;

  constructor(left: Unfinished, hold: number | undefined) {
    this.#left = left;
    this.hold = hold;
  }

  complete(held: Buffer | undefined): Completed {
    const now = this.#left.now();
    // Only a request of which nothing has gone out is completed again, so that what its body goes through is unused.
    if (this.#last !== undefined && now - this.#last.at < FRESH_SIGNATURE_MS) return this.#last.completed;
    const swapped = this.#swap(held);
    const { signer, intent, query } = this.#left;
    const streams = hasBody(intent) && held === undefined;
    const signed = signer?.sign(unsigned(this.#left, swapped.fields), { bytes: swapped.body, streams }, now);
    const completed = { ...swapped, fields: signed?.fields ?? swapped.fields, query: signed?.query ?? query };
    this.#last = { completed, at: now };
    return completed;
  }

  credentials(): readonly string[] {
    const { credentials } = this.#left;
    return this.#swapped.size === 0 ? credentials : [...new Set([...credentials, ...this.#swapped])];
  }

  #swap(held: Buffer | undefined): Omit<Completed, 'query'> {
    const { lookUp, fields } = this.#left;
    if (lookUp === undefined) return { fields, body: held, through: undefined };
    const swapped = new Set<string>();
    this.#swapped = swapped;
    const counting: LookUpValue = (id) => {
      const value = lookUp(id);
      if (value !== undefined) swapped.add(id);
      return value;
    };
    const replacer = createBodyReplacer(counting, fieldValue(fields, 'content-type'));
    if (held === undefined) return { fields: withLength(fields, undefined), body: undefined, through: replacer };
    const body = Buffer.concat([replacer.push(held), replacer.end()]);
    return { fields: withLength(fields, body.length), body, through: undefined };
  }
}

/** The fields with another length, where they tell one; without it they are those of a body in chunks. */
function withLength(fields: HeaderFields, length: number | undefined): HeaderFields {
  const changed: string[] = [];
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const name = fields[i] as string;
    const isLength = name.toLowerCase() === 'content-length';
    if (isLength && length === undefined) continue;
    changed.push(name, isLength ? String(length) : (fields[i + 1] as string));
  }
  return changed;
}
