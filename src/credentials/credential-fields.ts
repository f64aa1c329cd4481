// The members of each type of credential, once for all who take one: the config, whose secrets are sources, and the REST resource,
// whose secrets are texts. What a secret is, each brings along; names, defaults and rules stand here alone.
// It must never quote what may be a secret: of names only those that look like names.
import { z } from 'zod';
import { parseHost } from '../exchange/authority.ts';
import { isFieldName } from '../exchange/header-fields.ts';
import { shownKey } from '../foundation/shown-key.ts';

/** What a secret is to whoever takes credentials. `what` begins the description, as in "The token". */
export interface SecretForms<Full extends z.ZodType, Empty extends z.ZodType> {
  /** One that must hold something */
  readonly secret: (what: string) => Full;
  /** One that may be `""` */
  readonly mayBeEmpty: (what: string) => Empty;
  /** What stands behind a colon in the description of the headers, with its full stop */
  readonly valuesAre: string;
}

/** The members of each type, for `z.strictObject`. */
export function credentialMembers<Full extends z.ZodType, Empty extends z.ZodType>(forms: SecretForms<Full, Empty>) {
  const { secret, mayBeEmpty } = forms;
  return {
    bearer_token: {
      type: z.literal('bearer_token').describe('One token in one header.'),
      token: secret('The token'),
      header_name: headerName()
        .prefault('Authorization')
        .describe('Header that bears the token. Change it for services with a header of their own, such as x-goog-api-key.'),
      prefix: tokenPrefix().prefault('Bearer').describe('Word before the token; "" for none.'),
    },
    basic: {
      type: z.literal('basic').describe('User name and password, as RFC 7617 has them.'),
      username: mayBeEmpty('The user name, without a colon'),
      password: mayBeEmpty('The password'),
    },
    header: {
      type: z.literal('header').describe('Any headers, each with its own secret.'),
      headers: headerFields(secret('The value'))
        .refine((fields) => Object.keys(fields).length > 0, { error: 'must not be empty; name at least one header' })
        .describe(`Header names with their values${forms.valuesAre}`),
    },
    oauth2: {
      type: z.literal('oauth2').describe('OAuth 2.0 with a refresh token; the access token is fetched and renewed by itself.'),
      client_id: z.string().min(1, NOT_EMPTY).max(1024).describe('Id of the client at the token endpoint.'),
      client_secret: secret('The secret of the client'),
      refresh_token: secret('The refresh token; one that the endpoint hands out in its place is kept instead'),
      token_url: tokenUrl().describe('The token endpoint, an https URL.'),
      scopes: z
        .array(z.string().regex(/^[\x21\x23-\x5b\x5d-\x7e]+$/, { error: 'must be one scope of printable ASCII, without blanks' }))
        .prefault([])
        .describe('Scopes to ask for. Left out: those that the refresh token has.'),
    },
    environment_variable: {
      type: z.literal('environment_variable').describe('A value that a placeholder in the sandbox stands for.'),
      value: secret('The value'),
      injection_location: injectionLocation().describe('Where in a request the placeholder is swapped: one place, or a list.'),
      trusted_domains: z
        .array(trustedDomain())
        .prefault([])
        .describe('Hosts that may get the value: exact, or "*.x.com" for every depth below x.com. Left out: none.'),
    },
    aws_sigv4: {
      type: z.literal('aws_sigv4').describe('Requests are signed anew with AWS Signature Version 4.'),
      access_key_id: z
        .string()
        .regex(/^\w{1,128}$/, { error: 'is not the id of an access key; use letters, digits and "_"' })
        .describe('Id of the access key.'),
      secret_access_key: secret('The secret access key'),
      session_token: secret('The session token, for temporary keys').optional(),
      region: awsWord().describe('Region of the service, such as "eu-central-1".'),
      service: awsWord().describe('Name of the service in signatures, such as "s3".'),
    },
  };
}

const NOT_EMPTY = { error: 'must not be empty' };

/** A name in a credential scope; a slash would move its borders. */
function awsWord() {
  return z.string().regex(/^[a-z0-9][a-z0-9-]{0,62}$/, { error: 'use lower-case letters, digits and "-"' });
}

function tokenUrl() {
  return z
    .string()
    .max(2048)
    .superRefine((text, context) => {
      const url = URL.canParse(text) ? new URL(text) : undefined;
      const trouble =
        url?.protocol !== 'https:'
          ? 'must be an https URL, as in "https://login.example.com/token"'
          : url.username !== '' || url.password !== '' || url.hash !== ''
            ? 'must hold no user, password or fragment'
            : undefined;
      if (trouble !== undefined) context.addIssue({ code: 'custom', message: trouble });
    });
}

function injectionLocation() {
  const place = z.enum(['header', 'query', 'body']);
  const error = 'must be "header", "query" or "body", or a list of them that is not empty';
  return z
    .union([place, z.array(place).min(1, { error })], { error })
    .transform((given) => [...new Set(typeof given === 'string' ? [given] : given)]);
}

function trustedDomain() {
  return z.string().superRefine((text, context) => {
    if (text === '*') {
      context.addIssue({ code: 'custom', message: 'must not be "*": name the hosts that may get the value' });
    } else if (parseHost(text.replace(/^\*\./, '')) === undefined) {
      context.addIssue({
        code: 'custom',
        message: `${shownKey(text)} is not a host; write it like "api.example.com" or "*.example.com"`,
      });
    }
  });
}

/** Fields that frame the message or end at the next hop: putting them on would break or smuggle requests (RFC 9110 section 7.6.1). */
const FORBIDDEN_FIELDS: ReadonlySet<string> = new Set([
  'host',
  'content-length',
  'transfer-encoding',
  'connection',
  'keep-alive',
  'te',
  'trailer',
  'upgrade',
  'expect',
  'http2-settings',
]);

/** The word before a token. */
export function tokenPrefix() {
  return z.string().regex(/^[\x21-\x7e]*$/, { error: 'must be one word of ASCII, such as "Bearer", or "" for none' });
}

/** The name of a header field that may be put on. */
export function headerName() {
  return z.string().superRefine((name, context) => {
    const lower = name.toLowerCase();
    const message = !isFieldName(name)
      ? `${shownKey(name)} is not a header name; use letters, digits and "-", as in "X-Api-Key"`
      : FORBIDDEN_FIELDS.has(lower) || lower.startsWith('proxy-')
        ? `${shownKey(name)} frames the message or belongs to one hop, and cannot be put on; remove it`
        : undefined;
    if (message !== undefined) context.addIssue({ code: 'custom', message });
  });
}

/** Header names with their values; two spellings of one name are a problem. */
export function headerFields<Value extends z.ZodType>(value: Value) {
  return z.record(headerName(), value).refine((fields) => caseTwins(Object.keys(fields)) === undefined, {
    error: (issue) => {
      const twins = isMapping(issue.input) ? caseTwins(Object.keys(issue.input)) : undefined;
      const [one, other] = (twins ?? []).map(shownKey);
      // Two spellings of one header are shown both or neither.
      const both = one === other ? 'holds one header in two spellings' : `${one ?? ''} and ${other ?? ''} are one header`;
      return `${both}; keep one of them`;
    },
    // even where single values are wrong, so that all problems come at once
    when: (payload) => isMapping(payload.value),
  });
}

function isMapping(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function caseTwins(names: readonly string[]): readonly [string, string] | undefined {
  const seen = new Map<string, string>();
  for (const name of names) {
    const twin = seen.get(name.toLowerCase());
    if (twin !== undefined) return [twin, name];
    seen.set(name.toLowerCase(), name);
  }
  return undefined;
}
