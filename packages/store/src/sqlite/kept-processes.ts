import type { DatabaseSync } from 'node:sqlite';
import type { HeldProcess } from '@treadle/core';
import { holderState, type Holder } from '../holder.ts';
import type { AbandonedProcesses, KeptProcessStore } from '../ports/kept-processes.ts';
import { nameKey } from '../records/json.ts';
import type { GroupCommit } from './group-commit.ts';
import type { LeaseOptions } from './driven-runs.ts';

/** The methods of a `KeptProcessStore`. `abandoned` is synchronous and needs a transaction of the caller. */
export interface KeptProcesses extends Omit<KeptProcessStore, 'abandoned'> {
  readonly abandoned: (runId?: string) => readonly AbandonedProcesses[];
}

interface KeptRow {
  readonly run: string;
  readonly keeper: string;
  readonly processes: string;
}

export function openKeptProcesses(
  db: DatabaseSync,
  { write }: GroupCommit,
  { holder, processState }: Pick<LeaseOptions, 'holder' | 'processState'>,
): KeptProcesses {
  const insert = db.prepare('INSERT OR REPLACE INTO kept_processes (run, keeper, processes) VALUES (?, ?, ?)');
  const remove = db.prepare('DELETE FROM kept_processes WHERE run = ?');
  const find = db.prepare('SELECT run, keeper, processes FROM kept_processes WHERE run = ?');
  // Each server keeps those of a limited number of runs.
  const findAll = db.prepare('SELECT run, keeper, processes FROM kept_processes');

  // A keeper of which nobody can say here whether it lives keeps its processes: they could not be killed here either.
  function isAbandoned({ keeper }: KeptRow): boolean {
    return holderState(JSON.parse(keeper) as Holder, holder, processState) === 'dead';
  }

  return {
    async keep(runId, processes, taken) {
      await write(() => {
        if (taken !== undefined) remove.run(nameKey(taken));
        if (processes.length > 0) insert.run(runId, JSON.stringify(holder), JSON.stringify(processes));
      });
    },
    async remove(runId) {
      await write(() => void remove.run(nameKey(runId)));
    },
    abandoned: (runId) =>
      ((runId === undefined ? findAll.all() : find.all(nameKey(runId))) as unknown as readonly KeptRow[])
        .filter(isAbandoned)
        .map(({ run, processes }) => ({ runId: run, processes: JSON.parse(processes) as readonly HeldProcess[] })),
  };
}
