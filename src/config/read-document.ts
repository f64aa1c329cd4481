// YAML or JSON text to plain values, with the line of every value. Core schema, unique keys, bounded aliases, no tags of its own.
// It must never repeat the text of the parser's errors: they quote the source, and the source may hold a secret.
import { isAlias, isMap, isPair, isScalar, isSeq, LineCounter, parseDocument } from 'yaml';
import type { Document, YAMLError } from 'yaml';
import type { KeyPath, Problem } from './problem.ts';

/** A text that could be read. `lineOf` gives the line of a path, or of the nearest thing above it that exists. */
export interface ReadDocument {
  readonly value: unknown;
  readonly lineOf: (path: KeyPath) => number | undefined;
}

const SYNTAX: Readonly<Record<string, string>> = {
  DUPLICATE_KEY: 'this key stands twice in one mapping; keep one of them',
  BAD_INDENT: 'the indentation does not fit what stands above; use two blanks for each level',
  TAB_AS_INDENT: 'a tab is used as indentation; use blanks',
  MISSING_CHAR: 'a character is missing here: a closing quote, bracket or brace, a comma, or the blank after a colon',
  MULTIPLE_DOCS: 'more than one document; remove the `---` between them',
  BAD_ALIAS: 'the alias names no anchor; define it above with `&`',
  TAG_RESOLVE_FAILED: 'tags (`!name`) are not understood; use { env: NAME } or { file: PATH } for secrets',
  BAD_DQ_ESCAPE: 'unknown escape in double quotes; use single quotes where a backslash is meant',
  BAD_SCALAR_START: 'plain text cannot begin with this character; put the text in quotes',
  NON_STRING_KEY: 'keys must be plain text',
};

/** How many times aliases may be followed in all; more is how a small file becomes a large one. */
const MOST_ALIASES = 100;

/** Reads the text; with problems where it cannot be read. Never throws. */
export function readDocument(text: string, name: string): ReadDocument | { readonly problems: readonly Problem[] } {
  const json = name.toLowerCase().endsWith('.json') ? jsonProblem(text) : undefined;
  if (json !== undefined) return { problems: [json] };
  try {
    const lines = new LineCounter();
    const document = parseDocument(text.replace(/^\uFEFF/, ''), {
      version: '1.2',
      schema: 'core',
      merge: false,
      uniqueKeys: true,
      stringKeys: true,
      strict: true,
      prettyErrors: false,
      // With 'silent' the parser would drop every document after the first without a word.
      logLevel: 'error',
      lineCounter: lines,
    });
    const faults = [...document.errors, ...document.warnings];
    if (faults.length > 0) return { problems: faults.map((fault) => syntaxProblem(fault, lines)) };
    const value: unknown = document.toJS({ maxAliasCount: MOST_ALIASES });
    return { value, lineOf: (path) => lineOf(document, path, lines) };
  } catch (error) {
    const aliases = error instanceof ReferenceError;
    return {
      problems: [
        {
          path: '',
          message: aliases ? `too many aliases; write the values out` : 'too deeply nested to be read; make it flatter',
        },
      ],
    };
  }
}

function syntaxProblem(fault: YAMLError, lines: LineCounter): Problem {
  const message =
    SYNTAX[fault.code] ?? 'not valid YAML here; check quotes, brackets and indentation of this line and the one above';
  return { path: '', line: lines.linePos(fault.pos[0]).line, message };
}

function jsonProblem(text: string): Problem | undefined {
  try {
    JSON.parse(text);
    return undefined;
  } catch (error) {
    if (text.trim() === '') return undefined;
    const message = 'not valid JSON; check quotes, commas and brackets';
    const at = error instanceof SyntaxError ? /at position (\d+)/.exec(error.message)?.[1] : undefined;
    return at === undefined ? { path: '', message } : { path: '', line: text.slice(0, Number(at)).split('\n').length, message };
  }
}

function lineOf(document: Document.Parsed, path: KeyPath, lines: LineCounter): number | undefined {
  let node: unknown = document.contents;
  let offset = offsetOf(node);
  for (const step of path) {
    if (isAlias(node)) node = node.resolve(document);
    if (isMap(node)) {
      const pair = node.items.find((item) => isPair(item) && isScalar(item.key) && item.key.value === String(step));
      if (pair === undefined) break;
      offset = offsetOf(pair.key) ?? offset;
      node = pair.value;
    } else if (isSeq(node) && typeof step === 'number') {
      node = node.items[step];
      offset = offsetOf(node) ?? offset;
    } else break;
  }
  return offset === undefined ? undefined : lines.linePos(offset).line;
}

function offsetOf(node: unknown): number | undefined {
  if (typeof node !== 'object' || node === null || !('range' in node) || !Array.isArray(node.range)) return undefined;
  const start: unknown = node.range[0];
  return typeof start === 'number' ? start : undefined;
}
