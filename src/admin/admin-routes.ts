// What the operator's window offers: a literal table of routes, each with what it answers. app.ts adds the REST resources to it.
// It knows no HTTP library and no room; what a route tells arrives as a function. No answer here may hold a secret.
import { z } from 'zod';
import { AdminError } from './admin-error.ts';

/** A request as a route sees it: the head is checked and, where there is a JSON body, parsed. */
export interface AdminRequest {
  /** Values of the `:names` in the route's url */
  readonly params: Readonly<Record<string, string>>;
  /** Query parameters; a list where one is repeated */
  readonly query: Readonly<Record<string, string | readonly string[]>>;
  /** Parsed JSON, `undefined` where the request has none */
  readonly body: unknown;
  /** Header field `If-Match`, where the request has one */
  readonly ifMatch: string | undefined;
}

/** An answer. `body` is sent as JSON, or as it is where `contentType` is given and it is a string; with status 204 nothing is. */
export interface AdminReply {
  readonly status?: number;
  /** Header fields beside the usual ones, lower case */
  readonly fields?: Readonly<Record<string, string>>;
  readonly contentType?: string;
  readonly body: unknown;
}

/** One route. `answer` may throw an AdminError; anything else it throws becomes a 500 without detail. */
export interface AdminRoute {
  readonly method: 'GET' | 'POST' | 'PATCH' | 'PUT' | 'DELETE';
  /** A path; `:name` stands for one segment */
  readonly url: string;
  /** True: no token asked for */
  readonly open?: boolean;
  /** Largest body, in bytes, where it is smaller than the listener's own bound */
  readonly maxBody?: number;
  /** One line for the page at `/` */
  readonly summary: string;
  readonly answer: (request: AdminRequest) => AdminReply | Promise<AdminReply>;
}

/** What became of a reload. `generation` is that of the configuration in force after it; further members are passed on. */
export interface ReloadResult {
  readonly outcome: 'accepted' | 'rejected' | 'unchanged';
  readonly generation: number;
  /** Where and what; `path` is empty for the file as a whole */
  readonly problems: readonly { readonly path: string; readonly message: string }[];
}

/** Would this request be allowed? */
export interface ExplainQuestion {
  readonly method: string;
  readonly url: string;
  /** Id of the sandbox; the only one where left out */
  readonly sandbox: string | undefined;
}

/** What the built-in routes tell. */
export interface AdminAnswers {
  /** What is not live, or no longer, in a few words each; empty means ready */
  readonly ready: () => readonly string[];
  readonly scrape: () => Promise<{ readonly contentType: string; readonly body: string }>;
  readonly reload: () => Promise<ReloadResult>;
  readonly explain: (question: ExplainQuestion) => unknown;
  readonly status: () => unknown;
  readonly denials: () => unknown;
}

const QUESTION = z.strictObject({
  method: z.string().regex(/^[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,32}$/, 'must be an HTTP method'),
  url: z.string().min(1).max(8192),
  sandbox: z.string().min(1).max(256).optional(),
});

/** The built-in routes. */
export function builtInRoutes(answers: AdminAnswers): readonly AdminRoute[] {
  return [
    { method: 'GET', url: '/healthz', open: true, summary: 'the process is alive', answer: () => ({ body: { status: 'ok' } }) },
    {
      method: 'GET',
      url: '/readyz',
      open: true,
      summary: 'whether requests are served',
      answer: () => readiness(answers.ready()),
    },
    { method: 'GET', url: '/metrics', open: true, summary: 'Prometheus metrics', answer: answers.scrape },
    {
      method: 'POST',
      url: '/v1/reload',
      summary: 'read the configuration again',
      answer: async () => reloaded(await answers.reload()),
    },
    {
      method: 'POST',
      url: '/v1/explain',
      summary: 'would {method, url, sandbox} be allowed, and why',
      answer: async ({ body }) => ({ body: await answers.explain(readQuestion(body)) }),
    },
    { method: 'GET', url: '/v1/status', summary: 'what is running', answer: async () => ({ body: await answers.status() }) },
    {
      method: 'GET',
      url: '/v1/denials',
      summary: 'recent refusals, each with the rule that would allow it, put first in the allowlist',
      answer: async () => ({ body: { denials: await answers.denials() } }),
    },
  ];
}

function readiness(missing: readonly string[]): AdminReply {
  if (missing.length > 0) throw new AdminError('not_ready', `not ready: ${missing.join(', ')}`, { extra: { missing } });
  return { body: { status: 'ready' } };
}

function reloaded(result: ReloadResult): AdminReply {
  const { outcome, problems, generation } = result;
  if (outcome !== 'rejected') return { body: result };
  const list = problems.map(({ path, message }) => (path === '' ? message : `${path}: ${message}`)).join('; ');
  const message = `the configuration is invalid and generation ${generation} stays in force: ${list}`;
  throw new AdminError('config_rejected', message, { extra: { problems } });
}

function readQuestion(body: unknown): ExplainQuestion {
  const parsed = QUESTION.safeParse(body);
  if (parsed.success) return { method: parsed.data.method, url: parsed.data.url, sandbox: parsed.data.sandbox };
  const problems = parsed.error.issues.map((issue) => `${issue.path.join('.') || 'body'}: ${issue.message}`);
  throw new AdminError('invalid_request', `expected {"method", "url", "sandbox"?}; ${problems.join('; ')}`);
}

/** The page at `/` for people: the routes in one list. */
export function frontPage(routes: readonly AdminRoute[]): string {
  const items = routes.map(
    (route) =>
      `<li><code>${escapeHtml(`${route.method} ${route.url}`)}</code> ${escapeHtml(route.summary)}${route.open === true ? '' : ' (token)'}</li>`,
  );
  return [
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>Sallyport</title>',
    '<h1>Sallyport</h1>',
    '<p>The admin listener. Routes marked (token) ask for <code>Authorization: Bearer</code> with the admin token.</p>',
    `<ul>${items.join('')}</ul></html>\n`,
  ].join('\n');
}

function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}
