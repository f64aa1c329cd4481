// What the hook-runner adds to a hook's own time, in one run: the process `sallyport-hook` (its start and Node's included), and the library's `runHooks`.
// The hook is `true` under /bin/sh. Each is measured in turn with the bare command, so that all meet the same machine; least and median are given,
// since whatever else the machine does can only add. Targets: 150 ms and 5 ms. Options: --quick, --json.
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createHooks, loadHooks, runHooks } from '../../dist/hooks/index.js';

const quick = process.argv.includes('--quick');
const runs = quick ? 10 : 60;
const calls = quick ? 50 : 400;
const command = join(import.meta.dirname, '../../dist/hook-cli.js');
const payload = { tool_call: { name: 'code_execution', args: { code: 'ls', language: 'bash' } }, environment_id: 'env_1' };
const input = JSON.stringify(payload);

const sorted = (values) => [...values].sort((a, b) => a - b);
const least = (values) => sorted(values)[0];
const median = (values) => sorted(values)[values.length >> 1];
const shown = (values) => ({ least_ms: round(least(values)), median_ms: round(median(values)) });
const round = (ms) => Math.round(ms * 100) / 100;

function timed(work) {
  const begun = performance.now();
  work();
  return performance.now() - begun;
}
async function timedAsync(work) {
  const begun = performance.now();
  await work();
  return performance.now() - begun;
}

/** The command as the library runs it, with nothing around it. */
function bare(env) {
  return new Promise((resolve) => {
    const child = spawn('/bin/sh', ['-c', 'true'], { env, cwd: workspace, detached: true, stdio: 'pipe' });
    child.stdout.resume();
    child.stderr.resume();
    child.stdin.on('error', () => undefined);
    child.stdin.end(`${input}\n`);
    child.once('close', resolve);
  });
}

const workspace = mkdtempSync(join(tmpdir(), 'sallyport-hooks-'));
try {
  mkdirSync(join(workspace, '.agents'));
  const gate = {
    pre_tool_execution: [{ matcher: 'code_execution', hooks: [{ type: 'command', command: 'true', timeout: 10 }] }],
  };
  writeFileSync(join(workspace, '.agents/hooks.json'), JSON.stringify({ gate }));
  const env = { PATH: process.env.PATH ?? '', HOME: workspace };

  const [own, node, process_] = [[], [], []];
  for (let i = 0; i < runs; i += 1) {
    own.push(timed(() => spawnSync('/bin/sh', ['-c', 'true'], { cwd: workspace, env, input })));
    node.push(timed(() => spawnSync(process.execPath, ['-e', '0'], { cwd: workspace, env, input })));
    process_.push(timed(() => execFileSync(process.execPath, [command, 'pre_tool_execution'], { cwd: workspace, env, input })));
  }

  const places = { workspace, home: workspace, env };
  const kept = createHooks({ ...places, hooks: loadHooks(places) });
  const [ownAsync, library, keptOpen] = [[], [], []];
  for (let i = -calls / 10; i < calls; i += 1) {
    const round = [
      await timedAsync(() => bare(env)),
      await timedAsync(() => runHooks('pre_tool_execution', payload, places)),
      await timedAsync(() => kept.run('pre_tool_execution', payload)),
    ];
    if (i < 0) continue; // not yet compiled by the engine
    ownAsync.push(round[0]);
    library.push(round[1]);
    keptOpen.push(round[2]);
  }
  await kept.close();

  const result = {
    command: shown(own),
    node_alone: shown(node),
    sallyport_hook: shown(process_),
    sallyport_hook_adds: {
      least_ms: round(least(process_) - least(own)),
      median_ms: round(median(process_) - median(own)),
      target_ms: 150,
    },
    beyond_node: { least_ms: round(least(process_) - least(node)), median_ms: round(median(process_) - median(node)) },
    command_in_library: shown(ownAsync),
    runHooks: shown(library),
    runHooks_adds: {
      least_ms: round(least(library) - least(ownAsync)),
      median_ms: round(median(library) - median(ownAsync)),
      target_ms: 5,
    },
    hooks_loaded_before_adds: {
      least_ms: round(least(keptOpen) - least(ownAsync)),
      median_ms: round(median(keptOpen) - median(ownAsync)),
    },
  };
  if (process.argv.includes('--json')) process.stdout.write(`${JSON.stringify(result)}\n`);
  else
    for (const [name, figures] of Object.entries(result)) process.stdout.write(`${name.padEnd(26)}${JSON.stringify(figures)}\n`);
} finally {
  rmSync(workspace, { recursive: true, force: true });
}
