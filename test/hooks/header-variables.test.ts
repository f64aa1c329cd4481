// Header fields of http handlers: what is put in, and everything for which nothing is sent.
import { describe, expect, it } from 'vitest';
import { fillHeaders } from '../../src/hooks/header-variables.ts';

const env = {
  TOKEN: 'abc',
  OTHER: 'x$TOKEN',
  EMPTY: '',
  BROKEN: 'a\r\nX-Evil: 1',
  LINE: 'abc\n',
  NUL: 'a\0b',
  WIDE: 'snow ☃',
  SALLYPORT_ADMIN_TOKEN: 'secret-of-ours',
  HTTPS_PROXY: 'http://box:secret-of-ours@127.0.0.1:1',
};
const allowed = [...Object.keys(env), 'UNSET', 'toString'];

function fill(headers: [string, string][], allowedVariables: readonly string[] = allowed): unknown {
  const filled = fillHeaders({ headers, allowedVariables }, env);
  return Array.isArray(filled) ? filled : filled.code;
}

describe('values', () => {
  const rows = [
    { name: 'text without variables', value: 'plain text', sent: 'plain text' },
    { name: '${NAME}', value: 'Bearer ${TOKEN}', sent: 'Bearer abc' },
    { name: '$NAME', value: 'Bearer $TOKEN!', sent: 'Bearer abc!' },
    { name: 'two in a row', value: '${TOKEN}${TOKEN}$TOKEN', sent: 'abcabcabc' },
    { name: 'a doubled dollar sign', value: '$$TOKEN $$', sent: '$TOKEN $' },
    { name: 'a doubled dollar sign and then a variable', value: '$$$TOKEN', sent: '$abc' },
    { name: 'a variable that holds a dollar sign, once', value: '$OTHER', sent: 'x$TOKEN' },
    { name: 'nothing', value: '', sent: '' },
  ];
  it.each(rows)('sends $name', ({ value, sent }) => {
    expect(fill([['X-Key', value]])).toEqual(['X-Key', sent]); // fault M16
  });

  const unresolved = [
    { name: 'a variable that is not set', value: 'Bearer ${UNSET}' },
    { name: 'a variable that is empty', value: 'Bearer $EMPTY' },
    { name: 'a variable with a line break in it', value: '$BROKEN' },
    { name: 'a variable with a newline at its end', value: '$LINE' },
    { name: 'a variable with a NUL', value: '$NUL' },
    { name: 'a longer name than the one allowed', value: '$TOKENS' },
    { name: 'a name that every object has', value: '$toString' },
    { name: 'a default of the shell', value: '${TOKEN:-x}' },
    { name: 'an open brace', value: '${TOKEN' },
    { name: 'empty braces', value: '${}' },
    { name: 'a dollar sign before a digit', value: 'costs $5' },
    { name: 'a dollar sign at the end', value: 'costs $' },
    { name: 'one good and one bad variable', value: '$TOKEN$UNSET' },
    { name: 'a secret of Sallyport', value: '$SALLYPORT_ADMIN_TOKEN' },
    { name: 'a proxy URL with a token', value: '$HTTPS_PROXY' },
  ];
  it.each(unresolved)('refuses $name', ({ value }) => {
    expect(fill([['X-Key', value]])).toBe('unresolved_variable'); // fault M16
  });

  it('refuses a variable that the handler does not list, though it is set', () => {
    expect(fill([['X-Key', '$TOKEN']], [])).toBe('unresolved_variable'); // fault M16
  });

  it.each(['a\r\nX-Evil: 1', 'a\nb', 'a\0b', '☃', '\u007f', '$WIDE'])('refuses the character in %j', (value) => {
    expect(fill([['X-Key', value]])).toBe('invalid_header');
  });

  it('names the variable and never its value', () => {
    const filled = fillHeaders({ headers: [['X-Key', '$BROKEN']], allowedVariables: allowed }, env);
    expect(filled).toEqual({
      code: 'unresolved_variable',
      message: 'a header holds a variable that cannot be resolved: "BROKEN" holds a line break or a NUL',
    });
  });
});

describe('names', () => {
  it('sends fields in their order, theirs for the type of the content included', () => {
    expect(
      fill([
        ['X-B', '2'],
        ['content-type', 'application/cloudevents+json'],
        ['X-A', '1'],
      ]),
    ).toEqual(
      ['X-B', '2', 'content-type', 'application/cloudevents+json', 'X-A', '1'], // prettier-ignore
    );
  });

  const refused = [
    ...['Host', 'host', 'Content-Length', 'Transfer-Encoding', 'Connection', 'Keep-Alive', 'TE', 'Trailer', 'Upgrade', 'Expect'],
    ...['Proxy-Authorization', 'proxy-connection', 'X-Sallyport-Action-Id', 'x-sallyport-reason'],
    ...['', 'X Key', 'X-Key:', 'X-Key\r\nX-Evil', 'X-Ké', 'X\0Key'],
  ];
  it.each(refused)('refuses %j', (name) => {
    expect(fill([[name, 'v']])).toBe('invalid_header');
  });

  it.each(['Hosts', 'X-Host', 'Proxies', 'X-Proxy-Key', 'X-Sallyporty'])('sends %s, just outside', (name) => {
    expect(fill([[name, 'v']])).toEqual([name, 'v']);
  });

  it('refuses the same name twice, whatever its case', () => {
    expect(fill([['X-Key', '1'], ['x-key', '2']])).toBe('invalid_header'); // prettier-ignore
  });
});
