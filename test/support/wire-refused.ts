// A CONNECT that was refused, as the exchange that it is to a client: its answer is the answer, and there is nothing to send to.
import { Readable, Writable } from 'node:stream';
import type { Duplex } from 'node:stream';
import type { Answer } from './sandbox-client.ts';
import type { Incoming, SandboxExchange } from './wire-client.ts';

/** The stream, or a CONNECT's refusal as the exchange that it is to the client. */
export async function opened<Stream extends Duplex>(
  open: () => Promise<Stream>,
): Promise<{ readonly open: Stream } | { readonly refused: SandboxExchange }> {
  try {
    return { open: await open() };
  } catch (error) {
    const { answer } = error as { readonly answer?: Answer };
    if (answer === undefined) throw error;
    return { refused: refusedExchange(answer) };
  }
}

function refusedExchange({ status, fields, body }: Answer): SandboxExchange {
  const incoming: Incoming = {
    status,
    fields,
    in: Readable.from([Buffer.from(body, 'latin1')]),
    ending: Promise.resolve('whole'),
    trailers: () => [],
  };
  const switched = Promise.reject<Duplex>(new Error(`the CONNECT was answered ${status}`));
  switched.catch(() => undefined);
  return {
    interims: [],
    answer: Promise.resolve(incoming),
    out: new Writable({ write: (_chunk, _encoding, done) => done() }),
    finish: () => undefined,
    switched,
    leave: () => undefined,
  };
}
