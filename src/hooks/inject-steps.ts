// Reads `injectSteps`: what a hook wants to be put into the conversation, each step one of four kinds.
// It must never pass on a step that it does not understand: the runtime would put it before the model, or fail on it.
import { failed } from './failures.ts';
import type { HookFailure } from './failures.ts';
import { isJsonObject, oneOf } from './json-reader.ts';
import type { JsonObject } from './words.ts';

const KINDS: Readonly<Record<string, { readonly form: string; readonly fits: (value: unknown) => boolean }>> = {
  toolCall: {
    form: '{ "name": "...", "args": { ... } }',
    fits: (value) =>
      isJsonObject(value) &&
      typeof value.name === 'string' &&
      value.name !== '' &&
      (value.args === undefined || isJsonObject(value.args)),
  },
  userMessage: { form: 'text', fits: (value) => typeof value === 'string' },
  ephemeralMessage: { form: 'text', fits: (value) => typeof value === 'string' },
  systemMessage: {
    form: '{ "systemMessage": "..." }',
    fits: (value) => isJsonObject(value) && typeof value.systemMessage === 'string',
  },
};

/** Every step as it was written, or the failure that one of them is. */
export function readSteps(value: unknown): { readonly steps: readonly JsonObject[] } | HookFailure {
  if (!Array.isArray(value)) return failed('unknown_answer', '"injectSteps" must be a list');
  const steps: JsonObject[] = [];
  for (const [index, step] of value.entries()) {
    const keys = isJsonObject(step) ? Object.keys(step) : [];
    const key = keys.length === 1 ? keys[0] : undefined;
    const kind = key !== undefined && Object.hasOwn(KINDS, key) ? KINDS[key] : undefined;
    if (!isJsonObject(step) || key === undefined || kind === undefined) {
      return failed('unknown_answer', `"injectSteps[${index}]" must hold exactly one of ${oneOf(Object.keys(KINDS))}`);
    }
    if (!kind.fits(step[key])) return failed('unknown_answer', `"injectSteps[${index}].${key}" must be ${kind.form}`);
    steps.push(step);
  }
  return { steps };
}
