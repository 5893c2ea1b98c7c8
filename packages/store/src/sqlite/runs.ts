import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { callerOf, type JournalEntry, type RunFilter, type RunStatus, type RunStore } from '@treadle/core';
import type { RunSummary } from '@treadle/core';
import { ALL_RUNS, type Changes } from './changes.ts';
import { nameKey } from '../records/json.ts';
import type { GroupCommit } from './group-commit.ts';
import type { Leases } from './leases.ts';
import type { Memories } from './memory.ts';
import type { Messages } from './messages.ts';
import { RESPONSE, RUN, type SharedTexts } from './shared-texts.ts';

/** Lists and deletes runs. */
export interface Runs extends Pick<RunStore, 'delete' | 'prune'> {
  /**
   * Newest first. Returns a function that reads the next runs, inside a transaction of its own, and returns all that were
   * found when it is done.
   */
  readonly listInSlices: (filter?: RunFilter) => () => readonly RunSummary[] | undefined;
  /** Whether the run belongs to a response. `prune` skips such runs: the run of a stored response has to exist. */
  readonly isOfResponse: (runId: string) => boolean;
  /** A run and its child runs, at any depth, without its forks. Empty if the run does not exist. */
  readonly familyOf: (runId: string) => readonly RunRow[];
  /** Inside a transaction: deletes a run, what is stored for it, and its response. */
  readonly remove: (row: Pick<RunRow, 'id' | 'run'>) => void;
  /** Inside a transaction: deletes the response of a run. */
  readonly removeResponse: (run: string) => void;
}

export interface RunRow {
  readonly id: number;
  readonly run: string;
  readonly entries: number;
  readonly status: RunStatus;
  readonly updated_at: number;
}

interface EndedRow extends RunRow {
  readonly parent: string | null;
}

interface SummaryRow extends RunRow {
  readonly started_at: number;
  readonly model: string;
  readonly title: string;
  readonly tenant: string | null;
  readonly parent: string | null;
  readonly recovered: number;
  readonly recovered_at: number | null;
  readonly wake_at: number | null;
  readonly session: string | null;
  readonly task: string | null;
  /** JSON. */
  readonly labels: string | null;
}

/** The id of a child run ends with the call that started it. */
const CHILD_NAME = /\.t\d+\.tool\.\d+$/;

/** A search examines about this many runs of each status in one transaction. */
const SLICE_RUNS = 1_000;

interface RunQuery {
  readonly conditions: string;
  readonly values: readonly (string | number | null)[];
  /** A query for each of them. */
  readonly statuses: readonly string[];
}

const STATUSES: readonly RunStatus[] = ['running', 'paused', 'completed', 'exhausted', 'failed', 'cancelled'];

interface RunsParts {
  readonly commit: GroupCommit;
  readonly leases: Leases;
  readonly messages: Messages;
  readonly shared: SharedTexts;
  readonly changes: Changes;
  readonly memories: Pick<Memories, 'removeOfRun'>;
}

export function openRuns(db: DatabaseSync, parts: RunsParts): Runs {
  const { commit, leases, messages, shared, changes, memories } = parts;
  const { checkWriter, isDriven } = leases;
  const findRun = db.prepare('SELECT id, run, entries, status, updated_at FROM runs WHERE run = ?');
  const findByParent = db.prepare('SELECT id, run, entries, status, updated_at FROM runs WHERE parent = ?');
  const findFirstEntry = db.prepare('SELECT entry FROM entries WHERE run = ? AND seq = 0');
  const findResponse = db.prepare('SELECT 1 FROM requests WHERE run = ?');
  const findEnded = db.prepare(
    `SELECT id, run, entries, status, updated_at, parent FROM runs
     WHERE status NOT IN ('running', 'paused') AND updated_at < ? AND (updated_at, id) > (?, ?)
     ORDER BY updated_at, id LIMIT ${PRUNE_BATCH}`,
  );
  const findOpen = db.prepare(`SELECT 1 FROM runs WHERE run = ? AND status IN ('running', 'paused')`);
  const deleteEntries = ['entries', 'snapshots'].map((table) => db.prepare(`DELETE FROM ${table} WHERE run = ?`));
  const deleteRun = db.prepare('DELETE FROM runs WHERE id = ? RETURNING input_last');
  const deleteResponse = db.prepare('DELETE FROM requests WHERE run = ? RETURNING id, input_last');
  const deleteBlobRuns = db.prepare('DELETE FROM blob_runs WHERE run = ? RETURNING blob');
  const findBlobRun = db.prepare('SELECT 1 FROM blob_runs WHERE blob = ?');
  const deleteBlob = ['blob_parts WHERE blob = ?', 'blobs WHERE id = ?'].map((rows) =>
    db.prepare(`DELETE FROM ${rows}`),
  );

  function rowOf(runId: string): RunRow | undefined {
    return findRun.get(nameKey(runId)) as unknown as RunRow | undefined;
  }

  function isOfResponse(runId: string): boolean {
    return findResponse.get(nameKey(runId)) !== undefined;
  }

  function remove({ id, run }: Pick<RunRow, 'id' | 'run'>): void {
    for (const statement of deleteEntries) statement.run(id);
    for (const { input_last: last } of deleteRun.all(id)) messages.release(last as number | null);
    shared.release([RUN, id]);
    removeResponse(run);
    memories.removeOfRun(run);
    changes.changed(ALL_RUNS);
    for (const { blob } of deleteBlobRuns.all(id)) {
      if (!findBlobRun.get(blob!)) for (const statement of deleteBlob) statement.run(blob!);
    }
  }

  function removeResponse(run: string): void {
    for (const { id, input_last: last } of deleteResponse.all(run)) {
      messages.release(last as number | null);
      shared.release([RESPONSE, id as number]);
    }
  }

  function familyOf(runId: string): RunRow[] {
    const first = rowOf(runId);
    const family = new Map(first && [[runId, first]]);
    // The loop also visits the children that it adds.
    for (const caller of family.keys()) {
      for (const child of findByParent.all(caller) as unknown as readonly RunRow[]) {
        if (!family.has(child.run) && isChild(child)) family.set(child.run, child);
      }
    }
    return [...family.values()];
  }

  /** Whether a call of its parent started it. If its first entry is damaged, its name has to tell: forks can have any. */
  function isChild({ id, run }: Pick<RunRow, 'id' | 'run'>): boolean {
    const row = findFirstEntry.get(id) as { readonly entry: string } | undefined;
    try {
      return callerOf(JSON.parse(row?.entry ?? '') as JournalEntry) !== undefined;
    } catch {
      return CHILD_NAME.test(run);
    }
  }

  return {
    listInSlices: runList(db),
    isOfResponse,
    familyOf,
    remove,
    removeResponse,

    delete: (runId) =>
      commit.write(() => {
        const family = familyOf(runId);
        for (const { run } of family) checkWriter(run);
        for (const row of family) remove(row);
        return family.length > 0;
      }),

    prune: (before) =>
      pruneInBatches(commit, {
        find: (after) =>
          (findEnded.all(before, ...after) as unknown as readonly EndedRow[]).map((row) => {
            // An open run may still need its child runs.
            const needed = row.parent !== null && findOpen.get(row.parent) !== undefined && isChild(row);
            const family = needed ? [] : familyOf(row.run);
            return { ...row, needed, entries: family.reduce((sum, { entries }) => sum + entries, 0) };
          }),
        remove({ run: first, needed }) {
          // Read again: a child run may have been removed in the meantime as a candidate of its own.
          const family = needed ? [] : familyOf(first);
          const stays = ({ run, status, updated_at }: RunRow): boolean =>
            status === 'running' || status === 'paused' || updated_at >= before || isOfResponse(run) || isDriven(run);
          if (family.some(stays)) return 0;
          for (const row of family) remove(row);
          return family.length;
        },
      }),
  };
}

/** Returns `listInSlices`. */
function runList(db: DatabaseSync): Runs['listInSlices'] {
  const listStatements = new Map<string, StatementSync>();

  /**
   * Queries each status separately, so that an index returns its newest runs in order for every combination of filters.
   * The cost depends on `limit`, not on the number of runs, except with `title`, `model` and `labels`. One run is found by its id, with
   * one query.
   */
  function list(filter: RunFilter): readonly RunSummary[] {
    const { due, before = Infinity, since = -Infinity, limit = 100 } = filter;
    const { conditions, values, statuses } = queryOf(filter);
    const statement = prepared(
      `SELECT id, run, status, started_at, updated_at, entries, model, title, tenant, parent, recovered, recovered_at, wake_at,
         session, task, labels FROM runs
       WHERE ${conditions} ORDER BY ${due ? 'wake_at, id DESC' : 'started_at DESC, id DESC'} LIMIT ?`,
    );
    // SQLite does not accept Infinity as a limit.
    const most = Math.min(limit, Number.MAX_SAFE_INTEGER);
    const rows = statuses.flatMap(
      (status) => statement.all(status, since, before, ...values, most) as unknown as SummaryRow[],
    );
    return rows
      .sort((a, b) => (due ? a.wake_at! - b.wake_at! : b.started_at - a.started_at) || b.id - a.id)
      .slice(0, most)
      .map(toSummary);
  }

  /** No index has titles, models and labels, so such a search examines a limited number of runs at a time. */
  function listInSlices(filter: RunFilter = {}): () => readonly RunSummary[] | undefined {
    const { title, model, labels, ...indexed } = filter;
    if ((title === undefined && model === undefined && labels === undefined) || filter.due) return () => list(filter);
    const { limit = 100, since = -Infinity } = filter;
    const { conditions, values, statuses } = queryOf(indexed);
    const findEnd = prepared(
      `SELECT started_at FROM runs WHERE ${conditions} ORDER BY started_at DESC LIMIT 1 OFFSET ${SLICE_RUNS}`,
    );
    let { before = Infinity } = filter;
    const found: RunSummary[] = [];
    return () => {
      const ends = statuses.flatMap((status) => findEnd.get(status, since, before, ...values)?.['started_at'] ?? []);
      const from = Math.max(since, ...(ends as number[]));
      found.push(...list({ ...filter, since: from, before, limit: limit - found.length }));
      before = from;
      return ends.length === 0 || found.length >= limit ? found : undefined;
    };
  }

  function prepared(sql: string): StatementSync {
    const statement = listStatements.get(sql) ?? db.prepare(sql);
    listStatements.set(sql, statement);
    return statement;
  }

  return listInSlices;
}

/** What `list` searches for, without the order. Its statements get a status, `since`, `before`, and then the values. */
function queryOf(filter: RunFilter): RunQuery {
  const { status: statuses = STATUSES, tenant, parent, model, runId: run, recovered, due, after, title } = filter;
  const { session, task, labels = {} } = filter;
  const isOne = run !== undefined && !due;
  // With `due`, the index of the times is used.
  const conditions = due
    ? ['+status = ?', '+started_at >= ?', '+started_at < ?']
    : [isOne ? 'instr(?, status) > 0' : 'status = ?', 'started_at >= ?', 'started_at < ?'];
  if (recovered) conditions.push('recovered > 0');
  const values: (string | number | null)[] = [];
  if (due) {
    conditions.push('wake_at BETWEEN ? AND ?');
    values.push(due.from ?? -Infinity, due.to);
  }
  for (const [column, value] of Object.entries({ tenant, parent, model, run, session, task })) {
    if (value === undefined) continue;
    conditions.push(`${column} = ?`);
    values.push(nameKey(value));
  }
  for (const [name, value] of Object.entries(labels)) {
    conditions.push('EXISTS (SELECT 1 FROM json_each(labels) WHERE key = ? AND value = ?)');
    values.push(nameKey(name), nameKey(value));
  }
  if (title !== undefined) {
    conditions.push('instr(lower(title), lower(?)) > 0');
    values.push(nameKey(title));
  }
  if (after) {
    // If the run was deleted, all that started at its time follow.
    conditions.push('started_at <= ? AND (started_at < ? OR id < ifnull((SELECT id FROM runs WHERE run = ?), 9e18))');
    values.push(after.startedAt, after.startedAt, nameKey(after.runId));
  }
  // Others have no time.
  const wanted = [...new Set(statuses)].filter((status) => !due || status === 'paused' || status === 'failed');
  return { conditions: conditions.join(' AND '), values, statuses: isOne ? [wanted.join(' ')] : wanted };
}

function toSummary(row: SummaryRow): RunSummary {
  const { run, status, started_at, updated_at, entries, model, title, tenant, parent, recovered, recovered_at } = row;
  const { wake_at, session, task, labels } = row;
  return {
    runId: run,
    status,
    startedAt: started_at,
    updatedAt: updated_at,
    entries,
    model,
    title,
    ...(tenant !== null && { tenant }),
    ...(parent !== null && { parent }),
    ...(wake_at !== null && { wakeAt: wake_at }),
    ...(session !== null && { session }),
    ...(task !== null && { task }),
    ...(labels !== null && { labels: JSON.parse(labels) as NonNullable<RunSummary['labels']> }),
    ...(recovered > 0 && { recovered: { times: recovered, at: recovered_at! } }),
  };
}

/** A transaction of `pruneInBatches` examines at most this many candidates, so that drivers do not wait long. */
export const PRUNE_BATCH = 100;
/** It also deletes at most this many entries, unless a single candidate has more. */
export const PRUNE_BATCH_ENTRIES = 10_000;

export type PrunePosition = readonly [updatedAt: number, id: number];

interface PruneCandidate {
  readonly id: number;
  readonly updated_at: number;
  /** Number of entries that are deleted with it. */
  readonly entries: number;
}

interface Pruning<T extends PruneCandidate> {
  /** At most `PRUNE_BATCH` candidates after this position, ordered by `updated_at` and `id`. */
  readonly find: (after: PrunePosition) => readonly T[];
  /** The number of removed runs or responses; 0 if the candidate has to stay. */
  readonly remove: (candidate: T) => number;
}

/** Resolves to the number of runs or responses that were removed. */
export async function pruneInBatches<T extends PruneCandidate>(
  { write }: GroupCommit,
  pruning: Pruning<T>,
): Promise<number> {
  let total = 0;
  for (let position: PrunePosition | undefined = [-Infinity, 0]; position;) {
    const after: PrunePosition = position;
    const { pruned, reached } = await write(() => pruneBatch(pruning, after));
    total += pruned;
    position = reached;
  }
  return total;
}

function pruneBatch<T extends PruneCandidate>(
  { find, remove }: Pruning<T>,
  after: PrunePosition,
): { readonly pruned: number; readonly reached: PrunePosition | undefined } {
  let reached: PrunePosition | undefined;
  let pruned = 0;
  let deletedEntries = 0;
  for (const candidate of find(after)) {
    const { id, updated_at, entries } = candidate;
    if (deletedEntries + entries > PRUNE_BATCH_ENTRIES && pruned > 0) break;
    reached = [updated_at, id];
    const removed = remove(candidate);
    if (removed === 0) continue;
    pruned += removed;
    deletedEntries += entries;
  }
  return { pruned, reached };
}
