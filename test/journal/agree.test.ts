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
import { said, started } from './entries.ts';

/** Something done to a store. Positions are relative to what is there, so that most of it makes sense. */
type Deed =
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
const deed: fc.Arbitrary<Deed> = fc.oneof(
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

/** Does it, and says what came of it: the value, or the code of the error. */
function doer(store: RunStore): (deed: Deed) => Promise<unknown> {
  const leases: Lease[] = [];
  const blobs: string[] = [];
  let now = 0;

  async function perform(deed: Deed): Promise<unknown> {
    now++;
    switch (deed.type) {
      case 'append': {
        const from = (await store.read(deed.run)).length + deed.shift;
        const extra =
          deed.run === 'a' ? {} : { parent: { runId: 'a' }, principal: { subject: 's', tenant: 'acme', scopes: [] } };
        const entries = Array.from({ length: deed.count }, (_, index) =>
          from + index === 0
            ? started(deed.run, { at: now, ...extra })
            : said(from + index, { at: now, ...(deed.status && { status: deed.status }) }),
        );
        return store.append(deed.run, entries, deed.lease === undefined ? undefined : leases[deed.lease]);
      }
      case 'read':
        return store.read(deed.run, deed.from);
      case 'acquire':
        return leases.push(await store.acquire(deed.run)) && leases.at(-1)!.token;
      case 'release':
        return leases[deed.lease]?.release();
      case 'delete':
        return store.delete(deed.run);
      case 'prune':
        return store.prune(deed.before);
      case 'list':
        return store.list(deed.filter);
      case 'snapshot':
        await store.writeSnapshot(deed.run, { seq: deed.seq, state: { now } });
        return store.readSnapshot(deed.run);
      case 'put':
        return blobs.push(await store.blobs.put(deed.run, deed.text)) && blobs.at(-1);
      case 'page':
        return store.blobs.read(deed.run, blobs[deed.blob] ?? '', deed.from, deed.to);
      default:
        return deed satisfies never;
    }
  }

  return async (deed) => {
    try {
      return await perform(deed);
    } catch (error) {
      if (error instanceof TreadleError) return error.code;
      throw error;
    }
  };
}

test('memory and SQLite answer alike, whatever is done', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(deed, { maxLength: 60, size: 'max' }), async (deeds) => {
      const stores = [memoryJournal(), sqliteStore(':memory:')];
      try {
        const [memory, sqlite] = stores.map(doer);
        for (const deed of deeds) expect(await sqlite!(deed)).toEqual(await memory!(deed));
        for (const id of ['a', 'b', 'c']) expect(await stores[1]!.read(id)).toEqual(await stores[0]!.read(id));
        expect(await stores[1]!.list()).toEqual(await stores[0]!.list());
      } finally {
        for (const store of stores) await store.close();
      }
    }),
    { numRuns: 150 },
  );
});
