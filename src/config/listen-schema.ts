// The part of the schema that says where sandboxes connect: the proxy port, and the doors for those that know of no proxy.
// Whether two of these addresses are one is not told here: the admin listener's is among them, and stands elsewhere.
import { z } from 'zod';
import { doorAddress, ipAddress, isMapping, listenAddress } from './fields.ts';

const destinationPort = z.string().regex(/^[1-9]\d{0,4}$/, {
  error: 'is not a port; write the one that sandboxes dial, as in "8443"',
  abort: true,
});

/** A listener for connections to one port. */
const led = z
  .strictObject({
    tls: doorAddress('Where TLS connections to that port arrive.'),
    http: doorAddress('Where plain HTTP connections to that port arrive.'),
  })
  .refine(({ tls, http }) => (tls === undefined) !== (http === undefined), {
    error: 'needs exactly one of `tls` and `http`: what connections to this port speak',
    when: ({ value, issues }) => isMapping(value) && issues.length === 0,
  });

const transparent = z
  .strictObject({
    tls: doorAddress('Where TLS connections to port 443 arrive. Left out: nowhere.'),
    http: doorAddress('Where plain HTTP connections to port 80 arrive. Left out: nowhere.'),
    dns: doorAddress('Where the DNS door answers, by UDP and TCP. Left out: nowhere. Set it where names lead sandboxes here.'),
    answer: ipAddress(4)
      .optional()
      .describe('IPv4 address that the DNS door answers with: where sandboxes reach `tls` and `http`. Needed with `dns`.'),
    answer6: ipAddress(6).optional().describe('The same for IPv6. Left out: names have no IPv6 address.'),
    ports: z
      .record(destinationPort, led)
      .prefault({})
      .describe(
        'Listeners for connections to other ports, by the port that sandboxes dial: { "8443": { tls: "0.0.0.0:9443" } }.',
      ),
  })
  .check(({ value: doors, issues }) => {
    // A misspelled key is its own problem; these would only repeat it.
    if (issues.length > 0) return;
    const say = (path: string[], message: string): void => void issues.push({ code: 'custom', path, message, input: doors });
    if (doors.dns !== undefined && doors.answer === undefined)
      say(['answer'], 'is missing; `dns` answers with it: write the address where sandboxes reach `tls` and `http`');
    for (const port of Object.keys(doors.ports)) {
      if (Number(port) > 65535) say(['ports', port], 'is not a port; the highest is 65535');
      if (port === '443') say(['ports', port], 'has a key of its own; write `tls`');
      if (port === '80') say(['ports', port], 'has a key of its own; write `http`');
    }
    const none = doors.tls === undefined && doors.http === undefined && doors.dns === undefined;
    if (none && Object.keys(doors.ports).length === 0)
      say([], 'names no door; write at least one of `tls`, `http`, `dns` and `ports`');
  });

/** See the reference. */
export const listenSchema = z.strictObject({
  proxy: listenAddress(
    '127.0.0.1:8080',
    'Where the proxy listens for CONNECT and absolute-form requests over HTTP/1.1, and HTTP/2. Use 0.0.0.0 when sandboxes come from other hosts.',
  ),
  transparent: transparent
    .optional()
    .describe(
      'Doors for sandboxes that know of no proxy, whose connections are led here. Several sandboxes are told apart by `sources`.',
    ),
});
