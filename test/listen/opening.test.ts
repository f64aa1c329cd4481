// What a tunnel or a connection begins with, however its first bytes are cut into pieces.
import { once } from 'node:events';
import { PassThrough } from 'node:stream';
import { afterEach, describe, expect, it } from 'vitest';
import { isPreface, readOpening } from '../../src/listen/opening.ts';
import { clientHello } from '../support/client-hellos.ts';
import { PREFACE } from '../support/h2-frames.ts';
import { connectTo, readAnswer, sendRaw } from '../support/sandbox-client.ts';
import { answerAll, openRig } from './rig.ts';
import type { Rig } from './rig.ts';

describe('the opening', () => {
  const rows: { name: string; bytes: () => Buffer | Promise<Buffer>; kind: string }[] = [
    { name: 'a ClientHello', bytes: () => clientHello('api.test'), kind: 'tls' },
    { name: 'a request line', bytes: () => Buffer.from('GET / HTTP/1.1\r\n'), kind: 'http' },
    { name: 'a method that begins as the preface does', bytes: () => Buffer.from('PROPFIND / HTTP/1.1\r\n'), kind: 'http' },
    { name: 'the preface', bytes: () => PREFACE, kind: 'h2' },
    { name: 'the preface and a frame', bytes: () => Buffer.concat([PREFACE, Buffer.alloc(9)]), kind: 'h2' },
    {
      name: 'a preface that goes wrong in its last octet',
      bytes: () => Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\rx'),
      kind: 'http',
    },
    { name: 'a greeting of SSH', bytes: () => Buffer.from('SSH-2.0-x\r\n'), kind: 'other' },
    { name: 'a NUL', bytes: () => Buffer.alloc(1), kind: 'other' },
  ];

  it.each(rows)('of $name is told, and put back whole', async ({ bytes, kind }) => {
    const stream = new PassThrough();
    const sent = await bytes();
    stream.write(sent);
    expect((await readOpening(stream)).kind).toBe(kind);
    expect(stream.read()).toEqual(sent);
  });

  it.each(rows.filter(({ kind }) => kind !== 'other'))('of $name is told in pieces of one octet', async ({ bytes, kind }) => {
    const stream = new PassThrough();
    const opening = readOpening(stream);
    const sent = await bytes();
    for (const byte of sent) {
      stream.write(Buffer.from([byte]));
      await new Promise(setImmediate);
    }
    expect((await opening).kind).toBe(kind);
    expect(stream.read()).toEqual(sent);
  });

  it.each([
    { name: 'before anything', bytes: Buffer.alloc(0) },
    { name: 'within the preface', bytes: PREFACE.subarray(0, 20) },
  ])('of a stream that ends $name is none', async ({ bytes }) => {
    const stream = new PassThrough();
    stream.end(bytes);
    expect(await readOpening(stream)).toEqual({ kind: 'closed' });
  });

  it.each([
    { name: 'nothing', text: '', is: undefined },
    { name: 'its first octet', text: 'P', is: undefined },
    { name: 'all but its last octet', text: 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r', is: undefined },
    { name: 'all of it', text: 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', is: true },
    { name: 'a target in its place', text: 'PRI / HTTP/2.0\r\n\r\nSM\r\n\r\n', is: false },
    { name: 'another case', text: 'pri * HTTP/2.0\r\n\r\nSM\r\n\r\n', is: false },
  ])('of $name is or may be the preface: $is', ({ text, is }) => {
    expect(isPreface(Buffer.from(text))).toBe(is);
  });
});

describe('a connection', () => {
  let rig: Rig;

  afterEach(() => rig.close());

  it('that says nothing is closed without a word', async () => {
    rig = await openRig(answerAll, { headerMs: 100 });
    const socket = await connectTo(rig.port);
    let text = '';
    socket.on('data', (chunk: Buffer) => (text += chunk.toString()));
    await once(socket, 'end');
    expect(text).toBe('');
    expect(rig.arrivals).toEqual([]);
    socket.destroy();
  });

  it('that says only what HTTP/2 might begin with is told that it was too slow', async () => {
    rig = await openRig(answerAll, { headerMs: 100 });
    const socket = await connectTo(rig.port);
    socket.write('PR');
    expect(await readAnswer(socket)).toMatchObject({ status: 400, headers: { 'x-trouble': 'request_timeout' } });
    socket.destroy();
  });

  it('that ends before it has said anything is gone', async () => {
    rig = await openRig();
    const socket = await connectTo(rig.port);
    socket.end('P');
    await once(socket.resume(), 'end');
    await rig.emptied();
    expect(rig.arrivals).toEqual([]);
  });

  it('that says nothing does not hold up a drain', async () => {
    rig = await openRig();
    const socket = await connectTo(rig.port);
    // Another one that has been answered was accepted after it.
    expect((await sendRaw(rig.port, 'GET /x HTTP/1.1\r\nHost: a\r\n\r\n')).body).toBe('/x');
    await rig.drain(5000);
    expect(rig.open).toBe(0);
    socket.destroy();
  });
});
