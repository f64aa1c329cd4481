import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants } from 'node:fs';
import { mkdtemp, open, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createLogger } from '../../src/foundation/logger.ts';
import { auditLine } from '../../src/record/audit-line.ts';
import { openAuditSink } from '../../src/record/audit-sink.ts';
import { outcome } from './outcomes.ts';

const line = auditLine(outcome(), 0);
const text = `${JSON.stringify(line)}\n`;

let folder: string;
let logged: string[];
const log = createLogger({ level: 'debug', stream: { write: (written) => logged.push(written) } });

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'audit-sink-'));
  logged = [];
});
afterEach(() => rm(folder, { recursive: true, force: true }));

/** Resolves when the log has a line with these words. */
async function heard(words: string): Promise<void> {
  while (!logged.some((each) => each.includes(words))) await new Promise((resolve) => setImmediate(resolve));
}

describe('openAuditSink', () => {
  it('makes folders and a file of mode 0600, and writes exactly the keys of a line', async () => {
    const path = join(folder, 'a/b/audit.log');
    const sink = await openAuditSink(path, log);
    sink.write(line);
    sink.write(line);
    await sink.close();
    expect(await readFile(path, 'utf8')).toBe(text + text);
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    expect(logged).toEqual([]);
  });

  it('appends to what is there', async () => {
    const path = join(folder, 'audit.log');
    await writeFile(path, 'earlier\n');
    const sink = await openAuditSink(path);
    sink.write(line);
    await sink.close();
    expect(await readFile(path, 'utf8')).toBe(`earlier\n${text}`);
  });

  it('has everything in the file after a flush, however much was written', async () => {
    const path = join(folder, 'audit.log');
    const sink = await openAuditSink(path);
    for (let i = 0; i < 2000; i += 1) sink.write(line);
    await sink.flush();
    expect((await readFile(path, 'utf8')).length).toBe(text.length * 2000);
    await sink.close();
  });

  it('writes a lone line by itself, without a flush', async () => {
    const path = join(folder, 'audit.log');
    const sink = await openAuditSink(path);
    sink.write(line);
    const started = performance.now();
    while ((await readFile(path, 'utf8')) === '' && performance.now() - started < 5000)
      await new Promise((resolve) => setImmediate(resolve));
    expect(await readFile(path, 'utf8')).toBe(text);
    await sink.close();
  });

  it('goes on in a new file after a rotation', async () => {
    const path = join(folder, 'audit.log');
    const sink = await openAuditSink(path, log);
    sink.write(line);
    await sink.flush();
    await rename(path, `${path}.1`);
    await sink.reopen();
    sink.write(line);
    await sink.close();
    expect(await readFile(`${path}.1`, 'utf8')).toBe(text);
    expect(await readFile(path, 'utf8')).toBe(text);
    expect((await stat(path)).mode & 0o777).toBe(0o600);
  });

  it('keeps the old file and says so where the path cannot be opened anew', async () => {
    const path = join(folder, 'sub/audit.log');
    const sink = await openAuditSink(path, log);
    await rename(join(folder, 'sub'), join(folder, 'moved'));
    await writeFile(join(folder, 'sub'), 'in the way');
    await sink.reopen();
    await heard('could not be reopened');
    sink.write(line);
    await sink.flush();
    expect(await readFile(join(folder, 'moved/audit.log'), 'utf8')).toBe(text);
    await rm(join(folder, 'sub'));
    await sink.reopen();
    sink.write(line);
    await sink.close();
    expect(await readFile(path, 'utf8')).toBe(text);
    expect(logged).toHaveLength(1);
  });

  it('loses a line that comes after the end, and counts it', async () => {
    const sink = await openAuditSink(join(folder, 'audit.log'));
    await sink.close();
    sink.write(line);
    await sink.flush();
    await sink.reopen();
    await sink.close();
    expect(sink.lost).toBe(1);
  });

  it.each([
    { name: 'a folder', path: () => folder },
    { name: 'a path below a file', path: () => '/dev/null/audit.log' },
  ])('refuses $name with the path and the remedy', async ({ path }) => {
    await expect(openAuditSink(path())).rejects.toThrow(`cannot open the audit log "${path()}"`);
    await expect(openAuditSink(path())).rejects.toThrow('name a writable file in audit.path');
  });
});

describe('an audit sink that cannot write', () => {
  it('survives a full disk, bounded: counts what it had to drop, says so once, and closes', async () => {
    const sink = await openAuditSink('/dev/full', log);
    for (let i = 0; i < 20_000; i += 1) sink.write(line);
    await sink.flush();
    await heard('cannot be written');
    await sink.flush();
    const kept = 20_000 - sink.lost;
    expect(kept * text.length).toBeLessThanOrEqual(8 * 1024 * 1024);
    expect(sink.lost).toBeGreaterThan(0);
    await sink.close();
    expect(logged.filter((each) => each.includes('cannot be written'))).toHaveLength(1);
    expect(logged.join('')).toContain('ENOSPC');
    expect(JSON.parse(logged.at(-1) ?? '')).toMatchObject({ message: 'lines of the audit log were lost', lost: sink.lost });
  });

  it('survives a pipe whose reader has gone', async () => {
    const path = join(folder, 'pipe');
    await once(spawn('mkfifo', [path]), 'exit');
    const reader = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
    const sink = await openAuditSink(path, log);
    await reader.close();
    sink.write(line);
    await heard('EPIPE');
    sink.write(line);
    await sink.flush();
    await sink.close();
    expect(sink.lost).toBe(1);
  });
});
