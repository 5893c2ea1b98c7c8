import {
  forkRun,
  memoryJournal,
  Parked,
  runLoop,
  tool,
  type Answer,
  type LoopOptions,
  type RunStore,
} from '../index.ts';
import { manualClock, scriptedModel } from '../testing/index.ts';
import { describe, expect, test } from 'vitest';
import { entryLines, shownEntries } from './entry-lines.ts';

/** Every line of a run as `head (note): body`, without durations. */
async function lines(store: RunStore, runId = 'r'): Promise<readonly string[]> {
  return (await shownEntries(await store.read(runId))).flatMap((step) =>
    entryLines(step)
      .filter(({ detail }) => !detail)
      .map(({ head, note, body }) => {
        const text = note?.replaceAll(/^[\d.]+ m?s(, )?/g, '');
        return `${head}${text ? ` (${text})` : ''}${body === undefined ? '' : `: ${body}`}`;
      }),
  );
}

async function linesOf(options: Omit<LoopOptions, 'journal' | 'input' | 'runId'>): Promise<readonly string[]> {
  const store = memoryJournal();
  await runLoop({ input: 'go', ...options, journal: store, runId: 'r' });
  return (await lines(store)).slice(2);
}

const echo = tool({
  name: 'echo',
  description: '',
  input: { type: 'object', properties: { text: { type: 'string' } } },
  effect: 'pure',
  execute: ({ text }) => String(text),
});
const calling = (text: string): { calls: { name: string; arguments: unknown }[] } => ({
  calls: [{ name: 'echo', arguments: { text } }],
});

test('describes replies, calls and results', async () => {
  const both = { text: 'Two things.', calls: [...calling('a').calls, { name: 'echo', arguments: '{"text":1}' }] };
  expect(await linesOf({ model: scriptedModel([both, 'Done.']), tools: [echo] })).toEqual([
    'model (10 in, 5 out): Two things.',
    '  t1.tool.0: echo {"text":"a"}',
    '  t1.tool.1: echo {"text":1}',
    expect.stringMatching(/^ {2}t1\.tool\.1 error: The tool "echo" was not called\./),
    '  t1.tool.0 returned: a',
    'model (10 in, 5 out): Done.',
    'completed',
  ]);
});

test('describes questions and their answers', async () => {
  const store = memoryJournal();
  const book = tool({ name: 'book', description: '', execute: (_, { ask }) => ask('Which seat?') });
  const options = { tools: [book], model: scriptedModel([{ calls: [{ name: 'book' }] }, 'Done.']), runId: 'r' };
  await runLoop({ ...options, journal: store, input: 'go' });
  const answers: readonly Answer[] = [{ type: 'answer', effect: 't1.question.0.0', value: '12A', by: 'ann' }];
  await runLoop({ ...options, journal: store, answers });
  expect((await lines(store)).slice(4, 7)).toEqual([
    't1.tool.0 asks: Which seat?',
    'paused (t1.question.0.0): waits for the answer to "Which seat?" of book {}',
    't1.tool.0 answered by ann: 12A',
  ]);
});

test('describes a change of the policy, and the new verdicts', async () => {
  const store = memoryJournal();
  const pick = tool({ name: 'pick', description: '' });
  const options = { tools: [pick, echo], journal: store, runId: 'r' };
  const calls = [{ name: 'pick' }, ...calling('a').calls];
  await runLoop({ ...options, model: scriptedModel([{ calls }]), parallel: false, input: 'go' });
  const policy = { judge: () => [{ type: 'deny' as const, reason: 'not today' }], rules: { level: 1 } };
  await runLoop({ ...options, policy, model: scriptedModel([]) });
  expect((await lines(store)).slice(-4, -1)).toEqual([
    'policy changed',
    '  t1.tool.1: denied: not today',
    '  t1.tool.1 error: The call of "echo" was denied: not today',
  ]);
});

test('describes verdicts and approvals', async () => {
  const store = memoryJournal();
  const verdicts = [
    { type: 'allow' as const },
    { type: 'deny' as const, reason: 'not today' },
    { type: 'ask' as const, reason: 'money' },
    { type: 'ask' as const },
  ];
  const calls = ['a', 'b', 'c', 'd'].flatMap((text) => calling(text).calls);
  const options = { tools: [echo], policy: { judge: () => verdicts }, journal: store, runId: 'r' };
  const paused = await runLoop({ ...options, model: scriptedModel([{ calls }]), input: 'go' });
  const answers = paused.waiting.map((wait, index): Answer => {
    if (wait.type !== 'approval') throw new Error('no approval');
    const { effect, digest } = wait;
    const common = { type: 'approval', effect, digest, by: 'Ada' } as const;
    return index === 0 ? { ...common, approved: true } : { ...common, approved: false, reason: 'too dear' };
  });
  await runLoop({ ...options, model: scriptedModel(['Done.']), answers });
  expect((await lines(store)).slice(7)).toEqual([
    '  t1.tool.0: allowed',
    '  t1.tool.1: denied: not today',
    '  t1.tool.2: needs approval: money',
    '  t1.tool.3: needs approval',
    '  t1.tool.1 error: The call of "echo" was denied: not today',
    '  t1.tool.0 returned: a',
    'paused (t1.approval.2): waits for approval of echo {"text":"c"}',
    'paused (t1.approval.3): waits for approval of echo {"text":"d"}',
    't1.approval.2 approved by Ada',
    't1.approval.3 denied by Ada: too dear',
    '  t1.tool.3 error: The call of "echo" was not approved: too dear',
    '  t1.tool.2 returned: c',
    'model (10 in, 5 out): Done.',
    'completed',
  ]);
});

test('describes a client result', async () => {
  const store = memoryJournal();
  const pick = tool({ name: 'pick', description: '' });
  const options = { tools: [pick], journal: store, runId: 'r' };
  await runLoop({ ...options, model: scriptedModel([{ calls: [{ name: 'pick' }] }]), input: 'go' });
  const answers = [{ type: 'result', effect: 't1.client.0', content: 'no colour', isError: true }] as const;
  await runLoop({ ...options, model: scriptedModel(['Done.']), answers });
  expect((await lines(store)).slice(4)).toEqual([
    'paused (t1.client.0): waits for the result of pick {}',
    '  t1.client.0 error: no colour',
    'model (10 in, 5 out): Done.',
    'completed',
  ]);
});

test('describes prepared turns and validated answers', async () => {
  const output = { type: 'object', properties: { n: { type: 'number' } }, required: ['n'] } as const;
  const prepareTurn: LoopOptions['prepareTurn'] = ({ turn }) =>
    turn === 1 ? { instructions: 'Be brief.', tools: [], toolChoice: 'none' } : {};
  expect(await linesOf({ model: scriptedModel(['three', '{"n":3}']), tools: [echo], output, prepareTurn })).toEqual([
    'turn prepared: no tools; tool choice none; instructions "Be brief."',
    'model (10 in, 5 out): three',
    expect.stringMatching(/^answer rejected: .*not JSON/),
    'turn prepared: nothing changed',
    'model (10 in, 5 out): {"n":3}',
    'answer validated: it matches the required schema',
    'completed',
  ]);
  expect(await linesOf({ model: scriptedModel([]), prepareTurn: () => Promise.reject(new Error('no idea')) })).toEqual([
    expect.stringContaining('turn not prepared: '),
    expect.stringMatching(/^failed: prepare-failed: .*no idea/),
  ]);
});

test('describes failures and reached limits', async () => {
  const down = { type: 'failure', error: { code: 'overloaded', message: 'down', retryable: true } } as const;
  expect(await linesOf({ model: scriptedModel([down]) })).toEqual([
    'model failed: overloaded: down',
    'failed: overloaded: down',
  ]);
  expect(await linesOf({ model: scriptedModel([calling('a')]), tools: [echo], maxTurns: 1 })).toEqual([
    'model (10 in, 5 out): 1 call',
    '  t1.tool.0: echo {"text":"a"}',
    '  t1.tool.0 returned: a',
    'exhausted: the turn limit',
  ]);
  expect(await linesOf({ model: scriptedModel([{ text: 'half', finish: 'length' }]) })).toEqual([
    'model (10 in, 5 out, cut off at its length limit): half',
    'completed: the answer was cut off at the length limit of the model',
  ]);
});

describe('lost effects', () => {
  /** The lines of a run that was resumed after `count` entries. */
  async function resumed(count: number, tools: LoopOptions['tools'] & {}): Promise<readonly string[]> {
    const store = memoryJournal();
    const calls = [{ name: tools[0]!.name }];
    await runLoop({ model: scriptedModel([{ calls }, 'x']), tools, input: 'go', journal: store, runId: 'whole' });
    const entries = (await store.read('whole')).slice(0, count);
    await store.append('r', entries);
    await runLoop({ model: scriptedModel(['Done.']), tools, journal: store, runId: 'r' });
    return (await lines(store)).slice(count === 1 ? 2 : 4);
  }

  test('that a fork does not take over are left out, and others of a fork are lost', async () => {
    const store = memoryJournal();
    const read = tool({ name: 'read', description: '', effect: 'pure', execute: () => 'x' });
    const script = [{ calls: [{ name: 'read' }] }, 'Done.'];
    await runLoop({ model: scriptedModel(script), tools: [read], input: 'go', journal: store, runId: 'whole' });
    await forkRun({ journal: store, runId: 'whole', at: 2, changes: { instructions: 'x' }, newRunId: 'r' });
    const cut = scriptedModel(script);
    await runLoop({ model: cut, tools: [read], journal: store, runId: 'r' });
    // The process that drove the fork stopped after the first entry of its own.
    const entries = (await store.read('r')).slice(0, 6);
    const crashed = memoryJournal();
    await crashed.append('r', entries);
    await runLoop({ model: scriptedModel(['Done.']), tools: [read], journal: crashed, runId: 'r' });
    expect((await lines(crashed)).filter((text) => /left out|lost/.test(text))).toEqual([
      't2.model.0 left out: the fork does not take over its result',
      't2.tool.0 lost: the process stopped before it finished',
    ]);
    // A fork of the fork has the same entries.
    await forkRun({ journal: store, runId: 'r', at: 6, changes: { model: 'scripted' }, newRunId: 's' });
    await runLoop({ model: scriptedModel(['Done.']), tools: [read], journal: store, runId: 's' });
    expect((await lines(store, 's')).filter((text) => /left out|lost/.test(text))).toEqual([
      't2.model.0 left out: the fork does not take over its result',
      't3.model.0 left out: the fork does not take over its result',
    ]);
  });

  test('of calls that are parked continue', async () => {
    const store = memoryJournal();
    let isDone = false;
    const execute = (): string | Parked => (isDone ? 'done' : new Parked('there'));
    const wait = tool({ name: 'wait', description: '', effect: 'pure', execute });
    const options = { tools: [wait], journal: store, runId: 'r' };
    await runLoop({ ...options, model: scriptedModel([{ calls: [{ name: 'wait' }] }]), input: 'go' });
    isDone = true;
    await runLoop({ ...options, model: scriptedModel(['Done.']) });
    expect((await lines(store)).slice(-5, -2)).toEqual([
      't1.tool.0 continues: it was parked',
      '  t1.tool.0 runs again',
      '  t1.tool.0 returned: done',
    ]);
  });

  test('of the model are repeated, and of tools if their effect allows it', async () => {
    const act = tool({ name: 'act', description: '', execute: () => 'acted' });
    expect((await resumed(1, [act])).slice(0, 2)).toEqual([
      't1.model.0 lost: the process stopped before it finished',
      '  the model is called again',
    ]);
    expect((await resumed(2, [act])).slice(0, 2)).toEqual([
      't1.tool.0 lost: the process stopped before it finished',
      expect.stringMatching(/^ {2}t1\.tool\.0 error: The call of "act" was interrupted/),
    ]);
    expect((await resumed(2, [{ ...act, effect: 'pure' }])).slice(0, 3)).toEqual([
      't1.tool.0 lost: the process stopped before it finished',
      '  t1.tool.0 runs again',
      '  t1.tool.0 returned: acted',
    ]);
    const verify = (): { type: 'not-done' } => ({ type: 'not-done' });
    expect((await resumed(2, [{ ...act, verify }])).slice(0, 3)).toEqual([
      't1.tool.0 lost: the process stopped before it finished',
      't1.verify.0: it did not take effect, so it runs now',
      '  t1.tool.0 returned: acted',
    ]);
  });
});

test('describes long results and a compacted history', async () => {
  const usage = { inputTokens: 90, outputTokens: 10, cost: 0 };
  const compacted = await linesOf({
    model: scriptedModel([calling('a'.repeat(40)), calling('b'), { ...calling('c'), usage }, 'Done.']),
    summariser: scriptedModel(['In short.']),
    tools: [echo],
    maxResultChars: 20,
    compaction: { tokens: 100, keepTurns: 1 },
  });
  expect(compacted).toContain('tools now: echo, read_result');
  expect(compacted).toContain('history compacted (10 in, 5 out): a summary replaces messages 2 to 5');
  expect(compacted).toContain('  summary: In short.');
});

test('describes a passed deadline', async () => {
  const clock = manualClock();
  const store = memoryJournal();
  const model = scriptedModel([() => new Promise(() => {})]);
  const running = runLoop({ model, input: 'go', journal: store, runId: 'r', clock, limits: { durationMs: 50 } });
  while ((await store.read('r')).length === 0) await Promise.resolve();
  clock.advance(60);
  await running;
  expect((await lines(store)).slice(2)).toEqual(['deadline passed', 'exhausted: the time limit']);
});

test('describes entries that this version cannot replay', async () => {
  const store = memoryJournal();
  await runLoop({ model: scriptedModel(['Done.']), input: 'go', journal: store, runId: 'whole' });
  const [first, reply] = await store.read('whole');
  await store.append('r', [first!, { ...reply!, event: { ...reply!.event, effect: 't9.model.0' } as never }]);
  expect((await lines(store)).slice(2)).toEqual([
    'model (10 in, 5 out): Done.',
    'does not replay: this version cannot apply the entry',
  ]);
});
