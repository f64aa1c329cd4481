import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  appendFileSync,
  chmodSync,
  closeSync,
  constants,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  readSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { ModuleKind, ScriptTarget, transpileModule } from 'typescript';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { evidenceFor } from '../../src/hooks/failure-policy.ts';
import { appendTo, createNoLedger, openHookLedger, spoolPath } from '../../src/hooks/ledger.ts';
import type { HookLedgerOptions } from '../../src/hooks/ledger.ts';
import { line } from './samples.ts';

let home: string;
let sink: string;
let spool: string;
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'hook-ledger-'));
  mkdirSync(join(home, 'log'));
  sink = join(home, 'log', 'hooks.ndjson');
  spool = join(home, 'state', 'spool.ndjson');
});
afterEach(() => rmSync(home, { recursive: true, force: true }));

const open = (over: Partial<HookLedgerOptions> = {}) => openHookLedger({ path: sink, spool, pauseMs: 1, ...over });

interface Written {
  readonly kind: string;
  readonly action_id?: string;
  readonly lost?: number;
}

function read(path: string): readonly Written[] {
  const text = readFileSync(path, 'utf8');
  expect(text === '' || text.endsWith('\n')).toBe(true);
  return text
    .split('\n')
    .filter((each) => each !== '')
    .map((each) => JSON.parse(each) as Written);
}

const ids = (path: string = sink): (string | undefined)[] => read(path).map((each) => each.action_id);
const lost = (): (number | undefined)[] => read(sink).flatMap((each) => (each.kind === 'hook_lost' ? [each.lost] : []));

function spooled(): readonly string[] {
  try {
    return readdirSync(join(home, 'state'));
  } catch {
    return [];
  }
}

describe('a ledger whose file is there', () => {
  it('appends lines in order, one JSON object each, in a file of mode 0600', async () => {
    appendFileSync(sink, `${JSON.stringify(line('earlier'))}\n`);
    rmSync(sink);
    const ledger = open();
    expect(await ledger.write([line('a'), line('b')])).toBe('written');
    expect(await ledger.write([line('c')])).toBe('written');
    expect(read(sink)).toEqual([line('a'), line('b'), line('c')]);
    expect(statSync(sink).mode & 0o777).toBe(0o600);
    expect(spooled()).toEqual([]);
  });

  it('keeps what stands in the file', async () => {
    appendFileSync(sink, `${JSON.stringify(line('earlier'))}\n`);
    await open().write([line('a')]);
    expect(ids()).toEqual(['earlier', 'a']);
  });

  it('keeps the order of many concurrent writes', async () => {
    const ledger = open();
    const all = Array.from({ length: 500 }, (_, index) => `a${index}`);
    const ends = await Promise.all(all.map((id) => ledger.write([line(id)])));
    expect(new Set(ends)).toEqual(new Set(['written']));
    expect(ids()).toEqual(all);
  });

  it('has nothing to do for no lines', async () => {
    expect(await open().write([])).toBe('written');
    expect(readdirSync(join(home, 'log'))).toEqual([]);
  });

  it('gives a line up that cannot be JSON, says so, and counts it', async () => {
    const ledger = open();
    expect(await ledger.write([{ ...line('a'), arguments: { big: 1n } }])).toBe('lost');
    expect(await ledger.write([line('b')])).toBe('written');
    expect(lost()).toEqual([1]);
  });
});

describe('a ledger whose file is away', () => {
  const away: { name: string; path: () => string; unlessRoot?: boolean }[] = [
    { name: 'its folder is missing', path: () => join(home, 'gone', 'hooks.ndjson') },
    { name: 'it is a folder', path: () => join(home, 'log') },
    { name: 'its folder is a file', path: () => (writeFileSync(join(home, 'file'), ''), join(home, 'file', 'hooks.ndjson')) },
    { name: 'the disk is full', path: () => '/dev/full' },
    { name: 'it is a pipe that nobody reads', path: () => (execFileSync('mkfifo', [join(home, 'pipe')]), join(home, 'pipe')) },
    { name: 'it points at itself', path: () => (symlinkSync('loop', join(home, 'loop')), join(home, 'loop')) },
    {
      name: 'it may not be written',
      path: () => (writeFileSync(sink, ''), chmodSync(sink, 0o400), sink),
      unlessRoot: true,
    },
  ];
  it.each(away.filter(({ unlessRoot }) => unlessRoot !== true || process.getuid?.() !== 0))(
    'keeps lines where $name',
    async ({ path }) => {
      const ledger = open({ path: path() });
      expect(await ledger.write([line('a')])).toBe('kept');
      expect(await ledger.write([line('b')])).toBe('kept');
      const files = spooled();
      expect(files).toHaveLength(1);
      const kept = join(home, 'state', files[0] ?? '');
      expect(ids(kept)).toEqual(['a', 'b']);
      expect([statSync(kept).mode & 0o777, statSync(join(home, 'state')).mode & 0o777]).toEqual([0o600, 0o700]);
    },
  );

  it('does not make the folder of its file', async () => {
    await open({ path: join(home, 'gone', 'hooks.ndjson') }).write([line('a')]);
    expect(readdirSync(home)).not.toContain('gone');
  });

  it('tries a bounded number of times, with a pause that grows', async () => {
    const begun = performance.now();
    expect(await open({ path: join(home, 'log'), attempts: 3, pauseMs: 20 }).write([line('a')])).toBe('kept');
    expect(performance.now() - begun).toBeGreaterThanOrEqual(58);
    expect(performance.now() - begun).toBeLessThan(1_000);
  });

  it('writes what a short absence held up', async () => {
    const ledger = open({ path: join(home, 'late', 'hooks.ndjson'), attempts: 50, pauseMs: 1 });
    const end = ledger.write([line('a')]);
    mkdirSync(join(home, 'late'));
    expect(await end).toBe('written');
    expect(spooled()).toEqual([]);
  });

  it('moves kept lines over before the next ones, from whoever kept them', async () => {
    mkdirSync(sink);
    expect(await open().write([line('a'), line('b')])).toBe('kept');
    rmSync(sink, { recursive: true });
    expect(await open().write([line('c')])).toBe('written');
    expect(ids()).toEqual(['a', 'b', 'c']);
    expect(spooled()).toEqual([]);
  });

  it('gives each of several concurrent writes its own answer', async () => {
    mkdirSync(sink);
    const size = JSON.stringify(line('a')).length + 1;
    const ledger = open({ maxBytes: size * 2 });
    const ends = await Promise.all(['a', 'b', 'c'].map((id) => ledger.write([line(id)])));
    expect(ends).toEqual(['kept', 'kept', 'lost']);
  });
});

describe('a spool that is full', () => {
  const size = JSON.stringify(line('a')).length + 1;

  it.each([
    {
      name: 'one byte too small for the second line',
      maxBytes: 2 * size - 1,
      ends: ['kept', 'lost', 'lost'],
      moved: ['a'],
      gone: 2,
    },
    { name: 'exactly large enough for two', maxBytes: 2 * size, ends: ['kept', 'kept', 'lost'], moved: ['a', 'b'], gone: 1 },
    { name: 'of no size', maxBytes: 0, ends: ['lost', 'lost', 'lost'], moved: [], gone: 3 },
  ])('$name: the rest is lost, and its number stands in the file later', async ({ maxBytes, ends, moved, gone }) => {
    mkdirSync(sink);
    const found = [];
    // Each by a runner of its own, as the command is: what was lost must outlive the process.
    for (const id of ['a', 'b', 'c']) found.push(await open({ maxBytes }).write([line(id)]));
    expect(found).toEqual(ends);
    rmSync(sink, { recursive: true });
    expect(await open({ maxBytes }).write([line('d')])).toBe('written');
    expect(ids()).toEqual([...moved, undefined, 'd']);
    expect(lost()).toEqual([gone]);
    await open({ maxBytes }).write([line('e')]);
    expect(lost()).toEqual([gone]);
  });

  it('counts in the process what not even the spool can be told', async () => {
    mkdirSync(sink);
    writeFileSync(join(home, 'state'), 'in the way');
    const ledger = open();
    expect(await ledger.write([line('a'), line('b')])).toBe('lost');
    rmSync(sink, { recursive: true });
    expect(await ledger.write([line('c')])).toBe('written');
    expect(lost()).toEqual([2]);
    await ledger.write([line('d')]);
    expect(lost()).toEqual([2]);
  });
});

describe('a sink that takes a part and no more', () => {
  it('gets every line whole once it takes again, behind the fragment of the one it was torn in', async () => {
    const pipe = join(home, 'pipe');
    execFileSync('mkfifo', [pipe]);
    const reader = openSync(pipe, constants.O_RDONLY | constants.O_NONBLOCK);
    const drain = (): string => {
      const room = Buffer.alloc(1024 * 1024);
      let text = '';
      for (;;) {
        try {
          const count = readSync(reader, room);
          if (count === 0) return text;
          text += room.toString('utf8', 0, count);
        } catch {
          return text; // EAGAIN: empty, and a writer is still there
        }
      }
    };
    const all = Array.from({ length: 300 }, (_, index) => line(`a${index}`));
    expect(JSON.stringify(all).length).toBeGreaterThan(64 * 1024);
    expect(await open({ path: pipe }).write(all)).toBe('kept');
    const before = drain();
    expect(await open({ path: pipe }).write([line('last')])).toBe('written');
    const text = before + drain();
    closeSync(reader);
    const whole = text.split('\n').flatMap((each) => {
      try {
        return [(JSON.parse(each) as Written).action_id];
      } catch {
        return [];
      }
    });
    expect(before.endsWith('\n')).toBe(false);
    expect(whole).toEqual([...all.map((each) => each.action_id), 'last']);
  });
});

describe('what others left behind', () => {
  const keepOne = async (): Promise<string> => {
    mkdirSync(sink);
    await open().write([line('a')]);
    rmSync(sink, { recursive: true });
    return join(home, 'state', spooled()[0] ?? '');
  };

  it('is left to an owner that has just taken it', async () => {
    const kept = await keepOne();
    const owned = `${kept}.1-1-abc`;
    execFileSync('mv', [kept, owned]);
    await open().write([line('b')]);
    expect(ids()).toEqual(['b']);
    expect(spooled()).toHaveLength(1);
  });

  it('does not mind other files beside the spool', async () => {
    const kept = await keepOne();
    for (const name of ['notes.txt', 'spool.ndjson', 'spool.ndjson.a.b.c', 'spool.ndjson.BAK'])
      writeFileSync(join(home, 'state', name), 'x\n');
    expect(kept).toContain('spool.ndjson.');
    await open().write([line('b')]);
    expect(ids()).toEqual(['a', 'b']);
    expect([...spooled()].sort()).toEqual(['notes.txt', 'spool.ndjson', 'spool.ndjson.BAK', 'spool.ndjson.a.b.c']);
  });
});

describe('several runners at once', () => {
  /** The ledger as a program of its own: appends lines one by one, each with a ledger of its own half of the time. */
  function program(): string {
    const folder = join(home, 'js');
    mkdirSync(folder);
    writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
    for (const name of ['ledger', 'spool']) {
      const source = readFileSync(resolve(import.meta.dirname, `../../src/hooks/${name}.ts`), 'utf8');
      const compilerOptions = { module: ModuleKind.ESNext, target: ScriptTarget.ES2022, rewriteRelativeImportExtensions: true };
      writeFileSync(join(folder, `${name}.js`), transpileModule(source, { compilerOptions }).outputText);
    }
    writeFileSync(
      join(folder, 'main.js'),
      `import { openHookLedger } from './ledger.js';
       const [path, spool, name, count] = process.argv.slice(2);
       const fresh = () => openHookLedger({ path, spool, attempts: 2, pauseMs: 1 });
       let ledger = fresh();
       const ends = {};
       for (let i = 0; i < Number(count); i += 1) {
         if (i % 2) ledger = fresh();
         const end = await ledger.write([{ action_id: name + '-' + i }]);
         ends[end] = (ends[end] ?? 0) + 1;
       }
       process.stdout.write(JSON.stringify(ends));`,
    );
    return join(folder, 'main.js');
  }

  it('lose and double no line while the file comes and goes', async () => {
    const main = program();
    const runners = ['p', 'q', 'r', 's'].map((name) => {
      const child = spawn(process.execPath, [main, sink, spool, name, '150'], { stdio: ['ignore', 'pipe', 'inherit'] });
      let text = '';
      child.stdout.setEncoding('utf8').on('data', (chunk) => (text += String(chunk)));
      return once(child, 'close').then(() => JSON.parse(text) as Record<string, number>);
    });
    // The file's folder is moved away and back for as long as they run.
    let running = true;
    const done = Promise.all(runners).finally(() => (running = false));
    let moves = 0;
    while (running) {
      execFileSync('mv', [join(home, 'log'), join(home, 'away')]);
      await new Promise((next) => setImmediate(next));
      execFileSync('mv', [join(home, 'away'), join(home, 'log')]);
      moves += 1;
    }
    const ends = await done;
    expect(moves).toBeGreaterThan(3);
    expect(ends.every((end) => end['lost'] === undefined)).toBe(true);
    expect(ends.some((end) => (end['kept'] ?? 0) > 0)).toBe(true);
    await open().write([line('last')]);
    const expected = ['p', 'q', 'r', 's'].flatMap((name) => Array.from({ length: 150 }, (_, index) => `${name}-${index}`));
    expect([...ids()].sort()).toEqual([...expected, 'last'].sort());
    expect(spooled()).toEqual([]);
  }, 60_000);
});

describe('appendTo', () => {
  /** A file on a disk with room for so many bytes. */
  const disk = (room: number): { readonly text: () => string; readonly file: Parameters<typeof appendTo>[0] } => {
    let taken = Buffer.alloc(0);
    const write = async (bytes: Buffer, offset: number, length: number): Promise<{ bytesWritten: number; buffer: Buffer }> => {
      const some = bytes.subarray(offset, offset + Math.min(length, room - taken.length));
      if (some.length === 0) throw Object.assign(new Error('full'), { code: 'ENOSPC' });
      taken = Buffer.concat([taken, some]);
      return { bytesWritten: some.length, buffer: bytes };
    };
    return { text: () => taken.toString(), file: { write } as Parameters<typeof appendTo>[0] };
  };

  it.each([
    { room: 0, done: 0 },
    { room: 4, done: 4 },
    { room: 9, done: 9 },
    { room: 100, done: 9 },
  ])('says how much a disk with room for $room bytes has taken', async ({ room, done }) => {
    const { file, text } = disk(room);
    expect(await appendTo(file, Buffer.from('123456789'))).toBe(done);
    expect(text()).toBe('123456789'.slice(0, done));
  });
});

describe('createNoLedger', () => {
  it('gives no evidence, so that a tool that requires it does not run', async () => {
    const end = await createNoLedger().write([line('a')]);
    expect([evidenceFor('high')?.(end)?.decision, evidenceFor('reversible')?.(end)?.decision]).toEqual(['deny', 'review']);
  });
});

describe('spoolPath', () => {
  it('lies in the state folder, each file apart', () => {
    const path = spoolPath('/var/log/hooks.ndjson', { XDG_STATE_HOME: '/state' });
    expect(path).toMatch(/^\/state\/sallyport\/hook-spool-[0-9a-f]{12}\.ndjson$/);
    expect(spoolPath('/var/log/other.ndjson', { XDG_STATE_HOME: '/state' })).not.toBe(path);
    expect(spoolPath('/var/log/../log/hooks.ndjson', { XDG_STATE_HOME: '/state' })).toBe(path);
  });

  it.each([{}, { XDG_STATE_HOME: '' }, { XDG_STATE_HOME: 'relative' }])('is below the home folder for %o', (env) => {
    expect(spoolPath('/a', env)).toContain(join(homedir(), '.local', 'state', 'sallyport', 'hook-spool-'));
  });
});
