// What becomes of an answer that may show what was put on at the door: its values are looked through, and its body where it is text.
// A body that is text and cannot be read here does not go to the sandbox: what nobody has looked through may hold anything.
import { Fault } from '../exchange/codes.ts';
import { fieldValue } from '../exchange/header-fields.ts';
import type { Redaction } from '../exchange/redaction.ts';
import { createRecoder, planBody } from './body-coding.ts';
import type { BodyFilter, Recoder } from './body-coding.ts';

/** How the body goes: `undefined`, untouched. */
export type RedactedWay = { readonly filter: BodyFilter } | { readonly recoder: Recoder } | undefined;

/** An answer's head as it goes to the sandbox, and how its body goes. */
export interface RedactedHead {
  readonly fields: string[];
  readonly body: RedactedWay;
}

/** A compressed answer that comes to more than this is cut: it may be one that was made to keep the door busy. */
const MOST_DECODED_BYTES = 1024 * 1024 * 1024;

/** Values of a field section, in place. */
export function redactFields(fields: string[], redaction: Redaction): string[] {
  for (let i = 1; i < fields.length; i += 2) fields[i] = redaction.text(fields[i] as string);
  return fields;
}

/**
 * Looks a final head through. `bodiless`: no body follows, whatever the fields say. The length goes where the body may change it; entity
 * tags and digests stay what the upstream said. Throws `upstream_protocol` where the body cannot be looked through.
 */
export function redactHead(
  fields: string[],
  answer: { readonly status: number; readonly bodiless: boolean },
  redaction: Redaction,
): RedactedHead {
  redactFields(fields, redaction);
  if (answer.bodiless || fieldValue(fields, 'content-length') === '0') return { fields, body: undefined };
  // Without a type nothing says that it is no text, and looking through it changes nothing else.
  const type = fieldValue(fields, 'content-type') ?? 'text/plain';
  const plan = planBody(type, fieldValue(fields, 'content-encoding'));
  if (plan.kind === 'untouched') return { fields, body: undefined };
  // A part of something compressed cannot be opened.
  if (plan.kind === 'opaque' || (answer.status === 206 && plan.coding !== 'identity')) {
    throw new Fault('upstream_protocol', UNREADABLE);
  }
  const filter = redaction.stream();
  const body = plan.coding === 'identity' ? { filter } : { recoder: createRecoder(plan.coding, filter, MOST_DECODED_BYTES) };
  return { fields: withoutLength(fields), body };
}

const UNREADABLE =
  'the answer is text in a coding that cannot be looked through for the credential; ask for another, or set `redact: false` on the rule';

function withoutLength(fields: readonly string[]): string[] {
  const kept: string[] = [];
  for (let i = 0; i + 1 < fields.length; i += 2) {
    if ((fields[i] as string).toLowerCase() !== 'content-length') kept.push(fields[i] as string, fields[i + 1] as string);
  }
  return kept;
}
