// Tries the nftables rules of an agent's pod on a real kernel: a network namespace for the pod, one for the outside, a cable between them.
// Both go with the processes that made them; nothing is named, and nothing of this machine's own network is touched.
import { execFile, execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** Why the rules cannot be tried here, in a few words; undefined where they can. */
export const NETWORK_TOOLS: string | undefined = whatIsMissing();

function whatIsMissing(): string | undefined {
  if (process.getuid?.() !== 0) return 'needs root';
  for (const tool of ['nft', 'ip', 'unshare', 'nsenter', 'setpriv']) {
    try {
      execFileSync('sh', ['-c', `command -v ${tool}`], { stdio: 'ignore' });
    } catch {
      return `needs ${tool}`;
    }
  }
  try {
    execFileSync('unshare', ['--net', 'nft', 'list', 'ruleset'], { stdio: 'ignore' });
    return undefined;
  } catch {
    return 'needs a kernel that lets it make network namespaces with nftables';
  }
}

/** What each trial came to behind the rules of that file, by the trial's name; made once, when it is first asked for. */
export function inWalls(rules: string): () => Promise<Record<string, string>> {
  let trials: Promise<Record<string, string>> | undefined;
  const pod = join(import.meta.dirname, 'walls-pod.mjs');
  return () =>
    (trials ??= run('unshare', ['--net', process.execPath, pod, rules]).then(({ stdout }) => {
      return JSON.parse(stdout) as Record<string, string>;
    }));
}
