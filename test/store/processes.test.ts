import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import type { JournalEntry } from '@treadle/core';
import { describe, expect, test, vi } from 'vitest';
import { contest } from './contest.ts';
import { entries, entry } from './entries.ts';
import { newStore, openWith, STORE_KINDS } from './kinds.ts';

/* Processes and threads that drive the runs of one store. */

// Starting processes is slow on a busy machine.
vi.setConfig({ testTimeout: 120_000 });

/** How many times as many rounds as in `npm test`. `npm run test:long` sets it. */
const CASES = Number(process.env['TREADLE_CASES'] ?? 1);

const textOf = ({ event }: JournalEntry): string => {
  const block = event.type === 'input-added' ? event.messages[0]!.content[0] : undefined;
  return block?.type === 'text' ? block.text : '';
};

describe.each(STORE_KINDS)('on %s', (kind) => {
  // Other systems do not show the threads of a process.
  test.runIf(process.platform === 'linux')(
    'a worker thread that drives a run keeps it, and loses it at once when it has ended, while its process goes on',
    async () => {
      await using temp = await newStore(kind);
      const [store, other] = [await openWith(temp.url, {}), await openWith(temp.url, {})];
      const main = new URL('./thread-main.ts', import.meta.url);
      const workerData = { url: temp.url, runId: 'a' };
      const thread = new Worker(main, { workerData, execArgv: ['--conditions=treadle-source'] });
      await once(thread, 'message');
      await expect(store.acquire('a')).rejects.toThrow(
        new RegExp(`is driven by process ${process.pid} \\(thread \\d+\\) on host`),
      );
      await expect(other.acquire('a')).rejects.toMatchObject({ code: 'run-driven' });
      await thread.terminate();
      const lease = await store.acquire('a');
      expect(lease.takenOver).toBe(true);
      await store.append('a', [entry(1)], lease);
      expect(await other.read('a')).toEqual(entries(2));
      expect(await other.list({ recovered: true })).toMatchObject([{ runId: 'a', recovered: { times: 1 } }]);
      await Promise.all([store.close(), other.close()]);
    },
  );

  /**
   * Two processes share this host; two claim to be on other hosts, so that leases between them are taken over on expiry. While they
   * compete, the current driver is suspended until another process acquires the run or finds the store locked; or it is killed.
   */
  test('a run never has two drivers', async () => {
    await using temp = await newStore(kind);
    const store = await openWith(temp.url, {});
    await using competition = contest(temp.url, 'a');
    for (const host of [undefined, undefined, 'one', 'two']) competition.join(host);
    for (let round = 1; round <= 16 * CASES; round++) {
      const { by } = await competition.next(({ type }) => type === 'acquired');
      if (round % 8 === 0) {
        by.child.kill('SIGKILL');
        await by.exited;
        competition.join(by.host);
      } else {
        by.child.kill('SIGSTOP');
        await competition.next(
          (report) => report.by !== by && (report.type === 'acquired' || report.type === 'locked'),
        );
        by.child.kill('SIGCONT');
      }
    }
    await competition.stop();

    const { reports } = competition;
    expect(reports.filter(({ type }) => type === 'unexpected')).toEqual([]);
    const acquired = reports.flatMap((report) => (report.type === 'acquired' ? report.token : []));
    expect(new Set(acquired).size).toBe(acquired.length);
    const tokens = (await store.read('a')).map((one) => Number(textOf(one)));
    expect(tokens).toEqual(tokens.toSorted((a, b) => a - b));
    const appended = reports.flatMap((report) => (report.type === 'appended' ? report : []));
    expect(appended.filter(({ token, seq }) => tokens[seq] !== token)).toEqual([]);
    expect(appended.length).toBeGreaterThan(30);
    expect(reports.filter(({ type }) => type === 'lost').length).toBeGreaterThan(2);
    await store.close();
  });
});
