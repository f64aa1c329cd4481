// The REST resources of a house's admin listener, as a client with the admin token asks them.
import type { House } from './house.ts';

/** An answer of the resource. */
export interface RestAnswer {
  readonly status: number;
  readonly etag: string | undefined;
  readonly text: string;
  readonly json: Record<string, unknown>;
}

/** Asks; a body is sent as JSON. */
export async function rest(
  house: Pick<House, 'adminPort' | 'adminToken'>,
  line: `${'GET' | 'POST' | 'PATCH' | 'DELETE'} /${string}`,
  body?: unknown,
  fields: Record<string, string> = {},
): Promise<RestAnswer> {
  const [method = '', path = ''] = line.split(' ');
  const response = await fetch(`http://127.0.0.1:${house.adminPort}${path}`, {
    method,
    headers: { authorization: `Bearer ${house.adminToken}`, 'content-type': 'application/json', ...fields },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  const json = JSON.parse(text) as Record<string, unknown>;
  return { status: response.status, etag: response.headers.get('etag') ?? undefined, text, json };
}

/** A new environment: its id and what a sandbox shows the proxy. */
export interface MadeEnvironment {
  readonly id: string;
  readonly proxyUrl: string;
  readonly token: string;
  /** The line of Proxy-Authorization that the proxy URL comes to */
  readonly identity: string;
}

/** Makes an environment; throws where it is refused. */
export async function makeEnvironment(house: Pick<House, 'adminPort' | 'adminToken'>, body: object): Promise<MadeEnvironment> {
  const made = await rest(house, 'POST /v1beta/environments', body);
  if (made.status !== 200) throw new Error(`not made: ${made.status} ${made.text}`);
  return environmentAt(String(made.json['proxy_url']));
}

/** What stands in a proxy URL. */
export function environmentAt(proxyUrl: string): MadeEnvironment {
  const { username, password } = new URL(proxyUrl);
  const pair = Buffer.from(`${username}:${password}`).toString('base64');
  return { id: username, proxyUrl, token: password, identity: `Proxy-Authorization: Basic ${pair}\r\n` };
}
