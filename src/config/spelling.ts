// What an operator probably meant by a key that does not exist: the same word in camelCase, a near miss, or a neighbour's dialect.
// It only ever suggests; no unknown key is read as the one it resembles.
import { editDistance } from '../foundation/edit-distance.ts';

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
  const snake = unknown
    .replace(/([a-z0-9])([A-Z])/g, '$1_$2')
    .replace(/[\s-]+/g, '_')
    .toLowerCase();
  if (known.includes(snake)) return snake;
  const elsewhere = Object.hasOwn(ELSEWHERE, snake) ? ELSEWHERE[snake] : undefined;
  const translated = elsewhere?.find((key) => known.includes(key));
  if (translated !== undefined) return translated;
  let best: string | undefined;
  let least = Math.min(3, Math.floor(snake.length / 3) + 1);
  for (const key of known) {
    const distance = editDistance(snake, key);
    if (distance < least) [best, least] = [key, distance];
  }
  return best;
}
