// A small authorization server over TLS: refresh tokens that it knows, access tokens that end, and every way to misbehave.
// It rotates refresh tokens where asked to, as RFC 6749 section 6 allows, and an old one is worth nothing then.
import type { ServerResponse } from 'node:http';
import { startUpstream } from './outside.ts';
import type { Outside, Seen, Upstream } from './outside.ts';

/** One request as it came in. */
export interface TokenAsk {
  readonly form: URLSearchParams;
  /** Fields in lower case */
  readonly fields: Readonly<Record<string, string>>;
}

/** How it answers. */
export interface Behaviour {
  /** Seconds; undefined: the answer does not say */
  life: number | undefined;
  rotates: boolean;
  /** How a client may show itself */
  auth: 'any' | 'basic' | 'body';
  /** Takes the place of the answer */
  instead: ((response: ServerResponse, ask: TokenAsk) => void) | undefined;
  /** Awaited before each answer */
  gate: Promise<unknown> | undefined;
}

/** A running server. */
export interface AuthorizationServer extends Behaviour {
  readonly url: string;
  readonly port: number;
  readonly asks: TokenAsk[];
  /** Access tokens handed out, in order: `access-1`, `access-2`, ... */
  readonly handedOut: string[];
  /** The refresh token that is worth something now */
  refreshToken: string;
  readonly upstream: Upstream;
  close(): Promise<void>;
}

/** The one client that it knows. */
export const CLIENT = { client_id: 'the:client', client_secret: 'client secret/+1' };

/** Starts one on loopback, with a certificate for `localhost` signed by the outside CA. */
export async function startAuthorizationServer(outside: Outside): Promise<AuthorizationServer> {
  const asks: TokenAsk[] = [];
  const handedOut: string[] = [];
  const answer = async (seen: Seen, response: ServerResponse): Promise<void> => {
    const ask = { form: new URLSearchParams(seen.body), fields: fieldsOf(seen.fields) };
    asks.push(ask);
    await server.gate;
    if (server.instead !== undefined) {
      server.instead(response, ask);
      return;
    }
    const [status, members] = judge(ask, server);
    if (status === 200) handedOut.push(String(members['access_token']));
    response.writeHead(status, { 'content-type': 'application/json;charset=UTF-8' }).end(JSON.stringify(members));
  };
  const upstream = await startUpstream({ tls: outside, answer: (seen, response) => void answer(seen, response) });
  const server: AuthorizationServer = {
    url: `https://localhost:${upstream.port}/token`,
    port: upstream.port,
    asks,
    handedOut,
    refreshToken: 'refresh-0',
    life: 3600,
    rotates: false,
    auth: 'any',
    instead: undefined,
    gate: undefined,
    upstream,
    close: () => upstream.close(),
  };
  return server;
}

function judge({ form, fields }: TokenAsk, server: AuthorizationServer): [status: number, members: Record<string, unknown>] {
  const basic = fields['authorization'];
  if (basic !== undefined && form.has('client_secret')) return [400, { error: 'invalid_request' }];
  const inBody = form.get('client_id') === CLIENT.client_id && form.get('client_secret') === CLIENT.client_secret;
  const known =
    (server.auth !== 'basic' && inBody) ||
    (server.auth !== 'body' && basic === `Basic ${Buffer.from('the%3Aclient:client+secret%2F%2B1').toString('base64')}`);
  if (!known) return [401, { error: 'invalid_client' }];
  if (form.get('grant_type') !== 'refresh_token') return [400, { error: 'unsupported_grant_type' }];
  if (form.get('refresh_token') !== server.refreshToken) return [400, { error: 'invalid_grant' }];
  const number = server.handedOut.length + 1;
  if (server.rotates) server.refreshToken = `refresh-${number}`;
  return [
    200,
    {
      access_token: `access-${number}`,
      token_type: 'Bearer',
      ...(server.life === undefined ? {} : { expires_in: server.life }),
      ...(server.rotates ? { refresh_token: server.refreshToken } : {}),
    },
  ];
}

function fieldsOf(raw: readonly string[]): Record<string, string> {
  const fields: Record<string, string> = {};
  for (let at = 0; at + 1 < raw.length; at += 2) fields[(raw[at] ?? '').toLowerCase()] = raw[at + 1] ?? '';
  return fields;
}
