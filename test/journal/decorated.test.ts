import { memoryJournal, runLoop, tool, type Journal, type JournalEntry, type RunStore } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { sqliteStore } from '@treadle/store';
import { describe, expect, test } from 'vitest';

/* A journal can be decorated: here, with an audit log that has a line about each entry before the entry is written. */

type Audit = (line: { readonly runId: string; readonly seq: number; readonly what: string }) => Promise<void>;

function audited<J extends Journal>(journal: J, write: Audit): J {
  return {
    ...journal,
    async append(runId: string, entries: readonly JournalEntry[], lease?: Parameters<J['append']>[2]) {
      for (const { seq, event } of entries) await write({ runId, seq, what: event.type });
      await journal.append(runId, entries, lease);
    },
  };
}

const STORES: readonly (readonly [string, () => RunStore])[] = [
  ['memory', memoryJournal],
  ['SQLite', () => sqliteStore(':memory:')],
];

describe.each(STORES)('a decorated journal in %s', (_, open) => {
  test('the audit line of an entry is written before the entry, and the entry before its effects', async () => {
    const store = open();
    const order: string[] = [];
    const journal = audited(
      {
        ...store,
        async append(...args: Parameters<RunStore['append']>) {
          await store.append(...args);
          for (const { seq } of args[1]) order.push(`entry ${seq}`);
        },
      },
      async ({ seq, what }) => {
        await Promise.resolve();
        order.push(`audit ${seq} ${what}`);
      },
    );
    const pay = tool({ name: 'pay', description: 'Pays', execute: () => void order.push('paid') });
    const model = scriptedModel([{ calls: [{ name: 'pay' }] }, 'It is paid.']);
    const result = await runLoop({ model, tools: [pay], journal, runId: 'bill', input: 'Pay.' });
    expect(result.text).toBe('It is paid.');
    expect(order).toEqual([
      'audit 0 run-started',
      'entry 0',
      'audit 1 model-replied',
      'entry 1',
      'paid',
      'audit 2 tool-settled',
      'entry 2',
      'audit 3 model-replied',
      'entry 3',
    ]);
    await store.close();
  });

  test('a run stops before the effect if its audit line cannot be written, and can be resumed', async () => {
    const store = open();
    let broken = true;
    const journal = audited(store, async ({ what }) => {
      if (broken && what === 'model-replied') throw new Error('the audit log is full');
    });
    let paid = 0;
    const pay = tool({ name: 'pay', description: 'Pays', execute: () => `paid ${++paid}` });
    const options = { tools: [pay], journal, runId: 'bill' };
    const calling = { calls: [{ name: 'pay' }] };
    const first = runLoop({ ...options, model: scriptedModel([calling]), input: 'Pay.' });
    await expect(first).rejects.toMatchObject({
      code: 'journal-failed',
      message: 'The journal failed, so run "bill" stopped: the audit log is full',
    });
    expect(paid).toBe(0);
    expect(await store.read('bill')).toHaveLength(1);
    broken = false;
    const resumed = await runLoop({ ...options, model: scriptedModel([calling, 'It is paid.']) });
    expect(resumed.outcome).toEqual({ type: 'completed' });
    expect(paid).toBe(1);
    await store.close();
  });
});
