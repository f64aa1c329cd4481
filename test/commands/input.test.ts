// Twin of src/commands/input.ts: the answers of a person at a terminal, key by key.
import { PassThrough } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { createInput } from '../../src/commands/input.ts';

/** A terminal: what stands on it, and whether it shows what is typed. */
function terminal() {
  let shown = '';
  const modes: boolean[] = [];
  const stdin = Object.assign(new PassThrough(), { isTTY: true, setRawMode: (raw: boolean) => void modes.push(raw) });
  const stderr = { isTTY: true, write: (text: string) => void (shown += text) };
  return { stdin, input: createInput({ stdin, stderr }), shown: () => shown, modes };
}

describe('a question for a secret', () => {
  it.each([
    { name: 'a line', typed: ['hunter2\r'], answer: 'hunter2' },
    { name: 'a line key by key', typed: ['a', 'b', '\r'], answer: 'ab' },
    { name: 'a line that ends as Windows has it', typed: ['ab\r\n'], answer: 'ab' },
    { name: 'an empty line', typed: ['\r'], answer: '' },
    { name: 'a key taken back', typed: ['abc\u007f\r'], answer: 'ab' },
    { name: 'a letter of two units taken back', typed: ['a\u{1f600}\u007f\r'], answer: 'a' },
    { name: 'a line taken back', typed: ['abc\u0015de\r'], answer: 'de' },
    { name: 'blanks as they are', typed: [' a b \r'], answer: ' a b ' },
    { name: 'Ctrl-C as giving up', typed: ['abc\u0003'], answer: undefined },
    { name: 'Ctrl-D as giving up', typed: ['abc\u0004'], answer: undefined },
  ])('hears $name, and shows nothing of it', async ({ typed, answer }) => {
    const { stdin, input, shown, modes } = terminal();
    const answered = input.secret('token: ');
    for (const keys of typed) stdin.write(keys);
    expect(await answered).toBe(answer);
    expect(shown()).toBe('token: \n');
    expect(modes).toEqual([true, false]);
  });

  it('refuses a paste of several lines, and leaves the terminal as it was', async () => {
    const { stdin, input, modes } = terminal();
    const answered = input.secret('token: ');
    stdin.write('-----BEGIN KEY-----\nabc\n');
    await expect(answered).rejects.toThrow('more than one line was pasted');
    expect(modes).toEqual([true, false]);
  });

  it('gives up where input ends', async () => {
    const { stdin, input } = terminal();
    const answered = input.secret('token: ');
    stdin.end();
    expect(await answered).toBeUndefined();
  });

  it('is asked again after it was answered', async () => {
    const { stdin, input, shown } = terminal();
    const first = input.secret('one: ');
    stdin.write('1\r');
    expect(await first).toBe('1');
    const second = input.secret('two: ');
    stdin.write('2\r');
    expect(await second).toBe('2');
    expect(shown()).toBe('one: \ntwo: \n');
  });

  it('is not asked where nothing can hide the answer', async () => {
    const input = createInput({ stdin: new PassThrough(), stderr: { write: () => undefined } });
    expect(input.onTerminal).toBe(false);
    await expect(input.secret('token: ')).rejects.toThrow('can only be asked for on a terminal');
  });
});

describe('a question for a yes', () => {
  it.each([
    { typed: 'y\n', yes: true },
    { typed: 'Yes\n', yes: true },
    { typed: '\n', yes: false },
    { typed: 'n\n', yes: false },
    { typed: 'yess\n', yes: false },
  ])('takes $typed for $yes', async ({ typed, yes }) => {
    const { stdin, input, shown } = terminal();
    const answered = input.confirm('delete it?');
    stdin.write(typed);
    expect(await answered).toBe(yes);
    expect(shown()).toBe('delete it? [y/N] ');
  });
});

describe('standard input', () => {
  const over = (bytes: Buffer | string) => {
    const stdin = new PassThrough();
    stdin.end(bytes);
    return createInput({ stdin, stderr: { write: () => undefined } }).read();
  };

  it('is read whole', async () => {
    expect(await over('a\nb\n')).toBe('a\nb\n');
  });

  it('is refused where it is no text, or too long', async () => {
    await expect(over(Buffer.from([0xff, 0xfe]))).rejects.toThrow('standard input is no text in UTF-8');
    await expect(over(Buffer.alloc(8 * 1024 * 1024 + 1, 'a'))).rejects.toThrow('longer than 8 MiB');
  });
});
