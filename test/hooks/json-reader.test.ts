import { describe, expect, it } from 'vitest';
import { at, nearest, oneOf, ShapeReader } from '../../src/hooks/json-reader.ts';

const EVENTS = ['pre_tool_execution', 'post_tool_execution'];
const DESKTOP = ['SessionStart', 'PreToolUse', 'PostToolUse', 'PreInvocation', 'PostInvocation', 'Stop'];

describe('nearest', () => {
  it.each([
    ['pre_tool_executon', EVENTS, 'pre_tool_execution'],
    ['preToolExecution', EVENTS, 'pre_tool_execution'],
    ['Pre-Tool-Execution', EVENTS, 'pre_tool_execution'],
    ['PreToolUse', EVENTS, 'pre_tool_execution'],
    ['BeforeTool', DESKTOP, 'PreToolUse'],
    ['pretooluse', DESKTOP, 'PreToolUse'],
    ['PostToolUsage', DESKTOP, 'PostToolUse'],
    ['Stpo', DESKTOP, 'Stop'],
    ['timeoutMs', ['type', 'command', 'timeout'], 'timeout'],
    ['Command', ['command', 'http'], 'command'],
    ['UserPromptSubmit', DESKTOP, undefined],
    ['constructor', DESKTOP, undefined],
    ['', DESKTOP, undefined],
    ['x'.repeat(100_000), DESKTOP, undefined],
  ])('%s', (unknown, known, meant) => {
    expect(nearest(unknown, known)).toBe(meant); // M13
  });
});

describe('at', () => {
  it('writes plain keys with a dot, indexes and odd keys in brackets', () => {
    expect(at(at(at(at('', 'security-gate'), 'hooks'), 0), 'odd key')).toBe('security-gate.hooks[0]["odd key"]');
    expect(at('', 'a\u001b[31m')).not.toContain('\u001b');
  });
});

describe('a ShapeReader', () => {
  it('collects each wrong value with its path and the form that is allowed', () => {
    const reader = new ShapeReader('/w/.agents/hooks.json');
    expect(reader.object([], 'a', '{ "x": 1 }')).toBeUndefined();
    expect(reader.list('x', 'b', '[1]')).toBeUndefined();
    expect(reader.text(5, 'c')).toBeUndefined();
    expect(reader.text(' ', 'd')).toBeUndefined();
    expect(reader.text('a\0b', 'e')).toBeUndefined();
    expect(reader.flag('true', 'f', false)).toBe(false);
    expect(reader.word('Deny', 'g', ['allow', 'deny'])).toBeUndefined();
    expect(reader.word('deny ', 'h', ['allow', 'deny'])).toBeUndefined();
    expect(reader.word(null, 'i', ['allow', 'deny'])).toBeUndefined();
    reader.keys({ known: 1, tiemout: 2, zzz: 3 }, 'j', ['known', 'timeout']);
    expect(reader.problems.map(({ path, message }) => `${path}: ${message}`)).toEqual([
      'a: must be an object, as { "x": 1 }; it is a list',
      'b: must be a list, as [1]; it is text',
      'c: must be text in double quotes; it is a number',
      'd: must not be empty',
      'e: must not hold the character NUL',
      'f: must be true or false, without quotes; it is text',
      'g: must be "allow" or "deny"; it is "Deny"; did you mean "deny"',
      'h: must be "allow" or "deny"; it is "deny "; did you mean "deny"',
      'i: must be "allow" or "deny"; it is null',
      'j.tiemout: unknown key "tiemout"; did you mean "timeout"; allowed are known, timeout',
      'j.zzz: unknown key "zzz"; allowed are known, timeout',
    ]);
    expect(reader.problems.every(({ file, severity }) => file === '/w/.agents/hooks.json' && severity === 'error')).toBe(true);
  });

  it('takes what is right', () => {
    const reader = new ShapeReader('/f');
    expect(reader.text(' x ', 'a')).toBe(' x ');
    expect(reader.flag(undefined, 'b', true)).toBe(true);
    expect(reader.flag(false, 'b', true)).toBe(false);
    expect(reader.word('deny', 'c', ['allow', 'deny'])).toBe('deny');
    reader.keys({}, 'd', []);
    expect(reader.problems).toEqual([]);
  });
});

describe('oneOf', () => {
  it('names words for people', () => {
    expect([oneOf(['a']), oneOf(['a', 'b']), oneOf(['a', 'b', 'c'])]).toEqual(['"a"', '"a" or "b"', '"a", "b" or "c"']);
  });
});
