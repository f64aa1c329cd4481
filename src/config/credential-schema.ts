// The schema of `credentials`: the bodies of the credentials resource that this version can put on.
// Types that are known but not built yet are named in UNAVAILABLE_TYPES, so that their problem can say so.
import { z } from 'zod';
import { EMPTY_SECRET } from '../credentials/secret-source.ts';
import { headerFields, headerName, secretValue } from './fields.ts';

/** Types of credentials that the dialect or other proxies know and this version does not. */
export const UNAVAILABLE_TYPES: ReadonlySet<string> = new Set(['oauth2', 'environment_variable', 'aws_sigv4', 'exec']);

/** One entry of `credentials`. */
export const credentialSchema = z.discriminatedUnion('type', [
  z.strictObject({
    type: z.literal('bearer_token').describe('One token in one header.'),
    token: secretValue().describe('The token: text, { env } or { file }.'),
    header_name: headerName()
      .prefault('Authorization')
      .describe('Header that bears the token. Change it for services with a header of their own, such as x-goog-api-key.'),
    prefix: z
      .string()
      .regex(/^[\x21-\x7e]*$/, { error: 'must be one word of ASCII, such as "Bearer", or "" for none' })
      .prefault('Bearer')
      .describe('Word before the token; "" for none.'),
  }),
  z
    .strictObject({
      type: z.literal('basic').describe('User name and password, as RFC 7617 has them.'),
      username: secretValue({ mayBeEmpty: true }).describe(
        'The user name, without a colon: text ("" for none), { env } or { file }.',
      ),
      password: secretValue({ mayBeEmpty: true }).describe('The password: text ("" for none), { env } or { file }.'),
    })
    .refine(({ username, password }) => username !== EMPTY_SECRET || password !== EMPTY_SECRET, {
      error: 'must not be empty together with `username`; give one of them its text',
      path: ['password'],
    }),
  z.strictObject({
    type: z.literal('header').describe('Any headers, each with its own secret.'),
    headers: headerFields()
      .refine((fields) => Object.keys(fields).length > 0, { error: 'must not be empty; name at least one header' })
      .describe('Header names with their values: text, { env } or { file }.'),
  }),
]);

/** A parsed credential. */
export type CredentialEntry = z.output<typeof credentialSchema>;
