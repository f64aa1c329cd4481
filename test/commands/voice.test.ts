// Twin of src/commands/voice.ts.
import { describe, expect, it } from 'vitest';
import { capture } from './rig.ts';

const CONTROL = /[\x00-\x09\x0b-\x1f\x7f-\x9f]/;

describe('the voice', () => {
  it('paints on a terminal', () => {
    const { context, out } = capture('.', { terminal: true });
    context.voice.table([['name', { text: 'refused', tone: 'bad' }]]);
    expect(out()).toContain('\u001b[31mrefused\u001b[39m');
  });

  it.each([
    { name: 'in a pipe', terminal: false, env: {} },
    { name: 'with NO_COLOR', terminal: true, env: { NO_COLOR: '1' } },
  ])('paints nothing $name', ({ terminal, env }) => {
    const { context, out, err } = capture('.', { terminal, env });
    context.voice.table([['name', { text: 'refused', tone: 'bad' }]]);
    context.voice.say('done', 'good');
    context.voice.complain('no');
    expect(out() + err()).not.toContain('\u001b');
  });

  it('spells out control characters that somebody else chose (L01)', () => {
    const { context, out, err } = capture('.');
    const hostile = 'a\u001b[2Jb\rc\u202ed\u009be';
    context.voice.table([[hostile, [hostile]]], [hostile.slice(0, 1)]);
    context.voice.say(hostile);
    context.voice.complain(hostile);
    context.voice.json({ hostile });
    expect(out() + err()).not.toMatch(CONTROL);
    expect(err()).toContain('a\\u001b[2Jb\\u000dc\\u202ed');
  });

  it('keeps JSON the same JSON while it spells out', () => {
    const { context, out } = capture('.', { terminal: true });
    const value = { text: 'a\u009b\u202e"\\\n' };
    context.voice.json(value);
    expect(JSON.parse(out())).toEqual(value);
  });

  it('complains once for each line, under the name of the program', () => {
    const { context, out, err } = capture('.');
    context.voice.complain('one\ntwo');
    expect([out(), err()]).toEqual(['', 'sallyport: one\nsallyport: two\n']);
  });
});
