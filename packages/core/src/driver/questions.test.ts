import { describe, expect, test } from 'vitest';
import { resultTexts } from '../../test/results.ts';
import { agentTool } from '../agents/agent-tool.ts';
import { replay } from '../journal/replay.ts';
import { manualClock, memoryJournal, scriptedModel, type ScriptStep } from '../testing/index.ts';
import { tool, type ToolContext } from '../tools/tool.ts';
import type { Answer, ContinueOptions, LoopOptions, LoopResult } from './options.ts';
import { runLoop, streamLoop } from './run.ts';

const nextTick = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));
const CALL: ScriptStep = { calls: [{ name: 'book' }] };

/** A run whose tool `book` asks. `log`: what the tool did, in every process. */
function asking(execute: (context: ToolContext, log: unknown[]) => unknown, script: readonly ScriptStep[] = [CALL]) {
  const log: unknown[] = [];
  const clock = manualClock(1_000);
  const journal = memoryJournal();
  const book = tool({ name: 'book', description: 'Books', execute: (_, context) => execute(context, log) });
  const environment = { model: scriptedModel([...script, 'Done.']), tools: [book], journal, runId: 'run', clock };
  const start = (more: Partial<LoopOptions> = {}): Promise<LoopResult> =>
    runLoop({ ...environment, input: 'Go.', ...more });
  const resume = (answers: readonly Answer[], more: Partial<ContinueOptions> = {}): Promise<LoopResult> =>
    runLoop({ ...environment, answers, ...more });
  const events = async (): Promise<readonly string[]> => (await journal.read('run')).map(({ event }) => event.type);
  return { ...environment, book, log, start, resume, events };
}

const answer = (effect: string, value: unknown): Answer => ({ type: 'answer', effect, value });

describe('a tool that asks', () => {
  test('is refused if nobody can answer the run, also in a child run; an answer in the journal counts', async () => {
    const execute = async ({ ask }: ToolContext): Promise<string> => `booked ${String(await ask('Which seat?'))}`;
    const refused = 'Nobody can answer questions in this run.';
    const alone = asking(execute);
    const last = await alone.start({ canAnswer: false });
    expect(resultTexts(last)[0]).toContain(refused);
    expect(await alone.events()).not.toContain('questions-asked');

    const parent = asking(execute, [{ calls: [{ name: 'child', arguments: { task: 'Book.' } }] }]);
    const model = scriptedModel([CALL, 'The child is done.']);
    const child = agentTool({ name: 'child', description: '', model, tools: [parent.book] });
    const ended = await parent.start({ tools: [child], canAnswer: false });
    expect(ended.waiting).toEqual([]);
    expect(JSON.stringify(model.requests.at(-1)!.messages)).toContain(refused);

    const answered = asking(execute);
    await answered.start();
    const resumed = await answered.resume([answer('t1.question.0.0', '12A')], { canAnswer: false });
    expect(resultTexts(resumed)).toEqual(['booked 12A']);
  });

  test('pauses the run, and is called again with the answer', async () => {
    const run = asking(async ({ ask }, log) => {
      log.push('called');
      const seat = await ask('Which seat?');
      log.push(`booked ${seat}`);
      return `booked ${seat}`;
    });
    const first = await run.start();
    expect(first).not.toHaveProperty('outcome');
    expect(first.waiting).toMatchObject([
      { type: 'question', effect: 't1.question.0.0', call: { name: 'book' }, question: { prompt: 'Which seat?' } },
    ]);
    expect(run.log).toEqual(['called']);
    const last = await run.resume([answer('t1.question.0.0', '12A')]);
    expect(last).toMatchObject({ outcome: { type: 'completed' }, waiting: [], calls: 1 });
    expect(resultTexts(last)).toEqual(['booked 12A']);
    expect(run.log).toEqual(['called', 'called', 'booked 12A']);
    expect(await run.events()).toEqual([
      'run-started',
      'model-replied',
      'questions-asked',
      'question-answered',
      'tool-settled',
      'model-replied',
    ]);
    const entries = await run.journal.read('run');
    expect(entries[3]!.event).toEqual({
      type: 'question-answered',
      at: 1_000,
      effect: 't1.tool.0',
      question: 0,
      value: '12A',
    });
    expect(replay(entries).type).toBe('replayed');
  });

  test('stays paused when the run is resumed without the answer, and is not called', async () => {
    const run = asking(({ ask }, log) => (log.push('called'), ask('Which seat?')));
    await run.start();
    const again = await run.resume([]);
    expect(again.waiting).toHaveLength(1);
    expect(run.log).toEqual(['called']);
  });

  test('is aborted when the run pauses', async () => {
    let signal: AbortSignal | undefined;
    const run = asking((context) => {
      ({ signal } = context);
      return context.ask('Which seat?');
    });
    await run.start();
    expect(signal?.reason).toMatchObject({ message: 'The run was paused until its questions have answers.' });
  });

  test('asks several questions one after the other, and gets each answer once', async () => {
    const run = asking(async ({ ask }, log) => {
      const from = await ask('From?');
      log.push(from);
      const to = await ask('To?');
      return `${from} to ${to}`;
    });
    await run.start();
    const second = await run.resume([answer('t1.question.0.0', 'A')]);
    expect(second.waiting).toMatchObject([{ effect: 't1.question.0.1', question: { prompt: 'To?' } }]);
    const last = await run.resume([answer('t1.question.0.1', 'B')]);
    expect(resultTexts(last)).toEqual(['A to B']);
    expect(run.log).toEqual(['A', 'A']);
  });

  test('asks several questions at once, and continues when all have answers', async () => {
    const run = asking(async ({ ask }, log) => {
      const both = await Promise.all([ask('From?'), ask('To?')]);
      log.push(both);
      return both.join(' to ');
    });
    const first = await run.start();
    expect(first.waiting.map(({ effect }) => effect)).toEqual(['t1.question.0.0', 't1.question.0.1']);
    const second = await run.resume([answer('t1.question.0.1', 'B')]);
    expect(second.waiting.map(({ effect }) => effect)).toEqual(['t1.question.0.0']);
    expect(run.log).toEqual([]);
    expect(resultTexts(await run.resume([answer('t1.question.0.0', 'A')]))).toEqual(['A to B']);
  });

  test('finds the answer by the id of the question, in whatever order it asks', async () => {
    let reversed = false;
    const run = asking(async ({ ask }) => {
      const questions = ['from', 'to'].map((id) => ({ id, prompt: `${id}?` }));
      const answers: string[] = [];
      for (const question of reversed ? questions.toReversed() : questions) answers.push(await ask(question));
      return answers.join();
    });
    await run.start();
    await run.resume([answer('t1.question.0.0', 'A')]);
    reversed = true;
    expect(resultTexts(await run.resume([answer('t1.question.0.1', 'B')]))).toEqual(['B,A']);
  });

  test('asks again if the question has changed, because the answer was to another question', async () => {
    let prompt = 'Which seat?';
    const run = asking(async ({ ask }) => `booked ${await ask(prompt)}`);
    await run.start();
    prompt = 'Which bed?';
    const second = await run.resume([answer('t1.question.0.0', '12A')]);
    expect(second.waiting).toMatchObject([{ effect: 't1.question.0.1', question: { prompt: 'Which bed?' } }]);
    expect(resultTexts(await run.resume([answer('t1.question.0.1', 'upper')]))).toEqual(['booked upper']);
  });

  test('continues in the same process if the answer comes while another call runs', async () => {
    const other = Promise.withResolvers<string>();
    const run = asking(
      async ({ ask }, log) => {
        log.push('called');
        return `booked ${await ask('Which seat?')}`;
      },
      [{ calls: [{ name: 'book' }, { name: 'wait' }] }],
    );
    const wait = tool({ name: 'wait', description: 'Waits', execute: () => other.promise });
    const { model, book, journal, clock } = run;
    const live = streamLoop({ model, tools: [book, wait], journal, clock, runId: 'run', input: 'Go.' });
    await nextTick();
    await expect(live.answer(answer('t1.question.0.0', 7))).rejects.toMatchObject({ code: 'answer-unfit' });
    await live.answer({ ...answer('t1.question.0.0', '12A'), by: 'ann' } as Answer);
    await expect(live.answer(answer('t1.question.0.0', '12B'))).rejects.toMatchObject({ code: 'answer-unfit' });
    await nextTick();
    other.resolve('waited');
    expect(resultTexts(await live.result)).toEqual(['booked 12A', 'waited']);
    expect(run.log).toEqual(['called']);
    const answered = (await journal.read('run')).find(({ event }) => event.type === 'question-answered');
    expect(answered?.event).toMatchObject({ by: 'ann', value: '12A' });
  });

  test('gets no answer that is not durable, also if it asks the same again', async () => {
    const [again, stored] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const run = asking(
      async ({ ask }, log) => {
        const seat = (): Promise<unknown> => ask({ prompt: 'Which seat?', id: 'seat' });
        const first = seat();
        await again.promise;
        log.push(await seat());
        return `booked ${await first}`;
      },
      [{ calls: [{ name: 'book' }, { name: 'wait' }] }],
    );
    const other = Promise.withResolvers<string>();
    const wait = tool({ name: 'wait', description: 'Waits', execute: () => other.promise });
    const { model, book, journal, clock } = run;
    const slow: typeof journal = {
      ...journal,
      async append(runId, entries, ...others) {
        if (entries.some(({ event }) => event.type === 'question-answered')) await stored.promise;
        await journal.append(runId, entries, ...others);
      },
    };
    const live = streamLoop({ model, tools: [book, wait], journal: slow, clock, runId: 'run', input: 'Go.' });
    await nextTick();
    const answered = live.answer(answer('t1.question.0.0', '12A'));
    await nextTick();
    again.resolve();
    await nextTick();
    expect(run.log).toEqual([]);
    stored.resolve();
    await answered;
    other.resolve('waited');
    expect(resultTexts(await live.result)).toEqual(['booked 12A', 'waited']);
    expect(run.log).toEqual(['12A']);
  });

  test('does not time out while it waits, and has its whole time after the answer', async () => {
    const other = Promise.withResolvers<string>();
    const log: unknown[] = [];
    const clock = manualClock(1_000);
    const book = tool({
      name: 'book',
      description: 'Books',
      timeoutMs: 100,
      execute: async (_, { ask, signal }) => {
        await ask('Which seat?');
        log.push('answered');
        await new Promise((resolve) => void signal.addEventListener('abort', resolve));
      },
    });
    const wait = tool({ name: 'wait', description: 'Waits', timeoutMs: 10_000, execute: () => other.promise });
    const model = scriptedModel([{ calls: [{ name: 'book' }, { name: 'wait' }] }, 'Done.']);
    const live = streamLoop({ model, tools: [book, wait], clock, input: 'Go.' });
    await nextTick();
    await clock.advance(250);
    await live.answer(answer('t1.question.0.0', 'x'));
    await nextTick();
    await clock.advance(99);
    expect(log).toEqual(['answered']);
    const answered = (): readonly unknown[] => [...log];
    void live.result.then(() => log.push('ended'));
    other.resolve('waited');
    await nextTick();
    expect(answered()).toEqual(['answered']);
    await clock.advance(1);
    expect(resultTexts(await live.result)[0]).toContain('timed out after 100 ms');
  });

  test('gets an error if it catches nothing and the question expires', async () => {
    const run = asking(async ({ ask }) => ask({ prompt: 'Which seat?', ttlMs: 60_000 }));
    const first = await run.start();
    expect(first.waiting).toMatchObject([{ type: 'question', expiresAt: 61_000 }]);
    await run.clock.advance(59_999);
    expect((await run.resume([])).waiting).toHaveLength(1);
    await run.clock.advance(1);
    const last = await run.resume([]);
    expect(resultTexts(last)).toEqual(['The tool "book" failed: Nobody answered the question "Which seat?" in time.']);
    expect(JSON.stringify(last.messages)).toContain('"errorType":"timeout"');
  });

  test('gets the same error for an answer that comes too late', async () => {
    const run = asking(async ({ ask }) => ask({ prompt: 'Which seat?', ttlMs: 60_000 }).catch(() => 'nobody'));
    await run.start();
    await run.clock.advance(60_000);
    expect(resultTexts(await run.resume([answer('t1.question.0.0', '12A')]))).toEqual(['nobody']);
  });

  test('notices the deadline while the run is driven', async () => {
    const other = Promise.withResolvers<string>();
    const run = asking(
      async ({ ask }) => ask({ prompt: 'Which seat?', ttlMs: 50 }).catch(({ message }: Error) => message),
      [{ calls: [{ name: 'book' }, { name: 'wait' }] }],
    );
    const wait = tool({ name: 'wait', description: 'Waits', execute: () => other.promise });
    const { model, book, clock } = run;
    const live = streamLoop({ model, tools: [book, wait], clock, input: 'Go.' });
    await nextTick();
    await clock.advance(50);
    other.resolve('waited');
    expect(resultTexts(await live.result)[0]).toContain('Nobody answered');
  });

  test('is cancelled with its run', async () => {
    const run = asking(({ ask }) => ask('Which seat?'));
    await run.start();
    const cancelled = await run.resume([], { signal: AbortSignal.abort() });
    expect(cancelled.outcome).toEqual({ type: 'cancelled', phase: 'tool' });
  });

  test('that settles while a question is open withdraws the question', async () => {
    const run = asking(
      async ({ ask }) => Promise.race([ask('Which seat?'), nextTick().then(() => 'any')]),
      [{ calls: [{ name: 'book' }, { name: 'wait' }] }],
    );
    const other = Promise.withResolvers<string>();
    const wait = tool({ name: 'wait', description: 'Waits', execute: () => other.promise });
    const { model, book, clock } = run;
    const live = streamLoop({ model, tools: [book, wait], clock, input: 'Go.' });
    await nextTick();
    await nextTick();
    await expect(live.answer(answer('t1.question.0.0', 'x'))).rejects.toMatchObject({ code: 'answer-unfit' });
    other.resolve('waited');
    expect(resultTexts(await live.result)).toEqual(['any', 'waited']);
  });

  test('is interrupted, not called again, if the process dies after the answers', async () => {
    const stuck = Promise.withResolvers<void>();
    const run = asking(async ({ ask }, log) => {
      log.push(await ask('Which seat?'));
      await stuck.promise;
    });
    await run.start();
    const { model, book, clock, journal } = run;
    const live = streamLoop({
      model,
      tools: [book],
      journal,
      clock,
      runId: 'run',
      answers: [answer('t1.question.0.0', '12A')],
    });
    await nextTick();
    await live.detach();
    expect(resultTexts(await run.resume([]))[0]).toContain('was interrupted');
    expect(run.log).toEqual(['12A']);
  });

  test('keeps its answers when an idempotent call is repeated', async () => {
    const log: string[] = [];
    const journal = memoryJournal();
    let stuck = true;
    const book = tool({
      name: 'book',
      description: 'Books',
      effect: 'idempotent',
      execute: async (_, { ask }) => {
        log.push(await ask('Which seat?'));
        return stuck ? new Promise(() => {}) : 'booked';
      },
    });
    const model = scriptedModel([CALL, 'Done.']);
    const environment = { model, tools: [book], journal, runId: 'run' };
    await runLoop({ ...environment, input: 'Go.' });
    const live = streamLoop({ ...environment, answers: [answer('t1.question.0.0', '12A')] });
    await nextTick();
    await live.detach();
    stuck = false;
    expect(resultTexts(await runLoop(environment))).toEqual(['booked']);
    expect(log).toEqual(['12A', '12A']);
  });

  test('asks through the run that its own run is a child of', async () => {
    const run = asking(async ({ ask }) => `booked ${await ask({ prompt: 'Class?', choices: ['first', 'second'] })}`);
    const journal = memoryJournal();
    const helper = agentTool({ name: 'helper', description: 'Helps', model: run.model, tools: [run.book] });
    const model = scriptedModel([{ calls: [{ name: 'helper', arguments: { task: 'Book.' } }] }, 'Thanks.']);
    const environment = { model, tools: [helper], journal, runId: 'parent' };
    const first = await runLoop({ ...environment, input: 'Go.' });
    expect(first.waiting).toMatchObject([{ type: 'question', effect: 't1.tool.0/t1.question.0.0' }]);
    const last = await runLoop({ ...environment, answers: [answer('t1.tool.0/t1.question.0.0', 'first')] });
    expect(last).toMatchObject({ text: 'Thanks.' });
    expect(JSON.stringify(await journal.read('parent.t1.tool.0'))).toContain('booked first');
  });

  test.each<[string, string, Answer, Answer]>([
    ['book', 'question', answer('', 'roof'), answer('', 'aisle')],
    [
      'scan',
      'client',
      { type: 'result', effect: '', content: [{ type: 'text' }] as never },
      { type: 'result', effect: '', content: 'x' },
    ],
  ])('keeps waiting after an unfit answer to the %s of a child run (%s)', async (name, type, unfit, fit) => {
    const { book } = asking(({ ask }) => ask({ prompt: 'Which?', choices: ['aisle', 'window'] }));
    const scan = tool({ name: 'scan', description: 'Scans' });
    const model = scriptedModel([{ calls: [{ name }] }, 'Done.']);
    const helper = agentTool({ name: 'helper', description: 'Helps', model, tools: [book, scan] });
    const environment = {
      model: scriptedModel([{ calls: [{ name: 'helper', arguments: { task: 'Go.' } }] }, 'Thanks.']),
      tools: [helper],
      journal: memoryJournal(),
      runId: 'parent',
    };
    const { waiting } = await runLoop({ ...environment, input: 'Go.' });
    const { effect } = waiting[0]!;
    expect(waiting).toMatchObject([{ type }]);
    await expect(runLoop({ ...environment, answers: [{ ...unfit, effect }] })).rejects.toMatchObject({
      code: 'answer-unfit',
      message: expect.stringContaining(effect),
    });
    expect(await runLoop({ ...environment, answers: [{ ...fit, effect }] })).toMatchObject({ text: 'Thanks.' });
  });
});

describe('an answer', () => {
  test.each<[string, object, unknown, string]>([
    ['that is not a text', {}, 3, 'it is not a text'],
    ['that is missing', {}, undefined, 'The answer for "t1.question.0.0" lacks "value".'],
    ['that is none of the choices', { choices: ['a', 'b'] }, 'c', 'it is not one of "a", "b"'],
    ['that the schema rejects', { schema: { type: 'object', required: ['row'] } }, {}, 'row'],
  ])('%s is rejected, and the question stays open', async (_, more, value, why) => {
    const run = asking(({ ask }) => ask({ prompt: 'Which?', ...more }));
    await run.start();
    const given = run.resume([answer('t1.question.0.0', value)]);
    await expect(given).rejects.toMatchObject({ code: 'answer-unfit', message: expect.stringContaining(why) });
    expect((await run.resume([])).waiting).toHaveLength(1);
  });

  test.each<[string, object, unknown]>([
    ['one of the choices', { choices: ['a', 'b'] }, 'b'],
    ['a value that the schema accepts', { schema: { type: 'object', required: ['row'] } }, { row: 3 }],
  ])('may be %s', async (_, more, value) => {
    const run = asking(({ ask }) => ask({ prompt: 'Which?', ...more }) as Promise<unknown>);
    await run.start();
    const texts = resultTexts(await run.resume([answer('t1.question.0.0', value)]));
    expect(texts).toEqual([typeof value === 'string' ? value : JSON.stringify(value)]);
  });

  test('is verified, and has the name that the port returns', async () => {
    const run = asking(({ ask }) => ask('Which?'));
    await run.start();
    const given = [{ ...answer('t1.question.0.0', 'x'), by: 'eve' } as Answer];
    const refused = run.resume(given, { verifyAnswer: () => ({ type: 'refused', reason: 'Not you.' }) });
    await expect(refused).rejects.toMatchObject({ code: 'answer-refused' });
    await run.resume(given, { verifyAnswer: () => ({ type: 'verified', by: 'ann' }) });
    const entries = await run.journal.read('run');
    expect(entries.find(({ event }) => event.type === 'question-answered')?.event).toMatchObject({ by: 'ann' });
  });

  test('of another type is rejected, and a question is not an approval', async () => {
    const run = asking(({ ask }) => ask('Which?'));
    await run.start();
    const effect = 't1.question.0.0';
    for (const wrong of [
      { type: 'result', effect, content: 'x' },
      { type: 'approval', effect, digest: '', approved: true },
    ] as const) {
      await expect(run.resume([wrong])).rejects.toMatchObject({ code: 'answer-unfit' });
    }
    await expect(run.resume([answer('t1.question.0.1', 'x')])).rejects.toMatchObject({
      message: 'Run "run" does not wait for "t1.question.0.1". It waits for question "t1.question.0.0" (book).',
    });
  });
});

describe('a question', () => {
  test.each<[string, unknown, string]>([
    ['without a prompt', {}, 'has no prompt'],
    ['with choices and a schema', { prompt: 'x', choices: ['a'], schema: {} }, 'Give one of the two'],
    ['without any choice', { prompt: 'x', choices: [] }, 'Give at least one text'],
    ['with a ttl of 0', { prompt: 'x', ttlMs: 0 }, 'Give a number above 0'],
    ['with a schema that is code', { prompt: 'x', schema: { parse: () => 1 } }, 'not JSON Schema'],
    ['with an empty id', { prompt: 'x', id: '' }, 'an id that is not a text'],
  ])('%s is an error of the tool', async (_, question, why) => {
    const run = asking(({ ask }) => ask(question as string));
    expect(resultTexts(await run.start())[0]).toContain(why);
  });

  test('with the id of another open question is an error', async () => {
    const run = asking(({ ask }) =>
      Promise.all([ask({ id: 'x', prompt: 'a' }).catch(() => {}), ask({ id: 'x', prompt: 'b' })]),
    );
    const live = streamLoop({ model: run.model, tools: run.tools, clock: run.clock, input: 'Go.' });
    expect((await live.result).waiting).toHaveLength(1);
  });

  test('in "verify" is refused', async () => {
    let problem: unknown;
    const clock = manualClock(0);
    const slow = tool({
      name: 'book',
      description: 'Books',
      timeoutMs: 10,
      execute: () => new Promise(() => {}),
      verify: async (_, { ask }) => {
        problem = await ask('Done?').catch(({ message }: Error) => message);
        return { type: 'unknown' };
      },
    });
    const live = streamLoop({ model: scriptedModel([CALL, 'Done.']), tools: [slow], clock, input: 'Go.' });
    await nextTick();
    await clock.advance(10);
    await live.result;
    expect(problem).toBe('Only a call of a run can ask, and not in "verify".');
  });
});
