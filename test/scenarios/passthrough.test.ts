// Tunnels that nobody looks into: TLS goes from end to end, and still only to the host that the CONNECT and the ClientHello name,
// at an address that was judged. One line in the ledger says how much went through.
import { once } from 'node:events';
import { randomBytes, X509Certificate } from 'node:crypto';
import https from 'node:https';
import type net from 'node:net';
import type tls from 'node:tls';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LOOPBACK, startHouse } from '../support/house.ts';
import type { House } from '../support/house.ts';
import { openOutside, startRaw } from '../support/outside.ts';
import type { Outside, Upstream } from '../support/outside.ts';
import { openSecureTunnel, openTunnel, readAnswer } from '../support/sandbox-client.ts';

let outside: Outside;
let upstream: Upstream;
/** Asks its clients for a certificate of the outside CA */
let mutual: Upstream;
let house: House;
let outsideCa: string;
let certificate: { readonly key: string; readonly cert: string };

function server(options: tls.TlsOptions): (socket: net.Socket) => void {
  const inner = https.createServer({ ...certificate, ...options }, (request, response) => {
    const peer = (request.socket as tls.TLSSocket).getPeerCertificate() as { readonly subjectaltname?: string };
    request
      .on('data', () => undefined)
      .on('end', () => response.end(`${request.url} ${peer.subjectaltname ?? 'no certificate'}`));
  });
  inner.on('tlsClientError', () => undefined);
  return (socket) => inner.emit('connection', socket);
}

beforeAll(async () => {
  outside = await openOutside();
  outsideCa = outside.authority.certificatePem;
  certificate = outside.credentials('pass.test');
  upstream = await startRaw(server({}));
  mutual = await startRaw(server({ requestCert: true, rejectUnauthorized: false, ca: outsideCa }));
  const ports = [upstream.port, mutual.port];
  house = await startHouse(
    {
      network: {
        allowlist: [
          { domain: 'pass.test', ports, addresses: LOOPBACK, tls: 'passthrough' },
          { domain: 'inside.test', ports, tls: 'passthrough' },
        ],
      },
    },
    { names: { 'pass.test': ['127.0.0.1'], 'inside.test': ['127.0.0.1'] } },
  );
});

afterAll(async () => {
  await house.stop();
  await upstream.close();
  await mutual.close();
  await outside.close();
});

/** TLS through a tunnel with what the outside CA vouches for; Sallyport's own CA is not trusted here. */
function through(authority: string, options: tls.ConnectionOptions = {}): Promise<tls.TLSSocket> {
  return openSecureTunnel({ port: house.port, ca: outsideCa }, authority, { tls: options });
}

describe('a passed-through tunnel', () => {
  it("shows the client the upstream's own certificate and leaves one line with the bytes that went through", async () => {
    const after = house.outcomes.length;
    const stream = await through(`pass.test:${upstream.port}`);
    expect(stream.getPeerX509Certificate()?.fingerprint256).toBe(new X509Certificate(certificate.cert).fingerprint256);
    const upload = randomBytes(300_000);
    stream.write(`POST /x HTTP/1.1\r\nHost: pass.test\r\nContent-Length: ${upload.length}\r\nConnection: close\r\n\r\n`);
    stream.write(upload);
    expect((await readAnswer(stream)).body).toBe('/x no certificate');
    stream.destroy();
    const outcome = await house.outcome(({ arrival }) => arrival.purpose === 'passthrough', after);
    expect(outcome.trace.bytesSent).toBeGreaterThan(upload.length);
    expect(outcome.trace.bytesReceived).toBeGreaterThan(500);
    const lines = (await house.audit()).filter((line) => line['port'] === upstream.port);
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatchObject({
      protocol: 'passthrough',
      door: 'tunnel',
      method: 'CONNECT',
      host: 'pass.test',
      rule: 'pass.test',
      decision: 'allow',
      address: '127.0.0.1',
      path: null,
      status: 200,
    });
  });

  it("lets the client's own certificate through to an upstream that asks for one", async () => {
    const stream = await through(`pass.test:${mutual.port}`, outside.credentials('sandbox.test'));
    stream.write('GET /who HTTP/1.1\r\nHost: pass.test\r\n\r\n');
    expect((await readAnswer(stream)).body).toBe('/who DNS:sandbox.test');
    stream.destroy();
  });

  it('still hears the upstream after the client has ended its side', async () => {
    const stream = await through(`pass.test:${upstream.port}`);
    stream.end('GET /half HTTP/1.1\r\nHost: pass.test\r\nConnection: close\r\n\r\n');
    expect((await readAnswer(stream)).body).toBe('/half no certificate');
    await once(stream, 'close');
  });

  it('refuses the SNI of another host before anything is dialled', async () => {
    const after = house.outcomes.length;
    const before = upstream.connections;
    await expect(through(`pass.test:${upstream.port}`, { servername: 'elsewhere.test' })).rejects.toThrow(
      /unrecognized name|closed during the handshake/,
    );
    const outcome = await house.outcome(() => true, after);
    expect(outcome.verdict?.code).toBe('host_mismatch');
    expect(upstream.connections).toBe(before);
  });

  it.each([
    { name: 'bytes that are neither TLS nor HTTP', bytes: Buffer.from('SSH-2.0-OpenSSH_9.6\r\n') },
    { name: 'plain HTTP', bytes: Buffer.from('GET / HTTP/1.1\r\nHost: pass.test\r\n\r\n') },
    { name: 'a handshake record that holds no ClientHello', bytes: Buffer.from([0x16, 3, 1, 0, 4, 2, 0, 0, 0]) },
  ])('refuses $name before anything is dialled', async ({ bytes }) => {
    const after = house.outcomes.length;
    const before = upstream.connections;
    const { socket } = await openTunnel(house, `pass.test:${upstream.port}`);
    socket.write(bytes);
    await once(socket.resume(), 'end');
    socket.destroy();
    const outcome = await house.outcome(() => true, after);
    expect(outcome).toMatchObject({ decision: 'refuse', verdict: { code: 'bad_request' } });
    expect(upstream.connections).toBe(before);
  });

  it('is held to the address guard', async () => {
    const after = house.outcomes.length;
    const before = upstream.connections;
    await expect(through(`inside.test:${upstream.port}`)).rejects.toThrow();
    const outcome = await house.outcome(() => true, after);
    expect(outcome).toMatchObject({ decision: 'refuse', verdict: { code: 'address_denied' } });
    expect(upstream.connections).toBe(before);
  });
});
