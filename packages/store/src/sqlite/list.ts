import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { RunFilter, RunStatus, RunSummary } from '@treadle/core';

interface Row {
  readonly id: number;
  readonly run: string;
  readonly status: RunStatus;
  readonly started_at: number;
  readonly updated_at: number;
  readonly entries: number;
  readonly model: string;
  readonly title: string;
  readonly tenant: string | null;
  readonly parent: string | null;
}

const STATUSES: readonly RunStatus[] = ['running', 'paused', 'completed', 'exhausted', 'failed', 'cancelled'];

/**
 * Newest first. Each status is looked up by itself, so that an index gives its newest in order however the filter is
 * combined; what it costs is a matter of `limit`, not of how many runs there are.
 */
export function lister(db: DatabaseSync): (filter?: RunFilter) => readonly RunSummary[] {
  const statements = new Map<string, StatementSync>();

  function prepared(conditions: string): StatementSync {
    const known = statements.get(conditions);
    if (known) return known;
    const statement = db.prepare(
      `SELECT id, run, status, started_at, updated_at, entries, model, title, tenant, parent FROM runs
       WHERE ${conditions} ORDER BY started_at DESC, id DESC LIMIT ?`,
    );
    statements.set(conditions, statement);
    return statement;
  }

  return ({ status: wanted = STATUSES, tenant, parent, before = Infinity, limit = 100 } = {}) => {
    const conditions = ['status = ?', 'started_at < ?'];
    const values: string[] = [];
    for (const [column, value] of Object.entries({ tenant, parent })) {
      if (value === undefined) continue;
      conditions.push(`${column} = ?`);
      values.push(value);
    }
    const statement = prepared(conditions.join(' AND '));
    // SQLite knows no infinite number of rows, and takes a negative one for it.
    const most = Math.min(limit, Number.MAX_SAFE_INTEGER);
    const rows = [...new Set(wanted)].flatMap(
      (status) => statement.all(status, before, ...values, most) as unknown as Row[],
    );
    return rows
      .sort((a, b) => b.started_at - a.started_at || b.id - a.id)
      .slice(0, most)
      .map(summaryOf);
  };
}

function summaryOf({ run, status, started_at, updated_at, entries, model, title, tenant, parent }: Row): RunSummary {
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
  };
}
