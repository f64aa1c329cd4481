// What is left behind by a test: processes and descriptors, read from /proc. Looks only; it ends nothing.
import { readdirSync, readFileSync } from 'node:fs';

interface Process {
  readonly pid: number;
  readonly state: string;
  readonly parent: number;
  readonly group: number;
}

/** Every process that can be seen. */
function processes(): Process[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => {
      try {
        const stat = readFileSync(`/proc/${name}/stat`, 'latin1');
        const [state = '', parent = '', group = ''] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
        return [{ pid: Number(name), state, parent: Number(parent), group: Number(group) }];
      } catch {
        // It ended between the two looks.
        return [];
      }
    });
}

/** Our own children, zombies included. */
export function children(): Process[] {
  return processes().filter(({ parent }) => parent === process.pid);
}

/** Whether a process runs; one that is dead and not yet reaped by its parent does not. */
export function runs(pid: number): boolean {
  return processes().some((one) => one.pid === pid && one.state !== 'Z' && one.state !== 'X');
}

/** Resolves when a process that was killed is gone: the kernel takes a moment, and tells nobody but its parent. */
export async function gone(pid: number): Promise<void> {
  while (runs(pid)) await new Promise((resolve) => setImmediate(resolve));
}

/** Open descriptors of this process, the one for looking left out. */
export function openDescriptors(): number {
  return readdirSync('/proc/self/fd').length - 1;
}
