// What an injection comes to, for the step that puts it on and for whoever is asked what it would put on.
// It must never look at a value: which fields, and whether they may go, shows in names alone.
import { Refusal } from '../exchange/codes.ts';
import { looseName } from '../exchange/header-fields.ts';
import type { TransformField } from '../exchange/rule.ts';
import type { Permit } from '../exchange/stages.ts';

/** `plaintext_credential` where the rule puts something on and the exchange would show it to everyone on the way. */
export function plaintextTrouble({ intent, rule }: Permit): Refusal | undefined {
  if (rule.injection === undefined || intent.scheme === 'https' || rule.injection.allowPlaintext) return undefined;
  const detail = 'the rule puts fields on, which plain http would show to everyone on the way';
  return new Refusal('plaintext_credential', detail, rule.id);
}

/** The credential's fields with the transform on top; of two with one name the later one stays (dialect section 1.5). */
export function overlay(below: readonly TransformField[], above: readonly TransformField[]): readonly TransformField[] {
  const byName = new Map<string, TransformField>();
  for (const fields of [below, above]) for (const field of fields) byName.set(looseName(field.name), field);
  return [...byName.values()];
}
