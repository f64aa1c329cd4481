// The header fields of an http handler, with variables put in: only those that the handler lists, and never half of one (fault M16).
// It must never let a value break out of its field, override what the runner or HTTP itself sets, or stand in a message.
import { isOurs } from './environment.ts';
import type { Variables } from './environment.ts';
import { failed } from './failures.ts';
import type { HookFailure } from './failures.ts';
import type { HttpHandler } from './words.ts';

const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
/** RFC 9110 section 5.5: visible characters, blanks, and bytes above ASCII */
const FIELD_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;
/** Fields that frame the message or name its target, and those that the runner sets */
const NOT_THEIRS =
  /^(?:host|content-length|transfer-encoding|connection|keep-alive|te|trailer|upgrade|expect|proxy-.*|x-sallyport-.*)$/i;
const VARIABLE = /\$(?:(\$)|\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*)|)/g;

/** The handler's fields as they are sent, name and value in turn; or why none of it is sent. */
export function fillHeaders(handler: Pick<HttpHandler, 'headers' | 'allowedVariables'>, env: Variables): string[] | HookFailure {
  const fields: string[] = [];
  const seen = new Set<string>();
  for (const [name, written] of handler.headers) {
    const trouble = nameTrouble(name, seen);
    if (trouble !== undefined) return failed('invalid_header', trouble);
    const value = fillVariables(written, { allowed: handler.allowedVariables, env });
    if (typeof value !== 'string') return value;
    if (!FIELD_VALUE.test(value)) return failed('invalid_header', `the value of "${name}" holds a character that no header may`);
    seen.add(name.toLowerCase());
    fields.push(name, value);
  }
  return fields;
}

function nameTrouble(name: string, seen: ReadonlySet<string>): string | undefined {
  if (!TOKEN.test(name)) return `${JSON.stringify(name)} is not the name of a header`;
  if (NOT_THEIRS.test(name)) return `"${name}" is not set by hooks; leave it out`;
  return seen.has(name.toLowerCase()) ? `"${name}" is there twice` : undefined;
}

/** Puts variables in: `$NAME`, `${NAME}`; `$$` is a dollar sign, and a `$` before anything else is an error. */
export function fillVariables(
  text: string,
  { allowed, env }: { readonly allowed: readonly string[]; readonly env: Variables },
): string | HookFailure {
  let trouble: HookFailure | undefined;
  const filled = text.replace(VARIABLE, (_, dollar?: string, braced?: string, bare?: string) => {
    if (dollar !== undefined) return '$';
    const value = resolve(braced ?? bare, { allowed, env });
    if (typeof value === 'string') return value;
    trouble ??= value;
    return '';
  });
  return trouble ?? filled;
}

function resolve(
  name: string | undefined,
  { allowed, env }: { readonly allowed: readonly string[]; readonly env: Variables },
): string | HookFailure {
  const unresolved = (why: string): HookFailure => failed('unresolved_variable', why);
  if (name === undefined) return unresolved('a $ begins no name; write $NAME, ${NAME}, or $$ for a dollar sign');
  if (!allowed.includes(name)) return unresolved(`"${name}" is not among the variables that the handler allows`);
  const value = Object.hasOwn(env, name) ? env[name] : undefined;
  if (value === undefined) return unresolved(`"${name}" is not set`);
  if (value === '') return unresolved(`"${name}" is empty`);
  if (/[\r\n\0]/.test(value)) return unresolved(`"${name}" holds a line break or a NUL`);
  if (isOurs(name, value)) return unresolved(`"${name}" holds a secret of Sallyport, which no hook is given`);
  return value;
}
