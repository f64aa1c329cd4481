// A socket made patient, for an HTTP client that is not: reading can be held, and a failing write does not end the reading.
// It knows of two ways in which undici loses an answer or the process, and nothing of HTTP. It must never keep a dead socket alive:
// whatever becomes of a failed write, the peer's reset or end reaches the reading side and closes the socket.
import type { Socket } from 'node:net';

/** Takes the place of undici's own pausing, which ends the process when the peer ends at a moment when the parser is paused. */
export interface Gate {
  /** From now on nothing is read; the kernel slows the peer down. */
  hold(): void;
  /** Reads again. */
  release(): void;
}

type Written = (error?: Error | null) => void;
type Chunks = { chunk: unknown; encoding: BufferEncoding }[];

/** Makes the socket patient and hands out its gate. */
export function makePatient(socket: Socket): Gate {
  outliveWrites(socket);
  const read = socket.read.bind(socket);
  let held = false;
  socket.read = (size?: number): unknown => (held ? null : (read(size) as unknown));
  return {
    hold: () => {
      held = true;
    },
    release: () => {
      if (!held) return;
      held = false;
      if (!socket.destroyed) socket.emit('readable');
    },
  };
}

/**
 * A peer that answers early and closes makes the next write fail, and Node then destroys the socket with the answer still unread
 * in it (fault D10). So a failed write stays unfinished: reading goes on to the answer, then to the reset, which ends the socket.
 */
function outliveWrites(socket: Socket): void {
  const write = socket._write.bind(socket);
  const writev = socket._writev?.bind(socket);
  const unlessFailed =
    (done: Written): Written =>
    (error) => {
      if (error === null || error === undefined) done();
    };
  socket._write = (chunk: unknown, encoding: BufferEncoding, done: Written) => write(chunk, encoding, unlessFailed(done));
  if (writev !== undefined) socket._writev = (chunks: Chunks, done: Written) => writev(chunks, unlessFailed(done));
}
