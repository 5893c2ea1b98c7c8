import type { JournalEntry } from '@treadle/core';
import { REQUESTS, RUNS, type Copying, type Row } from './tables.ts';

/** Copies runs with their entries, long results and snapshots. Those of a batch are copied at the same time, in their order. */
export async function copyRuns(copying: Copying, batch: readonly Row[]): Promise<void> {
  const { source, target, isContinued, advance } = copying;
  const begun = await Promise.all(
    batch.map(async (row): Promise<BegunRun> => {
      const runId = row['run'] as string;
      const next = isContinued ? ((await target.store.list({ runId, limit: 1 }))[0]?.entries ?? 0) : 0;
      return { runId, next, page: await source.store.readPage(runId, next) };
    }),
  );
  // Runs that started at the same time are listed in the order in which they were created.
  const added = begun.filter(({ page }) => page.length > 0);
  await Promise.all(added.map(({ runId, page }) => target.store.append(runId, page, undefined, 'written')));
  await Promise.all(begun.map((run) => copyRest(copying, run)));
  const recovered = batch.filter((row) => row['recovered'] !== 0);
  if (recovered.length > 0) await target.rows.update(RUNS, 'run', recovered);
  advance(batch.length);
}

interface BegunRun {
  readonly runId: string;
  /** How many entries the target had, and what follows them. */
  readonly next: number;
  readonly page: readonly JournalEntry[];
}

async function copyRest({ source, target, advance }: Copying, { runId, next, page }: BegunRun): Promise<void> {
  const [from, to] = [source.store, target.store];
  for (let [at, entries] = [next, page]; entries.length > 0;) {
    advance(entries.length);
    at += entries.length;
    entries = await from.readPage(runId, at);
    if (entries.length > 0) await to.append(runId, entries, undefined, 'written');
  }
  for (const id of await from.blobs.list(runId)) {
    const content = await from.blobs.read(runId, id, 0, Infinity);
    if (!content) continue;
    const given = content.bytes ? { bytes: content.bytes, mediaType: content.mediaType } : content.text;
    await to.blobs.put(runId, given, 'written');
  }
  const snapshot = await from.readSnapshot(runId);
  if (snapshot) await to.writeSnapshot(runId, snapshot);
}

/** Copies requests with their responses. Their keys are copied as rows. */
export async function copyRequests(
  { source, target, isContinued, advance }: Copying,
  batch: readonly Row[],
): Promise<void> {
  for (const { response, tenant } of batch) {
    const [owner, id] = [tenant as string, response as string];
    if (isContinued && (await target.store.requests.head(owner, id))) continue;
    const record = await source.store.requests.get(owner, id);
    // What it has in common with other requests is stored once.
    if (record) await target.store.requests.create(record, [], longestList(record.request));
  }
  const waiting = batch.filter((row) => row['waits_at'] !== null);
  if (waiting.length > 0) await target.rows.update(REQUESTS, 'response', waiting);
  advance(batch.length);
}

/** The list in a request that has the most items: its input, if it has a long one. */
function longestList(request: unknown): readonly unknown[] {
  const lists = Array.isArray(request)
    ? [request as readonly unknown[]]
    : Object.values((request ?? {}) as object).map((value) =>
        typeof value === 'object' && value !== null ? longestList(value) : [],
      );
  return lists.reduce((longest, list) => (list.length > longest.length ? list : longest), []);
}
