// Reads the groups and rules of a hooks file. What a dialect calls things, and how it matches, arrives as a RuleShape.
// It must never drop an entry in silence: each one is a rule, a problem, or a warning that it is not run.
import { at, isJsonObject } from './json-reader.ts';
import type { ShapeReader } from './json-reader.ts';
import { readHandler, readOnFailure } from './read-handler.ts';
import type { HandlerShape } from './read-handler.ts';
import { wholeMatcher } from './matcher.ts';
import type { DialectName, EventName, HookRule, JsonObject, Matcher, OnFailure } from './words.ts';

/** What a dialect allows in a group and a rule. */
export interface RuleShape {
  readonly dialect: DialectName;
  readonly events: readonly EventName[];
  /** Events whose list holds handlers, without matchers around them */
  readonly flat: ReadonlySet<EventName>;
  readonly matcher: (source: string | undefined) => Matcher;
  readonly handler: HandlerShape;
}

/** Where a list of rules stands. */
export interface RulePlace {
  readonly file: string;
  readonly group: string;
  readonly event: EventName;
  readonly enabled: boolean;
  readonly onFailure: OnFailure | undefined;
  /** Of the list */
  readonly path: string;
}

const RULE_KEYS = ['matcher', 'hooks', 'on_failure'];
const RULE_FORM = '[{ "matcher": "...", "hooks": [{ "type": "command", "command": "..." }] }]';
const FLAT_FORM = '[{ "type": "command", "command": "..." }]';

/** Reads a file that maps names of groups to their events. */
export function readGroups(reader: ShapeReader, file: string, value: unknown, shape: RuleShape): readonly HookRule[] {
  const groups = reader.object(value, '', `{ "my-gate": { "${shape.events[0] ?? ''}": [...] } }`);
  const rules: HookRule[] = [];
  for (const [group, content] of Object.entries(groups ?? {})) {
    const path = at('', group);
    const object = reader.object(content, path, `{ "${shape.events[0] ?? ''}": [...] }`);
    if (object === undefined) continue;
    reader.keys(object, path, ['enabled', 'on_failure', ...shape.events]);
    const enabled = reader.flag(object.enabled, at(path, 'enabled'), true);
    const onFailure = readOnFailure(reader, object, path);
    for (const event of shape.events) {
      const list = object[event];
      if (list === undefined) continue;
      rules.push(...readRules(reader, list, { file, group, event, enabled, onFailure, path: at(path, event) }, shape));
    }
  }
  return rules;
}

/** Reads the list of one event. */
export function readRules(reader: ShapeReader, value: unknown, place: RulePlace, shape: RuleShape): readonly HookRule[] {
  const flat = shape.flat.has(place.event);
  const list = reader.list(value, place.path, flat ? FLAT_FORM : RULE_FORM) ?? [];
  return list.flatMap((entry, index) => {
    const inList = { ...place, path: at(place.path, index) };
    const id = `${place.group}/${place.event}[${index}]`;
    const grouped = isJsonObject(entry) && Object.hasOwn(entry, 'hooks');
    if (flat && !grouped) return readFlat(reader, entry, { place: inList, id, shape });
    if (flat) reader.warn(inList.path, `${place.event} lists its handlers without "hooks" around them; the matcher is ignored`);
    const rule = readRule(reader, entry, { place: inList, id, shape });
    return rule === undefined ? [] : [rule];
  });
}

interface Entry {
  readonly place: RulePlace;
  readonly id: string;
  readonly shape: RuleShape;
}

function readFlat(reader: ShapeReader, value: unknown, { place, id, shape }: Entry): readonly HookRule[] {
  const handler = readHandler(reader, value, { path: place.path, id, onFailure: place.onFailure }, shape.handler);
  return handler === undefined ? [] : [ruleOf(place, shape, { matcher: wholeMatcher(undefined), handlers: [handler] })];
}

function readRule(reader: ShapeReader, value: unknown, { place, id, shape }: Entry): HookRule | undefined {
  const object = reader.object(value, place.path, RULE_FORM.slice(1, -1));
  if (object === undefined) return undefined;
  if (!Object.hasOwn(object, 'hooks') && ['type', 'command', 'url'].some((key) => Object.hasOwn(object, key))) {
    reader.fail(place.path, `is a handler where a rule is wanted; write ${RULE_FORM.slice(1, -1)}`);
    return undefined;
  }
  reader.keys(object, place.path, RULE_KEYS);
  const matcher = shape.flat.has(place.event) ? wholeMatcher(undefined) : readMatcher(reader, object, place.path, shape);
  const onFailure = readOnFailure(reader, object, place.path) ?? place.onFailure;
  const path = at(place.path, 'hooks');
  const list = reader.list(object.hooks, path, FLAT_FORM) ?? [];
  const handlers = list.flatMap((entry, index) => {
    const handler = readHandler(reader, entry, { path: at(path, index), id: `${id}.hooks[${index}]`, onFailure }, shape.handler);
    return handler === undefined ? [] : [handler];
  });
  return ruleOf(place, shape, { matcher, handlers });
}

function readMatcher(reader: ShapeReader, object: JsonObject, rulePath: string, shape: RuleShape): Matcher {
  const { matcher: source } = object;
  const path = at(rulePath, 'matcher');
  if (source !== undefined && typeof source !== 'string') {
    reader.fail(path, 'must be text, as "view_file|write_to_file"; leave it out, or write "*", for every tool');
    return wholeMatcher(undefined);
  }
  const matcher = shape.matcher(source);
  if (matcher.problem !== undefined) reader.warn(path, `matches no tool: ${matcher.problem}`);
  else if (source !== undefined && /^\w+\([^()|]*[\s:][^()|]*\)$/.test(source)) {
    reader.warn(path, 'is matched against the name of the tool alone; what it is called with is for the hook to judge');
  }
  return matcher;
}

function ruleOf(place: RulePlace, shape: RuleShape, rest: Pick<HookRule, 'matcher' | 'handlers'>): HookRule {
  const { file, group, event, enabled } = place;
  return { file, dialect: shape.dialect, group, event, enabled, ...rest };
}
