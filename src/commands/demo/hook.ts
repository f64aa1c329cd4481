// The demo's agent: after a tool call it runs its hooks, one of which posts the event out through the door.
// It must never know a credential: hooks.json lies in its own workspace, where it could read it.
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { runHooks } from '../../hooks/index.ts';

/** What is needed to post it. */
export interface DemoEvent {
  /** The agent's workspace */
  readonly workspace: string;
  readonly url: string;
  readonly proxy: { readonly address: string; readonly port: number };
  /** PEM of the CA that the sandbox trusts */
  readonly ca: string;
}

/** What came of it. */
export interface PostedEvent {
  /** The receiver's status, or how the hook failed */
  readonly got: string;
  /** As it lies in the workspace */
  readonly hooksFile: string;
}

/** Writes the hooks.json of the agent, and runs it as after a tool that has written a file. */
export async function postEvent({ workspace, url, proxy, ca }: DemoEvent): Promise<PostedEvent> {
  const file = join(workspace, '.agents', 'hooks.json');
  await mkdir(dirname(file), { recursive: true });
  const hooks = [{ type: 'http', url, timeout: 5 }];
  await writeFile(
    file,
    JSON.stringify({ 'audit-logging': { post_tool_execution: [{ matcher: '.*_file', hooks }] } }, undefined, 2),
  );
  const payload = { tool_call: { name: 'write_to_file', args: { path: 'report.md' } }, environment_id: 'demo' };
  const { verdict } = await runHooks('post_tool_execution', payload, {
    workspace,
    files: [file],
    proxy: `http://${proxy.address}:${proxy.port}`,
    ca: [ca],
    env: {},
  });
  const [run] = verdict.runs;
  const got = run === undefined ? 'no hook ran' : (run.failure?.code ?? String(run.raw.status));
  return { got, hooksFile: await readFile(file, 'utf8') };
}
