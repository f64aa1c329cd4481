// The schema of `credentials`: the bodies of the credentials resource that this version can put on.
// Types that are known but not built yet are named in UNAVAILABLE_TYPES, so that their problem can say so.
import { z } from 'zod';
import { credentialMembers } from '../credentials/credential-fields.ts';
import { EMPTY_SECRET } from '../credentials/secret-source.ts';
import { secretValue } from './fields.ts';

/** Types of credentials that the dialect or other proxies know and this version does not. */
export const UNAVAILABLE_TYPES: ReadonlySet<string> = new Set(['oauth2', 'environment_variable', 'aws_sigv4', 'exec']);

const members = credentialMembers({
  secret: (what) => secretValue().describe(`${what}: text, { env } or { file }.`),
  mayBeEmpty: (what) => secretValue({ mayBeEmpty: true }).describe(`${what}: text ("" for none), { env } or { file }.`),
  valuesAre: ': text, { env } or { file }.',
});

/** One entry of `credentials`. */
export const credentialSchema = z.discriminatedUnion('type', [
  z.strictObject(members.bearer_token),
  z.strictObject(members.basic).refine(({ username, password }) => username !== EMPTY_SECRET || password !== EMPTY_SECRET, {
    error: 'must not be empty together with `username`; give one of them its text',
    path: ['password'],
  }),
  z.strictObject(members.header),
]);

/** A parsed credential. */
export type CredentialEntry = z.output<typeof credentialSchema>;
