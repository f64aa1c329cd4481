// What an operator probably meant by a key that does not exist: the same word in camelCase, a near miss, or a neighbour's dialect.
// It only ever suggests; no unknown key is read as the one it resembles.
import { nearestWord, snakeCase } from '../foundation/edit-distance.ts';

/** Words that other allowlist dialects use for ours. */
const ELSEWHERE: Readonly<Record<string, readonly string[]>> = {
  host: ['domain'],
  hostname: ['domain'],
  name: ['domain'],
  pattern: ['domain'],
  allow: ['allowlist'],
  allowed: ['allowlist'],
  allowed_domains: ['allowlist'],
  whitelist: ['allowlist'],
  rules: ['allowlist'],
  deny: ['denylist'],
  denied_domains: ['denylist'],
  blocklist: ['denylist'],
  blacklist: ['denylist'],
  headers: ['transform'],
  inject: ['transform'],
  cidrs: ['addresses', 'sources'],
  ips: ['addresses', 'sources'],
  secret: ['token', 'key'],
  cert: ['certificate'],
  user: ['username'],
  environment: ['env'],
  port: ['ports'],
};

/** The known key that `unknown` most probably means, or `undefined` where none is near. */
export function suggestKey(unknown: string, known: readonly string[]): string | undefined {
  const snake = snakeCase(unknown);
  if (known.includes(snake)) return snake;
  const elsewhere = Object.hasOwn(ELSEWHERE, snake) ? ELSEWHERE[snake] : undefined;
  return elsewhere?.find((key) => known.includes(key)) ?? nearestWord(unknown, known);
}
