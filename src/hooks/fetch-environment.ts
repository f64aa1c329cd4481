// Fetches the files of an environment from the admin listener, straight to it and never through a proxy.
// It must never be content with half an answer: what cannot be had is an error, and the caller denies.
import type { EnvironmentFile } from './environment-hooks.ts';

/** Which environment, and where it is kept. */
export interface EnvironmentPlace {
  readonly id: string;
  /** URL of the admin listener, as `http://127.0.0.1:9090` */
  readonly admin: string;
  readonly token: string;
  /** `ms`. Default: 5,000 */
  readonly timeoutMs?: number;
}

/** Twice what an environment may hold: base64 and the escapes of JSON take more room. */
const LONGEST_ANSWER = 8 * 1024 * 1024;
const TIMEOUT_MS = 5_000;

/** The files below `.agents/`. Rejects with one line that names the remedy. */
export async function fetchEnvironment(place: EnvironmentPlace): Promise<readonly EnvironmentFile[]> {
  const path = `/v1beta/environments/${encodeURIComponent(place.id)}/sources?under=.agents`;
  const url = URL.canParse(path, place.admin) ? new URL(path, place.admin) : undefined;
  if (url === undefined || !/^https?:$/.test(url.protocol)) throw new TypeError('--admin is no URL of an admin listener');
  if (!/^[\x21-\x7e]+$/.test(place.token)) throw new TypeError('the admin token of --token-file cannot be one');
  const { status, text } = await get(url, place.token, place.timeoutMs ?? TIMEOUT_MS);
  const body = parsed(text);
  if (status === 404) throw new Error(`there is no environment "${place.id}" at "${url.origin}"`);
  if (status !== 200 || !isFiles(body))
    throw new Error(`"${url.origin}" did not give the hooks of the environment: status ${status}`);
  return body.sources;
}

async function get(url: URL, token: string, timeoutMs: number): Promise<{ readonly status: number; readonly text: string }> {
  const { request } = url.protocol === 'https:' ? await import('node:https') : await import('node:http');
  return new Promise((resolve, reject) => {
    const unreachable = (): void => reject(new Error(`the admin listener at "${url.origin}" gave no whole answer`));
    const asked = request(url, {
      // An agent of its own: a global one may have been told to use a proxy.
      agent: false,
      headers: { authorization: `Bearer ${token}`, connection: 'close' },
      signal: AbortSignal.timeout(timeoutMs),
    });
    asked.on('error', unreachable);
    asked.on('response', (response) => {
      const pieces: Buffer[] = [];
      let length = 0;
      response.on('data', (piece: Buffer) => {
        pieces.push(piece);
        length += piece.length;
        if (length > LONGEST_ANSWER) asked.destroy();
      });
      response.on('error', unreachable);
      response.on('close', unreachable);
      response.on('end', () => resolve({ status: response.statusCode ?? 0, text: Buffer.concat(pieces).toString() }));
    });
    asked.end();
  });
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function isFiles(body: unknown): body is { readonly sources: readonly EnvironmentFile[] } {
  if (typeof body !== 'object' || body === null || !('sources' in body) || !Array.isArray(body.sources)) return false;
  return body.sources.every(
    (file: unknown) =>
      typeof file === 'object' &&
      file !== null &&
      'target' in file &&
      typeof file.target === 'string' &&
      'content' in file &&
      typeof file.content === 'string' &&
      (!('encoding' in file) || file.encoding === 'base64'),
  );
}
