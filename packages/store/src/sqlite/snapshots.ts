import type { DatabaseSync } from 'node:sqlite';
import type { Snapshot } from '@treadle/core';
import type { GroupCommit } from './group-commit.ts';
import { opened, sealed } from './record.ts';
import type { Runs } from './runs.ts';

interface Row {
  readonly seq: number;
  readonly state: string;
  readonly sum: number;
}

/** One for a run. A damaged one is as good as none: the entries tell the same, only slower. */
export interface Snapshots {
  readonly write: (runId: string, snapshot: Snapshot) => Promise<void>;
  readonly read: (runId: string) => Snapshot | undefined;
}

export function snapshots(db: DatabaseSync, { write }: GroupCommit, { idOf }: Runs): Snapshots {
  const upsert = db.prepare(
    `INSERT INTO snapshots (run, seq, state, sum) VALUES (?, ?, ?, ?)
     ON CONFLICT (run) DO UPDATE SET seq = excluded.seq, state = excluded.state, sum = excluded.sum WHERE excluded.seq >= seq`,
  );
  const find = db.prepare(
    'SELECT seq, state, sum FROM snapshots JOIN runs ON runs.id = snapshots.run WHERE runs.run = ?',
  );
  return {
    async write(runId, { seq, state }) {
      const { text, sum } = sealed(state);
      await write(() => upsert.run(idOf(runId), seq, text, sum));
    },
    read(runId) {
      const row = find.get(runId) as unknown as Row | undefined;
      const state = row && opened(row.state, row.sum);
      return state === undefined ? undefined : { seq: row!.seq, state };
    },
  };
}
