import { describe, expect, it } from 'vitest';
import { FILE_BYTES, foldersOf, readSources, TOTAL_BYTES } from '../../src/config/environment-sources.ts';

const inline = (target: unknown, content: unknown = 'text', more: object = {}) => ({ type: 'inline', target, content, ...more });
const problemOf = (raw: unknown) => {
  const read = readSources(raw);
  return 'problem' in read ? read.problem : undefined;
};

describe('inline sources', () => {
  it.each([
    { name: 'a path', source: inline('.agents/hooks.json'), kept: { target: '.agents/hooks.json', content: 'text' }, size: 4 },
    {
      name: 'a path from the top',
      source: inline('/.agents/gate.py'),
      kept: { target: '.agents/gate.py', content: 'text' },
      size: 4,
    },
    { name: 'dots in a name', source: inline('a/..b/c..'), kept: { target: 'a/..b/c..', content: 'text' }, size: 4 },
    { name: 'letters of two bytes', source: inline('a', '\u00e9'), kept: { target: 'a', content: '\u00e9' }, size: 2 },
    {
      name: 'base64',
      source: inline('a', 'aGVsbG8=', { encoding: 'base64' }),
      kept: { target: 'a', content: 'aGVsbG8=', encoding: 'base64' },
      size: 5,
    },
    { name: 'nothing in it', source: inline('a', ''), kept: { target: 'a', content: '' }, size: 0 },
  ])('are kept: $name', ({ source, kept, size }) => {
    expect(readSources([source])).toEqual({ sources: [kept], files: [{ target: kept.target, size }] });
  });

  it.each([
    { name: 'no list', raw: {}, says: 'must be a list' },
    { name: 'no object', raw: ['text'], says: 'must be an object' },
    { name: 'no type', raw: [{ target: 'a', content: '' }], says: 'needs a "type"' },
    { name: 'a repository', raw: [{ type: 'repository', source: 'https://x.test/r' }], says: 'of the type "repository"' },
    { name: 'a bucket', raw: [{ type: 'gcs', source: 'gs://b' }], says: 'of the type "gcs"' },
    { name: 'a misspelled type', raw: [{ type: 'inlin' }], says: 'did you mean "inline"' },
    { name: 'a misspelled member', raw: [inline('a', 'x', { encodng: 'base64' })], says: 'did you mean "encoding"' },
    { name: 'no target', raw: [inline(undefined)], says: 'needs "target"' },
    { name: 'the top', raw: [inline('/')], says: 'may not be "/"' },
    { name: 'an empty target', raw: [inline('')], says: 'may not be "/"' },
    { name: 'a way up', raw: [inline('../etc/passwd')], says: '".."' },
    { name: 'a way up in the middle', raw: [inline('a/../../b')], says: '".."' },
    { name: 'a way up at the end', raw: [inline('a/..')], says: '".."' },
    { name: 'a dot', raw: [inline('a/./b')], says: 'without "."' },
    { name: 'an empty step', raw: [inline('a//b')], says: 'empty steps' },
    { name: 'a folder', raw: [inline('a/')], says: 'empty steps' },
    { name: 'a NUL', raw: [inline('a\0b')], says: 'control character' },
    { name: 'a backslash', raw: [inline('a\\..\\b')], says: 'backslash' },
    { name: 'a long path', raw: [inline('a'.repeat(513))], says: 'longer than 512' },
    { name: 'no content', raw: [inline('a', null)], says: 'needs "content"' },
    { name: 'another encoding', raw: [inline('a', '00', { encoding: 'hex' })], says: 'can only be "base64"' },
    { name: 'base64 that is none', raw: [inline('a', 'aGVsbG8', { encoding: 'base64' })], says: 'is not base64' },
    { name: 'two of one place', raw: [inline('a/b'), inline('/a/b')], says: 'lands where an earlier one does' },
    { name: 'a file that is a folder of another', raw: [inline('a/b/c'), inline('a/b')], says: 'cannot be the folder' },
    { name: 'too many', raw: Array.from({ length: 1001 }, (_, index) => inline(String(index))), says: 'more than 1000 files' },
  ])('are refused: $name', ({ raw, says }) => {
    expect(problemOf(raw)).toContain(says);
  });

  it.each([
    { name: 'a file of 1 MB', sizes: [FILE_BYTES], fits: true },
    { name: 'a file of one byte more', sizes: [FILE_BYTES + 1], fits: false },
    { name: '2 MB together', sizes: [FILE_BYTES, FILE_BYTES], fits: true },
    { name: 'one byte more together', sizes: [FILE_BYTES, FILE_BYTES, 1], fits: false },
  ])('have their limits in bytes: $name', ({ sizes, fits }) => {
    const raw = sizes.map((size, index) => inline(String(index), 'a'.repeat(size)));
    expect(problemOf(raw) === undefined).toBe(fits);
  });

  it('count bytes and not letters, and what base64 stands for', () => {
    expect(problemOf([inline('a', '\u00e9'.repeat(FILE_BYTES / 2 + 1))])).toContain('a file may have 1 MB');
    const content = Buffer.alloc(FILE_BYTES).toString('base64');
    expect(problemOf([inline('a', content, { encoding: 'base64' })])).toBeUndefined();
    expect(TOTAL_BYTES).toBe(2 * FILE_BYTES);
  });

  it('know the folders above a target', () => {
    expect(foldersOf('a/b/c')).toEqual(['a', 'a/b']);
    expect(foldersOf('a')).toEqual([]);
  });
});
