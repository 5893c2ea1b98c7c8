import { describe, expect, test } from 'vitest';
import { resultTexts } from '../../test/results.ts';
import { agentTool } from '../agents/agent-tool.ts';
import type { Item } from '../journal/items.ts';
import type { SettledResult } from '../machine/events.ts';
import type { ResultBlock } from '../messages.ts';
import { manualClock, memoryJournal, scriptedModel, type ScriptStep } from '../testing/index.ts';
import { Parked } from '../tools/result.ts';
import { tool, type Tool } from '../tools/tool.ts';
import type { FilterAnswer, FilteredResult, LoopOptions, ResultFilter } from './options.ts';
import { runLoop, startLoop } from './run.ts';

const SECRET = 'sk-12345';

const redacted = (content: readonly ResultBlock[]): ResultBlock[] =>
  content.map((block) => ('text' in block ? { ...block, text: block.text.replaceAll(SECRET, '[key]') } : block));

/** Replaces the secret wherever it is. */
const redact: ResultFilter = {
  name: 'secrets',
  filter({ content }) {
    if (!JSON.stringify(content).includes(SECRET)) return undefined;
    return { type: 'changed', content: redacted(content), note: 'one key', exposes: 'private' };
  },
};

const call = (name: string, args: object = {}): ScriptStep => ({ calls: [{ name, arguments: args }] });

const returning = (name: string, execute: Tool['execute'] & {}, more: object = {}): Tool =>
  tool({ name, description: name, input: { type: 'object' }, execute, ...more });

const show = returning('show', () => `The key is ${SECRET}.`);

type Result = Extract<SettledResult, { type: 'result' }>;

/** The results that a journal has, as they were recorded. */
async function recorded(journal: ReturnType<typeof memoryJournal>, runId: string): Promise<readonly Result[]> {
  const entries = await journal.read(runId);
  return entries.flatMap(({ event }) =>
    event.type === 'tool-settled' && event.result.type === 'result'
      ? event.result
      : event.type === 'client-result-given'
        ? [event as unknown as Result]
        : [],
  );
}

async function run(tools: readonly Tool[], resultFilters: readonly ResultFilter[], more: Partial<LoopOptions> = {}) {
  const journal = memoryJournal();
  const model = scriptedModel([{ calls: tools.map(({ name }) => ({ name, arguments: {} })) }, 'Done.']);
  const result = await runLoop({
    model,
    tools,
    input: 'Go.',
    journal,
    runId: 'run',
    resultFilters,
    ...more,
  } as LoopOptions);
  return { result, journal, results: await recorded(journal, 'run'), text: JSON.stringify(await journal.read('run')) };
}

describe('a filter', () => {
  test('changes a result before it is recorded, and what it did is recorded', async () => {
    const { result, results, text } = await run([show], [redact]);
    expect(resultTexts(result)).toEqual(['The key is [key].']);
    expect(text).not.toContain(SECRET);
    expect(results).toEqual([
      {
        type: 'result',
        content: [{ type: 'text', text: 'The key is [key].' }],
        isError: false,
        filtered: [{ filter: 'secrets', action: 'changed', note: 'one key' }],
        exposes: { private: { effect: 't1.tool.0', tool: 'show', what: 'by the filter "secrets"' } },
      },
    ]);
  });

  test('that returns nothing leaves no trace', async () => {
    const { results } = await run([returning('look', () => 'nothing')], [redact]);
    expect(results).toEqual([{ type: 'result', content: [{ type: 'text', text: 'nothing' }], isError: false }]);
  });

  test('refuses a result: the model gets the reason, and the call counts as failed', async () => {
    const refuse: ResultFilter = { name: 'scan', filter: () => ({ type: 'refused', reason: 'it is malware.' }) };
    const notes = returning(
      'notes',
      (_, { memory }) => {
        memory!['seen'] = SECRET;
        return { content: SECRET, narrow: { autonomy: 1 } };
      },
      { remembers: ['seen'] },
    );
    const { result, results, text } = await run([notes], [refuse]);
    expect(text).not.toContain(SECRET);
    expect(result.memory).toBeUndefined();
    expect(results).toEqual([
      {
        type: 'result',
        content: [{ type: 'error', text: 'The tool "notes" was called, and its result is withheld: it is malware.' }],
        isError: true,
        errorType: 'denied',
        narrow: { autonomy: 1 },
        filtered: [{ filter: 'scan', action: 'refused' }],
      },
    ]);
  });

  test.each<[string, ResultFilter['filter'], string]>([
    [
      'throws',
      () => {
        throw new Error(SECRET);
      },
      'failed',
    ],
    ['rejects', () => Promise.reject(new Error(SECRET)), 'failed'],
    ['returns true', () => true as never, 'returned something else than an answer'],
    ['returns null', () => null as never, 'failed'],
    ['returns an unknown type', () => ({ type: 'ok' }) as never, 'returned something else than an answer'],
    ['returns no content', () => ({ type: 'changed' }) as never, 'returned something else than an answer'],
    [
      'returns broken content',
      () => ({ type: 'changed', content: [{ type: 'text' }] }) as never,
      'returned something else than an answer',
    ],
  ])('that %s refuses the result, and what it threw is not shown', async (_, filter, why) => {
    const { results, text } = await run([show], [{ name: 'broken', filter }]);
    expect(text).not.toContain(SECRET);
    expect(results).toMatchObject([
      { isError: true, filtered: [{ filter: 'broken', action: 'refused', note: `it ${why}` }] },
    ]);
  });

  test('that does not answer in time refuses the result, and its signal aborts', async () => {
    const clock = manualClock();
    let signal: AbortSignal | undefined;
    const hang = (result: FilteredResult): Promise<FilterAnswer> => {
      signal = result.signal;
      void Promise.resolve().then(() => clock.advance(5_000));
      return new Promise(() => {});
    };
    const { results, text } = await run([show], [{ name: 'slow', filter: hang }], { clock, toolTimeoutMs: 5_000 });
    expect(text).not.toContain(SECRET);
    expect(results[0]?.filtered).toEqual([{ filter: 'slow', action: 'refused', note: 'it timed out after 5000 ms' }]);
    expect(signal?.aborted).toBe(true);
  });

  test('gets what the one before left, in order, and none after a refusal', async () => {
    const seen: string[] = [];
    const named = (name: string, answer: FilterAnswer): ResultFilter => ({
      name,
      filter({ content }) {
        seen.push(`${name}: ${JSON.stringify(content)}`);
        return answer;
      },
    });
    const { results } = await run(
      [show],
      [
        redact,
        named('a', { type: 'marked', exposes: ['outside'] }),
        named('b', { type: 'refused', reason: 'no' }),
        named('c', undefined),
      ],
    );
    expect(seen).toEqual(
      ['a', 'b'].map((name) => `${name}: ${JSON.stringify([{ type: 'text', text: 'The key is [key].' }])}`),
    );
    expect(results[0]?.filtered?.map(({ filter, action }) => `${filter} ${action}`)).toEqual([
      'secrets changed',
      'a marked',
      'b refused',
    ]);
    expect(results[0]?.exposes?.outside?.what).toBe('by the filter "a"');
  });

  test('cannot change the content that it gets in place', async () => {
    const edit: ResultFilter = {
      name: 'edit',
      filter({ content }) {
        (content as ResultBlock[]).pop();
      },
    };
    const { result } = await run([show], [edit]);
    expect(resultTexts(result)).toEqual([`The key is ${SECRET}.`]);
  });

  test('gets the call, and images and files as content', async () => {
    const image = { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'AAAA' } } as const;
    const seen: FilteredResult[] = [];
    const strip: ResultFilter = {
      name: 'strip',
      filter(result) {
        seen.push(result);
        return { type: 'changed', content: result.content.filter(({ type }) => type !== 'image') };
      },
    };
    const { results } = await run(
      [returning('shoot', () => ({ content: [{ type: 'text', text: 'a' }, image] }))],
      [strip],
      {
        context: 'mine',
      },
    );
    expect(results[0]?.content).toEqual([{ type: 'text', text: 'a' }]);
    expect(seen).toMatchObject([
      {
        content: [{ type: 'text', text: 'a' }, image],
        isError: false,
        part: 'content',
        call: { name: 'shoot', arguments: '{}' },
        runId: 'run',
        effect: 't1.tool.0',
        context: 'mine',
      },
    ]);
  });

  test('also gets the text and the stderr of errors', async () => {
    const fail = returning('fail', () => {
      throw Object.assign(new Error(`bad ${SECRET}`), { stderr: `no ${SECRET}`, exitCode: 2 });
    });
    const { results, text } = await run([fail], [redact]);
    expect(text).not.toContain(SECRET);
    expect(results).toMatchObject([
      {
        content: [{ type: 'error', text: 'The tool "fail" failed: bad [key]' }],
        stderr: 'no [key]',
        exitCode: 2,
        filtered: [{ action: 'changed' }, { action: 'changed' }],
      },
    ]);
  });

  test('sees a long result whole, before it is stored', async () => {
    const long = returning('long', () => `${'x'.repeat(40)}${SECRET}${'y'.repeat(400)}`);
    const { result, journal } = await run([long], [redact], { maxResultChars: 44 });
    const id = /[0-9a-f]{8,}/.exec(resultTexts(result)[0]!)?.[0] ?? '';
    const stored = await journal.blobs.read('run', id, 0, 1_000);
    expect(JSON.stringify(stored)).toContain('[key]');
    expect(JSON.stringify(stored) + JSON.stringify(await journal.read('run'))).not.toContain('sk-1');
  });
});

test('progress of tools is held back while there is a filter', async () => {
  const chatty = returning('chatty', (_, { report }) => {
    report(SECRET);
    return 'done';
  });
  const reports = async (filters: readonly ResultFilter[]): Promise<number> => {
    const items: Item[] = [];
    await run([chatty], filters, { onItem: (item) => items.push(item) });
    return items.filter(({ type }) => type === 'tool-report').length;
  };
  expect(await reports([redact])).toBe(0);
  expect(await reports([])).toBe(1);
});

describe('results from elsewhere are filtered too', () => {
  const job = returning('job', () => new Parked('device'));
  const pick = tool({ name: 'pick', description: 'pick', input: { type: 'object' } });

  test.each([
    ['a client', pick],
    ['a parked call', job],
  ])('the answer for %s, when the run is resumed', async (_, asked) => {
    const { result, journal } = await run([asked], [redact]);
    const [wait] = result.waiting;
    const model = scriptedModel(['Done.']);
    const answers = [{ type: 'result', effect: wait!.effect, content: `${SECRET}!` } as const];
    const done = await runLoop({ model, tools: [asked], journal, runId: 'run', resultFilters: [redact], answers });
    expect(resultTexts(done)).toEqual(['[key]!']);
    expect(await recorded(journal, 'run')).toMatchObject([
      { filtered: [{ filter: 'secrets', action: 'changed' }], exposes: { private: { tool: asked.name } } },
    ]);
  });

  test('the answer of a client while the run is driven', async () => {
    const journal = memoryJournal();
    const live = startLoop({
      model: scriptedModel([call('pick'), 'Done.']),
      tools: [pick],
      input: 'Go.',
      journal,
      resultFilters: [redact],
      beforePause: async ([wait]) =>
        live.answer({ type: 'result', effect: wait!.effect, content: SECRET, isError: true, stderr: SECRET }),
    });
    const result = await live.result;
    expect(result.outcome?.type).toBe('completed');
    expect(JSON.stringify(await journal.read(live.runId))).not.toContain(SECRET);
  });

  test('the answer of a client is rejected if the run is cancelled before the filters see it', async () => {
    let told: Promise<readonly PromiseSettledResult<void>[]> | undefined;
    const live = startLoop({
      model: scriptedModel([call('pick'), 'Done.']),
      tools: [pick],
      input: 'Go.',
      journal: memoryJournal(),
      resultFilters: [redact],
      beforePause([wait]) {
        told = Promise.allSettled([live.answer({ type: 'result', effect: wait!.effect, content: SECRET })]);
        live.cancel();
        return told;
      },
    });
    expect((await live.result).outcome?.type).toBe('cancelled');
    expect(await told).toMatchObject([{ status: 'rejected', reason: { code: 'answer-unfit' } }]);
  });

  test('the second of two answers that are filtered at the same time is rejected', async () => {
    let told: Promise<readonly PromiseSettledResult<void>[]> | undefined;
    const live = startLoop({
      model: scriptedModel([call('pick'), 'Done.']),
      tools: [pick],
      input: 'Go.',
      journal: memoryJournal(),
      resultFilters: [redact],
      beforePause([wait]) {
        const give = (content: string): Promise<void> => live.answer({ type: 'result', effect: wait!.effect, content });
        return (told = Promise.allSettled([give('one'), give('two')]));
      },
    });
    expect(resultTexts(await live.result)).toHaveLength(1);
    expect((await told)?.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected']);
  });

  test('what a verification returns', async () => {
    const pay = returning('pay', () => new Promise(() => {}), {
      timeoutMs: 1,
      verify: () => ({ type: 'done', result: SECRET }),
    });
    const { result } = await run([pay], [redact]);
    expect(resultTexts(result)).toEqual(['[key]']);
  });

  test('child runs have the filters of their caller and their own', async () => {
    const upper: ResultFilter = { name: 'own', filter: () => ({ type: 'marked' }) };
    const child = agentTool({
      name: 'child',
      description: 'child',
      model: scriptedModel([call('show'), `It is ${SECRET}.`]),
      tools: [show],
      resultFilters: [upper, redact],
    });
    const journal = memoryJournal();
    const model = scriptedModel([call('child', { task: 'x' }), 'Done.']);
    const options = { model, tools: [child], input: 'Go.', journal, runId: 'run', resultFilters: [redact] };
    expect(resultTexts(await runLoop(options))).toEqual(['It is [key].']);
    const [inside] = await recorded(journal, 'run.t1.tool.0');
    expect(inside).toMatchObject({
      content: [{ text: 'The key is [key].' }],
      filtered: [{ filter: 'own' }, { filter: 'secrets' }],
    });
  });
});

test('a run that is resumed with other filters keeps what it has recorded', async () => {
  const { journal } = await run([show, tool({ name: 'pick', description: 'pick' })], [redact]);
  const refuse: ResultFilter = { name: 'all', filter: () => ({ type: 'refused', reason: 'no' }) };
  const tools = [show, tool({ name: 'pick', description: 'pick' })];
  const answers = [{ type: 'result', effect: 't1.client.1', content: 'mine' } as const];
  await runLoop({ model: scriptedModel(['Done.']), tools, journal, runId: 'run', resultFilters: [refuse], answers });
  expect((await recorded(journal, 'run')).map(({ filtered }) => filtered?.[0]?.filter)).toEqual(['secrets', 'all']);
});

test('a run that is cancelled does not wait for its filters', async () => {
  const hang: ResultFilter = {
    name: 'hang',
    filter: () => (void Promise.resolve().then(() => live.cancel()), new Promise(() => {})),
  };
  const live = startLoop({
    model: scriptedModel([call('show'), 'Done.']),
    tools: [show],
    input: 'Go.',
    resultFilters: [hang],
  });
  expect((await live.result).outcome).toEqual({ type: 'cancelled', phase: 'tool' });
});

test.each([[[null]], [[{ name: 'a' }]], [[{ filter: () => {} }]], ['redact']])(
  'rejects %j as filters',
  (resultFilters) => {
    const options = { model: scriptedModel([]), input: 'Go.', resultFilters } as unknown as LoopOptions;
    expect(() => startLoop(options)).toThrow(expect.objectContaining({ code: 'invalid-options' }));
  },
);
