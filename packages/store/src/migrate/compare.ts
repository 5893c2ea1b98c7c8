import { createHash } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { TreadleError } from '@treadle/core';
import {
  CONVERSATIONS,
  REQUESTS,
  RUNS,
  TABLES,
  type ConversationParts,
  type Row,
  type Table,
  type Copying,
  type OpenedStore,
} from './tables.ts';

export interface PartSum {
  /** How many runs, requests, … there are. */
  readonly rows: number;
  /** SHA-256 of all that the part contains, as it is read. */
  readonly sum: string;
}

/** Reads everything from both stores. Rejects with `store-failed` at the first difference. */
export async function compareStores(copying: Copying): Promise<Readonly<Record<string, PartSum>>> {
  const { advance } = copying;
  const parts: Record<string, PartSum> = {};
  const compared = async (part: string, read: Records): Promise<void> => {
    parts[part] = await comparePart(copying, part, read);
  };
  await compared('runs', (opened) => runRecords(opened, opened === copying.source ? advance : () => {}));
  await compared('requests', requestRecords);
  await compared('conversations', conversationRecords);
  for (const table of TABLES) {
    await compared(table.name, async function* ({ rows }) {
      for await (const row of allRows((after) => rows.rows(table, after, BATCH), positionIn(table)))
        yield [JSON.stringify(positionIn(table)(row)), row];
    });
  }
  return parts;
}

const BATCH = 100;

/** What a record is called, and what it contains: one row, or a part of a large one, whose further parts continue it. */
type Compared = readonly [name: string, content: unknown, continues?: 'continues'];
type Records = (opened: OpenedStore) => AsyncIterable<Compared>;

async function comparePart({ source, target, advance }: Copying, part: string, read: Records): Promise<PartSum> {
  const sum = orderedSum();
  const others = read(target)[Symbol.asyncIterator]();
  let rows = 0;
  for await (const record of read(source)) {
    const { value: other, done } = await others.next();
    if (done || !isDeepStrictEqual(plain(record), plain(other))) throw different(part, record, target);
    sum.add(record);
    if (record[2] === undefined) rows += 1;
    if (part !== 'runs') advance(1);
  }
  const { value, done } = await others.next();
  if (!done) throw different(part, value, target);
  return { rows, sum: sum.digest() };
}

const plain = (value: unknown): unknown => JSON.parse(JSON.stringify(value));

/** The content may be secret. */
function different(part: string, [name]: Compared, { location }: OpenedStore): TreadleError {
  return new TreadleError(
    'store-failed',
    `The copy in ${location} differs from its source in ${part.replaceAll('_', ' ')}, at ${name}, and stays closed to others. If the source was used since the migration began, delete the target and begin again.`,
  );
}

async function* allRows<T>(
  read: (after: Row | undefined) => Promise<readonly T[]>,
  positionOf: (row: T) => Row,
): AsyncGenerator<T> {
  for (let after: Row | undefined; ;) {
    const batch = await read(after);
    yield* batch;
    if (batch.length === 0) return;
    after = positionOf(batch.at(-1)!);
  }
}

const positionIn =
  (table: Table) =>
  (row: Row): Row =>
    Object.fromEntries(table.key.map((name) => [name, row[name]!]));

/** Of each run: how it is listed, its entries, its long results and its snapshot. */
async function* runRecords({ store, rows }: OpenedStore, advance: (count: number) => void): AsyncGenerator<Compared> {
  for await (const row of allRows((after) => rows.rows(RUNS, after, BATCH), positionIn(RUNS))) {
    const runId = row['run'] as string;
    yield [runId, (await store.list({ runId, limit: 1 }))[0]];
    for (let next = 0; ;) {
      const page = await store.readPage(runId, next);
      for (const entry of page) yield [`${runId}, entry ${entry.seq}`, entry, 'continues'];
      if (page.length === 0) break;
      next += page.length;
      advance(page.length);
    }
    const blobs = await store.blobs.list(runId);
    // Reading the whole checks that it has this id, which is its sum.
    for (const id of blobs) await store.blobs.read(runId, id, 0, Infinity);
    yield [runId, { blobs, snapshot: await store.readSnapshot(runId) }, 'continues'];
    advance(1);
  }
}

async function* requestRecords({ store, rows }: OpenedStore): AsyncGenerator<Compared> {
  for await (const row of allRows((after) => rows.rows(REQUESTS, after, BATCH), positionIn(REQUESTS))) {
    const [id, tenant] = [row['response'] as string, row['tenant'] as string];
    yield [id, { waitsAt: row['waits_at'], record: await store.requests.get(tenant, id) }];
  }
}

async function* conversationRecords({ rows }: OpenedStore): AsyncGenerator<Compared> {
  const position = positionIn(CONVERSATIONS);
  const read = (after: Row | undefined): Promise<readonly ConversationParts[]> => rows.conversations(after, BATCH);
  for await (const one of allRows(read, ({ row }) => position(row))) yield [String(one.row['conversation']), one];
}

/** A sum of many values that depends on their order. */
function orderedSum(): { readonly add: (value: unknown) => void; readonly digest: () => string } {
  const hash = createHash('sha256');
  return { add: (value) => void hash.update(`${JSON.stringify(value)}\n`), digest: () => hash.digest('hex') };
}
