// The way of a command to the REST resources of a running proxy: where its admin listener is, and what each answer means to the caller.
// It must never read a secret of the config: of a config only the listener's address and the path of its token are wanted.
import { resolve } from 'node:path';
import { formatProblem } from '../config/problem.ts';
import type { Config } from '../config/schema.ts';
import { askAdmin } from './ask-admin.ts';
import type { AdminQuestion } from './ask-admin.ts';
import { configPath, readConfig } from './context.ts';
import type { CommandContext, ConfigOption, Trouble } from './context.ts';
import { EXIT } from './exit-codes.ts';
import type { ExitCode } from './exit-codes.ts';

/** Options that say which proxy is asked. */
export interface AdminOptions extends ConfigOption {
  /** URL of the admin listener; left out, the one that the config names */
  readonly url?: string | undefined;
  /** File of the admin token; left out, the one that the config names */
  readonly tokenFile?: string | undefined;
}

/** A JSON object of an answer. */
export type Resource = Readonly<Record<string, unknown>>;

/** The resources that a proxy keeps. */
export type Kind = 'credentials' | 'environments';

/** What is asked. */
export interface Line {
  readonly method: 'GET' | 'POST' | 'PATCH' | 'DELETE';
  readonly path: string;
  readonly body?: unknown;
}

/** The proxy's resources. */
export interface AdminDoor {
  ask(line: Line): Promise<Resource | Trouble>;
}

/** A token endpoint may be asked before a credential is answered for. */
const TIMEOUT_MS = 60_000;
const PAGE = 200;
const ID = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$/;

/** Finds the admin listener. Never rejects. */
export async function findAdmin(options: AdminOptions, context: CommandContext): Promise<AdminDoor | Trouble> {
  const place = await placeOf(options, context);
  if ('problem' in place) return place;
  return {
    ask: async (line) => {
      const answered = await askAdmin({ ...place, ...line, timeoutMs: TIMEOUT_MS });
      if ('problem' in answered) return { problem: answered.problem, code: codeFor(answered.status) };
      if (isResource(answered.body)) return answered.body;
      const problem = `"${place.url}" answered with something that is no resource; is it the admin listener?`;
      return { problem, code: EXIT.failed };
    },
  };
}

async function placeOf(
  options: AdminOptions,
  { env, directory }: CommandContext,
): Promise<Pick<AdminQuestion, 'url' | 'tokenFile'> | Trouble> {
  const { url, tokenFile } = options;
  if (url !== undefined && tokenFile !== undefined) return { url, tokenFile: resolve(directory, tokenFile) };
  const file = configPath(options, env);
  const parsed = await readConfig(file, directory);
  if ('problems' in parsed) {
    return { problem: parsed.problems.map((problem) => formatProblem(problem, file)).join('\n'), code: EXIT.config };
  }
  const { admin } = parsed.config;
  const token = { tokenFile: resolve(directory, tokenFile ?? admin.token.file) };
  if (url !== undefined) return { ...token, url };
  if (admin.listen.port === 0) {
    return { problem: 'admin.listen takes any free port; name the URL of the listener with --url', code: EXIT.usage };
  }
  return { ...token, url: urlOf(admin.listen) };
}

/** An address that stands for every interface is reached by loopback. */
function urlOf({ host, port }: Config['admin']['listen']): string {
  const everywhere: Readonly<Record<string, string>> = { '0.0.0.0': '127.0.0.1', '::': '::1' };
  const reachable = everywhere[host] ?? host;
  return `http://${reachable.includes(':') ? `[${reachable}]` : reachable}:${port}`;
}

function codeFor(status: number | undefined): ExitCode {
  switch (status) {
    case 400:
    case 413:
    case 422:
      return EXIT.usage;
    case 404:
    case 409:
    case 412:
      return EXIT.notAsAssumed;
    default:
      return EXIT.failed;
  }
}

/** A whole list, page by page. Ids of records that do not open are in `unreadable`. */
export async function listAll(
  door: AdminDoor,
  kind: Kind,
): Promise<{ readonly entries: readonly Resource[]; readonly unreadable: readonly string[] } | Trouble> {
  const entries: Resource[] = [];
  const unreadable: string[] = [];
  let token = '';
  do {
    const query = new URLSearchParams({ page_size: String(PAGE), page_token: token });
    const page = await door.ask({ method: 'GET', path: `/v1beta/${kind}?${query.toString()}` });
    if (isTrouble(page)) return page;
    entries.push(...listIn(page, kind).filter(isResource));
    unreadable.push(...listIn(page, 'unreadable').map(String));
    const { next_page_token: next } = page;
    // A page that points to itself would be read for ever.
    token = typeof next === 'string' && next !== token ? next : '';
  } while (token !== '');
  return { entries, unreadable };
}

function listIn(page: Resource, name: string): readonly unknown[] {
  const list = page[name];
  return Array.isArray(list) ? list : [];
}

/** Asks about one resource. An id that can be none is not sent, nor repeated: it may be a secret in the wrong place. */
export async function askOne(
  door: AdminDoor,
  { kind, id, below = '', ...line }: Omit<Line, 'path'> & { readonly kind: Kind; readonly id: string; readonly below?: string },
): Promise<Resource | Trouble> {
  if (ID.test(id)) return door.ask({ ...line, path: `/v1beta/${kind}/${id}${below}` });
  const problem = 'this is no id; an id has at most 128 letters, digits, "-", "_" and ".", a letter or digit first';
  return { problem, code: EXIT.usage };
}

/** Whether something stands in the way. No resource has these two members. */
export function isTrouble(outcome: object): outcome is Trouble {
  return 'problem' in outcome && 'code' in outcome;
}

function isResource(value: unknown): value is Resource {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
