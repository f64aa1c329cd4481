// The operator's window: the admin listener, with fastify underneath. Guard first, then the table of routes, one error writer.
// It is not a proxy and never becomes one; it must never answer with a stack, a secret, or in any other error form than the dialect's.
import { fastify } from 'fastify';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Socket } from 'node:net';
import { logAcceptTrouble } from '../foundation/accept-trouble.ts';
import type { Logger } from '../foundation/logger.ts';
import { stackFrames } from '../foundation/stack-frames.ts';
import { showWire } from '../foundation/visible-text.ts';
import { AdminError, errorAnswer } from './admin-error.ts';
import { createGuard } from './admin-guard.ts';
import type { AdminGuard, Caller } from './admin-guard.ts';
import { builtInRoutes, frontPage } from './admin-routes.ts';
import type { AdminAnswers, AdminReply, AdminRoute } from './admin-routes.ts';

/** Where the window is, who may use it, and what it tells. */
export interface AdminOptions extends AdminAnswers {
  readonly host: string;
  /** 0 takes a free one */
  readonly port: number;
  readonly token: string;
  /** Names, beside `localhost` and the listen host, that a Host field may bear; IP literals always may */
  readonly allowedHosts?: readonly string[];
  /** Further routes, such as the REST resources */
  readonly routes?: readonly AdminRoute[];
  readonly log: Logger;
}

/** A running admin listener. */
export interface AdminServer {
  readonly address: { readonly host: string; readonly port: number };
  /** Stops listening and ends every connection. */
  close(): Promise<void>;
}

const BODY_BYTES = 1024 * 1024;
const HEADER_BYTES = 16 * 1024;
const REQUEST_MS = 10_000;
const KEEP_ALIVE_MS = 5_000;
const IDLE_MS = 60_000;
const CONNECTIONS = 256;

const ANSWER_FIELDS = {
  'cache-control': 'no-store',
  'x-content-type-options': 'nosniff',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
} as const;
const JSON_TYPE = 'application/json; charset=utf-8';

/** Opens the admin listener. Rejects, with the remedy in the message, where a name, the token or the address cannot be used. */
export async function startAdmin(options: AdminOptions): Promise<AdminServer> {
  const { host, port, token, log } = options;
  const guard = createGuard({ host, token, allowedHosts: options.allowedHosts ?? [] });
  const routes = withFrontPage([...builtInRoutes(options), ...(options.routes ?? [])]);
  const app = buildApp(guard, log);
  addRoutes(app, routes, guard);
  app.server.maxConnections = CONNECTIONS;
  await app.listen({ host, port }).catch(async (error: unknown) => {
    await app.close();
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown';
    throw new Error(`cannot open the admin listener on "${host}:${port}" (${code}); free the port or change admin.listen`);
  });
  // Fastify's own listener was there for the binding alone.
  app.server.on('error', logAcceptTrouble(log, 'admin'));
  const bound = app.server.address();
  if (bound === null || typeof bound === 'string') throw new Error('internal error: the admin listener has no address');
  return { address: { host: bound.address, port: bound.port }, close: () => app.close() };
}

function buildApp(guard: AdminGuard, log: Logger): FastifyInstance {
  const app: FastifyInstance = fastify({
    logger: false,
    bodyLimit: BODY_BYTES,
    requestTimeout: REQUEST_MS,
    connectionTimeout: IDLE_MS,
    keepAliveTimeout: KEEP_ALIVE_MS,
    forceCloseConnections: true,
    routerOptions: { maxParamLength: 256 },
    // The guard answers a missing Host in our own form.
    http: { maxHeaderSize: HEADER_BYTES, headersTimeout: REQUEST_MS, requireHostHeader: false },
    clientErrorHandler: (error, socket) => answerBrokenRequest(error, socket),
    frameworkErrors: (_error, request, reply) => {
      try {
        guard.place(callerOf(request));
        throw new AdminError('invalid_request', 'the path cannot be read; percent-encode it as UTF-8');
      } catch (refused) {
        writeError(reply, toAdminError(refused, request, log));
      }
    },
  });
  readJsonOnly(app);
  app.addHook('onRequest', (request, _reply, done) => done(thrownBy(() => guard.place(callerOf(request)))));
  app.addHook('onResponse', (request, reply, done) => {
    note(log, request, reply.statusCode);
    done();
  });
  app.setErrorHandler((error, request, reply) => writeError(reply, toAdminError(error, request, log)));
  return app;
}

/** JSON is the one body read; none at all is fine even where a client announces JSON. */
function readJsonOnly(app: FastifyInstance): void {
  const parse = app.getDefaultJsonParser('error', 'error');
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/json', { parseAs: 'string' }, (request, body, done) => {
    if (body === '') done(null, undefined);
    else void parse(request, body.toString(), done);
  });
}

function withFrontPage(routes: readonly AdminRoute[]): readonly AdminRoute[] {
  const page: AdminRoute = {
    method: 'GET',
    url: '/',
    open: true,
    summary: 'this page',
    answer: () => ({ contentType: 'text/html; charset=utf-8', body: frontPage(all) }),
  };
  const all = [page, ...routes];
  return all;
}

function addRoutes(app: FastifyInstance, routes: readonly AdminRoute[], guard: AdminGuard): void {
  for (const { method, url, open, maxBody, answer } of routes) {
    app.route({
      method,
      url,
      bodyLimit: maxBody ?? BODY_BYTES,
      onRequest: (request, _reply, done) => done(open === true ? undefined : thrownBy(() => guard.token(callerOf(request)))),
      handler: async (request, reply) =>
        write(
          reply,
          await answer({
            params: request.params as Readonly<Record<string, string>>,
            query: request.query as Readonly<Record<string, string | readonly string[]>>,
            body: request.body,
            ifMatch: request.headers['if-match'],
          }),
        ),
    });
  }
  app.setNotFoundHandler((request) => {
    const path = request.url.split('?', 1)[0] ?? '';
    const methods = routes.filter((route) => urlPattern(route.url).test(path)).map((route) => route.method);
    if (methods.length > 0) {
      const allow = methods.join(', ');
      throw new AdminError('method_not_allowed', `this route takes ${allow}`, { fields: { allow } });
    }
    throw new AdminError('not_found', 'there is no such route; "/" lists them');
  });
}

function urlPattern(url: string): RegExp {
  const segments = url.split('/').map((segment) => (segment.startsWith(':') ? '[^/]+' : segment.replace(/[^\w-]/g, '\\$&')));
  return new RegExp(`^${segments.join('/')}$`);
}

function write(reply: FastifyReply, { status, fields = {}, contentType, body }: AdminReply): FastifyReply {
  reply.headers(fields);
  if (status === 204) return reply.code(status).headers(ANSWER_FIELDS).send();
  const text = contentType !== undefined && typeof body === 'string' ? body : JSON.stringify(body ?? {});
  return reply
    .code(status ?? 200)
    .headers(ANSWER_FIELDS)
    .type(contentType ?? JSON_TYPE)
    .send(text);
}

function writeError(reply: FastifyReply, error: AdminError): FastifyReply {
  const { status, fields, body } = errorAnswer(error);
  return reply.code(status).headers(ANSWER_FIELDS).headers(fields).type(JSON_TYPE).send(JSON.stringify(body));
}

/** What the HTTP parser could not read never becomes a request; the answer goes out on the bare socket. */
function answerBrokenRequest(error: { readonly code?: string }, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const { status, body } = errorAnswer(brokenRequest(error.code));
  const text = JSON.stringify(body);
  socket.end(
    `HTTP/1.1 ${status} Refused\r\ncontent-type: ${JSON_TYPE}\r\ncontent-length: ${Buffer.byteLength(text)}\r\nconnection: close\r\n\r\n${text}`,
    () => socket.destroy(),
  );
}

function brokenRequest(code: string | undefined): AdminError {
  if (code === 'HPE_HEADER_OVERFLOW') return new AdminError('headers_too_large', 'the header section is too large');
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') return new AdminError('request_timeout', 'the request came too slowly');
  return new AdminError('invalid_request', 'the request is not well-formed HTTP');
}

/** Anything thrown on the way as the error to answer with; what nobody expected is logged, and its text stays inside. */
function toAdminError(thrown: unknown, request: FastifyRequest, log: Logger): AdminError {
  if (thrown instanceof AdminError) return thrown;
  const code = thrown instanceof Error && 'code' in thrown ? thrown.code : undefined;
  if (code === 'FST_ERR_CTP_BODY_TOO_LARGE')
    return new AdminError('too_large', `the body is larger than ${request.routeOptions.bodyLimit} bytes`);
  if (code === 'FST_ERR_CTP_INVALID_MEDIA_TYPE')
    return new AdminError('unsupported_media_type', 'send the body as application/json');
  if (code === 'FST_ERR_CTP_INVALID_JSON_BODY') return new AdminError('invalid_request', 'the body is not valid JSON');
  if (code === 'FST_ERR_CTP_INVALID_CONTENT_LENGTH' || code === 'ECONNRESET') {
    return new AdminError('invalid_request', 'the body ended early');
  }
  log.error('an admin route failed', {
    method: request.method,
    path: shownPath(request),
    cause: thrown instanceof Error ? thrown.name : typeof thrown,
    stack: thrown instanceof Error ? stackFrames(thrown) : undefined,
  });
  return new AdminError('internal', 'internal error; the log of the proxy has the story');
}

function note(log: Logger, request: FastifyRequest, status: number): void {
  const fields = { method: request.method, path: shownPath(request), status, client: request.ip };
  if (status === 401 || status === 403 || status === 421) log.warn('an admin request was refused', fields);
  else if (request.method !== 'GET' && request.method !== 'HEAD') log.info('admin request', fields);
  else log.debug('admin request', fields);
}

function shownPath(request: FastifyRequest): string {
  return showWire(request.url.split('?', 1)[0] ?? '', 256);
}

function callerOf(request: FastifyRequest): Caller {
  return { target: request.raw.url ?? '', headers: request.headers };
}

function thrownBy(check: () => void): Error | undefined {
  try {
    check();
    return undefined;
  } catch (error) {
    return error instanceof Error ? error : new Error('internal error: a guard threw no error');
  }
}
