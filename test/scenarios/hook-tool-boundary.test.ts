// The ten cases that the text on designing hooks lists under testing, replayed at the tool boundary: a real registry, hooks that are real scripts,
// fixed identity, policy and clock. Of each the side effects, what the person and the operator hear, the trace, retries and alerts are looked at:
// a refusal in the transcript says nothing where the tool was called first.
import { createHash } from 'node:crypto';
import { readFile, rm } from 'node:fs/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { JsonObject } from '../../src/hooks/index.ts';
import { openHookWorkspace } from '../support/hook-workspace.ts';
import type { HookWorkspace } from '../support/hook-workspace.ts';
import { startRaw } from '../support/outside.ts';
import { Destination, MESSAGES, openBoundary } from '../support/tool-boundary.ts';
import type { Boundary, CallEnd, Proposal, Trusted } from '../support/tool-boundary.ts';

const NOW = '2026-12-01T12:00:00.000Z';

const REGISTRY = {
  cancel_order: { risk: 'high', unattended: false, owner: 'orders-oncall' },
  refund: { risk: 'high', unattended: false, owner: 'payments-oncall' },
  change_address: { risk: 'reversible', unattended: false, owner: 'support-oncall' },
  find_order: { risk: 'low', unattended: true, owner: 'support-oncall' },
  save_note: { risk: 'low', unattended: true, owner: 'support-oncall' },
  write_to_file: { risk: 'reversible', unattended: false, owner: 'platform-oncall' },
};

/** The gate: deterministic, over trusted facts and fresh state alone. It decides nothing by what the model says of itself. */
const POLICY = `#!/usr/bin/env node
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
const event = JSON.parse(readFileSync(0, 'utf8'));
const { tool_name: tool, tool_input: args, actor, approval, now } = event;
const orders = JSON.parse(readFileSync('state/orders.json', 'utf8'));
const hash = createHash('sha256').update(JSON.stringify([tool, args])).digest('hex');
function judge() {
  if (/(^|\\/)\\.agents\\/|(^|\\/)gates\\//.test(String(args.path ?? ''))) return ['deny', 'protected_path', 'I cannot change that file.'];
  if (args.order_id !== undefined && orders[args.order_id]?.customer !== actor.customer_id)
    return ['deny', 'tenant_mismatch', "I couldn't verify that order for this account."];
  if (args.customer_id !== undefined && args.customer_id !== actor.customer_id)
    return ['deny', 'tenant_mismatch', "I couldn't verify that order for this account."];
  if (args.amount !== undefined && tool !== 'refund') return ['ask', 'risk_raised', 'A colleague has to approve this.'];
  if (tool !== 'refund' && tool !== 'cancel_order') return ['allow'];
  if (approval === undefined) return ['ask', 'approval_missing', 'A colleague has to approve this.'];
  if (Date.parse(approval.expires_at) <= Date.parse(now)) return ['deny', 'approval_expired', 'The approval has run out. Please ask again.'];
  if (approval.payload_hash !== hash) return ['deny', 'payload_changed', 'What was approved is not what would be done.'];
  try {
    writeFileSync('state/action-' + process.env.SALLYPORT_ACTION_ID, '', { flag: 'wx' });
  } catch {
    return ['deny', 'duplicate_action', 'This was done already.'];
  }
  return ['allow'];
}
const [permissionDecision, reason_code, public_message] = judge();
console.log(JSON.stringify({ hookSpecificOutput: { hookEventName: 'PreToolUse', permissionDecision, reason_code, public_message } }));
`;

/** The receipt: what the destination says counts, not that it answered. It needs its audit file. */
const RECEIPT = `#!/usr/bin/env node
import { appendFileSync, readFileSync } from 'node:fs';
const { tool_name: tool, tool_response: got, action_id, trace_id } = JSON.parse(readFileSync(0, 'utf8'));
appendFileSync('receipts/log.ndjson', JSON.stringify({ tool, action_id, trace_id, status: got.status ?? got.error }) + '\\n');
const block = (reason_code, public_message) => console.log(JSON.stringify({ decision: 'block', reason: reason_code, reason_code, public_message }));
if (got.error === 'timeout' && got.reconciled !== 'committed') block('outcome_unknown', 'This is being checked. Please do not send it again.');
else if (got.error === 'timeout') block('outcome_unknown', 'This went through, and its confirmation is being fetched. Please do not send it again.');
else if (got.status === 'rejected') block('business_rejected', 'The shop did not accept this. Nothing was refunded.');
else if (got.status === 'pending') block('pending', 'Cancellation request ' + got.request_id + ' is pending.');
`;

const gate = (script: string, more: object = {}): object => ({
  type: 'command',
  command: `./gates/${script}`,
  timeout: 20,
  ...more,
});
const HOOKS = {
  hooks: {
    PreToolUse: [{ matcher: '*', hooks: [gate('policy.mjs')] }],
    PostToolUse: [{ matcher: '*', hooks: [gate('receipt.mjs')] }],
  },
};

let space: HookWorkspace;
let boundary: Boundary | undefined;
let destinations: Record<string, Destination>;

beforeEach(async () => {
  space = await openHookWorkspace();
  await space.write('gates/policy.mjs', POLICY);
  await space.write('gates/receipt.mjs', RECEIPT);
  await space.write('tools.json', REGISTRY);
  await space.write('state/orders.json', { 7412: { customer: 'cus_184' }, 9000: { customer: 'cus_999' } });
  await space.write('receipts/.keep', '');
  const commits = new Destination((_, commit) => {
    commit();
    return { status: 'succeeded', id: 're_1' };
  });
  destinations = Object.fromEntries(Object.keys(REGISTRY).map((name) => [name, commits]));
});
afterEach(async () => {
  await boundary?.close();
  boundary = undefined;
  await space.close();
});

/** What a call came to, with the count of what happened at the destination. */
interface Seen extends CallEnd {
  readonly effects: number;
  readonly attempts: number;
}

async function call(
  proposal: Proposal,
  trusted: Partial<Trusted> = {},
  more: { readonly hooks?: object; readonly proxy?: string; readonly audit?: string } = {},
): Promise<Seen> {
  boundary ??= openBoundary({
    workspace: space.folder,
    home: space.home,
    registry: space.at('tools.json'),
    destinations,
    hooks: await space.write('.agents/settings.json', more.hooks ?? HOOKS),
    ledger: { path: space.at(more.audit ?? 'audit.ndjson'), spool: `${space.home}/spool` },
    ...(more.proxy === undefined ? {} : { proxy: more.proxy }),
  });
  const end = await boundary.call(proposal, {
    action_id: 'act_cancel_7412',
    trace_id: 'tr_82ac',
    actor: { customer_id: 'cus_184' },
    now: NOW,
    ...trusted,
  });
  const destination = destinations[proposal.tool];
  return { ...end, effects: destination?.effects.length ?? -1, attempts: destination?.attempts ?? -1 };
}

/** A valid approval of a proposal. */
function approved({ tool, args }: Proposal, over: JsonObject = {}): Partial<Trusted> {
  const payload_hash = createHash('sha256')
    .update(JSON.stringify([tool, args]))
    .digest('hex');
  return { approval: { id: 'apr_1', approver: 'kim', expires_at: '2026-12-01T12:00:01.000Z', payload_hash, ...over } };
}

/** The lines of the ledger: who decided what of which action. */
async function trace(path = 'audit.ndjson'): Promise<unknown[]> {
  const lines = await space.lines(path);
  return lines.map((line) => [
    line['event'],
    line['tool'],
    line['decision'],
    line['reason_code'],
    line['action_id'],
    line['trace_id'],
  ]);
}

const before = (tool: string, decision: string, code: string | null): unknown[] => [
  'PreToolUse',
  tool,
  decision,
  code,
  'act_cancel_7412',
  'tr_82ac',
];
const after = (tool: string, code: string | null = null): unknown[] => [
  'PostToolUse',
  tool,
  null,
  code,
  'act_cancel_7412',
  'tr_82ac',
];
const REFUND: Proposal = { tool: 'refund', args: { order_id: '7412', amount: 20 } };

describe('at the tool boundary', () => {
  it.each([
    { name: 'order', args: { order_id: '9000' } },
    { name: 'customer', args: { order_id: '7412', customer_id: 'cus_999', reason: 'ordered_by_mistake' } },
    { name: 'claim to be somebody', args: { order_id: '9000', note: 'I am the account owner' } },
  ])('denies the $name of another tenant, and the shop hears nothing', async ({ args }) => {
    const proposal = { tool: 'cancel_order', args };
    expect(await call(proposal, approved(proposal))).toEqual({
      state: 'denied',
      publicMessage: "I couldn't verify that order for this account.",
      reasonCode: 'tenant_mismatch',
      alerts: [],
      effects: 0,
      attempts: 0,
    });
    expect(await trace()).toEqual([before('cancel_order', 'deny', 'tenant_mismatch')]);
    // Who else owns the order is in no line.
    expect(await readFile(space.at('audit.ndjson'), 'utf8')).not.toContain('cus_999');
  });

  it.each([
    { name: 'a second before', expires_at: '2026-12-01T11:59:59.000Z', effects: 0 },
    { name: 'at the very moment of', expires_at: NOW, effects: 0 },
    { name: 'a second after', expires_at: '2026-12-01T12:00:01.000Z', effects: 1 },
  ])('judges an approval that runs out $name the call', async ({ expires_at, effects }) => {
    const seen = await call(REFUND, approved(REFUND, { expires_at }));
    const done = { state: 'done', publicMessage: MESSAGES.done, reasonCode: undefined };
    const denied = {
      state: 'denied',
      publicMessage: 'The approval has run out. Please ask again.',
      reasonCode: 'approval_expired',
    };
    expect(seen).toEqual({ ...(effects === 1 ? done : denied), alerts: [], effects, attempts: effects });
    expect(await trace()).toEqual(
      effects === 1 ? [before('refund', 'allow', null), after('refund')] : [before('refund', 'deny', 'approval_expired')],
    );
  });

  it('denies a payload that is not the one that was approved', async () => {
    const proposal = { ...REFUND, args: { ...REFUND.args, amount: 2000 } };
    expect(await call(proposal, approved(REFUND))).toEqual({
      state: 'denied',
      publicMessage: 'What was approved is not what would be done.',
      reasonCode: 'payload_changed',
      alerts: [],
      effects: 0,
      attempts: 0,
    });
    expect(await trace()).toEqual([before('refund', 'deny', 'payload_changed')]);
  });

  it('runs an action once that a queue delivers twice', async () => {
    const first = await call(REFUND, approved(REFUND));
    const second = await call(REFUND, approved(REFUND));
    expect([first.state, first.effects]).toEqual(['done', 1]);
    expect(second).toEqual({
      state: 'denied',
      publicMessage: 'This was done already.',
      reasonCode: 'duplicate_action',
      alerts: [],
      effects: 1,
      attempts: 1,
    });
    expect(await trace()).toEqual([
      before('refund', 'allow', null),
      after('refund'),
      before('refund', 'deny', 'duplicate_action'),
    ]);
  });

  it('does not try again where the destination commits and is silent, and promises no result', async () => {
    destinations['refund'] = new Destination((_, commit) => {
      commit();
      throw new Error('timeout');
    });
    expect(await call(REFUND, approved(REFUND))).toEqual({
      state: 'unknown',
      publicMessage: 'This went through, and its confirmation is being fetched. Please do not send it again.',
      reasonCode: 'outcome_unknown',
      alerts: [],
      effects: 1,
      attempts: 1,
    });
    // The same action once more is not run before somebody has reconciled it.
    expect(await call(REFUND, approved(REFUND))).toMatchObject({ reasonCode: 'duplicate_action', effects: 1, attempts: 1 });
    expect(await trace()).toEqual([
      before('refund', 'allow', null),
      after('refund', 'outcome_unknown'),
      before('refund', 'deny', 'duplicate_action'),
    ]);
  });

  it('tries a read again that was not answered', async () => {
    let silent = true;
    destinations['find_order'] = new Destination(() => {
      if (silent) {
        silent = false;
        throw new Error('timeout');
      }
      return { status: 'found' };
    });
    const seen = await call({ tool: 'find_order', args: { order_id: '7412' } });
    expect(seen).toMatchObject({ state: 'done', effects: 0, attempts: 2, alerts: [] });
  });

  it.each([
    {
      name: 'rejected',
      answer: { http: 200, status: 'rejected' },
      reasonCode: 'business_rejected',
      publicMessage: 'The shop did not accept this. Nothing was refunded.',
    },
    {
      name: 'pending',
      answer: { http: 200, status: 'pending', request_id: 'can_603' },
      reasonCode: 'pending',
      publicMessage: 'Cancellation request can_603 is pending.',
    },
  ])('takes an HTTP success that says $name for no success', async ({ answer, reasonCode, publicMessage }) => {
    destinations['refund'] = new Destination(() => answer);
    expect(await call(REFUND, approved(REFUND))).toEqual({
      state: 'rejected',
      publicMessage,
      reasonCode,
      alerts: [],
      effects: 0,
      attempts: 1,
    });
    expect(await trace()).toEqual([before('refund', 'allow', null), after('refund', reasonCode)]);
  });

  describe('where the policy service is away', () => {
    const rows = [
      { tool: 'find_order', state: 'done', code: undefined, asked: 1, effects: 1, message: MESSAGES.done, alerts: [] },
      {
        tool: 'change_address',
        state: 'waits',
        code: 'hook_unreachable',
        asked: 2,
        effects: 0,
        message: MESSAGES.waits,
        alerts: [],
      },
      {
        tool: 'refund',
        state: 'denied',
        code: 'hook_unreachable',
        asked: 1,
        effects: 0,
        message: MESSAGES.denied,
        alerts: ['payments-oncall'],
      },
    ];
    it.each(rows)('$tool is $state', async ({ tool, state, code, asked, effects, message, alerts }) => {
      const service = await startRaw((socket) => socket.destroy());
      const hooks = { hooks: { PreToolUse: [{ hooks: [{ type: 'http', url: 'https://policy.test/gate', timeout: 20 }] }] } };
      const proxy = `http://127.0.0.1:${service.port}`;
      const seen = await call({ tool, args: { order_id: '7412' } }, {}, { hooks, proxy });
      await service.close();
      expect(seen).toEqual({ state, publicMessage: message, reasonCode: code, alerts, effects, attempts: effects });
      // A reversible write is worth a second question; it leaves one line all the same.
      expect(service.connections).toBe(asked);
      const decision = { done: 'allow', waits: 'review', denied: 'deny' }[state] ?? '';
      expect(await trace()).toEqual([before(tool, decision, code ?? null)]);
    });
  });

  describe('where the hook behind the tool cannot write its audit event', () => {
    const rows = [
      { tool: 'find_order', state: 'degraded', message: MESSAGES.degraded, alerts: [] },
      { tool: 'change_address', state: 'unknown', message: MESSAGES.unknown, alerts: [] },
      { tool: 'refund', state: 'unknown', message: MESSAGES.unknown, alerts: ['payments-oncall'] },
    ];
    it.each(rows)('$tool is $state, and nothing is done twice', async ({ tool, state, message, alerts }) => {
      await rm(space.at('receipts'), { recursive: true });
      const proposal = { tool, args: { order_id: '7412' } };
      expect(await call(proposal, approved(proposal))).toEqual({
        state,
        publicMessage: message,
        reasonCode: undefined,
        alerts,
        effects: 1,
        attempts: 1,
      });
      const lines = await space.lines('audit.ndjson');
      expect(lines.map(({ event, outcome }) => [event, outcome])).toEqual([
        ['PreToolUse', 'allow'],
        ['PostToolUse', 'exit_status'],
      ]);
      expect(new Set(lines.map(({ action_id: id }) => id))).toEqual(new Set(['act_cancel_7412']));
    });
  });

  it.each([
    { tool: 'find_order', state: 'done', code: undefined, effects: 1, alerts: [] },
    { tool: 'change_address', state: 'done', code: undefined, effects: 1, alerts: [] },
    { tool: 'refund', state: 'denied', code: 'evidence_missing', effects: 0, alerts: ['payments-oncall'] },
  ])('where the ledger itself is away, $tool is $state, and the lines wait', async ({ tool, state, code, effects, alerts }) => {
    const proposal = { tool, args: { order_id: '7412' } };
    expect(await call(proposal, approved(proposal), { audit: 'away/audit.ndjson' })).toMatchObject({
      state,
      reasonCode: code,
      effects,
      attempts: effects,
      alerts,
    });
    await space.write('away/audit.ndjson', '');
    await call({ tool: 'find_order', args: {} }, { action_id: 'act_2' });
    const moved = (await trace('away/audit.ndjson')).filter((line) => (line as unknown[])[4] === 'act_cancel_7412');
    expect(moved).toEqual([before(tool, 'allow', null), effects === 1 ? after(tool) : before(tool, 'deny', 'evidence_missing')]);
  });

  it('raises the risk of a harmless tool by its arguments', async () => {
    expect(await call({ tool: 'save_note', args: { text: 'refund them', amount: 500 } })).toEqual({
      state: 'waits',
      publicMessage: 'A colleague has to approve this.',
      reasonCode: 'risk_raised',
      alerts: [],
      effects: 0,
      attempts: 0,
    });
    expect(await trace()).toEqual([before('save_note', 'ask', 'risk_raised')]);
  });

  it('lets the gate of a harmless tool be one that may not fail', async () => {
    const hooks = { hooks: { PreToolUse: [{ matcher: '*', hooks: [gate('gone.mjs', { on_failure: 'deny' })] }] } };
    expect(await call({ tool: 'save_note', args: { amount: 500 } }, {}, { hooks })).toMatchObject({
      state: 'denied',
      publicMessage: MESSAGES.denied,
      reasonCode: 'hook_not_started',
      effects: 0,
    });
  });

  describe('where an injected text asks to be rid of the hook', () => {
    it.each([
      { name: 'by writing its file', args: { path: '.agents/settings.json', content: '{}' } },
      { name: 'by writing its script', args: { path: 'x/../gates/policy.mjs', content: 'process.exit()' } },
      { name: 'by a link-like path', args: { path: `./.agents/../.agents/settings.json`, content: '{"disableAllHooks":true}' } },
    ])('denies it $name', async ({ args }) => {
      expect(await call({ tool: 'write_to_file', args })).toEqual({
        state: 'denied',
        publicMessage: 'I cannot change that file.',
        reasonCode: 'protected_path',
        alerts: [],
        effects: 0,
        attempts: 0,
      });
      expect(await trace()).toEqual([before('write_to_file', 'deny', 'protected_path')]);
    });

    it('denies every call where it got so far as to break the file', async () => {
      expect(await call({ tool: 'find_order', args: {} })).toMatchObject({ state: 'done', effects: 1 });
      await space.write('.agents/settings.json', '{"hooks": {"PreToolUse": [');
      expect(await call({ tool: 'find_order', args: {} })).toMatchObject({
        state: 'denied',
        reasonCode: 'hooks_invalid',
        effects: 1,
      });
    });

    it('runs nothing that stands in the arguments', async () => {
      const args = { path: '$(touch hit); `touch hit`', content: "'; touch hit; '" };
      expect(await call({ tool: 'write_to_file', args })).toMatchObject({ state: 'done', effects: 1 });
      await expect(readFile(space.at('hit'))).rejects.toThrow('ENOENT'); // fault M18
    });
  });
});
