// Runs an http handler: a POST of the event through the proxy, under one deadline, and its answer up to the cap.
// It knows HTTP and no schema of an answer. It must never go around the proxy unless that was asked for, follow a redirect (fault M17), send
// half-filled headers (fault M16), or repeat in a message what came over the wire.
import { createRequire } from 'node:module';
import type { Agent as AgentClass, Dispatcher } from 'undici';
import { CappedText } from '../foundation/capped-text.ts';
import type { Variables } from './environment.ts';
import { failed } from './failures.ts';
import type { HookFailure } from './failures.ts';
import { fillHeaders } from './header-variables.ts';
import { errorFailure, statusFailure } from './http-failures.ts';
import { proxyFromEnv, readProxy } from './proxy-from-env.ts';
import type { ProxyAddress } from './proxy-from-env.ts';
import type { HttpHandler, RawRun } from './words.ts';

/** How http handlers go out. */
export interface HttpOptions {
  /** URL of the proxy, its token as userinfo. Default: from `env`, unless `direct`. NO_PROXY is ignored on purpose. */
  readonly proxy?: string | undefined;
  /** Go out without a proxy where none is given; the variables of `env` are not asked then */
  readonly direct?: boolean | undefined;
  /** PEM texts, trusted beside Node's own roots, by the endpoint and by a proxy that is reached over TLS */
  readonly ca?: readonly string[] | undefined;
  /** Let `http:` URLs pass; they go through the proxy by CONNECT as well */
  readonly allowHttp?: boolean | undefined;
  /** For header variables and the proxy's */
  readonly env: Variables;
}

/** What is sent. */
export interface HttpRequest {
  /** One JSON document */
  readonly body: string;
  readonly actionId: string;
  readonly traceId?: string | undefined;
}

/** Runs http handlers; connections are kept between runs. */
export interface RunHttp {
  /** Never rejects; resolves at the handler's time limit at the latest, connecting and body included. A run that came too late sends nothing. */
  run(handler: HttpHandler, request: HttpRequest): Promise<RawRun>;
  /** Ends every connection; runs that are under way fail as `unreachable`. */
  close(): Promise<void>;
}

/** Makes a runner. Opens, reads and loads nothing before the first run, and never throws: what is wrong with its options is a failure of its runs. */
export function createRunHttp(options: HttpOptions): RunHttp {
  let outlet: Promise<Outlet | HookFailure> | undefined;
  let closed = false;
  return {
    run: async (handler, request) => {
      const askedAt = performance.now();
      const post = preparePost(handler, request, options);
      if ('code' in post) return notRun(post, askedAt);
      outlet ??= openOutlet(options);
      const open = await outlet;
      if ('code' in open) return notRun(open, askedAt);
      if (closed) return notRun(failed('unreachable', 'the runner is closed'), askedAt);
      return new Promise((resolve) => new HttpRun({ askedAt, timeoutMs: handler.timeoutMs, outlet: open, resolve }).start(post));
    },
    close: async () => {
      closed = true;
      const open = await outlet;
      if (open !== undefined && 'agent' in open) await open.close();
    },
  };
}

interface Post {
  readonly url: URL;
  readonly fields: string[];
  readonly body: string;
}

function preparePost(handler: HttpHandler, request: HttpRequest, options: HttpOptions): Post | HookFailure {
  const url = readUrl(handler.url, options.allowHttp ?? false);
  if ('code' in url) return url;
  const theirs = fillHeaders(handler, options.env);
  if ('code' in theirs) return theirs;
  const fields = ['X-Sallyport-Action-Id', request.actionId];
  if (request.traceId !== undefined) fields.push('X-Sallyport-Trace-Id', request.traceId);
  if (!theirs.some((text, index) => index % 2 === 0 && text.toLowerCase() === 'content-type')) {
    fields.push('Content-Type', 'application/json');
  }
  return { url, fields: [...fields, ...theirs], body: request.body };
}

function readUrl(text: string, allowHttp: boolean): URL | HookFailure {
  if (text.includes('$')) return failed('invalid_url', 'it holds a $, and variables are put into headers alone');
  // The parser would repair these in silence.
  if (/[\s\\\p{Cc}]/u.test(text)) return failed('invalid_url', 'it holds a blank, a backslash or a control character');
  if (!URL.canParse(text)) return failed('invalid_url', 'it cannot be read; write https://host/path');
  const url = new URL(text);
  if (url.protocol !== 'https:' && !(allowHttp && url.protocol === 'http:')) return failed('not_https', `"${url.protocol}"`);
  if (url.username !== '' || url.password !== '')
    return failed('invalid_url', 'it holds userinfo; use a header, or a credential of the proxy');
  if (text.includes('#')) return failed('invalid_url', 'it holds a fragment, which is never sent');
  return url;
}

/** The agent with its connections, and what is known of the way out. */
interface Outlet {
  readonly agent: AgentClass;
  readonly throughProxy: boolean;
  close(): Promise<void>;
}

async function openOutlet(options: HttpOptions): Promise<Outlet | HookFailure> {
  const proxy = chooseProxy(options);
  if (proxy !== undefined && 'code' in proxy) return proxy;
  try {
    const { createConnector } = await import('./connect-out.ts');
    const connector = createConnector({ proxy, ca: options.ca ?? [] });
    const agent = new (loadAgent())({ connect: connector.connect, pipelining: 1, headersTimeout: 0, bodyTimeout: 0 });
    return {
      agent,
      throughProxy: proxy !== undefined,
      close: async () => {
        const gone = agent.destroy();
        connector.close();
        await gone;
      },
    };
  } catch (error) {
    return errorFailure(error, false);
  }
}

/** The package's front door loads fetch and its like too, which more than doubles the time until the first request leaves. */
function loadAgent(): typeof AgentClass {
  return createRequire(import.meta.url)('undici/lib/dispatcher/agent.js') as typeof AgentClass;
}

function chooseProxy({ proxy, direct, env }: HttpOptions): ProxyAddress | HookFailure | undefined {
  if (proxy === undefined && direct === true) return undefined;
  const url = proxy ?? proxyFromEnv(env);
  if (url === undefined) return failed('no_proxy', 'set HTTPS_PROXY, or ask for direct connections');
  const address = readProxy(url);
  return 'problem' in address ? failed('no_proxy', address.problem) : address;
}

function notRun(failure: HookFailure, askedAt: number): RawRun {
  const startMs = performance.now() - askedAt;
  return { failure, status: null, output: '', complaint: '', truncated: false, durationMs: 0, startMs };
}

/** One POST, as undici tells of it. */
class HttpRun implements Dispatcher.DispatchHandler {
  readonly #askedAt: number;
  readonly #timeoutMs: number;
  readonly #outlet: Outlet;
  readonly #resolve: (run: RawRun) => void;
  readonly #output = new CappedText();
  #startedAt = 0;
  #status: number | null = null;
  #settled = false;
  #controller: Dispatcher.DispatchController | undefined;
  #deadline: NodeJS.Timeout | undefined;

  constructor(options: {
    readonly askedAt: number;
    readonly timeoutMs: number;
    readonly outlet: Outlet;
    readonly resolve: (run: RawRun) => void;
  }) {
    this.#askedAt = options.askedAt;
    this.#timeoutMs = options.timeoutMs;
    this.#outlet = options.outlet;
    this.#resolve = options.resolve;
  }

  start({ url, fields, body }: Post): void {
    this.#startedAt = performance.now();
    this.#deadline = setTimeout(
      () => this.#stop(failed('timeout', `${this.#timeoutMs} ms`)),
      Math.min(this.#timeoutMs, 2 ** 31 - 1),
    );
    try {
      const path = `${url.pathname}${url.search}`;
      this.#outlet.agent.dispatch({ origin: url.origin, path, method: 'POST', headers: fields, body }, this);
    } catch (error) {
      this.#settle(errorFailure(error, this.#status !== null));
    }
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    // Connecting may have outlasted the deadline, and nobody waits for the answer any more.
    if (this.#settled) controller.abort(new Error('too late'));
  }

  onResponseStart(_controller: Dispatcher.DispatchController, status: number, headers: Readonly<Record<string, unknown>>): void {
    if (status < 200) return;
    this.#status = status;
    const failure = statusFailure(status, this.#outlet.throughProxy ? headers['x-sallyport-reason'] : undefined);
    if (failure !== undefined) this.#stop(failure);
  }

  onResponseData(_controller: Dispatcher.DispatchController, piece: Buffer): void {
    this.#output.add(piece);
    if (this.#output.truncated) this.#stop(failed('output_too_large', '1 MiB is kept'));
  }

  onResponseEnd(): void {
    clearTimeout(this.#deadline);
    // Undici takes the connection back a round later, and a run that came at once would open another one.
    setImmediate(() => setImmediate(() => this.#settle(undefined)));
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    this.#settle(errorFailure(error, this.#status !== null));
  }

  #stop(failure: HookFailure): void {
    this.#settle(failure);
    this.#controller?.abort(new Error(failure.code));
  }

  #settle(failure: HookFailure | undefined): void {
    if (this.#settled) return;
    this.#settled = true;
    clearTimeout(this.#deadline);
    this.#resolve({
      failure,
      status: this.#status,
      output: this.#output.text(),
      complaint: '',
      truncated: this.#output.truncated,
      durationMs: performance.now() - this.#startedAt,
      startMs: this.#startedAt - this.#askedAt,
    });
  }
}
