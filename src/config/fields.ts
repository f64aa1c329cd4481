// Leaf fields that several parts of the schema share. Each turns an operator's text into its typed value or into a problem.
// It must never quote what may be a secret: of values only those whose key cannot bear one, of keys only those that look like keys.
import { z } from 'zod';
import { parseAddress, parseHost } from '../exchange/authority.ts';
import type { AddressRanges } from '../exchange/rule.ts';
import { parseRanges } from '../network/address-ranges.ts';
import { headerFields as headerFieldsOf, headerName } from '../credentials/credential-fields.ts';
import { EMPTY_SECRET, readSecretText } from '../credentials/secret-source.ts';
import type { SecretSource } from '../credentials/secret-source.ts';
import { shownKey } from './problem.ts';
import { DURATION, parseDuration, parseSize, SIZE } from './units.ts';

export { headerName };

/** Where a listener binds. Port 0 asks for any free one. */
export interface ListenAddress {
  readonly host: string;
  readonly port: number;
}

/** Whether a value is a mapping, as the schema's own checks need to know before they look inside. */
export function isMapping(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Says to zod that a check between the keys of a mapping runs even where single keys are wrong, so that all problems come at once. */
export const onAnyMapping = { when: (payload: { readonly value: unknown }) => isMapping(payload.value) };

/** A duration such as "30s", as `ms`. */
export function duration(standard: string, description: string) {
  return z
    .string({ error: (issue) => (typeof issue.input === 'number' ? durationProblem(String(issue.input)) : undefined) })
    .regex(DURATION, { error: (issue) => durationProblem(String(issue.input)), abort: true })
    .transform((text, context) => {
      const parsed = parseDuration(text);
      if ('ms' in parsed) return parsed.ms;
      return fail(context, parsed.problem);
    })
    .prefault(standard)
    .describe(description);
}

function durationProblem(text: string): string {
  const parsed = parseDuration(text);
  return 'problem' in parsed ? parsed.problem : 'expected a duration';
}

/** A size such as "64KiB" or a number of bytes, as bytes. */
export function size(standard: string, description: string) {
  return z
    .union([z.number(), z.string().regex(SIZE, { error: (issue) => sizeProblem(String(issue.input)), abort: true })], {
      error: 'expected a number of bytes or a size such as "64KiB"',
    })
    .transform((value, context) => {
      const parsed = parseSize(value);
      return 'bytes' in parsed ? parsed.bytes : fail(context, parsed.problem);
    })
    .prefault(standard)
    .describe(description);
}

function sizeProblem(text: string): string {
  const parsed = parseSize(text);
  return 'problem' in parsed ? parsed.problem : 'expected a size';
}

/** A whole number of at least 1. */
export function count(standard: number, description: string) {
  return z.int().min(1).max(1_000_000).prefault(standard).describe(description);
}

/** `host:port` or `[v6]:port`, to bind to. */
export function listenAddress(standard: string, description: string) {
  return bindable().prefault(standard).describe(description);
}

/** The same for a listener that there may not be. */
export function doorAddress(description: string) {
  return bindable().optional().describe(description);
}

function bindable() {
  return z
    .string({ error: (issue) => (typeof issue.input === 'number' ? listenProblem(String(issue.input)) : undefined) })
    .transform((text, context): ListenAddress => parseListenAddress(text) ?? fail(context, listenProblem(text)));
}

function listenProblem(text: string): string {
  const port = /^:?(\d+)$/.exec(text)?.[1];
  return `"${text}" is not a listening address; write "${port === undefined ? '127.0.0.1:8080' : `127.0.0.1:${port}`}"`;
}

/** Reads `host:port`; `undefined` where it has no one reading. */
function parseListenAddress(text: string): ListenAddress | undefined {
  const parts = /^(\[[^\]]+\]|[^:]+):(0|[1-9]\d{0,4})$/.exec(text);
  const host = parts?.[1] === undefined ? undefined : parseHost(parts[1]);
  const port = Number(parts?.[2]);
  return host === undefined || port > 65535 ? undefined : { host, port };
}

/** A path of a file. */
export function filePath() {
  return z.string().min(1, { error: 'must not be empty; write the path of a file' });
}

/** One CIDR, or an address that stands for itself alone. */
export function addressRange() {
  return z.string().transform((text, context): AddressRanges => {
    const parsed = parseRanges([text]);
    return 'ranges' in parsed ? parsed.ranges : fail(context, parsed.problem);
  });
}

/** An address of one family in canonical form. */
export function ipAddress(family: 4 | 6) {
  return z.string().transform((text, context): string => {
    const address = parseAddress(text);
    if (address !== undefined && address.includes(':') === (family === 6)) return address;
    return fail(context, `"${text}" is not an IPv${family} address; write it like "${family === 4 ? '10.0.0.2' : 'fd00::2'}"`);
  });
}

const IDENTIFIER = /^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$/;
/** A stored one may be longer, and have dots */
const CREDENTIAL_ID = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$/;
const ID_RULE = 'use up to 63 letters, digits, "-" and "_", a letter or digit first';

/** An id of a credential or a sandbox. */
export function identifier() {
  return z.string().regex(IDENTIFIER, {
    error: (issue) => `${shownKey(String(issue.input))} is not an id; ${ID_RULE}`,
  });
}

/** The id of a credential where it is referred to. It is never quoted: what does not fit may be the credential itself. */
export function credentialId() {
  return z.string().regex(CREDENTIAL_ID, {
    error: `is not the id of a credential; ${ID_RULE}, and write the secret under that id in \`credentials\``,
  });
}

/** The name of an environment variable. */
export function variableName() {
  return z
    .string()
    .regex(/^[A-Za-z_][A-Za-z0-9_]*$/, { error: 'is not a name of an environment variable; use letters, digits and "_"' });
}

/** `{ env: NAME }` or `{ file: PATH }`. */
export function secretReference() {
  return z
    .strictObject({
      env: variableName()
        .optional()
        .describe('Name of the environment variable that holds the secret; read at start and at each reload.'),
      file: filePath()
        .optional()
        .describe('File that holds the secret, one trailing newline not counted; watched, so that a rotation needs no restart.'),
    })
    .refine((reference) => (reference.env === undefined) !== (reference.file === undefined), {
      error: 'needs exactly one of `env` and `file`',
      // A misspelled key is its own problem; this one would only repeat it.
      when: ({ value, issues }) => isMapping(value) && !issues.some((issue) => issue.code === 'unrecognized_keys'),
    })
    .transform(({ env, file }): SecretSource => {
      return env === undefined ? { kind: 'file', path: file ?? '' } : { kind: 'env', name: env };
    });
}

/** A secret: the text itself, or where it is kept. `mayBeEmpty`: the text `""` is one, EMPTY_SECRET. */
export function secretValue({ mayBeEmpty = false } = {}) {
  const text = z.string().transform((value, context): SecretSource => {
    if (mayBeEmpty && value === '') return EMPTY_SECRET;
    const reading = readSecretText(value, 'the text');
    return reading.kind === 'read' ? { kind: 'text', secret: reading.secret } : fail(context, reading.problem);
  });
  return z.union([text, secretReference()], {
    error: 'expected text (in quotes where it looks like a number), `{ env: NAME }` or `{ file: PATH }`',
  });
}

/** Header names with their secrets; two spellings of one name are a problem. */
export function headerFields() {
  return headerFieldsOf(secretValue());
}

/** Reports a problem from inside a transform; the value is never used. */
export function fail(context: z.RefinementCtx, message: string): never {
  context.addIssue({ code: 'custom', message });
  return z.NEVER;
}
