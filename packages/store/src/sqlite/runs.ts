import type { DatabaseSync } from 'node:sqlite';
import { TreadleError, type RunStore } from '@treadle/core';
import type { GroupCommit } from './group-commit.ts';
import type { Leases } from './leases.ts';

/** Runs as a whole: which there are, and away with them. */
export interface Runs extends Pick<RunStore, 'delete' | 'prune'> {
  /** Throws `unknown-run`. */
  readonly idOf: (runId: string) => number;
}

interface EndedRow {
  readonly id: number;
  readonly run: string;
  readonly entries: number;
  readonly updated_at: number;
  readonly parent: string | null;
}

/** Where `prune` has got to. */
type Position = readonly [updatedAt: number, id: number];

/** One transaction of `prune` removes no more, unless a single run has more entries: drivers should not wait long. */
const PRUNED_RUNS = 100;
const PRUNED_ENTRIES = 10_000;

export function runs(db: DatabaseSync, { write }: GroupCommit, { admit, isDriven }: Leases): Runs {
  const find = db.prepare('SELECT id FROM runs WHERE run = ?');
  const findEnded = db.prepare(
    `SELECT id, run, entries, updated_at, parent FROM runs
     WHERE status NOT IN ('running', 'paused') AND updated_at < ? AND (updated_at, id) > (?, ?)
     ORDER BY updated_at, id LIMIT ${PRUNED_RUNS}`,
  );
  const isOpen = db.prepare(`SELECT 1 FROM runs WHERE run = ? AND status IN ('running', 'paused')`);
  const dropOwn = ['entries WHERE run = ?', 'snapshots WHERE run = ?', 'runs WHERE id = ?'].map((rows) =>
    db.prepare(`DELETE FROM ${rows}`),
  );
  const dropKept = db.prepare('DELETE FROM blob_runs WHERE run = ? RETURNING blob');
  const isKept = db.prepare('SELECT 1 FROM blob_runs WHERE blob = ?');
  const dropBlob = ['blob_parts WHERE blob = ?', 'blobs WHERE id = ?'].map((rows) => db.prepare(`DELETE FROM ${rows}`));

  function remove(id: number): void {
    for (const drop of dropOwn) drop.run(id);
    for (const { blob } of dropKept.all(id)) {
      if (!isKept.get(blob!)) for (const drop of dropBlob) drop.run(blob!);
    }
  }

  function pruneSome(
    before: number,
    after: Position,
  ): { readonly pruned: number; readonly reached: Position | undefined } {
    let reached: Position | undefined;
    let pruned = 0;
    let removed = 0;
    for (const { id, run, entries, updated_at, parent } of findEnded.all(
      before,
      ...after,
    ) as unknown as readonly EndedRow[]) {
      if (removed + entries > PRUNED_ENTRIES && pruned > 0) break;
      reached = [updated_at, id];
      if (isDriven(run) || (parent !== null && isOpen.get(parent))) continue;
      remove(id);
      pruned++;
      removed += entries;
    }
    return { pruned, reached };
  }

  return {
    idOf(runId) {
      const row = find.get(runId) as { readonly id: number } | undefined;
      if (row) return row.id;
      throw new TreadleError('unknown-run', `There is no run "${runId}" to keep this for. Start the run first.`);
    },

    delete: (runId) =>
      write(() => {
        const row = find.get(runId) as { readonly id: number } | undefined;
        if (!row) return false;
        admit(runId);
        remove(row.id);
        return true;
      }),

    async prune(before) {
      let pruned = 0;
      for (let at: Position | undefined = [-Infinity, 0]; at;) {
        const from: Position = at;
        const some = await write(() => pruneSome(before, from));
        pruned += some.pruned;
        at = some.reached;
      }
      return pruned;
    },
  };
}
