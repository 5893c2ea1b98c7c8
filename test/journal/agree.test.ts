import {
  memoryJournal,
  TreadleError,
  type JournalEntry,
  type Lease,
  type RunFilter,
  type RunStore,
} from '@treadle/core';
import { sqliteStore } from '@treadle/store';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { testDatabase } from '../store/shared-postgres.ts';
import { messageEntry, startEntry } from './entries.ts';

/** How many times as many cases as `npm test` tries. `npm run test:long` sets it. */
const CASES = Number(process.env['TREADLE_CASES'] ?? 1);

/** An operation on a store. Positions are relative to the stored entries, so that most operations are valid. */
type Operation =
  | {
      readonly type: 'append';
      readonly run: string;
      readonly shift: number;
      readonly count: number;
      readonly status: JournalEntry['status'];
      readonly lease: number | undefined;
    }
  | { readonly type: 'read'; readonly run: string; readonly from: number }
  | { readonly type: 'acquire'; readonly run: string }
  | { readonly type: 'release'; readonly lease: number }
  | { readonly type: 'delete'; readonly run: string }
  | { readonly type: 'prune'; readonly before: number }
  | { readonly type: 'list'; readonly filter: RunFilter }
  | { readonly type: 'snapshot'; readonly run: string; readonly seq: number }
  | { readonly type: 'put'; readonly run: string; readonly text: string }
  | { readonly type: 'page'; readonly run: string; readonly blob: number; readonly from: number; readonly to: number };

const run = fc.constantFrom('a', 'b', 'c');
const status = fc.constantFrom(undefined, undefined, 'paused', 'completed', 'exhausted', 'failed', 'cancelled');
const lease = fc.option(fc.nat(5), { nil: undefined });
const filter = fc.record(
  {
    status: fc.subarray(['running', 'paused', 'completed', 'exhausted', 'failed', 'cancelled'] as const),
    parent: run,
    tenant: fc.constantFrom('acme', 'other'),
    before: fc.nat(30),
    limit: fc.nat(4),
  },
  { requiredKeys: [] },
);
const operation: fc.Arbitrary<Operation> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      type: fc.constant('append'),
      run,
      shift: fc.constantFrom(0, 0, 0, 0, -1, 1),
      count: fc.nat(3),
      status,
      lease,
    }),
  },
  { weight: 2, arbitrary: fc.record({ type: fc.constant('acquire'), run }) },
  { weight: 2, arbitrary: fc.record({ type: fc.constant('release'), lease: fc.nat(5) }) },
  fc.record({ type: fc.constant('read'), run, from: fc.nat(8) }),
  fc.record({ type: fc.constant('delete'), run }),
  fc.record({ type: fc.constant('prune'), before: fc.nat(40) }),
  fc.record({ type: fc.constant('list'), filter }),
  fc.record({ type: fc.constant('snapshot'), run, seq: fc.nat(5) }),
  fc.record({ type: fc.constant('put'), run, text: fc.string({ unit: 'binary', maxLength: 9 }) }),
  fc.record({
    type: fc.constant('page'),
    run,
    blob: fc.nat(3),
    from: fc.integer({ min: -2, max: 9 }),
    to: fc.integer({ min: -2, max: 9 }),
  }),
);

/** Returns a function that performs an operation and resolves to its value, or to the code of its error. */
function performer(store: RunStore): (operation: Operation) => Promise<unknown> {
  const leases: Lease[] = [];
  const blobs: string[] = [];
  let now = 0;

  async function perform(operation: Operation): Promise<unknown> {
    now++;
    switch (operation.type) {
      case 'append': {
        const from = (await store.read(operation.run)).length + operation.shift;
        const extra =
          operation.run === 'a'
            ? {}
            : { parent: { runId: 'a' }, principal: { subject: 's', tenant: 'acme', scopes: [] } };
        const entries = Array.from({ length: operation.count }, (_, index) =>
          from + index === 0
            ? startEntry(operation.run, { at: now, ...extra })
            : messageEntry(from + index, { at: now, ...(operation.status && { status: operation.status }) }),
        );
        return store.append(
          operation.run,
          entries,
          operation.lease === undefined ? undefined : leases[operation.lease],
        );
      }
      case 'read':
        return store.read(operation.run, operation.from);
      case 'acquire':
        return leases.push(await store.acquire(operation.run)) && leases.at(-1)!.token;
      case 'release':
        return leases[operation.lease]?.release();
      case 'delete':
        return store.delete(operation.run);
      case 'prune':
        return store.prune(operation.before);
      case 'list':
        return store.list(operation.filter);
      case 'snapshot':
        // A snapshot covers entries that exist.
        await store.writeSnapshot(operation.run, {
          seq: Math.min(operation.seq, (await store.read(operation.run)).length),
          state: { now },
        });
        return store.readSnapshot(operation.run);
      case 'put':
        return blobs.push(await store.blobs.put(operation.run, operation.text)) && blobs.at(-1);
      case 'page':
        return store.blobs.read(operation.run, blobs[operation.blob] ?? '', operation.from, operation.to);
      default:
        return operation satisfies never;
    }
  }

  return async (operation) => {
    try {
      return await perform(operation);
    } catch (error) {
      if (error instanceof TreadleError) return error.code;
      throw error;
    }
  };
}

test('memory and PostgreSQL return the same results for any sequence of operations', async () => {
  await using database = await testDatabase();
  await fc.assert(
    fc.asyncProperty(fc.array(operation, { maxLength: 60, size: 'max' }), async (operations) => {
      const stores = [memoryJournal(), await database.open()];
      try {
        const [memory, postgres] = stores.map(performer);
        for (const operation of operations) {
          // Tokens only grow.
          const [found, expected] = [await postgres!(operation), await memory!(operation)];
          if (operation.type === 'acquire') expect(typeof found).toBe(typeof expected);
          else expect(found).toEqual(expected);
        }
        for (const id of ['a', 'b', 'c']) expect(await stores[1]!.read(id)).toEqual(await stores[0]!.read(id));
        expect(await stores[1]!.list()).toEqual(await stores[0]!.list());
      } finally {
        await stores[0]!.close();
        await database.clear();
      }
    }),
    { numRuns: 10 * CASES },
  );
});

test('memory and SQLite return the same results for any sequence of operations', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(operation, { maxLength: 60, size: 'max' }), async (operations) => {
      const stores = [memoryJournal(), sqliteStore(':memory:')];
      try {
        const [memory, sqlite] = stores.map(performer);
        for (const operation of operations) expect(await sqlite!(operation)).toEqual(await memory!(operation));
        for (const id of ['a', 'b', 'c']) expect(await stores[1]!.read(id)).toEqual(await stores[0]!.read(id));
        expect(await stores[1]!.list()).toEqual(await stores[0]!.list());
      } finally {
        for (const store of stores) await store.close();
      }
    }),
    { numRuns: 60 * CASES },
  );
});
