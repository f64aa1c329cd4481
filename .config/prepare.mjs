// Runs before `npm start`, `npm test` and their like, so that each works as the first command on a fresh clone:
// installs when node_modules is missing or older than the lock file, builds when dist is missing or older than src.
// It must never touch anything outside this checkout.
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';

const root = join(import.meta.dirname, '..');
const run = (command, args) => execFileSync(command, args, { cwd: root, stdio: ['ignore', 2, 2] });
const changedAt = (path) => (existsSync(path) ? statSync(path).mtimeMs : 0);
const newest = (folder) =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .reduce((latest, entry) => Math.max(latest, changedAt(join(entry.parentPath, entry.name))), 0);

const installed = join(root, 'node_modules', '.package-lock.json');
if (changedAt(installed) < changedAt(join(root, 'package-lock.json'))) {
  process.stderr.write(
    'installing what the lock file names (the first time takes a few minutes: re2 is compiled where no binary fits)\n',
  );
  run('npm', ['ci', '--no-audit', '--no-fund']);
}
const built = join(root, 'dist', 'sallyport.cjs');
const sources = Math.max(
  newest(join(root, 'src')),
  changedAt(join(root, 'tsconfig.json')),
  changedAt(join(root, 'package.json')),
);
if (changedAt(built) < sources) {
  process.stderr.write('building\n');
  rmSync(join(root, 'dist'), { recursive: true, force: true });
  run(process.execPath, [join(root, 'node_modules', 'typescript', 'bin', 'tsc'), '-p', '.config/tsconfig.build.json']);
}
