// The proof of a WebSocket handshake, where the sandbox spoke HTTP/2, which has none, and the upstream speaks HTTP/1.1, which asks for one
// (RFC 8441 section 5). It must never let an answer pass that does not prove that it is one to our own key.
import { Fault } from '../exchange/codes.ts';
import { fieldValues } from '../exchange/header-fields.ts';
import type { HeaderFields } from '../exchange/header-fields.ts';
import { acceptOf } from '../exchange/websocket-key.ts';

/** The fields of a handshake with a key of our own in place of any that the sandbox sent. */
export function withKey(fields: HeaderFields, key: string): string[] {
  const kept: string[] = [];
  for (let i = 0; i + 1 < fields.length; i += 2) {
    if ((fields[i] as string).toLowerCase() !== 'sec-websocket-key') kept.push(fields[i] as string, fields[i + 1] as string);
  }
  return [...kept, 'Sec-WebSocket-Key', key];
}

/** Throws `upstream_protocol` where the fields of a 101 do not prove that the key was seen (RFC 6455 section 4.1). */
export function verifyAccept(fields: HeaderFields, key: string): void {
  const proofs = fieldValues(fields, 'sec-websocket-accept');
  if (proofs.length === 1 && proofs[0] === acceptOf(key)) return;
  throw new Fault('upstream_protocol', 'the upstream answered the WebSocket handshake without the proof that it is one');
}
