// Asks the admin listener of a running proxy one question.
// It must never go through a proxy (the variables of `env` may be set where an operator works), nor show the token.
import { readFile } from 'node:fs/promises';
import http from 'node:http';
import https from 'node:https';

/** The question. */
export interface AdminQuestion {
  /** Of the admin listener, as in `http://127.0.0.1:9090` */
  readonly url: string;
  readonly path: string;
  readonly tokenFile: string;
  /** Default: POST */
  readonly method?: 'GET' | 'POST' | 'PATCH' | 'DELETE';
  readonly body?: unknown;
  /** `ms` until an answer must be there whole. Default: 10,000 */
  readonly timeoutMs?: number;
}

/** What came back, or one line that says why nothing did, with the remedy, and the status of an answer that says no. */
export type AdminAnswer = { readonly body: unknown } | { readonly problem: string; readonly status?: number };

const DEADLINE_MS = 10_000;
const LONGEST_ANSWER = 8 * 1024 * 1024;

/** Asks the question and reads the JSON answer. Never rejects. */
export async function askAdmin(question: AdminQuestion): Promise<AdminAnswer> {
  const target = URL.canParse(question.path, question.url) ? new URL(question.path, question.url) : undefined;
  if (target === undefined || !/^https?:$/.test(target.protocol)) {
    return { problem: `"${question.url}" is no URL of an admin listener; write it like "http://127.0.0.1:9090"` };
  }
  let token: string;
  try {
    token = (await readFile(question.tokenFile, 'utf8')).trim();
  } catch (error) {
    return { problem: `cannot read the admin token file "${question.tokenFile}" (${codeOf(error)}); name it with --token-file` };
  }
  // A header cannot bear them, and the error of Node would quote the token.
  if (!/^[\x21-\x7e]+$/.test(token))
    return { problem: `"${question.tokenFile}" holds no admin token; name its file with --token-file` };
  try {
    const { status, text } = await send(target, token, question);
    if (status === 401)
      return {
        problem: `"${target.origin}" does not accept the token of "${question.tokenFile}"; name its own with --token-file`,
      };
    const body: unknown = JSON.parse(text);
    return status === 200 ? { body } : { status, problem: `"${target.origin}" answered ${status}: ${messageOf(body)}` };
  } catch (error) {
    if (error instanceof SyntaxError)
      return { problem: `"${target.origin}" did not answer with JSON; is it the admin listener?` };
    return {
      problem: `cannot reach the admin listener at "${target.origin}" (${codeOf(error)}); is the proxy running, and is admin.listen there?`,
    };
  }
}

function send(
  target: URL,
  token: string,
  { method = 'POST', body, timeoutMs = DEADLINE_MS }: AdminQuestion,
): Promise<{ readonly status: number; readonly text: string }> {
  const content = body === undefined ? '' : JSON.stringify(body);
  const secure = target.protocol === 'https:';
  return new Promise((resolve, reject) => {
    const request = (secure ? https : http).request(
      target,
      {
        method,
        // An agent of our own: the global one may have been told by the environment to use a proxy.
        agent: secure ? new https.Agent() : new http.Agent(),
        headers: {
          Authorization: `Bearer ${token}`,
          ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
          'Content-Length': Buffer.byteLength(content),
        },
        signal: AbortSignal.timeout(timeoutMs),
      },
      (response) => {
        let text = '';
        response.setEncoding('utf8');
        response.on('data', (chunk: string) => {
          text += chunk;
          if (text.length > LONGEST_ANSWER) response.destroy(new SyntaxError('the answer is too long'));
        });
        response.on('end', () => resolve({ status: response.statusCode ?? 0, text }));
        response.on('error', reject);
      },
    );
    request.on('error', reject);
    request.end(content);
  });
}

function messageOf(body: unknown): string {
  if (typeof body !== 'object' || body === null || !('error' in body)) return 'no reason given';
  const { error } = body;
  return typeof error === 'object' && error !== null && 'message' in error ? String(error.message) : 'no reason given';
}

function codeOf(error: unknown): string {
  if (error instanceof Error && error.name === 'TimeoutError') return 'timeout';
  return error instanceof Error && 'code' in error ? String(error.code) : 'unknown';
}
