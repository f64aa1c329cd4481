// The shape of the house, held by a test: who may import whom, who makes which stage, how long a file may be, and that each has its opening words.
// The messages say why, so that whoever trips over one knows what to do.
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { describe, expect, it } from 'vitest';

const SRC = resolve(import.meta.dirname, '../src');

interface SourceFile {
  /** Path below src */
  readonly path: string;
  /** First folder, or the file's own name where it stands at the top */
  readonly room: string;
  readonly text: string;
  /** Paths below src */
  readonly imports: readonly string[];
}

const files: readonly SourceFile[] = readdirSync(SRC, { recursive: true, encoding: 'utf8' })
  .filter((path) => /\.c?ts$/.test(path))
  .map((path) => {
    const text = readFileSync(join(SRC, path), 'utf8');
    const imports = [...text.matchAll(/from '(\.[^']+)'|import\('(\.[^']+)'\)/g)].map((match) =>
      relative(SRC, resolve(dirname(join(SRC, path)), match[1] ?? match[2] ?? '')),
    );
    return { path, room: roomOf(path), text, imports };
  });

function roomOf(path: string): string {
  return path.includes('/') ? (path.split('/')[0] as string) : path;
}

/** What a room may import beside itself, and why it may. Rooms that are not named may import `exchange` and `foundation` alone. */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  foundation: [],
  exchange: ['foundation'],
  // compiles the operator's file with the parsers of the rooms that will use it
  config: ['exchange', 'foundation', 'policy', 'network', 'credentials'],
  // composition roots: they see everything, and nobody sees them but the commands
  'app.ts': ['*'],
  'wiring.ts': ['*'],
  'outward.ts': ['*'],
  'inward.ts': ['*'],
  'explain.ts': ['exchange', 'foundation', 'intake', 'policy', 'credentials'],
  'egress.ts': ['exchange'],
  adapters: ['*'],
  commands: ['*'],
  'cli.ts': ['commands', 'foundation'],
  'sallyport.cts': ['cli.ts'],
  'hook-cli.ts': ['commands', 'exchange', 'foundation'],
};

describe('the architecture', () => {
  it('lets rooms import exchange and foundation, never each other', () => {
    const strays = files.flatMap((file) => {
      const allowed = MAY_IMPORT[file.room] ?? ['exchange', 'foundation'];
      if (allowed.includes('*')) return [];
      return file.imports
        .filter((target) => roomOf(target) !== file.room && !allowed.includes(roomOf(target)))
        .map((target) => `${file.path} imports ${target}: what a room needs of a neighbour arrives as a function from app.ts`);
    });
    expect(strays).toEqual([]);
  });

  it('keeps app, egress and the commands out of reach of the rooms', () => {
    const strays = files
      .filter((file) => !['app.ts', 'cli.ts', 'hook-cli.ts', 'sallyport.cts', 'commands', 'adapters'].includes(file.room))
      .flatMap((file) =>
        file.imports
          .filter((target) =>
            ['app.ts', 'wiring.ts', 'outward.ts', 'inward.ts', 'egress.ts', 'cli.ts', 'commands', 'adapters'].includes(
              roomOf(target),
            ),
          )
          .map((target) => `${file.path} imports ${target}`),
      );
    expect(strays).toEqual([]);
  });

  it('has no import cycle', () => {
    const byPath = new Map(files.map((file) => [file.path, file]));
    const done = new Set<string>();
    const cycles: string[] = [];
    const visit = (path: string, trail: readonly string[]): void => {
      if (trail.includes(path)) cycles.push([...trail.slice(trail.indexOf(path)), path].join(' -> '));
      if (done.has(path) || trail.includes(path)) return;
      for (const target of byPath.get(path)?.imports ?? []) visit(target, [...trail, path]);
      done.add(path);
    };
    for (const file of files) visit(file.path, []);
    expect(cycles).toEqual([]);
  });

  it.each([
    ['makeIntent', 'intake'],
    ['makePermit', 'policy'],
    ['makeRoute', 'network'],
    ['makeDispatch', 'credentials'],
  ])('lets %s be called by %s alone, so that no step of the journey can be skipped', (maker, room) => {
    const users = files
      .filter((file) => file.path !== 'exchange/stages.ts' && file.text.includes(maker))
      .map((file) => file.room);
    expect([...new Set(users)]).toEqual([room]);
  });

  it('writes answers with a status of ours in one place', () => {
    const users = files.filter((file) => /writeRefusal\(/.test(file.text)).map((file) => file.path);
    expect(users.filter((path) => !path.startsWith('adapters/'))).toEqual(['egress.ts', 'reply/write-refusal.ts']);
  });

  it('reveals secrets in few places, each known by name', () => {
    const places = files
      .filter((file) => file.path !== 'foundation/secret.ts' && file.text.includes('.reveal()'))
      .map((file) => file.path);
    // the wire, of exchanges, of token endpoints and of a corporate proxy; the comparison of tokens; checking and composing what a source holds; the sealed
    // record of a rotated token; and the proxy URL of `env --sandbox`
    expect(places.sort()).toEqual([
      'commands/env.ts',
      'config/sandboxes.ts',
      'credentials/attach.ts',
      'credentials/prepared.ts',
      'credentials/secret-source.ts',
      'credentials/signer.ts',
      'credentials/swap.ts',
      'credentials/token-records.ts',
      'network/request-tunnel.ts',
      'upstream/forwarded.ts',
      'upstream/post-form.ts',
    ]);
  });

  it('opens the way to token endpoints inside the walls for tests alone: nothing that starts a proxy names the option', () => {
    const users = files.filter((file) => file.text.includes('tokenRanges')).map((file) => file.path);
    expect(users.sort()).toEqual(['app.ts', 'outward.ts']);
  });

  it('opens each file with what it knows and what it must never do', () => {
    const bare = files.filter((file) => !/^(?:#!.*\n)?\/\/ .+\n\/\/ .+/.test(file.text)).map((file) => file.path);
    expect(bare).toEqual([]);
  });

  it('keeps files short enough to be read in one go', () => {
    const long = files
      .filter((file) => file.text.split('\n').length > 350)
      .map((file) => `${file.path}: split it by reason to change`);
    expect(long).toEqual([]);
  });

  it('keeps the journey itself short', () => {
    const { text } = files.find((file) => file.path === 'egress.ts') as SourceFile;
    const journey = text.slice(
      text.indexOf('async function journey'),
      text.indexOf('\n  }\n', text.indexOf('async function journey')),
    );
    expect(journey.split('\n').length).toBeLessThanOrEqual(30);
    expect(text.split('\n').length).toBeLessThanOrEqual(100);
  });

  it('has no drawer for odds and ends', () => {
    const drawers = files
      .filter((file) => /(?:^|[/-])(?:utils?|helpers?|managers?|common|misc|impl)(?:[/.-]|$)/.test(file.path))
      .map((file) => file.path);
    expect(drawers).toEqual([]);
  });

  it('has tests for every room, in a folder of its name', () => {
    const tests = new Set(readdirSync(resolve(SRC, '../test'), { recursive: true, encoding: 'utf8' }));
    const lonely = [...new Set(files.filter((file) => file.path.includes('/')).map((file) => file.room))].filter(
      (room) => ![...tests].some((path) => path.startsWith(`${room}/`)),
    );
    expect(lonely).toEqual([]);
  });
});
