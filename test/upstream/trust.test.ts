import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readFileSync } from 'node:fs';
import { createTrustOver, rootsOfTheMachine } from '../../src/upstream/trust.ts';
import { openOutside } from '../support/outside.ts';
import type { Outside } from '../support/outside.ts';

let outside: Outside;

beforeAll(async () => {
  outside = await openOutside();
});

afterAll(() => outside.close());

describe('rootsOfTheMachine', () => {
  it('reads the file of NODE_EXTRA_CA_CERTS', () => {
    const warnings: string[] = [];
    const roots = rootsOfTheMachine({ NODE_EXTRA_CA_CERTS: outside.caPath }, (message) => warnings.push(message));
    expect(roots).toEqual([readFileSync(outside.caPath, 'utf8')]);
    expect(warnings).toEqual([]);
  });

  it.each([{ env: {} }, { env: { NODE_EXTRA_CA_CERTS: '' } }])('names none where the variable is not set: $env', ({ env }) => {
    expect(rootsOfTheMachine(env, () => expect.unreachable())).toEqual([]);
  });

  it('warns of a file that cannot be read', () => {
    const warnings: string[] = [];
    expect(rootsOfTheMachine({ NODE_EXTRA_CA_CERTS: '/nowhere/ca.pem' }, (message) => warnings.push(message))).toEqual([]);
    expect(warnings).toEqual([
      'NODE_EXTRA_CA_CERTS names a file that cannot be read: "/nowhere/ca.pem"; its roots are not trusted',
    ]);
  });
});

describe('createTrustOver', () => {
  it('builds anew when the roots change, and only then', () => {
    const pem = readFileSync(outside.caPath, 'utf8');
    let roots: readonly string[] = [];
    const trust = createTrustOver(() => roots, []);
    const first = trust();
    roots = [];
    expect(trust()).toBe(first);
    roots = [pem];
    const second = trust();
    expect(second).not.toBe(first);
    roots = [pem];
    expect(trust()).toBe(second);
  });
});
