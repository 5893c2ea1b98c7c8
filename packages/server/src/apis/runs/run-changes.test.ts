import { setImmediate } from 'node:timers/promises';
import type { RunFilter, RunStatus, RunSummary } from '@treadle/core';
import { expect, test, vi } from 'vitest';
import { follow } from '../../requests/event-log.ts';
import { runChanges, type RunChange } from './run-changes.ts';

/** A store of summaries that counts how often it is listed. */
function fakeStore() {
  const runs = new Map<string, RunSummary>();
  const listeners = new Set<() => void>();
  let looks = 0;
  return {
    set(runId: string, status: RunStatus, startedAt = runs.size) {
      const entries = (runs.get(runId)?.entries ?? 0) + 1;
      runs.set(runId, { runId, status, startedAt, updatedAt: 0, entries, model: 'm', title: '', tenant: 't' });
    },
    delete: (runId: string) => void runs.delete(runId),
    notify: () => [...listeners].forEach((listener) => listener()),
    get looks() {
      return looks;
    },
    get listeners() {
      return listeners.size;
    },
    async list({ runId, tenant, status, limit = 100 }: RunFilter = {}) {
      if (runId === undefined && !status) looks += 1;
      return [...runs.values()]
        .filter((run) => run.tenant === tenant && (runId === undefined || run.runId === runId))
        .filter((run) => !status || status.includes(run.status))
        .sort((a, b) => b.startedAt - a.startedAt)
        .slice(0, limit);
    },
    watchRuns(listener: () => void) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
  };
}

/** Readers look for changes in later turns of the event loop. */
async function turns(): Promise<void> {
  for (let turn = 0; turn < 10; turn++) await setImmediate();
}

const textOf = (change: RunChange): string =>
  change.type === 'ready'
    ? 'ready'
    : change.type === 'deleted'
      ? `${change.runId} deleted`
      : `${change.run.runId} ${change.run.status} ${change.run.entries}`;

test('the store is looked at once for all clients of a tenant, and only while there are some', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
  try {
    const store = fakeStore();
    const changes = runChanges(store);
    store.set('old', 'paused');
    for (let index = 0; index < 150; index++) store.set(`run${index}`, 'completed');
    const leaving = new AbortController();
    const { signal } = leaving;
    const received: string[][] = [[], []];
    const clients = received.map((texts) =>
      follow(changes('t'), { after: -1, signal }, (change) => void texts.push(textOf(change))),
    );
    const settle = async (): Promise<void> => {
      store.notify();
      store.notify();
      await vi.advanceTimersByTimeAsync(200);
      await turns();
    };
    await turns();
    expect([store.looks, store.listeners]).toEqual([1, 1]);
    // A run that is older than the newest ones ends, a new one starts, and one of the newest is deleted.
    store.set('old', 'completed', 0);
    store.set('new', 'running');
    store.delete('run140');
    await settle();
    store.set('new', 'running', 151);
    store.set('new', 'completed', 151);
    await settle();
    await settle();
    for (const texts of received) {
      expect(texts).toEqual(['ready', 'new running 1', 'old completed 2', 'run140 deleted', 'new completed 3']);
    }
    expect(store.looks).toBe(4);
    leaving.abort();
    await Promise.all(clients);
    store.set('late', 'running');
    await settle();
    expect([store.looks, store.listeners]).toEqual([4, 0]);
  } finally {
    vi.useRealTimers();
  }
});

test('a client that does not read gets the last change of each run, or an error if too many runs have changed', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
  try {
    const store = fakeStore();
    const source = runChanges(store)('t');
    const stopWatching = source.watch(() => {});
    const change = async (runId: string, status: RunStatus): Promise<void> => {
      store.set(runId, status);
      store.notify();
      await vi.advanceTimersByTimeAsync(200);
    };
    const [{ seq }] = (await source.read(-1)) as [RunChange];
    await change('a', 'running');
    await source.read(seq);
    await change('a', 'paused');
    expect((await source.read(seq)).map(textOf)).toEqual(['a paused 2']);
    for (let round = 0; round < 11; round++) {
      for (let index = 0; index < 95; index++) store.set(`run${round}.${index}`, 'completed');
      await change(`last${round}`, 'completed');
      if (round < 10) expect((await source.read(seq)).length).toBe(1 + 96 * (round + 1));
    }
    await expect(source.read(seq)).rejects.toMatchObject({ code: 'changes_lost' });
    stopWatching();
  } finally {
    vi.useRealTimers();
  }
});
