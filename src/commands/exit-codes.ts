// What each exit status means; scripts rely on these numbers, so that none may ever change its meaning.
// It must never grow a number for each error: the text says what happened, the number only who has to act.

/** Exit statuses of every command. */
export const EXIT = {
  ok: 0,
  /** The world failed: a port in use, an unreadable file, a proxy that does not answer */
  failed: 1,
  /** Called in a way that makes no sense */
  usage: 2,
  /** `explain`: the request would be refused */
  refused: 3,
  /** A resource is not as the call assumes: not there, there already, or changed meanwhile; look and call again */
  notAsAssumed: 4,
  /** `doctor`: there is a way past the door */
  wayOut: 5,
  /** `doctor`: nothing was found open, but something could not be tried */
  untold: 6,
  /** The config is invalid (EX_CONFIG of sysexits.h) */
  config: 78,
} as const;

/** One of them. */
export type ExitCode = (typeof EXIT)[keyof typeof EXIT];
