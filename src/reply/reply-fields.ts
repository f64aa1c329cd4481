// What of an upstream's answer reaches the sandbox: everything end-to-end, in its order and case, but for the fields that are ours to set.
// It must never let an upstream speak with Sallyport's own voice: Proxy-Status and X-Sallyport-Reason from outside are dropped (invariant 8).

/** Hop-by-hop fields and the ones that only this proxy may set; Trailer goes along because trailers do. */
const DROPPED: ReadonlySet<string> = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-authentication-info',
  'te',
  'transfer-encoding',
  'upgrade',
  'proxy-status',
  'x-sallyport-reason',
]);

/** Framing that a trailer section may not carry (RFC 9110 section 6.5.1). */
const NOT_IN_TRAILERS: ReadonlySet<string> = new Set([
  'content-length',
  'host',
  'authorization',
  'set-cookie',
  'trailer',
  'content-encoding',
  'content-type',
]);

/** Fields as a parser gives them, name then value: latin1 bytes of HTTP/1.1, latin1 text of HTTP/2. */
export type RawFields = readonly (Buffer | string)[];

function textOf(piece: Buffer | string): string {
  return typeof piece === 'string' ? piece : piece.toString('latin1');
}

/**
 * Fields from the wire as they go to the sandbox. Fields that Connection nominates are dropped too.
 * Of a 101 as well: the Upgrade and Connection of a handshake are its sender's to write anew.
 */
export function replyFields(raw: RawFields): string[] {
  const fields: string[] = [];
  let nominated: Set<string> | undefined;
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const name = textOf(raw[i] as Buffer | string);
    const lower = name.toLowerCase();
    if (lower === 'connection') nominated = nominate(textOf(raw[i + 1] as Buffer | string), nominated);
    if (!DROPPED.has(lower)) fields.push(name, textOf(raw[i + 1] as Buffer | string));
  }
  return nominated === undefined ? fields : without(fields, nominated);
}

function nominate(value: string, nominated: Set<string> | undefined): Set<string> | undefined {
  if (value === 'keep-alive' || value === 'close') return nominated;
  for (const part of value.split(',')) {
    const name = part.trim().toLowerCase();
    if (name === '' || name === 'keep-alive' || name === 'close' || name === 'upgrade' || name === 'content-length') continue;
    (nominated ??= new Set()).add(name);
  }
  return nominated;
}

function without(fields: readonly string[], names: ReadonlySet<string>): string[] {
  const kept: string[] = [];
  for (let i = 0; i + 1 < fields.length; i += 2) {
    if (!names.has((fields[i] as string).toLowerCase())) kept.push(fields[i] as string, fields[i + 1] as string);
  }
  return kept;
}

/** Trailer fields as they go to the sandbox. */
export function replyTrailers(raw: RawFields): string[] {
  return without(replyFields(raw), NOT_IN_TRAILERS);
}
