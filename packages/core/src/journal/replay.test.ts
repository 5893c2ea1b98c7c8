import { beforeAll, describe, expect, test } from 'vitest';
import { memoryJournal } from './memory.ts';
import type { JournalEntry } from './port.ts';
import type { Item } from './items.ts';
import { scriptedModel } from '../testing/scripted-model.ts';
import { tool } from '../tools/tool.ts';
import { messagesOf } from '../machine/history.ts';
import type { Model } from '../model.ts';
import type { LoopResult } from '../driver/options.ts';
import { replay, SLICE_ENTRIES, statusOf, walkInSlices, walkJournal, type JournalStep } from './replay.ts';
import { runLoop } from '../driver/run.ts';
import { NEW, step } from '../machine/step.ts';

let entries: readonly JournalEntry[];
let result: LoopResult;
const received: Item[] = [];

beforeAll(async () => {
  const journal = memoryJournal();
  using model = scriptedModel([
    {
      text: 'let me see',
      calls: [
        { name: 'look', arguments: { at: 1 } },
        { name: 'look', arguments: { at: 2 } },
      ],
    },
    { calls: [{ name: 'nothing' }] },
    'done',
  ]);
  const look = tool({
    name: 'look',
    description: 'x',
    input: { type: 'object', properties: { at: { type: 'number' } } },
    execute: async ({ at }) => `seen ${String(at)}`,
  });
  result = await runLoop({
    model,
    tools: [look],
    input: 'go',
    journal,
    runId: 'r',
    onItem: (item) => received.push(item),
  });
  entries = JSON.parse(JSON.stringify(await journal.read('r')));
});

test('replay returns the state in which the run ended', () => {
  const { state, type } = replay(entries);
  expect(type).toBe('replayed');
  expect(state.phase).toEqual({ type: 'ended', outcome: result.outcome });
  expect(messagesOf(state.history)).toEqual(result.messages);
  expect(state.usage).toEqual(result.usage);
  expect([state.turn, state.calls]).toEqual([result.turns, result.calls]);
});

test('replay of no entries returns the state of a new run', () => {
  expect(replay([])).toEqual({ type: 'replayed', state: NEW });
});

test('replay of the first entries returns the state that the run had then', () => {
  let live = NEW;
  for (const [seq, { event }] of entries.entries()) {
    live = step(live, event).state;
    const { state } = replay(entries.slice(0, seq + 1));
    expect(messagesOf(state.history)).toEqual(messagesOf(live.history));
    expect({ ...state, history: undefined }).toEqual({ ...live, history: undefined });
  }
});

test('an entry contains the issued effects and the status of the run', () => {
  expect(entries.map(({ event, issued, status }) => [event.type, issued, status])).toEqual([
    ['run-started', ['t1.model.0'], undefined],
    ['model-replied', ['t1.tool.0', 't1.tool.1'], undefined],
    ['tool-settled', [], undefined],
    ['tool-settled', ['t2.model.0'], undefined],
    ['model-replied', ['t3.model.0'], undefined],
    ['model-replied', [], 'completed'],
  ]);
});

describe('replay stops at the first entry that leads to something else', () => {
  function expectDivergence(seq: number, difference: RegExp | string, change: (entry: JournalEntry) => unknown): void {
    const changed = entries.with(seq, change(entries[seq]!) as JournalEntry);
    const replayed = replay(changed);
    expect(replayed).toMatchObject({
      type: 'diverged',
      seq: expect.any(Number),
      difference: typeof difference === 'string' ? difference : expect.stringMatching(difference),
    });
    if (replayed.type !== 'diverged') return;
    const before = replay(changed.slice(0, replayed.seq)).state;
    expect({ ...replayed.state, history: messagesOf(replayed.state.history) }).toEqual({
      ...before,
      history: messagesOf(before.history),
    });
  }

  test('an entry of another version', () => {
    expectDivergence(2, 'the entry has version 2; this code reads version 1', (entry) => ({ ...entry, v: 2 }));
  });

  test('a gap between entries', () => {
    expect(replay(entries.toSpliced(2, 1))).toMatchObject({
      type: 'diverged',
      seq: 2,
      difference: 'the entry at position 2 has the number 3',
    });
  });

  test('an event that does not apply', () => {
    const why = 'it refers to t9.tool.0; outstanding are t1.tool.0, t1.tool.1';
    expectDivergence(2, `the event "tool-settled" no longer applies: ${why}`, (entry) => ({
      ...entry,
      event: { ...entry.event, effect: 't9.tool.0' },
    }));
    expect(replay([...entries, { ...entries[0]!, seq: entries.length }])).toMatchObject({
      type: 'diverged',
      seq: entries.length,
      event: 'run-started',
      difference: 'the event "run-started" no longer applies: no effect is outstanding, and the phase is ended',
    });
  });

  test('an event of an unknown type', () => {
    expectDivergence(2, /^the event "something-new" no longer applies/, (entry) => ({
      ...entry,
      event: { ...entry.event, type: 'something-new' },
    }));
  });

  test('other issued effects', () => {
    expectDivergence(1, 'it issued t1.tool.0; now it issues t1.tool.0, t1.tool.1', (entry) => ({
      ...entry,
      issued: ['t1.tool.0'],
    }));
    expectDivergence(5, 'it issued t4.model.0; now it issues nothing', (entry) => ({
      ...entry,
      issued: ['t4.model.0'],
    }));
  });

  test('other rules, also in a journal without a digest of what the event pins, if they lead to other effects', () => {
    const { pinned, ...first } = entries[0]!;
    const { event } = first as { event: Extract<JournalEntry['event'], { type: 'run-started' }> };
    const changed = { ...first, event: { ...event, rules: { ...event.rules, parallel: false } } };
    expect(replay(entries.with(0, { ...changed, pinned: pinned! }))).toMatchObject({ type: 'diverged', seq: 0 });
    expect(replay(entries.with(0, changed))).toMatchObject({ type: 'diverged', seq: 1 });
    expect(replay(entries.with(0, first))).toMatchObject({ type: 'replayed' });
  });

  test.each<[string, object]>([
    ['instructions', { instructions: 'Do as you like.' }],
    ['principal', { principal: { subject: 's', tenant: 'other', scopes: [] } }],
    ['settings', { settings: { temperature: 1 } }],
    ['model', { model: 'other' }],
    ['tools', { tools: [] }],
  ])('other %s at the start', (_, change) => {
    expectDivergence(0, /^what "run-started" pins has the digest \d+; it was \d+$/, (entry) => ({
      ...entry,
      event: { ...entry.event, ...change },
    }));
  });

  test('other limits', () => {
    expectDivergence(0, /^what "run-started" pins has the digest/, (entry) => {
      const { event } = entry;
      if (event.type !== 'run-started') throw new Error('expected the start');
      return { ...entry, event: { ...event, rules: { ...event.rules, limits: { tokens: 1_000_000 } } } };
    });
  });

  test('any other text in the history', () => {
    const places = [
      [0, 'go'],
      [1, 'let me see'],
      [1, 'look'],
      [2, 'seen 1'],
      [3, 'seen 2'],
    ] as const;
    for (const [seq, original] of places) {
      const text = JSON.stringify(entries[seq]);
      const changed = entries.with(seq, JSON.parse(text.replace(`"${original}"`, `"${original}!"`)));
      expect(JSON.stringify(changed)).not.toBe(JSON.stringify(entries));
      expect(replay(changed), `${seq}: ${original}`).toMatchObject({
        type: 'diverged',
        difference: expect.stringMatching(/digest|issue/),
      });
    }
  });

  test('a missing digest', () => {
    expectDivergence(
      0,
      /^the history for t1.model.0 has digest \d+; it was undefined$/,
      ({ digest: _, ...entry }) => entry,
    );
    expectDivergence(
      5,
      /^the history and outcome have digest \d+; it was undefined$/,
      ({ digest: _, ...entry }) => entry,
    );
  });

  test('another status or outcome', () => {
    const status = 'exhausted';
    expectDivergence(5, 'the run was exhausted after it; now it is completed', (entry) => ({ ...entry, status }));
    expectDivergence(5, 'the run was running after it; now it is completed', ({ status: _, ...entry }) => entry);
    expectDivergence(4, 'the run was exhausted after it; now it is running', (entry) => ({ ...entry, status }));
    const last = JSON.parse(JSON.stringify(entries[5]).replace('"done"', '"done!"'));
    expectDivergence(5, /^the history and outcome have digest/, () => last);
    const cut = JSON.parse(JSON.stringify(entries[5]).replace('"stop"', '"length"'));
    expectDivergence(5, /^the history and outcome have digest/, () => cut);
  });

  test('rules that this version does not support', () => {
    const why = 'the event "run-started" no longer applies: this version does not support its rules';
    for (const [rules, description] of [
      [{ wording: 3 }, '(wording 3, finish "plain")'],
      [{ finish: 'later' }, '(wording 2, finish "later")'],
    ] as const) {
      expectDivergence(0, `${why} ${description}`, (entry) => {
        const { event } = entry;
        return event.type === 'run-started'
          ? { ...entry, event: { ...event, rules: { ...event.rules, ...rules } } }
          : entry;
      });
    }
  });

  test('reports the event and the effect', () => {
    const replayChanged = (seq: number, change: object): unknown =>
      replay(entries.with(seq, { ...entries[seq]!, ...change }));
    expect(replayChanged(1, { issued: ['t1.tool.0', 't1.tool.7'] })).toMatchObject({
      event: 'model-replied',
      effect: 't1.tool.7',
    });
    expect(replayChanged(1, { issued: ['t1.tool.0'] })).toMatchObject({ event: 'model-replied', effect: 't1.tool.1' });
    expect(replayChanged(5, { issued: ['t4.model.0'] })).toMatchObject({
      event: 'model-replied',
      effect: 't4.model.0',
    });
    expect(replayChanged(3, { digest: 1 })).toMatchObject({ event: 'tool-settled', effect: 't2.model.0' });
    expect(replayChanged(2, { event: { ...entries[2]!.event, effect: 't9.tool.0' } })).toMatchObject({
      effect: 't9.tool.0',
    });
  });
});

test('replay accepts a journal whose store changed the order of fields', () => {
  const reversed = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(reversed);
    if (typeof value !== 'object' || value === null) return value;
    return Object.fromEntries(
      Object.entries(value)
        .toReversed()
        .map(([key, inner]) => [key, reversed(inner)]),
    );
  };
  expect(replay(reversed(entries) as readonly JournalEntry[]).type).toBe('replayed');
});

test('replay accepts the entries of a run whose caller changed its settings and principal afterwards', async () => {
  const journal = memoryJournal();
  using model = scriptedModel(['done']);
  const settings = { temperature: 0, stop: ['a'] };
  const principal = { subject: 's', tenant: 't', scopes: ['read'] };
  await runLoop({ model, input: 'go', journal, runId: 'r', settings, principal });
  settings.temperature = 1;
  settings.stop.push('b');
  principal.scopes.push('write');
  const stored = await journal.read('r');
  expect(replay(stored).type).toBe('replayed');
  expect(stored[0]!.event).toMatchObject({
    settings: { temperature: 0, stop: ['a'] },
    principal: { scopes: ['read'] },
  });
});

describe('walkJournal', () => {
  test('visits every entry with its states and with the items that a listener received', () => {
    const steps: JournalStep[] = [];
    expect(walkJournal(entries, (one) => steps.push(one))).toEqual(replay(entries));
    expect(steps.map(({ entry }) => entry)).toEqual(entries);
    expect(steps[0]!.before).toBe(NEW);
    for (const [index, { before }] of steps.slice(1).entries()) expect(before).toBe(steps[index]!.state);
    const facts = received.filter(({ type }) => !type.endsWith('-delta') && type !== 'tool-report');
    expect(JSON.parse(JSON.stringify(steps.flatMap(({ items }) => items)))).toEqual(JSON.parse(JSON.stringify(facts)));
  });

  test('does not visit the first entry that leads to something else, or later ones', () => {
    const damaged = entries.map((entry) => (entry.seq === 2 ? { ...entry, issued: ['t9.tool.9'] } : entry));
    const seen: number[] = [];
    expect(walkJournal(damaged, ({ entry }) => seen.push(entry.seq))).toMatchObject({ type: 'diverged', seq: 2 });
    expect(seen).toEqual([0, 1]);
  });
});

describe('walkInSlices', () => {
  const SIZES = [0, 1, 2].flatMap((slices) => [-1, 0, 1].map((more) => slices * SLICE_ENTRIES + more));
  let long: readonly JournalEntry[];

  beforeAll(async () => {
    const journal = memoryJournal();
    const turns = SLICE_ENTRIES + 50;
    let count = 0;
    // A scripted model would copy the conversation at each turn.
    const model: Model = {
      id: 'm',
      reply: async () => ({
        type: 'reply',
        content: [
          count < turns
            ? { type: 'tool-call', id: 'c', name: 'next', arguments: '{}' }
            : { type: 'text', text: 'done' },
        ],
        finish: count < turns ? 'tool-calls' : 'stop',
        usage: { inputTokens: 1, outputTokens: 1 },
        model: 'm',
      }),
    };
    const next = tool({ name: 'next', description: 'x', effect: 'pure', execute: () => String(count++) });
    await runLoop({ model, tools: [next], input: 'go', maxTurns: turns + 1, journal, runId: 'r' });
    long = await journal.read('r');
    expect(long.length).toBeGreaterThan(2 * SLICE_ENTRIES);
  });

  test.each(SIZES.filter((size) => size >= 0))('does the same as walkJournal with %i entries', async (size) => {
    const [steps, sliced]: JournalStep[][] = [[], []];
    const walked = walkJournal(long.slice(0, size), (one) => steps!.push(one));
    expect(await walkInSlices(long.slice(0, size), (one) => sliced!.push(one))).toEqual(walked);
    expect(sliced!.map(({ entry, items }) => ({ entry, items }))).toEqual(
      steps!.map(({ entry, items }) => ({ entry, items })),
    );
  });

  test('starts from a state, and stops at the first entry that differs', async () => {
    const start = { state: replay(long.slice(0, 100)).state, seq: 100 };
    expect(await walkInSlices(long.slice(100), undefined, start)).toEqual(replay(long));
    const seq = SLICE_ENTRIES + 20;
    const damaged = long.with(seq, { ...long[seq]!, issued: ['t9.tool.9'] });
    expect(await walkInSlices(damaged)).toMatchObject({ type: 'diverged', seq });
    expect(await walkInSlices(damaged.slice(100), undefined, start)).toMatchObject({ type: 'diverged', seq });
  });

  test('lets the event loop turn between slices', async () => {
    let turns = 0;
    const count = (): void => {
      turns++;
      setImmediate(count).unref();
    };
    setImmediate(count).unref();
    await walkInSlices(long);
    expect(turns).toBeGreaterThanOrEqual(Math.ceil(long.length / SLICE_ENTRIES) - 1);
  });
});

test('statusOf returns the status that the entries record', () => {
  expect(statusOf(replay(entries).state)).toBe(entries.at(-1)!.status);
  expect(statusOf(replay(entries.slice(0, 2)).state)).toBe('running');
});
