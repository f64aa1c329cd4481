// The head of an HTTP/2 request as the door needs it: pseudo-header fields apart from the others, cookie crumbs joined, its size counted.
// Pure. Node's parser has held it against RFC 9113 section 8 before: names are lower case, no pseudo-header field is there twice.
import type { HeaderFields } from '../exchange/header-fields.ts';

/** A request's header section. */
export interface RequestHead {
  readonly method: string;
  readonly scheme: string;
  readonly authority: string | undefined;
  readonly path: string;
  /** Of an extended CONNECT (RFC 8441) */
  readonly protocol: string | undefined;
  readonly fields: HeaderFields;
  /** What it would take in HTTP/1.1, so that one limit means one thing */
  readonly bytes: number;
}

/** Line break, colon and space of a field line. */
const LINE_OVERHEAD = 4;

/** Reads `[name, value, name, value, …]` as it came. */
export function readHead(raw: readonly string[]): RequestHead {
  let method = '';
  let scheme = '';
  let authority: string | undefined;
  let path = '';
  let protocol: string | undefined;
  let bytes = 0;
  let crumbs = -1;
  const fields: string[] = [];
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const name = raw[i] as string;
    const value = raw[i + 1] as string;
    bytes += name.length + value.length + LINE_OVERHEAD;
    if (name === ':method') method = value;
    else if (name === ':scheme') scheme = value;
    else if (name === ':authority') authority = value;
    else if (name === ':path') path = value;
    else if (name === ':protocol') protocol = value;
    else if (name === 'cookie' && crumbs >= 0) fields[crumbs] = `${fields[crumbs] as string}; ${value}`;
    else {
      if (name === 'cookie') crumbs = fields.length + 1;
      fields.push(name, value);
    }
  }
  return { method, scheme, authority, path, protocol, fields, bytes };
}
