// A port that is there and takes no connection up: what is dialled there is neither refused nor answered.
// Its queue of connections is full and nobody empties it, so that the kernel drops whatever else comes.
import net from 'node:net';
import { Worker } from 'node:worker_threads';

/** A port that does not answer. */
export interface Deaf {
  readonly port: number;
  close(): Promise<void>;
}

const LISTEN_AND_SLEEP = `
  const { parentPort } = require('node:worker_threads');
  const server = require('node:net').createServer();
  server.listen({ port: 0, host: '127.0.0.1', backlog: 1 }, () => {
    parentPort.postMessage(server.address().port);
    setImmediate(() => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0));
  });`;
/** Linux queues one more than the backlog */
const QUEUE = 2;

/** Opens such a port on loopback. */
export async function startDeaf(): Promise<Deaf> {
  const worker = new Worker(LISTEN_AND_SLEEP, { eval: true });
  const port = await new Promise<number>((resolve, reject) => worker.once('message', resolve).once('error', reject));
  const queued = Array.from({ length: QUEUE }, () => net.connect(port, '127.0.0.1').on('error', () => undefined));
  await Promise.all(queued.map((socket) => new Promise((resolve) => socket.once('connect', resolve))));
  return {
    port,
    close: async () => {
      for (const socket of queued) socket.destroy();
      await worker.terminate();
    },
  };
}
