// Where a bug was, without what it said: the head of a stack repeats the message.
// It must never give that head away: a message may quote a body or a field.

const MAX_FRAMES = 20;

/** The frames of an error's stack, one a line, at most 20; empty where it has none. */
export function stackFrames(error: Error): string {
  const lines = (error.stack ?? '').split('\n').filter((line) => /^\s+at /.test(line));
  return lines.slice(0, MAX_FRAMES).join('\n');
}
