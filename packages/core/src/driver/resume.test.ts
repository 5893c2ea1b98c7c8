import { describe, expect, test } from 'vitest';
import { callEcho, echo } from '../../test/echo.ts';
import { z } from 'zod';
import { manualClock, memoryJournal, scriptedModel } from '../testing/index.ts';
import { Parked } from '../tools/result.ts';
import type { JsonSchema } from '../model.ts';
import { tool, type Tool } from '../tools/tool.ts';
import type { RunOptions } from './options.ts';
import { runLoop, streamLoop } from './run.ts';

const callJob = { calls: [{ name: 'job' }] };

describe('resuming a run', () => {
  test('repeats the model call of a run that failed with a model error', async () => {
    const journal = memoryJournal();
    const down = { type: 'failure', error: { code: 'overloaded', message: 'down', retryable: true } } as const;
    const options = { tools: [echo], journal, runId: 'r' };
    const failed = await runLoop({ ...options, model: scriptedModel([callEcho('a'), down]), input: 'go' });
    expect(failed.outcome).toMatchObject({ type: 'failed', error: { code: 'overloaded' } });
    const result = await runLoop({ ...options, model: scriptedModel(['Done.']) });
    expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'Done.', turns: 2 });
  });

  test('returns what another process has written only when it is durable', async () => {
    const journal = memoryJournal();
    const options = { runId: 'r', model: scriptedModel(['Done.']) };
    await runLoop({ ...options, journal, input: 'go' });
    const { promise: synced, resolve } = Promise.withResolvers<void>();
    const appended: number[] = [];
    const unsynced: typeof journal = {
      ...journal,
      append: (_, { length }) => (appended.push(length), synced),
    };
    let returned = false;
    const resumed = runLoop({ ...options, journal: unsynced }).then(({ outcome }) => ((returned = true), outcome));
    await new Promise((done) => void setImmediate(done));
    expect([appended, returned]).toEqual([[0], false]);
    resolve();
    expect(await resumed).toEqual({ type: 'completed' });
  });

  test('rejects missing and changed tools, unless acceptChangedTools is set', async () => {
    const journal = memoryJournal();
    const client = tool({ name: 'pick', description: 'The client picks' });
    const options = { journal, runId: 'r' };
    const model = scriptedModel([{ calls: [{ name: 'pick' }] }, 'Done.']);
    await runLoop({ ...options, model, tools: [client, echo], input: 'go' });
    const input = z.object({ other: z.string() });
    const changed = tool({ name: 'echo', description: '', input, execute: ({ other }) => other });
    await expect(runLoop({ ...options, model, tools: [changed] })).rejects.toThrow(
      '"pick" is missing; "echo" has a different parameters and effect',
    );
    const answers = [{ type: 'result', effect: 't1.client.0', content: 'b' }] as const;
    const result = await runLoop({ ...options, model, tools: [changed], answers, acceptChangedTools: true });
    expect(result.outcome).toEqual({ type: 'completed' });
  });

  describe('parameters that allow the same calls with the same meaning', () => {
    const closed = { type: 'object', required: ['a'], additionalProperties: false } as const;
    const text = { type: 'string' } as const;
    const nested = (inner: object): object => ({ ...closed, properties: { a: { type: 'array', items: inner } } });
    const same: readonly [what: string, had: object, now: object][] = [
      ['an optional parameter', { a: text }, { a: text, b: text }],
      ['other texts', { a: { ...text, description: 'old' } }, { a: { ...text, description: 'new', title: 'A' } }],
      ['another order', { a: text, b: text }, { b: text, a: text }],
    ].map(([what, had, now]) => [what as string, { ...closed, properties: had }, { ...closed, properties: now }]);
    const inside: typeof same = [
      [
        'an optional part of a list',
        nested({ ...closed, properties: { a: text } }),
        nested({ ...closed, properties: { b: text, a: text } }),
      ],
    ];
    const others: typeof same = [
      [
        'a required parameter',
        { ...closed, properties: { a: text } },
        { ...closed, properties: { a: text, b: text }, required: ['a', 'b'] },
      ],
      [
        'a default',
        { ...closed, properties: { a: text } },
        { ...closed, properties: { a: text, b: { ...text, default: 'x' } } },
      ],
      ['a removed parameter', { ...closed, properties: { a: text, b: text } }, { ...closed, properties: { a: text } }],
      ['another type', { ...closed, properties: { a: text } }, { ...closed, properties: { a: { type: 'number' } } }],
      [
        'a new limit',
        { ...closed, properties: { a: text } },
        { ...closed, properties: { a: { ...text, maxLength: 9 } } },
      ],
      [
        'a parameter that could have any value',
        { type: 'object', properties: { a: text } },
        { type: 'object', properties: { a: text, b: text } },
      ],
      [
        'a name that a pattern allowed',
        { ...closed, properties: {}, patternProperties: { b: text } },
        { ...closed, properties: { b: text }, patternProperties: { b: text } },
      ],
      [
        'a parameter with the name of a note',
        { ...closed, properties: { description: text } },
        { ...closed, properties: { description: { type: 'number' } } },
      ],
    ];

    async function resumed(had: object, now: object): Promise<{ outcome: unknown; recorded: unknown }> {
      const journal = memoryJournal();
      const client = tool({ name: 'pick', description: 'The client picks' });
      const withInput = (input: object): Tool =>
        tool({ name: 'act', description: '', input: input as JsonSchema, execute: () => 'done' }) as Tool;
      const options = { journal, runId: 'r', model: scriptedModel([{ calls: [{ name: 'pick' }] }, 'Done.']) };
      await runLoop({ ...options, tools: [client, withInput(had)], input: 'go' });
      const answers = [{ type: 'result', effect: 't1.client.0', content: 'b' }] as const;
      const { outcome } = await runLoop({ ...options, tools: [client, withInput(now)], answers });
      const entries = await journal.read('r');
      const event = entries.map((entry) => entry.event).findLast(({ type }) => type === 'tools-changed');
      const tools = event?.type === 'tools-changed' ? event.tools : [];
      return { outcome, recorded: tools.find(({ name }) => name === 'act')?.parameters };
    }

    for (const [what, had, now] of [...same, ...inside]) {
      test(`resumes with ${what}, and records it`, async () => {
        const { outcome, recorded } = await resumed(had, now);
        expect(outcome).toEqual({ type: 'completed' });
        expect(recorded).toEqual(what === 'another order' ? undefined : now);
      });
    }

    for (const [what, had, now] of [
      ...others,
      ...same.slice(0, 1).map(([one, a, b]) => [`${one} that is gone`, b, a] as const),
    ]) {
      test(`demands acceptChangedTools for ${what}`, async () => {
        await expect(resumed(had, now)).rejects.toThrow('"act" has a different parameters');
      });
    }
  });

  test('rejects driving a run while another driver has its lease', async () => {
    const journal = memoryJournal();
    const lease = await journal.acquire('r');
    const options = { journal, runId: 'r', model: scriptedModel(['Done.']), input: 'go' };
    await expect(runLoop(options)).rejects.toMatchObject({ code: 'run-driven' });
    await lease.release();
    expect((await runLoop(options)).text).toBe('Done.');
  });
});

test('does not count the time before a detached run is resumed, also with other tools', async () => {
  const journal = memoryJournal();
  const clock = manualClock(1_000);
  const options = { journal, runId: 'r', clock, limits: { durationMs: 60_000 } };
  const old = tool({ name: 'old', description: '', effect: 'pure', execute: () => new Promise(() => {}) });
  const run = streamLoop({
    ...options,
    model: scriptedModel([{ calls: [{ name: 'old' }] }]),
    tools: [old],
    input: 'go',
  });
  await clock.advance(500);
  await run.detach();
  await clock.advance(3_600_000);
  const model = scriptedModel(['Done.']);
  const result = await runLoop({ ...options, model, tools: [], acceptChangedTools: true });
  expect(result).toMatchObject({ outcome: { type: 'completed' } });
  expect(result.durationMs).toBeLessThanOrEqual(500);
});

test('calls the tool of a parked call again under the same key whenever the run is resumed', async () => {
  const journal = memoryJournal();
  const keys: string[] = [];
  let ready = false;
  const job = tool({
    name: 'job',
    description: '',
    effect: 'idempotent',
    execute: (_, { key }) => (keys.push(key), ready ? 'printed' : new Parked('printer/7')),
  });
  const options = { journal, runId: 'r', tools: [job] };
  const paused = await runLoop({ ...options, model: scriptedModel([callJob]), input: 'go' });
  expect(paused.waiting).toMatchObject([{ type: 'parked', on: 'printer/7' }]);
  expect((await runLoop({ ...options, model: scriptedModel([]) })).waiting).toMatchObject([{ type: 'parked' }]);
  ready = true;
  expect(await runLoop({ ...options, model: scriptedModel(['Done.']) })).toMatchObject({ text: 'Done.' });
  expect(keys).toEqual(['r/t1.tool.0', 'r/t1.tool.0', 'r/t1.tool.0']);
});

test('does not call the tool of a parked call again if its effect is once', async () => {
  const journal = memoryJournal();
  const job = tool({ name: 'job', description: '', execute: () => new Parked('printer/7') });
  const options = { journal, runId: 'r', tools: [job] };
  await runLoop({ ...options, model: scriptedModel([callJob]), input: 'go' });
  const again = await runLoop({ ...options, model: scriptedModel([]) });
  expect(again.waiting).toMatchObject([{ type: 'parked', on: 'printer/7' }]);
  expect(await journal.read('r')).toHaveLength(3);
});

describe("resume: 'auto'", () => {
  const job = tool({ name: 'job', description: '', effect: 'once', execute: () => 'done' });

  test('starts a run that the journal does not have, and returns the stored result once it has ended', async () => {
    const journal = memoryJournal();
    const options = { tools: [job], journal, runId: 'r', input: 'go', resume: 'auto' } as const;
    const first = await runLoop({ ...options, model: scriptedModel([callJob, 'Done.']) });
    expect(first).toMatchObject({ outcome: { type: 'completed' }, text: 'Done.', turns: 2 });
    const entries = await journal.read('r');
    // A script without replies: a model call would fail.
    expect(await runLoop({ ...options, model: scriptedModel([]) })).toEqual(first);
    expect(await journal.read('r')).toEqual(entries);
  });

  test('resumes a run that was detached, and repeats nothing that has settled', async () => {
    const journal = memoryJournal();
    let performed = 0;
    const count = tool({ name: 'job', description: '', effect: 'once', execute: () => String(++performed) });
    const options = { tools: [count], journal, runId: 'r', input: 'go', resume: 'auto' } as const;
    const reached = Promise.withResolvers<void>();
    const hanging = (): Promise<never> => (reached.resolve(), new Promise(() => {}));
    const run = streamLoop({ ...options, model: scriptedModel([callJob, hanging]) });
    await reached.promise;
    await run.detach();
    const result = await runLoop({ ...options, model: scriptedModel(['Done.']) });
    expect(result).toMatchObject({ outcome: { type: 'completed' }, text: 'Done.', turns: 2 });
    expect(performed).toBe(1);
  });

  test('of two calls at the same moment one drives the run, and the other is rejected with run-driven', async () => {
    const journal = memoryJournal();
    const options = { journal, runId: 'r', input: 'go', resume: 'auto' } as const;
    const model = scriptedModel(['Done.']);
    const settled = await Promise.allSettled([runLoop({ ...options, model }), runLoop({ ...options, model })]);
    expect(settled).toMatchObject([
      { status: 'fulfilled', value: { text: 'Done.' } },
      { status: 'rejected', reason: { code: 'run-driven' } },
    ]);
    expect(await runLoop({ ...options, model })).toMatchObject({ text: 'Done.', turns: 1 });
  });

  test('applies answers to a paused run, and rejects answers for a run that does not exist', async () => {
    const journal = memoryJournal();
    const pick = tool({ name: 'job', description: 'The client picks' });
    const options = { tools: [pick], journal, runId: 'r', input: 'go', resume: 'auto' } as const;
    const answers = [{ type: 'result', effect: 't1.client.0', content: 'b' }] as const;
    const model = scriptedModel([callJob, 'Done.']);
    await expect(runLoop({ ...options, model, answers })).rejects.toMatchObject({
      code: 'answer-unfit',
      message: 'Run "r" does not wait for "t1.client.0". It waits for nothing.',
    });
    expect((await runLoop({ ...options, model })).waiting).toHaveLength(1);
    expect((await runLoop({ ...options, model, answers })).text).toBe('Done.');
  });

  test('rejects a run that was started with another input, or by an agent', async () => {
    const journal = memoryJournal();
    const options = { journal, runId: 'r', resume: 'auto', model: scriptedModel(['Done.']) } as const;
    await runLoop({ ...options, input: [{ role: 'user', content: [{ type: 'text', text: 'go' }] }] });
    await expect(runLoop({ ...options, input: 'stop' })).rejects.toMatchObject({
      code: 'run-exists',
      message: 'There is already a run "r" that was started with another input. Give another runId.',
    });
    // The same input in another form.
    expect((await runLoop({ ...options, input: 'go' })).text).toBe('Done.');
  });

  test.each([
    ['no journal', { runId: 'r', input: 'go' }, 'resume is "auto", but there is no journal.'],
    ['no runId', { journal: memoryJournal(), input: 'go' }, 'resume is "auto", but there is no runId.'],
    ['no input', { journal: memoryJournal(), runId: 'r' }, 'resume is "auto", but there is no input.'],
    ['another value', { journal: memoryJournal(), runId: 'r', input: 'go', resume: true }, 'resume is true.'],
  ])('is rejected with invalid-options: %s', async (_, options, message) => {
    const all = { model: scriptedModel([]), resume: 'auto', ...options } as never;
    await expect(runLoop(all)).rejects.toMatchObject({
      code: 'invalid-options',
      message: expect.stringContaining(message),
    });
  });

  test('does not compile without a runId and a journal', () => {
    const model = scriptedModel([]);
    // @ts-expect-error: the journal is missing
    const withoutJournal: RunOptions = { model, input: 'go', runId: 'r', resume: 'auto' };
    // @ts-expect-error: the runId is missing
    const withoutRunId: RunOptions = { model, input: 'go', journal: memoryJournal(), resume: 'auto' };
    expect([withoutJournal, withoutRunId]).toHaveLength(2);
  });
});
