// Inline sources of an environment: files whose content stands in the body, each with the path at which it lands.
// It knows their limits and their paths. It must never accept a path that leads out of the place where they are written,
// nor one that two of them would land at; and it never puts a content into a problem.
import { nearestWord } from '../foundation/edit-distance.ts';
import { unknownMember } from '../foundation/shape-problems.ts';

/** A source as it is kept. */
export interface InlineSource {
  /** Below `/`, without a slash at its beginning or end, no `.` or `..` in it */
  readonly target: string;
  readonly content: string;
  /** Left out: the content is the text itself */
  readonly encoding?: 'base64';
}

/** What is said of a source without its content. `size` is in bytes. */
export interface SourceFile {
  readonly target: string;
  readonly size: number;
}

/** Sources that can be kept, or one line that says why not. */
export type ReadSources =
  { readonly sources: readonly InlineSource[]; readonly files: readonly SourceFile[] } | { readonly problem: string };

/** The largest file, in bytes. */
export const FILE_BYTES = 1024 * 1024;
/** All files of one environment together, in bytes. */
export const TOTAL_BYTES = 2 * FILE_BYTES;
const MOST_FILES = 1_000;
const LONGEST_TARGET = 512;
const MEMBERS = ['type', 'target', 'content', 'encoding'];
const OTHER_TYPES = new Set(['gcs', 'repository', 'skill_registry']);
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;

/** Reads `sources` of a body. Never throws. */
export function readSources(raw: unknown): ReadSources {
  if (!Array.isArray(raw)) return { problem: '"sources" must be a list of {"type": "inline", "target", "content"}' };
  if (raw.length > MOST_FILES) return { problem: `"sources" has more than ${MOST_FILES} files` };
  const sources: InlineSource[] = [];
  const files: SourceFile[] = [];
  const taken = new Set<string>();
  let total = 0;
  for (const [index, entry] of raw.entries()) {
    const place = `"sources[${index}]"`;
    const source = readSource(entry);
    if ('problem' in source) return { problem: `${place} ${source.problem}` };
    const size = Buffer.byteLength(source.content, source.encoding ?? 'utf8');
    if (size > FILE_BYTES) return { problem: `${place} has ${size} bytes; a file may have 1 MB (${FILE_BYTES})` };
    total += size;
    if (total > TOTAL_BYTES) return { problem: `"sources" have more than 2 MB (${TOTAL_BYTES} bytes) together` };
    if (taken.has(source.target)) return { problem: `${place} lands where an earlier one does; give each its own "target"` };
    taken.add(source.target);
    sources.push(source);
    files.push({ target: source.target, size });
  }
  const crossed = files.find(({ target }) => foldersOf(target).some((folder) => taken.has(folder)));
  if (crossed !== undefined) return { problem: `"sources": a file cannot be the folder of another one; change a "target"` };
  return { sources, files };
}

/** The folders above a target, from the top. */
export function foldersOf(target: string): string[] {
  const steps = target.split('/').slice(0, -1);
  return steps.map((_, index) => steps.slice(0, index + 1).join('/'));
}

function readSource(entry: unknown): InlineSource | { readonly problem: string } {
  if (!isObject(entry)) return { problem: 'must be an object {"type": "inline", "target", "content"}' };
  const { type, target, content, encoding } = entry;
  if (type !== 'inline') return { problem: typeProblem(type) };
  const stranger = Object.keys(entry).find((name) => !MEMBERS.includes(name));
  if (stranger !== undefined) return { problem: `has an ${unknownMember(stranger, MEMBERS)}` };
  const path = readTarget(target);
  if ('problem' in path) return path;
  if (typeof content !== 'string') return { problem: 'needs "content", the text of the file' };
  if (encoding === undefined) return { target: path.target, content };
  if (encoding !== 'base64') return { problem: '"encoding" can only be "base64"; leave it out where the content is the text' };
  return BASE64.test(content)
    ? { target: path.target, content, encoding }
    : { problem: '"content" is not base64; encode it whole, with its padding and without line breaks' };
}

function typeProblem(type: unknown): string {
  const inline = 'this version takes inline sources: {"type": "inline", "target", "content"}';
  if (type === undefined) return `needs a "type"; ${inline}`;
  if (typeof type !== 'string') return `"type" must be text; ${inline}`;
  if (OTHER_TYPES.has(type)) return `is of the type "${type}", which is not fetched here; ${inline}`;
  return nearestWord(type, ['inline']) === undefined ? `is of a type that is not known; ${inline}` : 'did you mean "inline"?';
}

function readTarget(target: unknown): { readonly target: string } | { readonly problem: string } {
  if (typeof target !== 'string') return { problem: 'needs "target", the path at which it lands, as ".agents/hooks.json"' };
  if (target.length > LONGEST_TARGET) return { problem: `"target" is longer than ${LONGEST_TARGET} characters` };
  if (/[\x00-\x1f\x7f\\]/.test(target)) return { problem: '"target" holds a control character or a backslash' };
  const path = target.replace(/^\//, '');
  if (path === '') return { problem: '"target" may not be "/"; name a file' };
  const bad = path.split('/').find((step) => step === '' || step === '.' || step === '..');
  if (bad === '..') return { problem: '"target" may not hold ".."; name the path itself' };
  if (bad !== undefined) return { problem: '"target" must be the path of a file, without "." or empty steps' };
  return { target: path };
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
