// The hook map: six points for every tool - what runs before it, what after it, which facts are trusted, how failure behaves, what is logged,
// who owns the alert. A tool with a blank cell is not ready to run unattended. Pure; it must never show a header, or of a URL more than its place.
import { showUnseen, showWire } from '../foundation/visible-text.ts';
import type { Dialect } from './dialect.ts';
import { onFailureOf } from './failure-policy.ts';
import type { Risk } from './failure-policy.ts';
import type { Tool, Tools } from './tools.ts';
import type { DialectName, HookHandler, HookRule, HookSet, OnFailure } from './words.ts';

/** The six points. */
export const CELLS = ['before', 'after', 'facts', 'failure', 'logged', 'owner'] as const;

/** One of them. */
export type Cell = (typeof CELLS)[number];

/** One tool. Each cell is a list of texts; an empty one is blank. */
export interface MapRow extends Readonly<Record<Cell, readonly string[]>> {
  readonly tool: string;
  readonly risk: Risk;
  readonly unattended: boolean;
  readonly visibleTo: string | undefined;
  readonly blank: readonly Cell[];
}

/** The whole map, in the order of the registry. */
export interface HookMap {
  readonly rows: readonly MapRow[];
  /** Names of tools that are marked unattended and have a blank cell */
  readonly unready: readonly string[];
}

/** What the map is drawn with. */
export interface MapContext {
  readonly dialects: Readonly<Record<DialectName, Pick<Dialect, 'onFailure' | 'events'>>>;
  /** Where the lines of the ledger go, for people; undefined: nowhere */
  readonly audit: string | undefined;
  /** Whether the lines hold the call's arguments */
  readonly recordArguments: boolean;
}

const LONGEST_SHOWN = 120;
const LONGEST_FILE = 1024;
/** Keys of a line that answer "what was decided, by whom, why, how long". */
const LOGGED = 'event, tool, handler, outcome, decision, reason_code, duration_ms, action_id, trace_id';

const IN_WORDS = {
  allow: 'the call goes on',
  review: 'a human has to look before the call goes on',
  deny: 'the call is denied',
} as const satisfies Record<OnFailure, string>;

/** Draws the map. Rules of a file that cannot be used do not count: such a file denies every call. */
export function hookMap(tools: Tools, set: HookSet, context: MapContext): HookMap {
  const broken = new Set(set.problems.filter(({ severity }) => severity === 'error').map(({ file }) => file));
  const rules = set.rules.filter((rule) => rule.enabled && !broken.has(rule.file));
  const rows = [...tools.values()].map((tool) => rowOf(tool, rules, context));
  return { rows, unready: rows.filter((row) => row.unattended && row.blank.length > 0).map((row) => row.tool) };
}

/** A handler that runs for a tool, and the rule that it stands in. */
interface Placed {
  readonly rule: HookRule;
  readonly handler: HookHandler;
}

function rowOf(tool: Tool, rules: readonly HookRule[], context: MapContext): MapRow {
  const placed = rules
    .filter((rule) => rule.matcher.matches(tool.name))
    .flatMap((rule) => rule.handlers.map((handler): Placed => ({ rule, handler })));
  const at = (moment: 'before' | 'after'): readonly Placed[] =>
    placed.filter(({ rule }) => context.dialects[rule.dialect].events.get(rule.event) === moment);
  const [before, after] = [at('before'), at('after')];
  const cells: Record<Cell, readonly string[]> = {
    before: before.length > 0 ? before.map(shown) : given(tool.before),
    after: after.length > 0 ? after.map(shown) : given(tool.after),
    facts: tool.facts.map(plain),
    failure: before.length > 0 ? failureOf(tool.risk, before, context) : given(tool.failure),
    logged: before.length + after.length > 0 && context.audit !== undefined ? [loggedIn(context)] : given(tool.logged),
    owner: given(tool.owner),
  };
  return {
    tool: plain(tool.name),
    risk: tool.risk,
    unattended: tool.unattended,
    visibleTo: tool.visibleTo === undefined ? undefined : plain(tool.visibleTo),
    ...cells,
    blank: CELLS.filter((cell) => cells[cell].length === 0),
  };
}

/** What a failure comes to, once for each thing it can come to, with the handlers that it is true of. */
function failureOf(risk: Risk, before: readonly Placed[], { dialects }: MapContext): readonly string[] {
  const byOutcome = new Map<OnFailure, string[]>();
  for (const { rule, handler } of before) {
    const outcome = onFailureOf({ handler, risk, dialect: dialects[rule.dialect].onFailure });
    byOutcome.set(outcome, [...(byOutcome.get(outcome) ?? []), plain(handler.id)]);
  }
  const retried = risk === 'reversible' ? 'a failure that may pass is tried once more; then ' : '';
  const words = (outcome: OnFailure): string => retried + IN_WORDS[outcome];
  if (byOutcome.size === 1) return [...byOutcome.keys()].map(words);
  return [...byOutcome].map(([outcome, ids]) => `${ids.join(', ')}: ${words(outcome)}`);
}

function loggedIn({ audit, recordArguments }: MapContext): string {
  return `one line for each run in ${plain(audit ?? '')}: ${LOGGED}${recordArguments ? ', arguments' : ''}`;
}

/** A command line may hold a secret, whatever its author was told; its place in the file is enough to find it. */
function shown({ rule, handler }: Placed): string {
  const what = handler.kind === 'http' ? `POST ${placeOf(handler.url)}` : 'a command';
  return `${plain(handler.id)}: ${plain(what)}, in ${showWire(rule.file, LONGEST_FILE)}`;
}

/** Host and path: user, password and query of a URL may be secrets. */
function placeOf(url: string): string {
  if (!URL.canParse(url)) return 'to a URL that cannot be read';
  const { origin, pathname } = new URL(url);
  return origin + pathname;
}

function given(text: string | undefined): readonly string[] {
  return text === undefined ? [] : [plain(text)];
}

function plain(text: string): string {
  return showUnseen(text.length > LONGEST_SHOWN ? `${text.slice(0, LONGEST_SHOWN - 3)}...` : text);
}
