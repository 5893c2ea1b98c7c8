import { describe, expect, test } from 'vitest';
import { resultTexts } from '../../test/results.ts';
import { agentTool } from '../agents/agent-tool.ts';
import { TreadleError } from '../errors.ts';
import { forkRun } from '../journal/fork.ts';
import type { RunStore } from '../journal/port.ts';
import { replay } from '../journal/replay.ts';
import type { Event } from '../machine/events.ts';
import type { Waiting } from '../machine/state.ts';
import type { AskVerdict, JudgedCall, Policy, Verdict } from '../policy/port.ts';
import { manualClock, memoryJournal, scriptedModel, type ScriptStep } from '../testing/index.ts';
import { tool, type Tool, type ToolDefinition } from '../tools/tool.ts';
import type { Answer, ContinueOptions, LoopOptions, LoopResult, RejectedAnswer } from './options.ts';
import { runLoop, streamLoop } from './run.ts';

const PATH = { type: 'object', properties: { path: { type: 'string' } }, required: ['path'] } as const;

/** A tool that counts its calls. */
function writer(ran: string[], definition: Partial<ToolDefinition<typeof PATH>> = {}): Tool {
  return tool({
    name: 'write',
    description: 'Writes a file',
    input: PATH,
    execute: ({ path }) => (ran.push(String(path)), `wrote ${String(path)}`),
    ...definition,
  });
}

const declared = {
  touches: ({ path }: { readonly path?: unknown }) => [{ type: 'write', path: String(path) }] as const,
};

function callsOf(...paths: readonly string[]): ScriptStep {
  return { calls: paths.map((path) => ({ name: 'write', arguments: { path } })) };
}

/** A policy with the same verdict on every call, and rules that name it. */
function same(verdict: Verdict, rules?: unknown): Policy {
  return { judge: (calls) => calls.map(() => verdict), ...(rules !== undefined && { rules }) };
}

/** A policy whose rules are its verdicts by path. Other paths are allowed. */
function byPath(rules: Readonly<Record<string, Verdict>>): Policy {
  return {
    rules,
    withRules: (recorded) => byPath(recorded as typeof rules),
    judge: (calls) => calls.map(({ input }) => rules[(input as { path: string }).path] ?? { type: 'allow' }),
  };
}

async function eventsOf(journal: RunStore, runId = 'run'): Promise<readonly Event[]> {
  return (await journal.read(runId)).map(({ event }) => event);
}

type Approval = Extract<Waiting, { type: 'approval' }>;

function approvalIn({ waiting }: LoopResult, index = 0): Approval {
  const wait = waiting[index];
  if (wait?.type !== 'approval') throw new Error(`expected an approval, not ${wait?.type}`);
  return wait;
}

type ApprovalAnswer = Extract<Answer, { type: 'approval' }>;

function approve({ effect, digest }: Approval, more: Partial<ApprovalAnswer> = {}): ApprovalAnswer {
  return { type: 'approval', effect, digest, approved: true, ...more };
}

/** A run that is driven by one process after another. */
function durableRun(script: readonly ScriptStep[], options: Partial<LoopOptions> = {}) {
  const journal = memoryJournal();
  const shared = { model: scriptedModel(script), journal, runId: 'run', clock: manualClock(1_000), ...options };
  return {
    journal,
    start: (more: Partial<LoopOptions> = {}) => runLoop({ ...shared, ...more, input: 'Go.' }),
    resume: (more: Partial<ContinueOptions> = {}) => runLoop({ ...shared, ...more } as ContinueOptions),
  };
}

describe('touches', () => {
  async function judged(tools: readonly Tool[], script: ScriptStep): Promise<readonly JudgedCall[]> {
    const seen: JudgedCall[] = [];
    const policy: Policy = {
      judge: (calls) => (seen.push(...calls), calls.map(() => ({ type: 'deny', reason: 'no' }))),
    };
    await runLoop({ model: scriptedModel([script, 'Done.']), tools, policy, input: 'Go.' });
    return seen;
  }

  test('the policy gets what a call touches, the permissions and the operation of its tool', async () => {
    const operation = ({ path }: { readonly path?: unknown }): string => `write:${String(path)}`;
    const [call] = await judged([writer([], { ...declared, permissions: ['file_write'], operation })], callsOf('a'));
    expect(call).toMatchObject({
      name: 'write',
      input: { path: 'a' },
      client: false,
      touches: [{ type: 'write', path: 'a' }],
      permissions: ['file_write'],
      operation: 'write:a',
    });
  });

  test('a call touches unknown without a declaration, and nothing if the client executes it', async () => {
    const pick = tool({ name: 'pick', description: 'x' });
    const noop = tool({ name: 'noop', description: 'x', touches: () => [], execute: () => '' });
    const calls = ['write', 'pick', 'noop'].map((name) => ({ name, arguments: { path: 'a' } }));
    const seen = await judged([writer([]), pick, noop], { calls });
    expect(seen.map(({ touches, client }) => [touches, client])).toEqual([
      [[{ type: 'unknown' }], false],
      [undefined, true],
      [[], false],
    ]);
  });

  test.each<[string, () => unknown]>([
    [
      'throws',
      () => {
        throw new Error('broken');
      },
    ],
    ['returns no list', () => 'everything'],
    ['returns something that is not a touch', () => [{ type: 'write', path: 'a' }, { type: 'write' }]],
    [
      'returns a promise that rejects',
      async () => {
        throw new Error('broken');
      },
    ],
  ])('a call touches unknown if its declaration %s', async (_, touches) => {
    const [call] = await judged([writer([], { touches: touches as never })], callsOf('a'));
    expect(call?.touches).toEqual([{ type: 'unknown' }]);
  });

  test('denies a call whose operation cannot be determined', async () => {
    const operation = (): string => {
      throw new Error('broken');
    };
    const ran: string[] = [];
    const policy = same({ type: 'allow' });
    const model = scriptedModel([callsOf('a'), 'Done.']);
    const result = await runLoop({ model, tools: [writer(ran, { operation })], policy, input: 'Go.' });
    expect(resultTexts(result)).toEqual([expect.stringContaining('the "operation" of the tool failed: broken')]);
    expect(ran).toEqual([]);
  });

  test('the journal has the touches and the rule that decided', async () => {
    const { journal, start } = durableRun([callsOf('a'), 'Done.'], { tools: [writer([], declared)] });
    await start({ policy: same({ type: 'allow', rule: 'paths' }) });
    expect(await eventsOf(journal)).toContainEqual(
      expect.objectContaining({
        type: 'calls-judged',
        verdicts: [{ type: 'allow', rule: 'paths', touches: [{ type: 'write', path: 'a' }] }],
      }),
    );
  });

  test('the journal has no touches for a tool that declares none, whatever the policy returns', async () => {
    const { journal, start } = durableRun([callsOf('a'), 'Done.'], { tools: [writer([])] });
    await start({ policy: same({ type: 'allow', touches: [] } as never) });
    expect(await eventsOf(journal)).toContainEqual(expect.objectContaining({ verdicts: [{ type: 'allow' }] }));
  });

  test('a policy cannot change the touches that are recorded', async () => {
    const { journal, start } = durableRun([callsOf('a'), 'Done.'], { tools: [writer([], declared)] });
    const policy: Policy = {
      judge: (calls) =>
        calls.map(({ touches }) => {
          Object.assign(touches![0]!, { path: 'b' });
          return { type: 'allow' };
        }),
    };
    await start({ policy });
    const touches = [{ type: 'write', path: 'a' }];
    expect(await eventsOf(journal)).toContainEqual(expect.objectContaining({ verdicts: [{ type: 'allow', touches }] }));
  });

  test('an open approval shows the touches, the rule, and what the policy wants to be shown', async () => {
    const { start } = durableRun([callsOf('a')], { tools: [writer([], declared)] });
    const ask: AskVerdict = { type: 'ask', reason: 'It writes.', rule: 'paths', shown: { diff: '+1' } };
    expect(approvalIn(await start({ policy: same(ask) }))).toMatchObject({
      touches: [{ type: 'write', path: 'a' }],
      reason: 'It writes.',
      rule: 'paths',
      shown: { diff: '+1' },
    });
  });
});

describe('rules that change', () => {
  const deny: Verdict = { type: 'deny', reason: 'no' };

  test('the start of a run records the rules of its policy', async () => {
    const { journal, start } = durableRun(['Done.'], { policy: same({ type: 'allow' }, { level: 1 }) });
    await start();
    expect((await eventsOf(journal))[0]).toMatchObject({ type: 'run-started', policy: { level: 1 } });
  });

  test('throws invalid-options for rules that are not plain JSON', async () => {
    const { start } = durableRun(['Done.'], { policy: same({ type: 'allow' }, { since: new Date(0) }) });
    await expect(start()).rejects.toMatchObject({ code: 'invalid-options' });
  });

  test('a run that is resumed with the same rules records no change', async () => {
    const { journal, start, resume } = durableRun([callsOf('a')], { tools: [writer([])] });
    const policy = byPath({ a: { type: 'ask' } });
    await start({ policy });
    await resume({ policy: byPath({ a: { type: 'ask' } }) });
    expect((await eventsOf(journal)).map(({ type }) => type)).not.toContain('policy-changed');
  });

  test('stricter rules apply to a call that has not started and to an open approval', async () => {
    const ran: string[] = [];
    const tools = [writer(ran)];
    const { journal, start, resume } = durableRun([callsOf('a', 'b', 'c'), 'Done.'], { tools });
    await start({ parallel: false, policy: byPath({ a: { type: 'ask' } }) });
    const policy = byPath({ a: { type: 'ask', required: 2 }, b: deny, c: { type: 'ask' } });
    const result = await resume({ policy });
    expect(await eventsOf(journal)).toContainEqual({
      type: 'policy-changed',
      at: 1_000,
      rules: policy.rules,
      verdicts: { 't1.tool.0': { type: 'ask', required: 2 }, 't1.tool.1': deny, 't1.tool.2': { type: 'ask' } },
    });
    expect(result.waiting).toMatchObject([{ effect: 't1.approval.0', required: 2 }, { effect: 't1.approval.2' }]);
    expect(result.calls).toBe(0);
    const answers = [
      approve(approvalIn(result), { by: 'ann' }),
      approve(approvalIn(result), { by: 'bob' }),
      approve(approvalIn(result, 1)),
    ];
    expect(resultTexts(await resume({ policy, answers }))).toEqual([
      'wrote a',
      'The call of "write" was denied: no',
      'wrote c',
    ]);
    expect(ran).toEqual(['a', 'c']);
  });

  test('looser rules do not allow what the recorded rules ask about or deny', async () => {
    const ran: string[] = [];
    const { start, resume } = durableRun([callsOf('a'), callsOf('b'), 'Done.'], { tools: [writer(ran)] });
    const first = await start({ policy: byPath({ a: { type: 'ask' }, b: deny }) });
    const policy = byPath({});
    const again = await resume({ policy });
    expect(again.waiting).toEqual(first.waiting);
    const last = await resume({ policy, answers: [approve(approvalIn(again))] });
    expect(resultTexts(last)).toEqual(['wrote a', 'The call of "write" was denied: no']);
    expect(ran).toEqual(['a']);
  });

  test('an answer to an approval that new rules deny is rejected, and nothing is recorded', async () => {
    const { journal, start, resume } = durableRun([callsOf('a'), 'Done.'], { tools: [writer([])] });
    const first = await start({ policy: byPath({ a: { type: 'ask' } }) });
    const before = await eventsOf(journal);
    const policy = byPath({ a: deny });
    const answers = [approve(approvalIn(first))];
    await expect(resume({ policy, answers })).rejects.toMatchObject({ code: 'answer-unfit' });
    expect(await eventsOf(journal)).toEqual(before);
    expect(resultTexts(await resume({ policy }))).toEqual(['The call of "write" was denied: no']);
  });

  test('denies an open approval that nobody may give under both rules', async () => {
    const { start, resume } = durableRun([callsOf('a'), 'Done.'], { tools: [writer([])] });
    await start({ policy: byPath({ a: { type: 'ask', approvers: ['ann'] } }) });
    const result = await resume({ policy: byPath({ a: { type: 'ask', approvers: ['bob'] } }) });
    expect(resultTexts(result)).toEqual([expect.stringContaining('it needs 1 approvals, and 0 people may approve it')]);
  });

  test('a run that was started without a policy is judged from the resume on', async () => {
    const ran: string[] = [];
    const pick = tool({ name: 'pick', description: 'x' });
    const first: ScriptStep = { calls: [{ name: 'pick' }, { name: 'write', arguments: { path: 'a' } }] };
    const options = { tools: [pick, writer(ran)] };
    const { journal, start, resume } = durableRun([first, callsOf('b'), 'Done.'], options);
    await start({ parallel: false });
    const answers: Answer[] = [{ type: 'result', effect: 't1.client.0', content: 'picked' }];
    const result = await resume({ policy: same(deny), answers });
    expect(resultTexts(result)).toEqual([
      'picked',
      expect.stringContaining('denied'),
      expect.stringContaining('denied'),
    ]);
    expect(ran).toEqual([]);
    const changed = (await eventsOf(journal)).find(({ type }) => type === 'policy-changed');
    expect(changed).toEqual({ type: 'policy-changed', at: 1_000, verdicts: { 't1.tool.1': deny } });
  });

  test('a run that was resumed with a policy once denies every call without one', async () => {
    const pick = tool({ name: 'pick', description: 'x' });
    const script: ScriptStep[] = [{ calls: [{ name: 'pick' }] }, callsOf('a'), 'Done.'];
    const { start, resume } = durableRun(script, { tools: [pick, writer([])] });
    await start();
    await resume({ policy: same({ type: 'allow' }) });
    const result = await resume({ answers: [{ type: 'result', effect: 't1.client.0', content: 'picked' }] });
    expect(resultTexts(result)[1]).toContain('resumed without one');
  });

  test('denies every call if the policy cannot apply the rules that the run has recorded', async () => {
    const { start, resume } = durableRun([callsOf('a'), callsOf('b'), 'Done.'], { tools: [writer([])] });
    const first = await start({ policy: byPath({ a: { type: 'ask' } }) });
    const policy = same({ type: 'allow' });
    const result = await resume({ policy, answers: [approve(approvalIn(first))] });
    expect(resultTexts(result)).toEqual(['wrote a', expect.stringContaining('has no "withRules" to apply them')]);
  });

  test('all rules that a run was ever judged by stay in force', async () => {
    const pick = tool({ name: 'pick', description: 'x' });
    const picking: ScriptStep = { calls: [{ name: 'pick' }] };
    const options = { tools: [pick, writer([])] };
    const { start, resume, journal } = durableRun([picking, picking, callsOf('a', 'b'), 'Done.'], options);
    const [one, two] = [byPath({ a: deny }), byPath({ b: deny })];
    const picked = (turn: number): Answer[] => [{ type: 'result', effect: `t${turn}.client.0`, content: 'x' }];
    await start({ policy: one });
    await resume({ policy: two, answers: picked(1) });
    const result = await resume({ policy: one, answers: picked(2) });
    expect(resultTexts(result).slice(2)).toEqual([
      expect.stringContaining('denied'),
      expect.stringContaining('denied'),
    ]);
    expect(replay(await journal.read('run')).state.policies).toEqual([two.rules, one.rules]);
  });
});

describe('approvals by several people', () => {
  const two: AskVerdict = { type: 'ask', required: 2, approvers: ['ann', 'bob', 'cid'] };

  test('a call runs when enough different people have approved it', async () => {
    const ran: string[] = [];
    const { start, resume } = durableRun([callsOf('a'), 'Done.'], { tools: [writer(ran)], policy: same(two) });
    const wait = approvalIn(await start());
    expect(wait).toMatchObject({ required: 2, approvers: ['ann', 'bob', 'cid'] });
    const half = await resume({ answers: [approve(wait, { by: 'ann' })] });
    expect(half.waiting).toEqual([{ ...wait, approvedBy: ['ann'], onlyThisCall: true }]);
    expect(ran).toEqual([]);
    expect(await resume({ answers: [approve(wait, { by: 'cid' })] })).toMatchObject({ text: 'Done.', calls: 1 });
    expect(ran).toEqual(['a']);
  });

  test('several people may answer in one resume', async () => {
    const { start, resume } = durableRun([callsOf('a'), 'Done.'], { tools: [writer([])], policy: same(two) });
    const wait = approvalIn(await start());
    const answers = ['ann', 'bob'].map((by) => approve(wait, { by }));
    expect(await resume({ answers })).toMatchObject({ text: 'Done.' });
  });

  test.each<[string, Partial<ApprovalAnswer>, string]>([
    ['a second approval by the same person', { by: 'ann' }, '"ann" has already approved "t1.approval.0"'],
    [
      'an approval by somebody else',
      { by: 'eve' },
      '"eve" may not answer "t1.approval.0". Those who may are ann, bob, cid.',
    ],
    ['an approval without a name', {}, 'An answer without a name may not answer'],
    ['a denial by somebody else', { by: 'eve', approved: false }, '"eve" may not answer'],
  ])('rejects %s', async (_, answer, message) => {
    const ran: string[] = [];
    const { journal, start, resume } = durableRun([callsOf('a')], { tools: [writer(ran)], policy: same(two) });
    const wait = approvalIn(await start());
    await resume({ answers: [approve(wait, { by: 'ann' })] });
    const before = await eventsOf(journal);
    const rejected = { code: 'answer-unfit', message: expect.stringContaining(message) };
    await expect(resume({ answers: [approve(wait, answer)] })).rejects.toMatchObject(rejected);
    expect(await eventsOf(journal)).toEqual(before);
    expect(ran).toEqual([]);
  });

  test('rejects an approval without a name if several people have to approve', async () => {
    const policy = same({ type: 'ask', required: 2 });
    const { start, resume } = durableRun([callsOf('a')], { tools: [writer([])], policy });
    const answers = [approve(approvalIn(await start()))];
    await expect(resume({ answers })).rejects.toMatchObject({
      message:
        '"t1.approval.0" needs the approval of 2 different people, so each answer has to say who gave it ("by").',
    });
  });

  test('one denial denies the call, also by somebody who has approved it', async () => {
    const { start, resume } = durableRun([callsOf('a'), 'Done.'], { tools: [writer([])], policy: same(two) });
    const wait = approvalIn(await start());
    await resume({ answers: [approve(wait, { by: 'ann' })] });
    const result = await resume({ answers: [approve(wait, { by: 'ann', approved: false, reason: 'A mistake.' })] });
    expect(resultTexts(result)).toEqual(['The call of "write" was not approved: A mistake.']);
  });

  test('an approval that is not complete in time is denied', async () => {
    const clock = manualClock(1_000);
    const policy = same({ ...two, ttlMs: 100 });
    const { start, resume } = durableRun([callsOf('a'), 'Done.'], { tools: [writer([])], policy, clock });
    await resume({ answers: [approve(approvalIn(await start()), { by: 'ann' })] });
    await clock.advance(100);
    expect(resultTexts(await resume())).toEqual([expect.stringContaining('was not approved in time')]);
  });

  test.each<[string, Partial<AskVerdict>, string]>([
    ['more people than may approve', { required: 2, approvers: ['ann', 'ann'] }, 'needs 2 approvals, and 1 people'],
    ['a number that is not whole', { required: 1.5 }, '"required" is 1.5'],
    ['approvers that are not a list', { approvers: 'ann' as never }, '"approvers" is not a list of names'],
    ['something to show that is not JSON', { shown: new Date(0) }, '"shown" is not plain JSON'],
  ])('denies a call for which the policy asks for %s', async (_, ask, message) => {
    const policy = same({ type: 'ask', ...ask });
    const { start } = durableRun([callsOf('a'), 'Done.'], { tools: [writer([])], policy });
    expect(resultTexts(await start())).toEqual([expect.stringContaining(message)]);
  });
});

describe('verified answers', () => {
  const ask = same({ type: 'ask', approvers: ['ann'] });
  const verifyAnswer: NonNullable<LoopOptions['verifyAnswer']> = ({ signature }) =>
    signature === 'signed by ann'
      ? { type: 'verified', by: 'ann' }
      : { type: 'refused', reason: 'The signature is wrong.' };

  function audited() {
    const rejected: RejectedAnswer[] = [];
    return { rejected, audit: { rejectedAnswer: (answer: RejectedAnswer) => void rejected.push(answer) } };
  }

  test('the name of an answer is the one that was verified, and the signature is not recorded', async () => {
    const { journal, start, resume } = durableRun([callsOf('a'), 'Done.'], { tools: [writer([])], policy: ask });
    const wait = approvalIn(await start());
    const answers = [approve(wait, { by: 'eve', signature: 'signed by ann' })];
    expect(await resume({ answers, verifyAnswer })).toMatchObject({ text: 'Done.' });
    const given = (await eventsOf(journal)).find(({ type }) => type === 'approval-given');
    expect(given).toMatchObject({ by: 'ann', approved: true });
    expect(given).not.toHaveProperty('signature');
  });

  test('answers of several people are told apart by the verified names', async () => {
    const policy = same({ type: 'ask', required: 2 });
    const { start, resume } = durableRun([callsOf('a'), 'Done.'], { tools: [writer([])], policy });
    const wait = approvalIn(await start());
    const bySignature: NonNullable<LoopOptions['verifyAnswer']> = ({ signature }) => ({
      type: 'verified',
      by: signature!,
    });
    const signed = (...signatures: readonly string[]): Promise<LoopResult> =>
      resume({ verifyAnswer: bySignature, answers: signatures.map((signature) => approve(wait, { signature })) });
    await expect(signed('ann', 'ann')).rejects.toMatchObject({ message: expect.stringContaining('is answered twice') });
    expect(await signed('ann', 'bob')).toMatchObject({ text: 'Done.' });
  });

  test('a resume with an answer that is refused fails, and the answer is reported', async () => {
    const { rejected, audit } = audited();
    const { journal, start, resume } = durableRun([callsOf('a')], { tools: [writer([])], policy: ask });
    const wait = approvalIn(await start());
    const before = await eventsOf(journal);
    const answer = approve(wait, { by: 'ann', signature: 'forged' });
    const error = {
      code: 'answer-refused',
      message: 'The answer for "t1.approval.0" was refused: The signature is wrong.',
    };
    await expect(resume({ answers: [answer], verifyAnswer, audit })).rejects.toMatchObject(error);
    expect(rejected).toEqual([{ runId: 'run', at: 1_000, answer, code: 'answer-refused', reason: error.message }]);
    expect(await eventsOf(journal)).toEqual(before);
  });

  test('an answer is refused if its verification fails', async () => {
    const { start, resume } = durableRun([callsOf('a')], { tools: [writer([])], policy: ask });
    const answers = [approve(approvalIn(await start()), { by: 'ann' })];
    const failing = async (): Promise<never> => {
      throw new Error('no keys');
    };
    await expect(resume({ answers, verifyAnswer: failing })).rejects.toMatchObject({
      code: 'answer-refused',
      message: expect.stringContaining('it could not be verified (no keys)'),
    });
    await expect(resume({ answers, verifyAnswer: (() => {}) as never })).rejects.toMatchObject({
      code: 'answer-refused',
    });
  });

  test('answers to a run in progress are verified and reported too', async () => {
    const { rejected, audit } = audited();
    const gate = Promise.withResolvers<string>();
    const slow = tool({ name: 'slow', description: 'x', execute: () => gate.promise });
    const policy: Policy = {
      judge: (calls) => calls.map(({ name }) => ({ type: name === 'slow' ? 'allow' : 'ask' })),
    };
    const script: ScriptStep[] = [{ calls: [{ name: 'slow' }, { name: 'write', arguments: { path: 'a' } }] }, 'Done.'];
    const asked = Promise.withResolvers<void>();
    const live = streamLoop({
      model: scriptedModel(script),
      tools: [slow, writer([])],
      policy,
      verifyAnswer,
      audit,
      journal: memoryJournal(),
      runId: 'run',
      input: 'Go.',
      onItem: (item) => {
        if (item.type === 'fact' && item.event.type === 'calls-judged') setImmediate(asked.resolve);
      },
    });
    await asked.promise;
    const digest = '0f1bd0bf2d1f8d1bb1be0b8c4aa08ac6ab0e1ac7ff1b4f4bcdb5b94b7c0b3e8f';
    const forged = { type: 'approval', effect: 't1.approval.1', digest, approved: true, signature: 'forged' } as const;
    await expect(live.answer(forged)).rejects.toMatchObject({ code: 'answer-refused' });
    await expect(live.answer({ ...forged, signature: 'signed by ann' })).rejects.toMatchObject({
      code: 'answer-unfit',
    });
    await expect(live.answer({ ...forged, effect: 't9.approval.0' })).rejects.toMatchObject({ code: 'answer-unfit' });
    expect(rejected.map(({ code }) => code)).toEqual(['answer-refused', 'answer-unfit', 'answer-unfit']);
    gate.resolve('slow ran');
    await live.result;
  });

  test('an answer for a child run is verified', async () => {
    const ran: string[] = [];
    const helper = agentTool({
      name: 'helper',
      description: 'x',
      model: scriptedModel([callsOf('a'), 'Helped.']),
      tools: [writer(ran)],
      policy: ask,
    });
    const script: ScriptStep[] = [{ calls: [{ name: 'helper', arguments: { task: 'help' } }] }, 'Done.'];
    const { start, resume } = durableRun(script, { tools: [helper], verifyAnswer });
    const wait = approvalIn(await start());
    const forged = resume({ answers: [approve(wait, { by: 'ann', signature: 'forged' })] });
    await expect(forged).rejects.toMatchObject({ code: 'answer-refused' });
    const signed = approve(wait, { signature: 'signed by ann' });
    expect(await resume({ answers: [signed] })).toMatchObject({ text: 'Done.' });
    expect(ran).toEqual(['a']);
  });
});

describe('allowed for the rest of the run', () => {
  const ask = same({ type: 'ask' });

  test('a later call of the tool that touches nothing else runs without an approval', async () => {
    const ran: string[] = [];
    const options = { tools: [writer(ran, declared)], policy: ask, repeatLimit: 0 };
    const { journal, start, resume } = durableRun([callsOf('a'), callsOf('a'), callsOf('a', 'b')], options);
    const first = await start();
    const result = await resume({ answers: [approve(approvalIn(first), { forRun: true })] });
    expect(result.waiting).toMatchObject([{ effect: 't3.approval.1', touches: [{ type: 'write', path: 'b' }] }]);
    expect(ran).toEqual(['a', 'a', 'a']);
    expect(result.calls).toBe(3);
    const verdicts = (await eventsOf(journal)).flatMap((event) =>
      event.type === 'calls-judged' ? event.verdicts : [],
    );
    expect(verdicts.map(({ type }) => type)).toEqual(['ask', 'ask', 'ask', 'ask']);
    const granted = { tool: 'write', touches: [{ type: 'write', path: 'a' }], by: [] };
    expect(replay(await journal.read('run')).state.grants).toMatchObject([granted]);
  });

  test('it covers every call of a tool that declares no touches', async () => {
    const { start, resume } = durableRun([callsOf('a'), callsOf('b'), 'Done.'], { tools: [writer([])], policy: ask });
    const answers = [approve(approvalIn(await start()), { forRun: true })];
    expect(await resume({ answers })).toMatchObject({ text: 'Done.', calls: 2 });
  });

  test('it survives a resume, and belongs to a fork too', async () => {
    const options = { tools: [writer([], declared)], policy: ask, repeatLimit: 0 };
    const { journal, start, resume } = durableRun([callsOf('a'), callsOf('b'), callsOf('a'), 'Done.'], options);
    await resume({ answers: [approve(approvalIn(await start()), { forRun: true })] });
    const at = (await journal.read('run')).length - 1;
    const fork = await forkRun({ journal, runId: 'run', at });
    const answered = async (runId: string): Promise<LoopResult> => {
      const shared = { ...options, journal, runId, clock: manualClock(1_000) };
      const paused = await runLoop({ ...shared, model: scriptedModel([]) });
      const model = scriptedModel([callsOf('a'), 'Done.']);
      return runLoop({ ...shared, model, answers: [approve(approvalIn(paused))] });
    };
    expect(await answered('run')).toMatchObject({ text: 'Done.', calls: 3 });
    expect(await answered(fork)).toMatchObject({ text: 'Done.', calls: 3 });
  });

  test('it does not count where more or other people have to approve', async () => {
    const asks: AskVerdict[] = [{ type: 'ask' }, { type: 'ask', required: 2 }, { type: 'ask', approvers: ['bob'] }];
    const policy: Policy = { judge: (_, { turn }) => [asks[turn - 1]!] };
    const { start, resume } = durableRun([callsOf('a'), callsOf('a'), callsOf('a')], { tools: [writer([])], policy });
    const second = await resume({ answers: [approve(approvalIn(await start()), { by: 'ann', forRun: true })] });
    const wait = approvalIn(second);
    expect(wait).toMatchObject({ effect: 't2.approval.0', required: 2 });
    const answers = ['ann', 'cid'].map((by) => approve(wait, { by, forRun: true }));
    expect((await resume({ answers })).waiting).toMatchObject([{ effect: 't3.approval.0', approvers: ['bob'] }]);
  });

  test('it does not count any more for a tool that has changed', async () => {
    const { start, resume } = durableRun([callsOf('a'), callsOf('b'), callsOf('a')], { policy: ask });
    const tools = [writer([], declared)];
    const second = await resume({ tools, answers: [approve(approvalIn(await start({ tools })), { forRun: true })] });
    const answers = [approve(approvalIn(second))];
    const changed = [writer([], { ...declared, effect: 'idempotent' })];
    const third = await resume({ tools: changed, acceptChangedTools: true, answers });
    expect(third.waiting).toMatchObject([{ effect: 't3.approval.0' }]);
  });

  test('every one of several people has to allow it', async () => {
    const policy = same({ type: 'ask', required: 2 });
    const { start, resume } = durableRun([callsOf('a'), callsOf('a')], { tools: [writer([])], policy });
    const wait = approvalIn(await start());
    const answers = [approve(wait, { by: 'ann' }), approve(wait, { by: 'bob', forRun: true })];
    expect((await resume({ answers })).waiting).toMatchObject([{ effect: 't2.approval.0' }]);
  });

  test('it does not count in a child run', async () => {
    const helper = agentTool({
      name: 'helper',
      description: 'x',
      model: scriptedModel([callsOf('a')]),
      tools: [writer([])],
      policy: ask,
    });
    const policy: Policy = {
      judge: (calls) => calls.map(({ name }) => ({ type: name === 'helper' ? 'allow' : 'ask' })),
    };
    const script: ScriptStep[] = [callsOf('a'), { calls: [{ name: 'helper', arguments: { task: 'help' } }] }];
    const { start, resume } = durableRun(script, { tools: [writer([]), helper], policy });
    const result = await resume({ answers: [approve(approvalIn(await start()), { forRun: true })] });
    expect(result.waiting).toMatchObject([{ type: 'approval', effect: 't2.tool.0/t1.approval.0' }]);
  });
});

describe('needsApproval', () => {
  test('a call needs an approval also without a policy, and other calls do not', async () => {
    const ran: string[] = [];
    const look = tool({ name: 'look', description: 'x', execute: () => 'looked' });
    const script: ScriptStep[] = [{ calls: [{ name: 'look' }, { name: 'write', arguments: { path: 'a' } }] }, 'Done.'];
    const { start, resume } = durableRun(script, { tools: [look, writer(ran, { needsApproval: true })] });
    const first = await start();
    expect(first).toMatchObject({ calls: 1, waiting: [{ effect: 't1.approval.1', rule: 'needsApproval' }] });
    expect(await resume({ answers: [approve(approvalIn(first))] })).toMatchObject({ text: 'Done.', calls: 2 });
    expect(ran).toEqual(['a']);
  });

  test('a function decides by the input, and requires an approval if it throws', async () => {
    const needsApproval = ({ path }: { readonly path?: unknown }): boolean => {
      if (path === 'broken') throw new Error('broken');
      return path === 'b';
    };
    const { start } = durableRun([callsOf('a', 'b', 'broken')], { tools: [writer([], { needsApproval })] });
    const { waiting } = await start();
    expect(waiting.map(({ effect }) => effect)).toEqual(['t1.approval.1', 't1.approval.2']);
  });

  test.each<[Verdict, unknown]>([
    [{ type: 'allow' }, { waiting: [{ type: 'approval' }] }],
    [{ type: 'ask', required: 2, reason: 'It writes.' }, { waiting: [{ required: 2, reason: 'It writes.' }] }],
    [
      { type: 'deny', reason: 'no' },
      { waiting: [], text: 'Done.' },
    ],
  ])('the stricter of it and the verdict %j applies', async (verdict, expected) => {
    const tools = [writer([], { needsApproval: true })];
    expect(await durableRun([callsOf('a'), 'Done.'], { tools, policy: same(verdict) }).start()).toMatchObject(
      expected as object,
    );
  });

  test('it stays if the code that resumes the run omits it, and applies if that code adds it', async () => {
    const pick = tool({ name: 'pick', description: 'x' });
    const picked: Answer[] = [{ type: 'result', effect: 't1.client.0', content: 'picked' }];
    const script: ScriptStep[] = [{ calls: [{ name: 'pick' }] }, callsOf('a')];
    for (const [before, after] of [
      [true, undefined],
      [undefined, true],
    ] as const) {
      const definition = (needsApproval: true | undefined) => ({ ...(needsApproval && { needsApproval }) });
      const { start, resume } = durableRun(script);
      await start({ tools: [pick, writer([], definition(before))] });
      const result = await resume({ tools: [pick, writer([], definition(after))], answers: picked });
      expect(result.waiting).toMatchObject([{ effect: 't2.approval.0' }]);
    }
  });
});

test('a policy that cannot use its store stops the run, which is judged when it is resumed', async () => {
  const ran: string[] = [];
  const journal = memoryJournal();
  let isDown = true;
  const policy: Policy = {
    judge: async (calls) => {
      if (isDown) throw new TreadleError('store-failed', 'The store cannot be reached.');
      return calls.map(() => ({ type: 'allow' }));
    },
  };
  const options = { model: scriptedModel([callsOf('a'), 'Done.']), tools: [writer(ran)], policy, journal };
  await expect(runLoop({ ...options, input: 'go', runId: 'run' })).rejects.toThrow('The store cannot be reached.');
  expect((await eventsOf(journal)).map(({ type }) => type)).toEqual(['run-started', 'model-replied']);
  await expect(runLoop({ ...options, runId: 'run' })).rejects.toThrow('The store cannot be reached.');
  isDown = false;
  const result = await runLoop({ ...options, runId: 'run' });
  expect([result.text, ran]).toEqual(['Done.', ['a']]);
  expect((await eventsOf(journal)).flatMap((event) => (event.type === 'calls-judged' ? event.verdicts : []))).toEqual([
    { type: 'allow' },
  ]);
});
