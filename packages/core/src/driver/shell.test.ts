import { expect, test } from 'vitest';
import type { Item } from '../journal/items.ts';
import type { Journal, Lease } from '../journal/port.ts';
import { manualClock, memoryJournal, scriptedModel } from '../testing/index.ts';
import { tool } from '../tools/tool.ts';
import { runLoop, streamLoop } from './run.ts';

/** A journal that fails from the nth append on, synchronously or asynchronously. */
function failingJournal(from: number, how: 'throws' | 'rejects'): Journal {
  const journal = memoryJournal();
  let appends = 0;
  return {
    ...journal,
    append(...appended) {
      if (appends++ < from) return journal.append(...appended);
      if (how === 'rejects') return Promise.reject(new Error('disk full'));
      throw new Error('disk full');
    },
  };
}

const failures = (['throws', 'rejects'] as const).flatMap((how) => [0, 1, 2].map((from) => [how, from] as const));

test.each(failures)(
  'rejects with journal-failed if the journal %s at append %i, and performs no effects of these entries',
  async (how, from) => {
    const ran: string[] = [];
    const act = tool({ name: 'act', description: 'act', execute: () => `acted ${ran.push('act')}` });
    const model = scriptedModel([{ calls: [{ name: 'act' }] }, 'Done.']);
    const facts: string[] = [];
    const onItem = (item: Item): unknown => item.type === 'fact' && facts.push(item.event.type);
    const run = runLoop({
      model,
      tools: [act],
      input: 'Go.',
      journal: failingJournal(from, how),
      runId: 'run',
      onItem,
    });
    await expect(run).rejects.toMatchObject({
      code: 'journal-failed',
      message: 'The journal failed, so run "run" stopped: disk full',
      cause: new Error('disk full'),
    });
    // `run-started` issues a model call, `model-replied` the tool call, `tool-settled` another model call.
    expect(model.requests).toHaveLength(from === 0 ? 0 : 1);
    expect(ran).toHaveLength(from === 2 ? 1 : 0);
    expect(facts).toEqual(['run-started', 'model-replied', 'tool-settled'].slice(0, from));
  },
);

test('aborts running tools if the journal fails', async () => {
  const clock = manualClock();
  let toolSignal: AbortSignal | undefined;
  const hang = tool({
    name: 'hang',
    description: 'hang',
    execute: (_, { signal }) => ((toolSignal = signal), new Promise(() => {})),
  });
  const slow = tool({
    name: 'slow',
    description: 'slow',
    execute: () => new Promise((end) => clock.timer(5, () => end('ok'))),
  });
  using model = scriptedModel([{ calls: [{ name: 'hang' }, { name: 'slow' }] }]);
  const live = streamLoop({ model, tools: [hang, slow], input: 'Go.', journal: failingJournal(2, 'rejects'), clock });
  await clock.advance(5);
  await expect(live.result).rejects.toMatchObject({ code: 'journal-failed' });
  expect(toolSignal!.aborted).toBe(true);
  expect(await live.send('Too late.')).toBe(false);
  expect(clock.pending).toBe(0);
});

test('causes no unhandled rejection if the journal fails and the result is ignored', async () => {
  const clock = manualClock();
  streamLoop({ model: scriptedModel(['x']), input: 'Go.', journal: failingJournal(0, 'rejects'), clock });
  streamLoop({ model: scriptedModel([]), runId: 'run', journal: failingJournal(0, 'throws'), answers: [], clock });
  await clock.advance(0); // an unhandled rejection would fail the test run
});

test('rejects with journal-failed if the journal cannot be read', async () => {
  const read = (): Promise<never> => Promise.reject(new Error('no disk'));
  const journal: Journal = { append: () => {}, read };
  await expect(runLoop({ model: scriptedModel([]), journal, runId: 'run' })).rejects.toMatchObject({
    code: 'journal-failed',
    message: expect.stringContaining('no disk'),
  });
});

test('starts an effect only when the event that issued it is stored', async () => {
  const clock = manualClock();
  const log: string[] = [];
  const journal: Journal = {
    ...memoryJournal(),
    append: (_, entries) =>
      new Promise((resolve) =>
        clock.timer(10, () => {
          for (const { event } of entries) log.push(`durable: ${event.type}`);
          resolve();
        }),
      ),
  };
  const act = tool({ name: 'act', description: 'act', execute: () => (log.push('tool'), 'acted') });
  using model = scriptedModel([
    () => (log.push('model'), { calls: [{ name: 'act' }] }),
    () => (log.push('model'), 'Done.'),
  ]);
  const run = runLoop({ model, tools: [act], input: 'Go.', journal, clock });
  await clock.advance(40);
  expect((await run).outcome).toEqual({ type: 'completed' });
  expect(log).toEqual([
    'durable: run-started',
    'model',
    'durable: model-replied',
    'tool',
    'durable: tool-settled',
    'model',
    'durable: model-replied',
  ]);
});

/** Logs each append as the types of its events, and what it waits for. */
function loggingJournal(log: string[]): Journal {
  const journal = memoryJournal();
  return {
    ...journal,
    append(runId, entries, lease, until) {
      log.push(`${entries.map(({ event }) => event.type).join(', ')}: ${until ?? 'durable'}`);
      return journal.append(runId, entries, lease, until);
    },
  };
}

test.each([
  ['pure', undefined, 'accepted'],
  ['pure', true, 'durable'],
  ['idempotent', undefined, 'durable'],
  ['once', undefined, 'durable'],
] as const)('a call of a tool with the effect %s, with durableItems %s, waits until it is %s', async (...row) => {
  const [effect, durableItems, until] = row;
  const log: string[] = [];
  const act = tool({ name: 'act', description: 'act', effect, execute: () => 'acted' });
  using model = scriptedModel([{ calls: [{ name: 'act' }] }, 'Done.']);
  await runLoop({
    model,
    tools: [act],
    input: 'Go.',
    journal: loggingJournal(log),
    ...(durableItems && { durableItems }),
  });
  expect(log).toEqual([
    `run-started: ${durableItems ? 'durable' : 'accepted'}`,
    `model-replied: ${until}`,
    `tool-settled: ${durableItems ? 'durable' : effect === 'pure' ? 'accepted' : 'written'}`,
    'model-replied: durable',
  ]);
});

test('what was lost is durable before it is done again', async () => {
  const log: string[] = [];
  const journal = loggingJournal(log);
  const look = tool({ name: 'look', description: 'look', effect: 'pure', execute: () => new Promise<never>(() => {}) });
  const given = { tools: [look], journal, runId: 'run' };
  const live = streamLoop({ ...given, model: scriptedModel([{ calls: [{ name: 'look' }] }]), input: 'Go.' });
  for await (const { type } of live) if (type === 'call-started') await live.detach();
  log.length = 0;
  const seen = tool({ ...look, execute: () => 'seen' });
  await runLoop({ ...given, tools: [seen], model: scriptedModel(['Done.']) });
  expect(log).toEqual(['effect-lost: durable', 'tool-settled: accepted', 'model-replied: durable']);
});

test('a run whose last driver died writes each entry before anything follows from it', async () => {
  const log: string[] = [];
  const logging = loggingJournal(log);
  const acquire = async (runId: string): Promise<Lease> => ({ ...(await logging.acquire!(runId)), takenOver: true });
  const look = tool({ name: 'look', description: 'look', effect: 'pure', execute: () => 'seen' });
  using model = scriptedModel([{ calls: [{ name: 'look' }] }, 'Done.']);
  await runLoop({ model, tools: [look], input: 'Go.', journal: { ...logging, acquire } });
  expect(log).toEqual([
    'run-started: written',
    'model-replied: written',
    'tool-settled: written',
    'model-replied: durable',
  ]);
});

test('an entry that a snapshot covers is written first: another driver may have appended a different one', async () => {
  const log: string[] = [];
  const journal: Journal = {
    ...loggingJournal(log),
    snapshotFrom: 2,
    writeSnapshot: async (_, { seq }) => void log.push(`snapshot of ${seq}`),
  };
  const look = tool({ name: 'look', description: 'look', effect: 'pure', execute: () => 'seen' });
  using model = scriptedModel([{ calls: [{ name: 'look' }] }, 'Done.']);
  await runLoop({ model, tools: [look], input: 'Go.', journal });
  expect(log).toEqual([
    'run-started: accepted',
    'model-replied: written',
    'snapshot of 2',
    'tool-settled: written',
    'snapshot of 3',
    'model-replied: durable',
  ]);
});

test('input, answers, a pause and a lost effect are durable before anything follows from them', async () => {
  const log: string[] = [];
  const journal = loggingJournal(log);
  const client = tool({ name: 'client', description: 'client' });
  using model = scriptedModel([{ calls: [{ name: 'client' }] }, () => new Promise(() => {})]);
  const options = { model, tools: [client], journal, runId: 'run' };
  const live = streamLoop({ ...options, input: 'Go.' });
  expect(await live.send('More.')).toBe(true);
  const { waiting } = await live.result;
  const answers = [{ type: 'result', effect: waiting[0]!.effect, content: 'b' }] as const;
  const resumed = streamLoop({ ...options, answers });
  for await (const item of resumed) if (item.type === 'turn-started') break;
  await resumed.result;
  expect(log).toEqual([
    'run-started, input-added: durable',
    'model-replied: durable',
    'client-result-given: durable',
    'cancel-requested: durable',
  ]);
});

test('a run that is detached makes all its entries durable before it is done', async () => {
  const log: string[] = [];
  const look = tool({ name: 'look', description: 'look', effect: 'pure', execute: () => new Promise(() => {}) });
  using model = scriptedModel([{ calls: [{ name: 'look' }] }]);
  const live = streamLoop({ model, tools: [look], input: 'Go.', journal: loggingJournal(log) });
  for await (const item of live) {
    if (item.type === 'fact' && item.event.type === 'model-replied') await live.detach();
  }
  expect((await live.result).detached).toBe(true);
  expect(log).toEqual(['run-started: accepted', 'model-replied: accepted', ': durable']);
});

test('a step that is only accepted does not overtake one that must be durable', async () => {
  const clock = manualClock();
  const log: string[] = [];
  const journal: Journal = {
    ...memoryJournal(),
    append: (_, __, ___, until) => {
      if (until === 'accepted') return undefined;
      return new Promise((resolve) => clock.timer(10, resolve));
    },
  };
  const slow = tool({
    name: 'slow',
    description: 'slow',
    effect: 'pure',
    execute: () => new Promise((end) => clock.timer(5, () => end('ok'))),
  });
  using model = scriptedModel([{ calls: [{ name: 'slow' }] }, 'Done.']);
  const onItem = (item: Item): unknown => item.type === 'fact' && log.push(item.event.type);
  const live = streamLoop({ model, tools: [slow], input: 'Go.', journal, clock, onItem });
  await clock.advance(2);
  const sent = live.send('More.').then(() => log.push('acknowledged'));
  await clock.advance(3);
  // The result of the tool is accepted, but the input before it is not durable yet.
  expect(log).toEqual(['run-started', 'model-replied']);
  expect(model.requests).toHaveLength(1);
  await clock.advance(100);
  await sent;
  expect((await live.result).outcome).toEqual({ type: 'completed' });
  expect(log.filter((type) => type !== 'acknowledged').slice(2, 4)).toEqual(['input-added', 'tool-settled']);
});

test('an acknowledgement rejects if the journal fails, and needs no handler', async () => {
  const model = scriptedModel([() => new Promise(() => {})]);
  const onItem = (item: Item): unknown => item.type === 'turn-started' && void live.send('Ignored.');
  const live = streamLoop({ model, input: 'Go.', journal: failingJournal(1, 'rejects'), onItem });
  await expect(live.result).rejects.toMatchObject({ code: 'journal-failed' });
  const again = streamLoop({ model, input: 'Go.', journal: failingJournal(0, 'rejects') });
  await expect(again.send('Lost.')).rejects.toMatchObject({ code: 'journal-failed' });
});
