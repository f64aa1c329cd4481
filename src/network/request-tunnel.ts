// One CONNECT over a connection to another proxy (RFC 9110 section 9.3.6): asks, reads the head of the answer and not a byte more of it,
// and says with what status it was answered. It must never read past a tunnel's first byte, show what the proxy wrote, or take an
// answer for a tunnel that is none (fault D08).
import type net from 'node:net';
import { formatAuthority } from '../exchange/authority.ts';
import type { Authority } from '../exchange/authority.ts';
import { Fault } from '../exchange/codes.ts';
import type { Secret } from '../foundation/secret.ts';

/** What is asked for, and until when. */
export interface TunnelRequest {
  readonly to: Authority;
  /** The whole value of Proxy-Authorization; `undefined`: none is sent */
  readonly authorization: Secret | undefined;
  readonly deadlineMs: number;
  readonly signal: AbortSignal | undefined;
}

/** Most bytes of an answer's head, interim answers included. */
const HEAD_CAP = 64 * 1024;
const STATUS_LINE = /^HTTP\/1\.[01] ([1-5]\d\d)(?: [^\r\n]*)?$/;
const END = '\r\n\r\n';

/**
 * Asks for a tunnel. Resolves with the status: of 200 to 299 the socket is the tunnel, unread; of any other it is destroyed. Rejects with a
 * Fault, the socket destroyed: `upstream_connect` where the answer is none, `upstream_timeout` at the deadline, `client_closed` on abort.
 */
export function requestTunnel(socket: net.Socket, request: TunnelRequest): Promise<number> {
  const { to, authorization, deadlineMs, signal } = request;
  return new Promise((resolve, reject) => {
    let head = '';
    const finish = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', left);
      socket.off('readable', read).off('end', closed).off('close', closed);
    };
    const fail = (fault: Fault): void => {
      finish();
      socket.destroy();
      reject(fault);
    };
    const left = (): void => fail(new Fault('client_closed', 'the sandbox left before the upstream was reached'));
    const closed = (): void =>
      fail(new Fault('upstream_connect', 'the corporate proxy closed the connection before it had answered'));
    const timer = setTimeout(
      () => fail(new Fault('upstream_timeout', 'the corporate proxy did not open the connection in time')),
      deadlineMs,
    );
    const read = (): void => {
      for (let piece = socket.read() as Buffer | null; piece !== null; piece = socket.read() as Buffer | null) {
        const before = head.length;
        head += piece.toString('latin1');
        const found = finalHead(head);
        if (found === undefined && head.length <= HEAD_CAP) continue;
        if (found === undefined || found === 'not HTTP') {
          fail(new Fault('upstream_connect', 'the corporate proxy answered with something that is not HTTP'));
          return;
        }
        finish();
        // The first bytes of the tunnel may have come right behind the head; what a head says of a body has no meaning here.
        const rest = piece.subarray(found.end - before);
        if (found.status < 200 || found.status > 299) socket.destroy();
        else if (rest.length > 0) socket.unshift(rest);
        resolve(found.status);
        return;
      }
    };
    socket.on('readable', read).on('end', closed).on('close', closed);
    signal?.addEventListener('abort', left);
    if (signal?.aborted === true) left();
    else socket.write(headOf(to, authorization), 'latin1');
  });
}

function headOf(to: Authority, authorization: Secret | undefined): string {
  const authority = formatAuthority(to);
  const credentials = authorization === undefined ? '' : `Proxy-Authorization: ${authorization.reveal()}\r\n`;
  return `CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n${credentials}\r\n`;
}

/** The status of the first answer that is no interim one, and where its head ends; `undefined` while more has to come. */
function finalHead(text: string): { readonly status: number; readonly end: number } | 'not HTTP' | undefined {
  for (let start = 0; ;) {
    const lineEnd = text.indexOf('\n', start);
    const line = lineEnd < 0 ? text.slice(start) : text.slice(start, lineEnd);
    // Told at once where it cannot become one, so that a server that waits for us to speak first is not waited for.
    if (lineEnd < 0) return 'HTTP/1.'.startsWith(line.slice(0, 7)) ? undefined : 'not HTTP';
    const status = line.endsWith('\r') ? STATUS_LINE.exec(line.slice(0, -1))?.[1] : undefined;
    if (status === undefined) return 'not HTTP';
    const end = text.indexOf(END, start);
    if (end < 0) return undefined;
    start = end + END.length;
    if (!status.startsWith('1')) return { status: Number(status), end: start };
    if (status === '101') return 'not HTTP';
  }
}
