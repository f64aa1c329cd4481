// How far two words stand apart, for those who suggest the right spelling of a wrong one.
// It only measures; it must never decide that a word is read as another.

/** Insertions, deletions, substitutions and swaps of neighbours that turn one text into the other. */
export function editDistance(a: string, b: string): number {
  // A pathological key must not cost quadratic time.
  if (Math.abs(a.length - b.length) > 3 || a.length > 64) return Number.MAX_SAFE_INTEGER;
  let beforeLast: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, column) => column);
  for (let i = 1; i <= a.length; i += 1) {
    const row = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const cost = a[i - 1] === b[j - 1] ? 0 : 1;
      let best = Math.min((last[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1, (last[j - 1] ?? 0) + cost);
      const swapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      if (swapped) best = Math.min(best, (beforeLast[j - 2] ?? 0) + 1);
      row.push(best);
    }
    [beforeLast, last] = [last, row];
  }
  return last[b.length] ?? 0;
}

/** The known word nearest to a wrong one, in any notation of it (`headerName` for `header_name`); `undefined` where none is near. */
export function nearestWord(wrong: string, known: readonly string[]): string | undefined {
  const snake = snakeCase(wrong);
  if (known.includes(snake)) return snake;
  let best: string | undefined;
  let least = Math.min(3, Math.floor(snake.length / 3) + 1);
  for (const word of known) {
    const distance = editDistance(snake, word);
    if (distance < least) [best, least] = [word, distance];
  }
  return best;
}

/** `headerName`, `header-name` and `Header Name` as `header_name`. */
export function snakeCase(word: string): string {
  return word
    .replace(/([a-z0-9])([A-Z])/g, '$1_$2')
    .replace(/[\s-]+/g, '_')
    .toLowerCase();
}
