import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { memoryJournal } from '../../journal/memory.ts';
import type { Journal, JournalEntry } from '../../journal/port.ts';
import type { Message } from '../../messages.ts';
import type { Model } from '../../model.ts';
import { manualClock } from '../../testing/manual-clock.ts';
import { scriptedModel } from '../../testing/scripted-model.ts';
import type { StandardSchema } from '../../tools/schema.ts';
import { tool } from '../../tools/tool.ts';
import type { Item } from '../../journal/items.ts';
import type { LoopResult } from '../options.ts';
import { replay } from '../../journal/replay.ts';
import { runLoop, streamLoop } from '../run.ts';
import type { CancelPhase } from '../../machine/state.ts';

const forever = (): Promise<never> => new Promise(() => {});
const stuck = tool({ name: 'stuck', description: 'x', execute: forever });
const look = tool({ name: 'look', description: 'x', execute: () => 'seen' });
const client = tool({ name: 'client', description: 'x' });

function expectCancelled(result: LoopResult, phase: CancelPhase): void {
  expect(result.outcome).toEqual({ type: 'cancelled', phase });
  expect(result.waiting).toEqual([]);
  expectValid(result.messages);
}

/** Every call has its result, in order, in the message after it. */
function expectValid(messages: readonly Message[]): void {
  for (const [index, message] of messages.entries()) {
    if (message.role !== 'assistant') continue;
    const calls = message.content.flatMap((part) => (part.type === 'tool-call' ? part.id : []));
    if (calls.length === 0) continue;
    const next = messages[index + 1];
    expect(next?.role === 'tool' && next.content.map(({ callId }) => callId)).toEqual(calls);
  }
}

describe('cancels in each phase', () => {
  test('before the start: the model is not called, but the run is in the journal', async () => {
    const journal = memoryJournal();
    using model = scriptedModel([]);
    const result = await runLoop({ model, input: 'go', signal: AbortSignal.abort(), journal, runId: 'r' });
    expectCancelled(result, 'model');
    expect((await journal.read('r')).map(({ event }) => event.type)).toEqual(['run-started', 'cancel-requested']);
  });

  test.each(['by its signal', 'by cancel()'])('right after the start, %s', async (how) => {
    const controller = new AbortController();
    using model = scriptedModel([]);
    const live = streamLoop({ model, input: 'go', signal: controller.signal });
    if (how === 'by cancel()') live.cancel();
    else controller.abort();
    expectCancelled(await live.result, 'model');
  });

  test('while the model is called: aborts the model call, and ignores its reply', async () => {
    let aborted = false;
    const { promise, resolve } = Promise.withResolvers<void>();
    using model = scriptedModel([
      async (_, signal) => {
        signal.addEventListener('abort', () => (aborted = true));
        await promise;
        return { calls: [{ name: 'look' }] };
      },
    ]);
    const live = streamLoop({ model, tools: [look], input: 'go' });
    await tick();
    live.cancel();
    const result = await live.result;
    expectCancelled(result, 'model');
    expect(aborted).toBe(true);
    resolve();
    await tick();
    expect(result.messages).toHaveLength(1);
  });

  test('while arguments are validated: the call does not run', async () => {
    const { promise, resolve } = Promise.withResolvers<boolean>();
    let ran = false;
    const slow = tool({
      name: 'slow',
      description: 'x',
      input: z.object({}).refine(() => promise),
      execute: () => (ran = true),
    });
    using model = scriptedModel([{ calls: [{ name: 'slow' }] }]);
    const live = streamLoop({ model, tools: [slow], input: 'go' });
    await tick();
    live.cancel();
    expectCancelled(await live.result, 'model');
    resolve(true);
    await tick();
    expect(ran).toBe(false);
  });

  test('while calls are judged: aborts the policy, and no call runs', async () => {
    let [ran, aborted] = [0, false];
    const asked = Promise.withResolvers<void>();
    const { promise, resolve } = Promise.withResolvers<readonly { type: 'allow' }[]>();
    using model = scriptedModel([{ calls: [{ name: 'count' }, { name: 'count' }] }]);
    const live = streamLoop({
      model,
      tools: [tool({ name: 'count', description: 'x', execute: () => void ran++ })],
      input: 'go',
      policy: {
        judge: (_, { signal }) => {
          signal.addEventListener('abort', () => (aborted = true));
          asked.resolve();
          return promise;
        },
      },
    });
    await asked.promise;
    live.cancel();
    const result = await live.result;
    expectCancelled(result, 'tool');
    resolve([{ type: 'allow' }, { type: 'allow' }]);
    await tick();
    expect([ran, aborted]).toEqual([0, true]);
    expect(result.messages[2]!.content).toHaveLength(2);
  });

  test('while tools run: results are kept, and the other calls get an error result', async () => {
    let signal: AbortSignal | undefined;
    const watching = tool({
      name: 'watching',
      description: 'x',
      execute: (_, context) => ((signal = context.signal), forever()),
    });
    using model = scriptedModel([
      { text: 'both', calls: [{ name: 'look' }, { name: 'watching' }, { name: 'stuck' }, { name: 'look' }] },
    ]);
    const live = streamLoop({ model, tools: [look, watching, stuck], input: 'go', maxParallel: 2 });
    await tick();
    live.cancel();
    const result = await live.result;
    expectCancelled(result, 'tool');
    expect(signal!.aborted).toBe(true);
    expect(result.messages[2]!.content).toMatchObject([
      { isError: false, content: [{ text: 'seen' }] },
      { isError: true, content: [{ text: 'Not finished: the run was cancelled.' }] },
      { isError: true },
      { isError: true },
    ]);
  });

  test.each<[string, CancelPhase]>([
    ['an approval', 'approval'],
    ['a client', 'client'],
  ])('while the run waits for %s, and another call has just settled', async (kind, phase) => {
    const { promise, resolve } = Promise.withResolvers<string>();
    const busy = tool({ name: 'busy', description: 'x', execute: () => promise });
    const name = kind === 'a client' ? 'client' : 'look';
    using model = scriptedModel([{ calls: [{ name }, { name: 'busy' }] }]);
    const live = streamLoop({
      model,
      tools: [client, look, busy],
      input: 'go',
      policy: { judge: (calls) => calls.map((call) => (call.name === 'look' ? { type: 'ask' } : { type: 'allow' })) },
      onItem: (item) => {
        if (item.type === 'fact' && item.event.type === 'tool-settled') live.cancel();
      },
    });
    await tick();
    resolve('done');
    expectCancelled(await live.result, phase);
  });

  test('while the run is paused: by resuming it with an aborted signal', async () => {
    const journal = memoryJournal();
    using model = scriptedModel([{ calls: [{ name: 'client' }] }]);
    const options = { model, tools: [client], journal, runId: 'r' };
    expect((await runLoop({ ...options, input: 'go' })).waiting).toHaveLength(1);
    expectCancelled(await runLoop({ ...options, answers: [], signal: AbortSignal.abort() }), 'client');
  });

  test('while a resumed run is read from the journal', async () => {
    const journal = memoryJournal();
    const { promise, resolve } = Promise.withResolvers<void>();
    const slow: Journal = {
      append: (...all) => journal.append(...all),
      read: async (...all) => (await promise, journal.read(...all)),
    };
    using model = scriptedModel([{ calls: [{ name: 'client' }] }]);
    await runLoop({ model, tools: [client], input: 'go', journal, runId: 'r' });
    const controller = new AbortController();
    const live = streamLoop({
      model,
      tools: [client],
      journal: slow,
      runId: 'r',
      answers: [],
      signal: controller.signal,
    });
    await tick();
    controller.abort();
    resolve();
    expectCancelled(await live.result, 'client');
  });

  test('while a lost call of a resumed run is validated again: the call does not run', async () => {
    const original = memoryJournal();
    let [ran, checks] = [0, 0];
    const { promise, resolve } = Promise.withResolvers<void>();
    const validate = async (value: unknown): Promise<{ value: unknown }> => {
      if (checks++ > 0) await promise;
      return { value };
    };
    const input: StandardSchema = { '~standard': { version: 1, vendor: 'test', validate } };
    const slow = tool({
      name: 'slow',
      description: 'x',
      effect: 'pure',
      input,
      parameters: { type: 'object' },
      execute: () => (ran++, forever()),
    });
    using model = scriptedModel([{ calls: [{ name: 'slow' }] }]);
    const first = streamLoop({ model, tools: [slow], input: 'go', journal: original, runId: 'r' });
    await tick();
    expect(ran).toBe(1);
    // As after a crash: the entries so far, in a journal that no process drives.
    const journal = memoryJournal();
    await journal.append('r', await original.read('r'));
    const live = streamLoop({ model, tools: [slow], journal, runId: 'r', answers: [] });
    await tick();
    expect(checks).toBe(2);
    live.cancel();
    expectCancelled(await live.result, 'tool');
    resolve();
    await tick();
    expect(ran).toBe(1);
    first.cancel();
  });
});

describe('cancels while an append is pending', () => {
  function slowJournal(): { journal: Journal; entries: JournalEntry[]; release: () => void } {
    const entries: JournalEntry[] = [];
    let waiting: (() => void)[] = [];
    return {
      entries,
      journal: {
        append: (_, added) =>
          new Promise<void>((resolve) => {
            entries.push(...added);
            waiting.push(resolve);
          }),
        read: async () => entries,
      },
      release() {
        const open = waiting;
        waiting = [];
        for (const resolve of open) resolve();
      },
    };
  }

  test.each([1, 2, 3, 4])('while entry %d is not durable: starts no effect that it issued', async (cancelAt) => {
    const { journal, entries, release } = slowJournal();
    const started: string[] = [];
    const work = tool({
      name: 'work',
      description: 'x',
      execute: async () => {
        started.push('tool');
        return 'done';
      },
    });
    using model = scriptedModel(
      [() => (started.push('model'), { calls: [{ name: 'work' }] }), () => (started.push('model'), 'done')].slice(
        0,
        cancelAt === 4 ? 2 : Math.floor(cancelAt / 2),
      ),
    );
    const live = streamLoop({ model, tools: [work], input: 'go', journal });
    await tick();
    while (entries.length < cancelAt) {
      release();
      await tick();
    }
    const before = started.length;
    live.cancel();
    live.cancel();
    let ended = false;
    void live.result.then(() => (ended = true));
    await tick();
    expect(ended).toBe(false);
    release();
    await tick();
    release();
    const result = await live.result;
    expect(started.length).toBe(before);
    if (cancelAt === 4) expect(result.outcome).toEqual({ type: 'completed' });
    else expect(result.outcome).toMatchObject({ type: 'cancelled' });
    expectValid(result.messages);
    expect(entries.filter(({ event }) => event.type === 'cancel-requested')).toHaveLength(cancelAt === 4 ? 0 : 1);
    expect(replay(entries)).toMatchObject({ type: 'replayed', state: { phase: { outcome: result.outcome } } });
  });
});

test('cancel changes nothing when repeated, or after the end', async () => {
  const journal = memoryJournal();
  using model = scriptedModel([forever]);
  const controller = new AbortController();
  const live = streamLoop({ model, input: 'go', journal, runId: 'r', signal: controller.signal });
  await tick();
  live.cancel();
  live.cancel();
  controller.abort();
  const result = await live.result;
  live.cancel();
  expectCancelled(result, 'model');
  expect(await live.result).toBe(result);
  expect((await journal.read('r')).map(({ event }) => event.type)).toEqual(['run-started', 'cancel-requested']);
});

test('cancels from inside a tool, a policy and a model', async () => {
  const callbacks = {
    tool: (cancel: () => void) => ({
      tools: [tool({ name: 'look', description: 'x', execute: () => (cancel(), 'seen') })],
    }),
    policy: (cancel: () => void) => ({
      tools: [look],
      policy: { judge: () => (cancel(), [{ type: 'allow' as const }]) },
    }),
  };
  for (const optionsWith of Object.values(callbacks)) {
    using model = scriptedModel([{ calls: [{ name: 'look' }] }]);
    const live = streamLoop({ model, input: 'go', ...optionsWith(() => live.cancel()) });
    expectCancelled(await live.result, 'tool');
  }
  const model: Model = {
    id: 'm',
    reply: () => {
      live.cancel();
      return forever();
    },
  };
  const live = streamLoop({ model, input: 'go' });
  expectCancelled(await live.result, 'model');
});

test('aborts a tool that cancels the run and then continues', async () => {
  const clock = manualClock();
  let signal: AbortSignal | undefined;
  const work = tool({
    name: 'work',
    description: 'x',
    execute: (_, context) => {
      signal = context.signal;
      live.cancel();
      return forever();
    },
  });
  const live = streamLoop({ model: scriptedModel([{ calls: [{ name: 'work' }] }]), tools: [work], input: 'go', clock });
  expectCancelled(await live.result, 'tool');
  expect(signal!.aborted).toBe(true);
  expect(clock.pending).toBe(0);
});

test('cancels from a listener at any item, and the history is valid', async () => {
  const runAndCancel = async (cancelAt: number): Promise<number> => {
    let seen = 0;
    const journal = memoryJournal();
    const model = scriptedModel([{ text: 'both of them', calls: [{ name: 'look' }, { name: 'later' }] }, 'done']);
    const later = tool({
      name: 'later',
      description: 'x',
      execute: async (_, { report }) => (report('half'), 'at last'),
    });
    const items: Item[] = [];
    const live = streamLoop({
      model,
      tools: [look, later],
      input: 'go',
      journal,
      runId: 'r',
      onItem: (item) => {
        items.push(item);
        if (seen++ === cancelAt) live.cancel();
      },
    });
    const result = await live.result;
    expectValid(result.messages);
    expect(['cancelled', 'completed']).toContain(result.outcome!.type);
    expect(replay(await journal.read('r'))).toMatchObject({ type: 'replayed' });
    return seen;
  };
  const all = await runAndCancel(Infinity);
  expect(all).toBeGreaterThan(12);
  for (let at = 0; at < all; at++) await runAndCancel(at);
});

test('a run removes its listener from the signal of the caller', async () => {
  const controller = new AbortController();
  const { signal } = controller;
  let listening = 0;
  const { addEventListener, removeEventListener } = signal;
  signal.addEventListener = (...all: Parameters<typeof addEventListener>) => {
    listening++;
    addEventListener.apply(signal, all);
  };
  signal.removeEventListener = (...all: Parameters<typeof removeEventListener>) => {
    listening--;
    removeEventListener.apply(signal, all);
  };
  for (let run = 0; run < 3; run++) {
    using model = scriptedModel(['done']);
    await runLoop({ model, input: 'go', signal });
  }
  expect(listening).toBe(0);
});

test('cancel leaves no timer', async () => {
  const clock = manualClock();
  using model = scriptedModel([{ calls: [{ name: 'stuck' }, { name: 'stuck' }] }]);
  const live = streamLoop({ model, tools: [stuck], input: 'go', clock, limits: { durationMs: 5_000 } });
  await clock.advance(1);
  expect(clock.pending).toBe(3);
  live.cancel();
  await live.result;
  expect(clock.pending).toBe(0);
});

function tick(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 1));
}
