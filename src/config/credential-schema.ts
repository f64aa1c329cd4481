// The schema of `credentials`: the bodies of the credentials resource that this version can put on.
// What the REST resource takes of them is the same, but for the secrets, which here may be kept elsewhere.
import { z } from 'zod';
import { credentialMembers } from '../credentials/credential-fields.ts';
import { EMPTY_SECRET } from '../credentials/secret-source.ts';
import { addressRange, duration, secretValue, variableName } from './fields.ts';

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
  z.strictObject({
    ...members.oauth2,
    token_addresses: z
      .array(addressRange())
      .prefault([])
      .describe('Internal ranges (CIDR) that the token endpoint may lie in. Left out: none; needed for one on your own network.'),
  }),
  z.strictObject(members.environment_variable),
  z.strictObject(members.aws_sigv4),
  z.strictObject({
    type: z.literal('exec').describe('What a command beside the proxy prints: one line, or JSON with `token` and `expires_at`.'),
    command: z
      .array(z.string().regex(/^[^\0]*$/, { error: 'must not hold a NUL' }))
      .min(1, { error: 'must not be empty; write the program and its arguments as a list' })
      .refine(([program]) => program !== '', { error: 'must begin with a program' })
      .describe('The program and its arguments, each an entry of its own; no shell reads them.'),
    timeout: duration('10s', 'Longest that the command may take; then it is ended with all that it started.'),
    env: z
      .array(variableName())
      .prefault([])
      .describe("Names of the proxy's own variables that the command gets beside PATH and HOME."),
    header_name: members.bearer_token.header_name.describe('Header for what the command prints, where its JSON names no other.'),
    prefix: members.bearer_token.prefix.describe('The same for the word before it.'),
  }),
]);

/** A parsed credential. */
export type CredentialEntry = z.output<typeof credentialSchema>;
