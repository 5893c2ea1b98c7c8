import type { DatabaseSync } from 'node:sqlite';
import type { JournalEntry, RunStatus } from '@treadle/core';
import type { NoticeStore, RunNotice } from '../ports/notices.ts';
import type { Changes } from './changes.ts';
import type { GroupCommit } from './group-commit.ts';

/** The methods of a `NoticeStore`. `nextDue` is synchronous and needs a transaction of the caller. */
export interface Notices extends Omit<NoticeStore, 'nextDue'> {
  readonly nextDue: () => number | undefined;
  /** A notice has to be added for these statuses. */
  readonly wanted: ReadonlySet<RunStatus>;
  /** Inside the transaction that appends the entry. */
  readonly add: (runId: string, last: JournalEntry) => void;
}

interface NoticeRow extends Omit<RunNotice, 'runId'> {
  readonly run: string;
}

/** The name for listeners. No run or stream of the server has it. */
const NOTICES = '\0notices';

export function openNotices(db: DatabaseSync, commit: GroupCommit, changes: Changes): Notices {
  const wanted = new Set<RunStatus>();
  const insert = db.prepare('INSERT INTO notices (run, seq, status, at, due_at) VALUES (?, ?, ?, ?, ?)');
  const takeDue = db.prepare(
    `UPDATE notices SET due_at = ?2, attempts = attempts + 1
     WHERE id IN (SELECT id FROM notices WHERE due_at <= ?1 ORDER BY due_at, id LIMIT ?3)
     RETURNING id, run, seq, status, at, attempts`,
  );
  const postpone = db.prepare('UPDATE notices SET due_at = ? WHERE id = ?');
  const remove = db.prepare('DELETE FROM notices WHERE id = ?');
  const findNext = db.prepare('SELECT min(due_at) AS due FROM notices');
  const removeOld = db.prepare('DELETE FROM notices WHERE at < ?');
  const findLast = db.prepare('SELECT id FROM notices ORDER BY id DESC LIMIT 1 OFFSET ?');
  const removeUpTo = db.prepare('DELETE FROM notices WHERE id <= ?');

  return {
    enable(statuses) {
      wanted.clear();
      for (const status of statuses) wanted.add(status);
    },
    wanted,
    add(runId, { seq, status = 'running', event: { at } }) {
      insert.run(runId, seq, status, at, at);
      changes.changed(NOTICES);
    },
    take: ({ now, until, limit }) =>
      commit.write(() =>
        (takeDue.all(now, until, limit) as unknown as NoticeRow[])
          .map(({ run, ...notice }) => ({ ...notice, runId: run }))
          .sort((a, b) => a.id - b.id),
      ),
    async postpone(id, dueAt) {
      await commit.write(() => postpone.run(dueAt, id));
    },
    async remove(id) {
      await commit.write(() => remove.run(id));
    },
    nextDue: () => (findNext.get()?.['due'] as number | null | undefined) ?? undefined,
    prune: (before, most) =>
      commit.write(() => {
        const old = Number(removeOld.run(before).changes);
        const last = findLast.get(most)?.['id'];
        return last === undefined ? old : old + Number(removeUpTo.run(last).changes);
      }),
    watch: (listener) => changes.watch(NOTICES, listener),
  };
}
