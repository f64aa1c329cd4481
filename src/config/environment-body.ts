// The body of an environment, as the REST dialect and the guides' pasted objects have it: network, env, inline sources.
// It says what is wrong in one line with the right spelling. A network is read by the config's own rule schema, so that one rule
// means one thing wherever it stands. It must never follow a value to a file or a variable of this machine, nor repeat one.
import { z } from 'zod';
import type { JsonObject } from '../exchange/records.ts';
import { canBePlaceholder } from '../credentials/placeholder.ts';
import { unknownMember } from '../foundation/shape-problems.ts';
import { readSources } from './environment-sources.ts';
import type { InlineSource, SourceFile } from './environment-sources.ts';
import { isMapping } from './fields.ts';
import { formatPath } from './problem.ts';
import { findingsOf, issueText } from './problem-text.ts';
import { networkSchema } from './rule-schema.ts';
import type { Network } from './rule-schema.ts';

/** A good result, or one line, lower case, with the remedy. */
export type Read<Good> = Good | { readonly problem: string };

/** A variable: text, or the credential that it stands for. */
export type Variable = string | { readonly credential: string };

/** Variables by name. */
export type Variables = Readonly<Record<string, Variable>>;

/** A body, read. What it does not name is absent. */
export interface EnvironmentParts {
  /** `environment_id`: the environment that is to be changed */
  readonly environmentId?: string;
  /** As it is to be kept: it may hold secrets */
  readonly network?: unknown;
  readonly env?: Variables;
  readonly sources?: readonly InlineSource[];
  readonly files?: readonly SourceFile[];
  /** Ids of credentials that it names; `variable` where one stands for a variable */
  readonly credentials: readonly { readonly id: string; readonly variable: boolean }[];
}

/** What an answer shows in place of a value. */
export const HIDDEN = '[secret]';

const MEMBERS = ['type', 'environment_id', 'network', 'env', 'sources'];
const OUTPUT_ONLY = new Set(
  'id status create_time update_time created updated last_accessed file_count size_bytes proxy_url'.split(' '),
);
const MOST_PROBLEMS = 5;
const MOST_VARIABLES = 256;
const LONGEST_VARIABLE = 32 * 1024;
const VARIABLE_NAME = /^[A-Za-z_][A-Za-z0-9_]{0,127}$/;
const CREDENTIAL_ID = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$/;

/** Reads a body. Never throws. */
export function readEnvironmentBody(body: unknown = {}): Read<EnvironmentParts> {
  if (!isMapping(body)) return { problem: 'the body must be a JSON object' };
  const stranger = Object.keys(body).find((name) => !MEMBERS.includes(name));
  if (stranger !== undefined) return { problem: strangerProblem(stranger) };
  const { type, environment_id: environmentId, network, env, sources } = body;
  if (type !== undefined && type !== 'remote') return { problem: '"type" can only be "remote"; it may be left out' };
  if (environmentId !== undefined && typeof environmentId !== 'string') return { problem: '"environment_id" must be text' };
  const ruled: Read<{ readonly network?: unknown }> = network === undefined ? {} : keepNetwork(network);
  if ('problem' in ruled) return ruled;
  const bound: Read<{ readonly env?: Variables }> = env === undefined ? {} : readVariables(env);
  if ('problem' in bound) return bound;
  const brought: Read<Pick<EnvironmentParts, 'sources' | 'files'>> = sources === undefined ? {} : readSources(sources);
  if ('problem' in brought) return brought;
  const credentials = [...named(ruled), ...boundIn(bound.env).map((id) => ({ id, variable: true }))];
  return { ...(environmentId === undefined ? {} : { environmentId }), ...ruled, ...bound, ...brought, credentials };
}

/** The network that a record keeps, as the compiler takes it; left out, everything outside of the walls may be reached. */
export function openNetwork(kept: unknown): Read<{ readonly network: Network }> {
  const checked = checkNetwork(kept === undefined ? { allowlist: [{ domain: '*' }] } : kept);
  return 'problem' in checked ? checked : { network: checked.network };
}

/** Reads `env`: an object, or the list of single-key objects that answers show. */
export function readVariables(raw: unknown): Read<{ readonly env: Variables }> {
  const objects: readonly unknown[] = Array.isArray(raw) ? raw : [raw];
  const env: Record<string, Variable> = {};
  for (const object of objects) {
    if (!isMapping(object)) return { problem: '"env" must be an object of variables: {"NAME": "text" or {"credential": id}}' };
    for (const [name, value] of Object.entries(object)) {
      if (!VARIABLE_NAME.test(name)) return { problem: '"env": names of variables are letters, digits and "_", no digit first' };
      if (Object.hasOwn(env, name)) return { problem: `"env.${name}" stands twice; keep one of them` };
      const variable = readVariable(value);
      if (typeof variable === 'object' && 'problem' in variable) return { problem: `"env.${name}" ${variable.problem}` };
      env[name] = variable;
    }
  }
  return Object.keys(env).length > MOST_VARIABLES ? { problem: `"env" has more than ${MOST_VARIABLES} variables` } : { env };
}

/** Ids of the credentials that variables stand for, each once. */
export function boundIn(env: Readonly<Record<string, string | object>> = {}): string[] {
  const ids = Object.values(env).flatMap((value) => (isMapping(value) ? [value['credential']] : []));
  return [...new Set(ids.filter((id) => typeof id === 'string'))];
}

function readVariable(value: unknown): Variable | { readonly problem: string } {
  if (typeof value === 'string') return textProblem(value) ?? value;
  if (!isMapping(value)) return { problem: 'must be text, {"value": "text"} or {"credential": id}' };
  const [key, second] = Object.keys(value);
  if (second !== undefined || (key !== 'value' && key !== 'credential'))
    return { problem: 'must hold exactly one of "value" and "credential"' };
  const text = value[key];
  if (typeof text !== 'string') return { problem: `: "${key}" must be text` };
  if (key === 'value') return textProblem(text) ?? text;
  if (!CREDENTIAL_ID.test(text)) return { problem: ': "credential" is not the id of a credential' };
  return canBePlaceholder(text)
    ? { credential: text }
    : {
        problem: ': the id of its "credential" cannot stand in a placeholder; use letters, digits, "-" and single "_" inside it',
      };
}

function textProblem(text: string): { readonly problem: string } | undefined {
  if (text.includes('\0')) return { problem: 'holds a NUL, which no variable can' };
  return text.length > LONGEST_VARIABLE ? { problem: `is longer than ${LONGEST_VARIABLE} characters` } : undefined;
}

function strangerProblem(name: string): string {
  if (OUTPUT_ONLY.has(name)) return `"${name}" is set by the server; leave it out`;
  if (name === 'from_environment') return '"from_environment" is not available in this version; send "sources" and "env" anew';
  return unknownMember(name, MEMBERS);
}

/** A network as it is to be kept: checked, and with nothing in it that points into this machine. */
function keepNetwork(raw: unknown): Read<{ readonly network: unknown }> {
  // the vendor's client types the word in this place too
  const network = isMapping(raw) && raw['allowlist'] === 'disabled' && Object.keys(raw).length === 1 ? 'disabled' : raw;
  const checked = checkNetwork(network);
  return 'problem' in checked ? checked : { network };
}

const holder = z.strictObject({ network: networkSchema });

function checkNetwork(raw: unknown): Read<{ readonly network: Network }> {
  const parsed = holder.safeParse({ network: raw }, { error: issueText });
  if (!parsed.success) {
    const findings = findingsOf(parsed.error, { network: raw });
    const texts = findings.slice(0, MOST_PROBLEMS).map(({ path, message }) => `${formatPath(path)}: ${message}`);
    return {
      problem: texts.join('; ') + (findings.length > MOST_PROBLEMS ? `; and ${findings.length - MOST_PROBLEMS} more` : ''),
    };
  }
  for (const [index, value] of transformValues(raw)) {
    const place = `network.allowlist[${index}].transform`;
    if (value === HIDDEN)
      return {
        problem: `${place}: "${HIDDEN}" is what an answer shows in place of a value; send the value, or leave "network" out`,
      };
    if (typeof value !== 'string')
      return { problem: `${place}: values are text here; { env } and { file } are for the config of the proxy alone` };
  }
  return { network: parsed.data.network };
}

function transformValues(network: unknown): [index: number, value: unknown][] {
  return entriesOf(network).flatMap((entry, index) =>
    transformsOf(entry).flatMap((object) => Object.values(object).map((value): [number, unknown] => [index, value])),
  );
}

/** The rules of a network that was checked. */
export function entriesOf(network: unknown): readonly JsonObject[] {
  const list = isMapping(network) ? network['allowlist'] : undefined;
  return Array.isArray(list) ? list.filter(isMapping) : [];
}

/** The header objects of a rule that was checked. */
export function transformsOf({ transform }: JsonObject): readonly JsonObject[] {
  return [transform].flat().filter(isMapping);
}

function named({ network }: { readonly network?: unknown }): { readonly id: string; readonly variable: boolean }[] {
  const ids = entriesOf(network).flatMap(({ credential }) => (typeof credential === 'string' ? [credential] : []));
  return [...new Set(ids)].map((id) => ({ id, variable: false }));
}
