// A child's process group, signalled as a whole so that grandchildren go with their shell (fault M01).
// It knows no child by itself. What calls setsid is in a group of its own and is out of its reach; it must never signal the runner's own group.

/** Sends a signal to every process of the group that `leader` leads; 0 only asks. Tells whether the group still has members. */
export function signalGroup(leader: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(-leader, signal);
  } catch (error) {
    // EPERM: there are members, and they belong to somebody else.
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
