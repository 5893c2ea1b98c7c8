import { describe, expect, test } from 'vitest';
import { resultTexts } from '../../test/results.ts';
import { replay } from '../journal/replay.ts';
import { memoryBudgets } from '../ledger/budgets.ts';
import type { Event } from '../machine/events.ts';
import type { Waiting } from '../machine/state.ts';
import type { JudgedCall, Place, Policy, Touch, Verdict } from '../policy/port.ts';
import { manualClock, memoryJournal, scriptedModel } from '../testing/index.ts';
import { tool, type Tool, type ToolDefinition } from '../tools/tool.ts';
import type { Answer, ContinueOptions, LoopOptions, LoopResult } from './options.ts';
import { runLoop, streamLoop } from './run.ts';

/* A call counts on the promises of the sandbox that it was judged with: it does not run where they do not hold. */

const ASK: Verdict = { type: 'ask', reason: 'outside' };

/** Allows what runs without network, and asks about or denies the rest. */
function needsNetworkWall(otherwise: Verdict = ASK): Policy {
  return {
    judge: (calls) => calls.map(({ sandbox }) => (sandbox?.includes('network') ? { type: 'allow' } : otherwise)),
  };
}

/** A run whose processes have sandboxes with different promises. */
function world(more: Partial<LoopOptions> = {}, definition: Partial<ToolDefinition> = {}) {
  const ran: string[][] = [];
  let promises: readonly string[] = ['network', 'root'];
  const bash = tool({
    name: 'bash',
    description: 'Runs a command',
    effect: 'idempotent',
    touches: () => [],
    sandbox: () => promises,
    execute: () => {
      ran.push([...promises]);
      if (!mayHang) return 'done';
      mayHang = false;
      hang();
      return new Promise(() => {});
    },
    ...definition,
  });
  const { promise: hangs, resolve: hang } = Promise.withResolvers<void>();
  let mayHang = false;
  const journal = memoryJournal();
  const model = scriptedModel([{ calls: [{ name: 'bash' }] }, 'Done.']);
  const shared = { model, tools: [bash] as Tool[], journal, runId: 'run', clock: manualClock(1_000), ...more };
  return {
    ran,
    journal,
    promise: (...now: string[]) => (promises = now),
    hangs,
    /** The first call never returns. */
    live: () => ((mayHang = true), streamLoop({ ...shared, input: 'Go.' })),
    start: (options: Partial<LoopOptions> = {}) => runLoop({ ...shared, ...options, input: 'Go.' }),
    resume: (options: Partial<ContinueOptions> = {}) => runLoop({ ...shared, ...options } as ContinueOptions),
    events: async () => (await journal.read('run')).map(({ event }) => event),
  };
}

type Approval = Extract<Waiting, { type: 'approval' }>;

function approvalIn({ waiting: [wait] }: LoopResult): Approval {
  if (wait?.type !== 'approval') throw new Error(`expected an approval, not ${wait?.type}`);
  return wait;
}

function yes({ effect, digest }: Approval, more: object = {}): Answer {
  return { type: 'approval', effect, digest, approved: true, ...more };
}

const typesOf = (events: readonly Event[]): readonly string[] => events.map(({ type }) => type);

test('the policy gets the promises, and the verdict records them', async () => {
  const seen: JudgedCall[] = [];
  const { start, events, ran } = world({
    policy: { judge: (calls) => (seen.push(...calls), calls.map(() => ({ type: 'allow' }))) },
  });
  await start();
  expect(seen.map(({ sandbox }) => sandbox)).toEqual([['network', 'root']]);
  const judged = (await events()).find(({ type }) => type === 'calls-judged');
  expect(judged).toMatchObject({ verdicts: [{ type: 'allow', touches: [], sandbox: ['network', 'root'] }] });
  expect(ran).toEqual([['network', 'root']]);
});

test.each<[string, () => unknown]>([
  ['that throws', () => JSON.parse('')],
  ['that returns no list', () => 'network'],
  ['that returns a promise', () => Promise.reject(new Error('late'))],
])('a tool %s promises nothing', async (_, sandbox) => {
  const { start, ran } = world({ policy: needsNetworkWall() }, { sandbox: sandbox as () => readonly string[] });
  expect(approvalIn(await start()).call).not.toHaveProperty('sandbox');
  expect(ran).toEqual([]);
});

test('without a policy, nothing is asked, compared or recorded', async () => {
  const { start, events, ran } = world({}, { sandbox: () => JSON.parse('') as string[] });
  expect((await start()).text).toBe('Done.');
  expect(ran).toHaveLength(1);
  expect(JSON.stringify(await events())).not.toContain('sandbox');
});

describe('a call whose promises do not hold where it starts', () => {
  /** The promises change after the first verdict. */
  function changing(then: readonly string[], otherwise: Verdict, more: Partial<LoopOptions> = {}) {
    let judged = 0;
    const made = world({
      policy: {
        judge(calls, context) {
          const verdicts = needsNetworkWall(otherwise).judge(calls, context);
          if (judged++ === 0) made.promise(...then);
          return verdicts;
        },
      },
      ...more,
    });
    return made;
  }

  test('is judged again, and is denied', async () => {
    const { start, ran, events } = changing(['root'], { type: 'deny', reason: 'only without network' });
    const result = await start();
    expect(resultTexts(result)).toEqual(['The call of "bash" was denied: only without network']);
    expect([ran, result.calls]).toEqual([[], 0]);
    const types = typesOf(await events());
    expect(types).toEqual(['run-started', 'model-replied', 'calls-judged', 'call-rejudged', 'model-replied']);
  });

  test('is judged again, and runs if that allows it', async () => {
    const { start, ran, events } = changing(['network'], ASK);
    expect(await start()).toMatchObject({ text: 'Done.', calls: 1 });
    expect(ran).toEqual([['network']]);
    expect(typesOf(await events())).toContain('call-rejudged');
  });

  test('is asked about, and runs once it is approved for the promises that hold', async () => {
    const { start, resume, ran, journal } = changing([], ASK);
    const asked = approvalIn(await start());
    expect(asked.call).not.toHaveProperty('sandbox');
    expect(ran).toEqual([]);
    expect(await resume({ answers: [yes(asked)] })).toMatchObject({ text: 'Done.', calls: 1 });
    expect(ran).toEqual([[]]);
    expect(replay(await journal.read('run')).type).toBe('replayed');
  });

  test('is judged again by the process that runs it again after a crash', async () => {
    const { live, hangs, promise, resume, ran, events } = world({ policy: needsNetworkWall() });
    const running = live();
    await hangs;
    await running.detach();
    promise('root');
    const asked = approvalIn(await resume());
    expect(ran).toEqual([['network', 'root']]);
    const types = typesOf(await events());
    expect(types).toEqual(['run-started', 'model-replied', 'calls-judged', 'effect-lost', 'call-rejudged']);
    expect(await resume({ answers: [yes(asked)] })).toMatchObject({ text: 'Done.', calls: 1 });
    expect(ran).toEqual([['network', 'root'], ['root']]);
  });

  test('is asked about again if people have allowed it to exceed a budget', async () => {
    const budgets = memoryBudgets({ acme: { limits: { calls: 0 }, atLimit: 'ask' } });
    const ledger = budgets.ledger(['acme']);
    const { start, resume, promise, ran } = world({
      policy: needsNetworkWall(),
      ledger: {
        ...ledger,
        reserve(key, amounts, about) {
          if (about.approved) promise('network');
          return ledger.reserve(key, amounts, about);
        },
      },
    });
    const first = approvalIn(await start());
    const second = approvalIn(await resume({ answers: [yes(first)] }));
    expect([first, second]).toMatchObject([{ raises: true }, { raises: true }]);
    expect(second.digest).not.toBe(first.digest);
    expect(ran).toEqual([]);
    expect(await budgets.get('acme')).toMatchObject({ reserved: { calls: 0 }, settled: { calls: 0 } });
    expect(await resume({ answers: [yes(second)] })).toMatchObject({ text: 'Done.', calls: 1 });
    expect(ran).toEqual([['network']]);
    expect(await budgets.get('acme')).toMatchObject({ settled: { calls: 1 } });
  });

  test('is denied if they change all the time', async () => {
    let count = 0;
    const { start, ran, events } = world(
      { policy: { judge: (calls) => calls.map(() => ({ type: 'allow' })) } },
      { sandbox: () => [`p${count++}`] },
    );
    expect(resultTexts(await start())).toEqual([
      'The call of "bash" was denied: its sandbox does not keep what it promises',
    ]);
    expect(ran).toEqual([]);
    expect(typesOf(await events()).filter((type) => type === 'call-rejudged')).toHaveLength(12);
  });

  test('uses nothing of its budget while it has not started', async () => {
    const budgets = memoryBudgets({ all: { calls: 1 } });
    const { start, resume, ran } = changing([], ASK, { ledger: budgets.ledger(['all']) });
    const asked = approvalIn(await start());
    expect(await resume({ answers: [yes(asked)] })).toMatchObject({ text: 'Done.' });
    expect(ran).toEqual([[]]);
  });
});

describe('an open approval', () => {
  const asking: Policy = { judge: (calls) => calls.map(() => ({ ...ASK, required: 1 })) };

  test('stays as it is where its promises hold, also with more of them', async () => {
    const { start, resume, promise, events } = world({ policy: asking });
    const asked = approvalIn(await start());
    expect(asked.call.sandbox).toEqual(['network', 'root']);
    promise('root', 'network', 'home');
    expect(approvalIn(await resume())).toEqual(asked);
    expect(typesOf(await events())).not.toContain('call-rejudged');
  });

  test('is asked again where they do not hold: the answer to the first does not count', async () => {
    const { start, resume, promise, ran } = world({ policy: asking });
    const asked = approvalIn(await start());
    promise('root');
    await expect(resume({ answers: [yes(asked)] })).rejects.toThrow('t1.approval.0');
    const again = approvalIn(await resume());
    expect(again.call.sandbox).toEqual(['root']);
    expect(again.digest).not.toBe(asked.digest);
    expect(ran).toEqual([]);
    expect((await resume({ answers: [yes(again)] })).text).toBe('Done.');
    expect(ran).toEqual([['root']]);
  });

  test('is asked again without a policy too', async () => {
    const { start, resume, promise, ran } = world({}, { needsApproval: true });
    const asked = approvalIn(await start());
    promise();
    const again = approvalIn(await resume());
    expect([asked.call.sandbox, again.call.sandbox, ran]).toEqual([['network', 'root'], undefined, []]);
    expect((await resume({ answers: [yes(again)] })).text).toBe('Done.');
  });

  test('loses the approvals that it has', async () => {
    const two: Policy = { judge: (calls) => calls.map(() => ({ ...ASK, required: 2 })) };
    const { start, resume, promise } = world({ policy: two });
    const first = approvalIn(await start());
    expect(approvalIn(await resume({ answers: [yes(first, { by: 'ann' })] })).approvedBy).toEqual(['ann']);
    promise('root');
    expect(approvalIn(await resume()).approvedBy).toBeUndefined();
  });

  test('is denied where the policy denies it', async () => {
    const { start, resume, promise, ran } = world({ policy: asking });
    await start();
    promise();
    const result = await resume({ policy: needsNetworkWall({ type: 'deny', reason: 'no' }) });
    expect(resultTexts(result)).toEqual(['The call of "bash" was denied: no']);
    expect(ran).toEqual([]);
  });
});

describe('allowed for the rest of the run', () => {
  test.each<[string, string[], boolean]>([
    ['with the same promises', ['network', 'root'], true],
    ['with more promises', ['network', 'root', 'home'], true],
    ['with fewer promises', ['root'], false],
  ])('a grant counts %s: %j', async (_, then, counts) => {
    const made = world(
      { policy: { judge: (calls) => calls.map(() => ASK) } },
      { execute: () => (made.ran.push([]), made.promise(...then), 'done') },
    );
    const model = scriptedModel([{ calls: [{ name: 'bash' }] }, { calls: [{ name: 'bash' }] }, 'Done.']);
    const asked = approvalIn(await made.start({ model }));
    const { waiting } = await made.resume({ model, answers: [yes(asked, { forRun: true })] });
    expect([made.ran.length, waiting.length]).toEqual(counts ? [2, 0] : [1, 1]);
  });
});

describe('places', () => {
  const PI: Place = { type: 'device', name: 'pi' };
  const at = (on?: Place, lines = 1): Touch => ({ type: 'write', path: 'a', lines, ...(on && { on }) });

  test.each<[string, Touch, Touch, boolean]>([
    ['of this machine', at(), at(), true],
    ['of this machine, of more lines', at(), at(undefined, 9), true],
    ['of a device, for the device', at(PI), at(PI, 3), true],
    ['of this machine, for the same path on a device', at(), at(PI), false],
    ['of a device, for the same path on this machine', at(PI), at(), false],
    ['of a device, for another', at(PI), at({ ...PI, name: 'phone' }), false],
  ])('a grant %s: %j, %j', async (_, first, second, counts) => {
    const touched = [first, second];
    let ran = 0;
    const made = world(
      { policy: { judge: (calls) => calls.map(() => ASK) } },
      { touches: () => [touched[ran]!], execute: () => `ran ${++ran}` },
    );
    const model = scriptedModel([{ calls: [{ name: 'bash' }] }, { calls: [{ name: 'bash' }] }, 'Done.']);
    const asked = approvalIn(await made.start({ model }));
    expect(asked.touches).toEqual([first]);
    const { waiting } = await made.resume({ model, answers: [yes(asked, { forRun: true })] });
    expect([ran, waiting.length]).toEqual(counts ? [2, 0] : [1, 1]);
  });

  test('an approval is bound to the places that the call touches', async () => {
    const digestAt = async (on?: Place): Promise<string> => {
      const touches = () => [at(on)];
      return approvalIn(await world({ policy: { judge: () => [ASK] } }, { touches }).start()).digest;
    };
    const digests = await Promise.all([digestAt(), digestAt(PI), digestAt({ ...PI, type: 'ssh' })]);
    expect(new Set(digests).size).toBe(3);
  });
});
