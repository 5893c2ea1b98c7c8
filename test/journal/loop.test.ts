import { setImmediate } from 'node:timers/promises';
import {
  forkRun,
  memoryJournal,
  replay,
  runLoop,
  tool,
  type JournalEntry,
  type Model,
  type RunStore,
} from '@treadle/core';
import { manualClock, scriptedModel } from '@treadle/core/testing';
import { sqliteStore } from '@treadle/store';
import { expect, test } from 'vitest';

const shout = tool({
  name: 'shout',
  description: 'Converts text to upper case',
  input: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] },
  effect: 'pure',
  execute: ({ text }) => String(text).toUpperCase(),
});
const sign = tool({ name: 'sign', description: 'The user signs', input: { type: 'object' } });

/** A run that calls a tool, pauses for its client, and is resumed. */
async function pauseAndResume(journal: RunStore): Promise<readonly JournalEntry[]> {
  const options = { tools: [shout, sign], runId: 'run', journal, clock: manualClock(1_000) };
  const first = scriptedModel([
    { text: 'é 💡', calls: [{ name: 'shout', arguments: { text: 'ho' } }] },
    { calls: [{ name: 'sign' }] },
  ]);
  const paused = await runLoop({ ...options, model: first, input: 'Make it loud, then have it signed' });
  expect(await journal.list()).toMatchObject([
    { runId: 'run', status: 'paused', title: 'Make it loud, then have it signed' },
  ]);
  const answers = [{ type: 'result', effect: paused.waiting[0]!.effect, content: 'signed' }] as const;
  const { outcome } = await runLoop({ ...options, model: scriptedModel(['Done.']), answers });
  expect(outcome).toEqual({ type: 'completed' });
  expect(await journal.list({ status: ['completed'] })).toMatchObject([{ runId: 'run', model: 'scripted' }]);
  return journal.read('run');
}

test('a run has the same entries in SQLite as in memory, and replays', async () => {
  const store = sqliteStore(':memory:');
  const entries = await pauseAndResume(store);
  await store.close();
  expect(entries).toEqual(await pauseAndResume(memoryJournal()));
  expect(replay(entries)).toMatchObject({ type: 'replayed', state: { phase: { type: 'ended' } } });
});

test('opening and forking a long run without a snapshot lets the event loop turn every few hundred entries', async () => {
  const turns = 3_000;
  const memory = memoryJournal();
  const run = { tools: [shout], runId: 'long' };
  await runLoop({ ...run, model: callingModel(turns), input: 'go', maxTurns: turns + 1, journal: memory });
  await using store = Object.assign(sqliteStore(':memory:'), { [Symbol.asyncDispose]: () => store.close() });
  await store.append('long', await memory.read('long'));
  expect(await store.readSnapshot('long')).toBeUndefined();

  let loopTurns = 0;
  let isOpen = false;
  const counting = (async () => {
    for (; !isOpen; loopTurns++) await setImmediate();
  })();
  const { text } = await runLoop({ ...run, model: scriptedModel([]), journal: store });
  expect(text).toBe('Done.');
  // Reads 6,002 entries in pages, and replays them in slices, of 500.
  expect(loopTurns).toBeGreaterThanOrEqual(20);
  const before = loopTurns;
  await forkRun({ journal: store, runId: 'long', at: 6_001 });
  expect(loopTurns - before).toBeGreaterThanOrEqual(30);
  isOpen = true;
  await counting;
});

/** Makes one call per turn, and then answers. A scripted model would copy the conversation at each turn. */
function callingModel(turns: number): Model {
  let turn = 0;
  return {
    id: 'calling',
    async reply() {
      const call = { type: 'tool-call', id: 'c', name: 'shout', arguments: `{"text":"${turn}"}` } as const;
      const isDone = turn++ === turns;
      return {
        type: 'reply',
        content: [isDone ? { type: 'text', text: 'Done.' } : call],
        finish: isDone ? 'stop' : 'tool-calls',
        usage: { inputTokens: 1, outputTokens: 1 },
        model: 'calling',
      };
    },
  };
}
