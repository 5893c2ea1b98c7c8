import type { DatabaseSync } from 'node:sqlite';
import { TreadleError, type RunStore } from '@treadle/core';
import type { GroupCommit } from './group-commit.ts';
import type { Leases } from './leases.ts';
import { prune, PRUNED_AT_ONCE, type Candidate } from './prune.ts';

/** Runs as a whole: which there are, and away with them. */
export interface Runs extends Pick<RunStore, 'delete' | 'prune'> {
  /** Throws `unknown-run`. */
  readonly idOf: (runId: string) => number;
  /** Whether it is the run of a response, which `prune` leaves: who finds the response has to find its run. */
  readonly isOfResponse: (runId: string) => boolean;
  /** A run and all that work for it, also for one of those; not its forks. Empty when there is none. */
  readonly familyOf: (runId: string) => readonly RunRow[];
  /** Inside a transaction: with the response that it is. */
  readonly remove: (row: Pick<RunRow, 'id' | 'run'>) => void;
}

interface RunRow {
  readonly id: number;
  readonly run: string;
  readonly entries: number;
}

interface EndedRow extends RunRow, Candidate {
  readonly parent: string | null;
}

export function runs(db: DatabaseSync, commit: GroupCommit, { admit, isDriven }: Leases): Runs {
  const find = db.prepare('SELECT id, run, entries FROM runs WHERE run = ?');
  const findWithParent = db.prepare('SELECT id, run, entries FROM runs WHERE parent = ?');
  const findResponse = db.prepare('SELECT 1 FROM responses WHERE run = ?');
  const findEnded = db.prepare(
    `SELECT id, run, entries, updated_at, parent FROM runs
     WHERE status NOT IN ('running', 'paused') AND updated_at < ? AND (updated_at, id) > (?, ?)
     ORDER BY updated_at, id LIMIT ${PRUNED_AT_ONCE}`,
  );
  const isOpen = db.prepare(`SELECT 1 FROM runs WHERE run = ? AND status IN ('running', 'paused')`);
  const dropOwn = ['entries WHERE run = ?', 'snapshots WHERE run = ?', 'runs WHERE id = ?'].map((rows) =>
    db.prepare(`DELETE FROM ${rows}`),
  );
  const dropResponse = db.prepare('DELETE FROM responses WHERE run = ?');
  const dropKept = db.prepare('DELETE FROM blob_runs WHERE run = ? RETURNING blob');
  const isKept = db.prepare('SELECT 1 FROM blob_runs WHERE blob = ?');
  const dropBlob = ['blob_parts WHERE blob = ?', 'blobs WHERE id = ?'].map((rows) => db.prepare(`DELETE FROM ${rows}`));

  function rowOf(runId: string): RunRow | undefined {
    return find.get(runId) as unknown as RunRow | undefined;
  }

  function isOfResponse(runId: string): boolean {
    return findResponse.get(runId) !== undefined;
  }

  function remove({ id, run }: Pick<RunRow, 'id' | 'run'>): void {
    for (const drop of dropOwn) drop.run(id);
    dropResponse.run(run);
    for (const { blob } of dropKept.all(id)) {
      if (!isKept.get(blob!)) for (const drop of dropBlob) drop.run(blob!);
    }
  }

  function familyOf(runId: string): RunRow[] {
    const first = rowOf(runId);
    const family = first ? [first] : [];
    // Grows while it is gone through.
    for (const { run } of family) {
      const children = findWithParent.all(run) as unknown as readonly RunRow[];
      // A fork has a name of its own; whoever works for a call is named after it.
      family.push(...children.filter((child) => child.run.startsWith(`${run}.`)));
    }
    return family;
  }

  return {
    idOf(runId) {
      const row = rowOf(runId);
      if (row) return row.id;
      throw new TreadleError('unknown-run', `There is no run "${runId}" to keep this for. Start the run first.`);
    },

    isOfResponse,
    familyOf,
    remove,

    delete: (runId) =>
      commit.write(() => {
        const row = rowOf(runId);
        if (!row) return false;
        admit(runId);
        remove(row);
        return true;
      }),

    prune: (before) =>
      prune(commit, {
        find: (after) => findEnded.all(before, ...after) as unknown as readonly EndedRow[],
        remove(row) {
          const { run, parent } = row;
          if (isOfResponse(run) || isDriven(run) || (parent !== null && isOpen.get(parent))) return false;
          remove(row);
          return true;
        },
      }),
  };
}
