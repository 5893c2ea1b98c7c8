import type { RunStatus } from '@treadle/core';
import type { NoticeStore, RunNotice } from '../ports/notices.ts';
import type { Changes } from './changes.ts';
import { text, type Database } from './connection.ts';

/** The name for listeners. No run or stream of the server has it. */
export const NOTICES = '\0notices';

/** `append_entries` adds the notices of these statuses. */
export function openNotices(db: Database, changes: Changes, noticed: Set<RunStatus>): NoticeStore {
  return {
    enable(statuses) {
      noticed.clear();
      for (const status of statuses) noticed.add(status);
    },
    take: ({ now, until, limit }) =>
      db.write(async (query) => {
        // Notices that another process is taking are skipped.
        const { rows } = await query<Omit<RunNotice, 'runId'> & { readonly run: Buffer }>(
          `UPDATE treadle.notices SET due_at = $2, attempts = attempts + 1 WHERE id IN
             (SELECT id FROM treadle.notices WHERE due_at <= $1 ORDER BY due_at, id LIMIT $3 FOR UPDATE SKIP LOCKED)
           RETURNING id, run, seq, status, at, attempts`,
          [now, until, limit],
        );
        return rows.map(({ run, ...notice }) => ({ ...notice, runId: text(run) })).sort((a, b) => a.id - b.id);
      }),
    async postpone(id, dueAt) {
      await db.write((query) => query('UPDATE treadle.notices SET due_at = $2 WHERE id = $1', [id, dueAt]));
    },
    async remove(id) {
      await db.write((query) => query('DELETE FROM treadle.notices WHERE id = $1', [id]));
    },
    nextDue: () =>
      db.read(async (query) => {
        const { rows } = await query<{ readonly due: number | null }>('SELECT min(due_at) AS due FROM treadle.notices');
        return rows[0]!.due ?? undefined;
      }),
    prune: (before, most) =>
      db.write(async (query) => {
        const { count: old } = await query('DELETE FROM treadle.notices WHERE at < $1', [before]);
        const { count } = await query(
          `DELETE FROM treadle.notices WHERE id <= (SELECT id FROM treadle.notices ORDER BY id DESC LIMIT 1 OFFSET $1)`,
          [most],
        );
        return old + count;
      }),
    watch: (listener) => changes.watch(NOTICES, listener),
  };
}
