// What upstreams answer, written by the test as it goes: a route for a path, or the next request for it, left unanswered in the test's hands.
// One script may stand behind several upstreams: give its `answer` to `startUpstream` as `raw`.
import type http from 'node:http';

/** Answers one request, or leaves it. */
export type Route = (request: http.IncomingMessage, response: http.ServerResponse) => void;

/** A request that waits for its answer. */
export interface Unanswered {
  readonly request: http.IncomingMessage;
  readonly response: http.ServerResponse;
}

/** A script for upstreams. */
export interface Script {
  /** Answers by the route of the path, the query left aside; where there is none, `ok` once the request is whole */
  readonly answer: Route;
  /** Sets the route of a path. */
  on(path: string, route: Route): void;
  /** Resolves with the next request for a path, unanswered. */
  nextAt(path: string): Promise<Unanswered>;
}

/** Begins an empty script. */
export function openScript(): Script {
  const routes = new Map<string, Route>();
  return {
    answer: (request, response) => {
      request.on('error', () => undefined);
      response.on('error', () => undefined);
      const path = /^[^?]*/.exec(request.url ?? '')?.[0] ?? '';
      const route = routes.get(path) ?? (() => request.resume().on('end', () => response.end('ok')));
      route(request, response);
    },
    on: (path, route) => void routes.set(path, route),
    nextAt: (path) =>
      new Promise((resolve) => {
        routes.set(path, (request, response) => resolve({ request, response }));
      }),
  };
}
