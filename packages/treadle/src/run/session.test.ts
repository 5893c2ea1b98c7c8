import { memoryJournal, userText, type RunStore } from '@treadle/core';
import { expect, test } from 'vitest';
import { unfinishedNotice } from './session.ts';

const NOW = 1_000_000;

async function add(store: RunStore, runId: string, at: number, parent?: string): Promise<void> {
  const event = {
    type: 'run-started',
    at,
    runId,
    input: [userText(`do ${runId}`)],
    ...(parent && { parent: { runId: parent } }),
  };
  await store.append(runId, [{ v: 1, seq: 0, issued: [], event: event as never }]);
}

test('prints nothing if there is no unfinished run', async () => {
  expect(await unfinishedNotice(memoryJournal(), {}, NOW)).toBeUndefined();
});

test('names an unfinished run with the commands to resume and cancel it', async () => {
  const store = memoryJournal();
  await add(store, 'a', NOW - 90_000);
  expect(await unfinishedNotice(store, { cwd: 'sub', store: 'sqlite:x.db' }, NOW)).toBe(
    'There is an unfinished run:\n' +
      '  a  1 min ago  do a\n' +
      'Resume with: treadle runs resume a --store sqlite:x.db --cwd sub\n' +
      'Cancel with: treadle runs cancel a --store sqlite:x.db --cwd sub',
  );
});

test('names the newest unfinished runs, but no driven runs and no child runs', async () => {
  const store = memoryJournal();
  for (let i = 1; i <= 5; i++) await add(store, `r${i}`, NOW - 10_000 + i * 1_000);
  await add(store, 'driven', NOW);
  await store.acquire('driven');
  await add(store, 'r1.t1.tool.0', NOW, 'r1');
  expect(await unfinishedNotice(store, {}, NOW)).toBe(
    'There are 5 unfinished runs:\n' +
      '  r5  5 s ago  do r5\n' +
      '  r4  6 s ago  do r4\n' +
      '  r3  7 s ago  do r3\n' +
      '  and more: treadle runs list --status interrupted\n' +
      'Resume with: treadle runs resume r5\n' +
      'Cancel with: treadle runs cancel r5',
  );
});
