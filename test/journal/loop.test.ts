import { memoryJournal, replay, runLoop, tool, type JournalEntry, type RunStore } from '@treadle/core';
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
  const answers = [{ type: 'client-result', effect: paused.waiting[0]!.effect, content: 'signed' }] as const;
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
