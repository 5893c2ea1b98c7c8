import type { RunFilter, RunStatus, RunStore, RunSummary } from '@treadle/core';
import { foldCase, labelPairs } from './append-batches.ts';
import { ALL_RUNS, type Changes } from './changes.ts';
import { bytes, text, type Database, type Query } from './connection.ts';
import type { Leases } from './leases.ts';

/** Lists and deletes runs. */
export interface Runs extends Pick<RunStore, 'delete' | 'prune'> {
  readonly list: (filter?: RunFilter) => Promise<readonly RunSummary[]>;
}

interface SummaryRow {
  readonly run: Buffer;
  readonly status: RunStatus;
  readonly started_at: number;
  readonly updated_at: number;
  readonly entries: number;
  readonly model: Buffer;
  readonly title: Buffer;
  readonly tenant: Buffer | null;
  readonly parent: Buffer | null;
  readonly recovered: number;
  readonly recovered_at: number | null;
  readonly wake_at: number | null;
  readonly session: Buffer | null;
  readonly task: Buffer | null;
  readonly labels: string | null;
}

const STATUSES: readonly RunStatus[] = ['running', 'paused', 'completed', 'exhausted', 'failed', 'cancelled'];

/** A transaction of `prune` examines at most this many candidates, so that drivers do not wait long. */
const PRUNE_BATCH = 100;
/** It also deletes at most this many entries, unless a single candidate has more. */
export const PRUNE_BATCH_ENTRIES = 10_000;

/** "Trdr". */
const REMOVAL_LOCK = 0x54_72_64_72;

/**
 * At the beginning of a transaction that removes runs or requests: they run one after the other. Of two at once, each would keep the
 * texts, messages and long results that it shares with what the other one removes.
 */
export async function awaitRemovals(query: Query): Promise<void> {
  await query('SELECT pg_advisory_xact_lock($1)', [REMOVAL_LOCK]);
}

export function openRuns(
  db: Database,
  { leases, changes }: { readonly leases: Leases; readonly changes: Changes },
): Runs {
  async function familyOf(query: Query, runId: string): Promise<readonly Buffer[]> {
    const { rows } = await query<{ readonly run: Buffer }>('SELECT run FROM treadle.family_of($1)', [bytes(runId)]);
    return rows.map(({ run }) => run);
  }

  return {
    async list(filter = {}) {
      const { sql, values } = listQuery(filter);
      const { rows } = await db.read((query) => query<SummaryRow>(sql, values));
      return rows.map(toSummary);
    },

    async delete(runId) {
      const isDeleted = await db.write(async (query) => {
        await awaitRemovals(query);
        const family = await familyOf(query, runId);
        if (family.length === 0) return false;
        await query('SELECT treadle.lock_heads($1::bytea[])', [family]);
        await leases.requireFree(query, family);
        await query('SELECT treadle.remove_run(f.id, f.run) FROM treadle.family_of($1) f', [bytes(runId)]);
        return true;
      });
      if (isDeleted) changes.changed(runId, ALL_RUNS);
      return isDeleted;
    },

    async prune(before) {
      await leases.expireDead();
      const total = await pruneInBatches(db, 'treadle.prune_runs($1, $2, $3, $4, $5)', before);
      if (total > 0) changes.changed(ALL_RUNS);
      return total;
    },
  };
}

interface PrunedBatch {
  readonly pruned: number;
  /** The last candidate. Null: there are no more. */
  readonly reached_time: number | null;
  readonly reached_id: number | null;
}

/** Calls a function of the database, each time in a transaction of its own, until it finds nothing more to remove. */
export async function pruneInBatches(db: Database, call: string, before: number): Promise<number> {
  let total = 0;
  let position: readonly [number, number] | undefined = [-Infinity, 0];
  while (position) {
    const batch: PrunedBatch = await pruneBatch(db, call, [before, ...position]);
    total += batch.pruned;
    const { reached_time: time, reached_id: id } = batch;
    position = time === null || id === null ? undefined : [time, id];
  }
  return total;
}

async function pruneBatch(db: Database, call: string, from: readonly number[]): Promise<PrunedBatch> {
  const { rows } = await db.write(async (query) => {
    await awaitRemovals(query);
    return query<PrunedBatch>(`SELECT pruned, reached_time, reached_id FROM ${call}`, [
      ...from,
      PRUNE_BATCH,
      PRUNE_BATCH_ENTRIES,
    ]);
  });
  return rows[0]!;
}

/**
 * Queries each status separately, so that an index returns its newest runs in order for every combination of filters. The cost
 * depends on `limit`, not on the number of runs, except with `title`, `model` and `labels`.
 */
function listQuery(filter: RunFilter): { readonly sql: string; readonly values: readonly unknown[] } {
  const { status: statuses = STATUSES, runId: run, recovered, due, after, title, labels } = filter;
  const { tenant, parent, model, session, task, before = Infinity, since = -Infinity, limit = 100 } = filter;
  const wanted = [...new Set(statuses)].filter((status) => !due || status === 'paused' || status === 'failed');
  const values: unknown[] = [wanted, since, before, Math.min(limit, Number.MAX_SAFE_INTEGER)];
  const value = (given: unknown): string => `$${values.push(given)}`;
  const conditions = ['r.started_at >= $2', 'r.started_at < $3'];
  for (const [column, name] of Object.entries({ run, tenant, parent, model, session, task })) {
    if (name !== undefined) conditions.push(`r.${column} = ${value(bytes(name))}::bytea`);
  }
  if (recovered) conditions.push('r.recovered > 0');
  if (due) conditions.push(`r.wake_at >= ${value(due.from ?? -Infinity)} AND r.wake_at <= ${value(due.to)}`);
  if (labels !== undefined && Object.keys(labels).length > 0) {
    const isFound = Object.entries(labels)
      .flat()
      .every((name) => name.isWellFormed());
    conditions.push(isFound ? `r.label_pairs @> ${value(labelPairs(labels))}::bytea[]` : 'false');
  }
  if (title !== undefined) {
    conditions.push(
      `position(${value(title.isWellFormed() ? Buffer.from(foldCase(title)) : null)}::bytea IN r.folded_title) > 0`,
    );
  }
  if (after) {
    const time = value(after.startedAt);
    // If the run was deleted, all that started at its time follow.
    const place = `coalesce((SELECT place FROM treadle.runs WHERE run = ${value(bytes(after.runId))}), 9223372036854775807)`;
    conditions.push(`r.started_at <= ${time} AND (r.started_at < ${time} OR r.place < ${place})`);
  }
  const order = due ? 'wake_at, place DESC' : 'started_at DESC, place DESC';
  const sql = `SELECT r.*, h.entries, h.updated_at FROM unnest($1::text[]) AS s (status)
    CROSS JOIN LATERAL (
      SELECT r.id, r.place, r.run, r.status, r.started_at, r.model, r.title, r.tenant, r.parent, r.recovered, r.recovered_at, r.wake_at,
        r.session, r.task, r.labels
      FROM treadle.runs r WHERE r.status = s.status AND ${conditions.join(' AND ')} ORDER BY ${order} LIMIT $4
    ) AS r JOIN treadle.heads h ON h.id = r.id ORDER BY ${order} LIMIT $4`;
  return { sql, values };
}

function toSummary(row: SummaryRow): RunSummary {
  const { status, recovered, recovered_at: at, wake_at: wakeAt, tenant, parent, session, task, labels } = row;
  return {
    runId: text(row.run),
    status,
    startedAt: row.started_at,
    updatedAt: row.updated_at,
    entries: row.entries,
    model: text(row.model),
    title: text(row.title),
    ...(tenant !== null && { tenant: text(tenant) }),
    ...(parent !== null && { parent: text(parent) }),
    ...(wakeAt !== null && { wakeAt }),
    ...(session !== null && { session: text(session) }),
    ...(task !== null && { task: text(task) }),
    ...(labels !== null && { labels: JSON.parse(labels) as NonNullable<RunSummary['labels']> }),
    ...(recovered > 0 && { recovered: { times: recovered, at: at! } }),
  };
}
