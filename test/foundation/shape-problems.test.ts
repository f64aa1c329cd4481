import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { shapeProblems, unknownMember } from '../../src/foundation/shape-problems.ts';

const SCHEMA = z.strictObject({
  name: z.string(),
  place: z.enum(['here', 'there']).optional(),
  list: z.array(z.strictObject({ port: z.int() })).optional(),
  map: z.record(z.string().regex(/^[a-z]+$/, 'is no word'), z.string()).optional(),
});

describe('shapeProblems', () => {
  it.each([
    { name: 'a member that is missing', body: {}, says: '"name" is missing' },
    { name: 'a member of another type', body: { name: 5 }, says: '"name" must be text' },
    { name: 'no object at all', body: 'marker', says: 'the body must be a JSON object' },
    { name: 'a misspelt member', body: { name: 'a', palce: 'here' }, says: 'unknown field "palce"; did you mean "place"?' },
    {
      name: 'a value that is none of a few',
      body: { name: 'a', place: 'marker' },
      says: '"place" must be one of "here", "there"',
    },
    {
      name: 'a member deep inside',
      body: { name: 'a', list: [{ port: 'marker' }] },
      says: '"list[0].port" must be a number',
    },
    { name: 'a key that may be a secret', body: { name: 'a', map: { 'marker: x': '1' } }, says: '"map": is no word' },
    {
      name: 'all at once',
      body: { place: 'marker', map: 5 },
      says: '"name" is missing; "place" must be one of "here", "there"; "map" must be an object',
    },
  ])('says of $name: $says', ({ body, says }) => {
    const parsed = SCHEMA.safeParse(body);
    const said = parsed.success ? '' : shapeProblems(parsed.error.issues, ['name', 'place', 'list', 'map']);
    expect(said).toBe(says);
    expect(said).not.toContain('marker');
  });

  it('ends a long list of problems', () => {
    const parsed = z.array(z.string()).safeParse([1, 2, 3, 4, 5, 6, 7]);
    expect(parsed.success ? '' : shapeProblems(parsed.error.issues, [])).toMatch(/; and 2 more$/);
  });
});

describe('unknownMember', () => {
  it.each([
    ['headerName', 'unknown field "headerName"; did you mean "header_name"?'],
    ['colour', 'unknown field "colour"; known here: header_name, token'],
    ['Authorization: Bearer marker', 'a field of a name that is not known; known here: header_name, token'],
  ])('%s', (name, said) => {
    expect(unknownMember(name, ['header_name', 'token'])).toBe(said);
  });
});
