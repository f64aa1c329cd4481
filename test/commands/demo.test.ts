// Twin of src/commands/demo.ts and the files below src/commands/demo.
import { readdirSync } from 'node:fs';
import { describe, expect, it, onTestFinished } from 'vitest';
import { demo } from '../../src/commands/demo.ts';
import { fetchText, sendThrough } from '../../src/commands/demo/client.ts';
import { play } from '../../src/commands/demo/play.ts';
import type { Played } from '../../src/commands/demo/play.ts';
import { HOSTS, withStage } from '../../src/commands/demo/stage.ts';
import { capture, json, temporaryFolder } from './rig.ts';

/** A folder for temporary files that no other demo on this machine uses. */
function ownTemporaryFolder(): string {
  const folder = temporaryFolder();
  const before = process.env['TMPDIR'];
  process.env['TMPDIR'] = folder;
  onTestFinished(() => {
    if (before === undefined) delete process.env['TMPDIR'];
    else process.env['TMPDIR'] = before;
  });
  return folder;
}

describe('the demo', () => {
  it('holds its promises in under ten seconds and leaves nothing behind', async () => {
    const folder = ownTemporaryFolder();
    const captured = capture('.');
    expect(await demo({ json: true }, captured.context)).toBe(0);
    const shown = json(captured) as unknown as Played & { duration_ms: number };
    expect(shown.scenes.map(({ got }) => got)).toEqual([
      '200',
      '403 not_allowlisted',
      '403 address_denied',
      '403 method_denied',
      '403 plaintext_credential',
      '200',
    ]);
    expect(shown.scenes.map(({ upstream_saw: saw }) => saw)).toEqual([
      { method: 'GET', path: '/items', authorization: 'Bearer demo-********' },
      null,
      null,
      null,
      null,
      { method: 'POST', path: '/events', authorization: 'Bearer demo-********' },
    ]);
    expect(shown.ledger).toHaveLength(6);
    expect(shown.ledger.map((line) => line['action_id'] ?? null)).toEqual([
      ...[null, null, null, null, null],
      expect.stringMatching(/^act_[0-9a-f]{16}$/),
    ]);
    expect(
      shown.metrics.some((line) => line.startsWith('sallyport_requests_total{decision="refuse",reason="address_denied"')),
    ).toBe(true);
    expect(shown.promises.every(({ held }) => held)).toBe(true);
    expect(shown.duration_ms).toBeLessThan(10_000);
    expect(readdirSync(folder)).toEqual([]);
  });

  it('shows the same in a pipe as on a terminal, without a secret', async () => {
    const captured = capture('.');
    expect(await demo({}, captured.context)).toBe(0);
    expect(captured.out()).toMatch(/leads to loopback +│ GET https:\/\/inside\.demo\.test\/ +│ 403 address_denied +│ nothing/);
    expect(captured.out()).toMatch(/a hook posts its event +│ POST https:\/\/hooks\.demo\.test\/events +│ 200 +│ POST \/events/);
    expect(captured.out()).toMatch(/sallyport_requests_total\{decision="allow"/);
    expect(captured.out()).toMatch(/all as promised, in \d+\.\d s/);
    expect(captured.out()).not.toMatch(/demo-[0-9a-f]{32}/);
  });

  it('says which promise is broken where something else reached the upstream', async () => {
    const played = await withStage('0', async (stage) => {
      await fetchText(`http://127.0.0.1:${stage.upstream.plainPort}/behind-the-door`);
      return play(stage);
    });
    expect(played.held).toBe(false);
    expect(played.promises.filter(({ held }) => !held).map(({ promise }) => promise)).toEqual([
      'only the allowed request and the event reached the upstream',
    ]);
  });

  it('counts an exchange that nobody promised', async () => {
    const played = await withStage('0', async (stage) => {
      await sendThrough({ proxy: stage.app.proxy, ca: stage.ca, method: 'GET', url: `http://${HOSTS.stranger}/` });
      return play(stage);
    });
    expect(played.promises.filter(({ held }) => !held).map(({ promise }) => promise)).toEqual([
      'the ledger has one line for each request',
      'the metrics count each request once',
    ]);
  });

  it('takes its folder away where the play breaks off', async () => {
    const folder = ownTemporaryFolder();
    await expect(withStage('0', () => Promise.reject(new Error('the play broke off')))).rejects.toThrow('the play broke off');
    expect(readdirSync(folder)).toEqual([]);
  });
});
