import { INBOX_PATIENCE_MS, type InboxStore } from '../ports/inbox.ts';
import { parseJson } from '../records/json.ts';
import type { Changes } from './changes.ts';
import { bytes, text, type Database } from './connection.ts';

/** The name for listeners. No run or stream of the server has it. */
const INBOX = '\0inbox';

/** What is older was left by a process that died. */
const MOST_AGE_MS = 3_600_000;

/** By the clock of the database. */
const IS_OPEN = `NOT is_taken AND abs(at - treadle.now_ms()) <= ${INBOX_PATIENCE_MS}`;

export function openInbox(db: Database, changes: Changes): InboxStore {
  return {
    async add(runId, request) {
      const { rows } = await db.write(async (query) => {
        // Computed once, so that the index can be used.
        await query(`DELETE FROM treadle.inbox WHERE at < (SELECT treadle.now_ms() - ${MOST_AGE_MS})`, []);
        return query<{ readonly id: number }>(
          'INSERT INTO treadle.inbox (run, request, at) VALUES ($1, $2, treadle.now_ms()) RETURNING id',
          [bytes(runId), JSON.stringify(request)],
        );
      }, 'written');
      changes.changed(INBOX);
      return rows[0]!.id;
    },
    open: () =>
      db.read(async (query) => {
        const { rows } = await query<{ readonly id: number; readonly run: Buffer; readonly request: string }>(
          `SELECT id, run, request FROM treadle.inbox WHERE ${IS_OPEN} ORDER BY id`,
          [],
        );
        return rows.map(({ id, run, request }) => ({ id, runId: text(run), request: parseJson(request) }));
      }),
    take: (id) =>
      db.write(async (query) => {
        const { count } = await query(`UPDATE treadle.inbox SET is_taken = true WHERE id = $1 AND ${IS_OPEN}`, [id]);
        return count > 0;
      }, 'written'),
    async reply(id, reply) {
      await db.write(
        (query) => query('UPDATE treadle.inbox SET reply = $2 WHERE id = $1', [id, JSON.stringify(reply)]),
        'written',
      );
      changes.changed(INBOX);
    },
    replyTo: (id) =>
      db.read(async (query) => {
        const { rows } = await query<{ readonly reply: string | null }>(
          'SELECT reply FROM treadle.inbox WHERE id = $1',
          [id],
        );
        const reply = rows[0]?.reply;
        return typeof reply === 'string' ? parseJson(reply) : undefined;
      }),
    remove: (id, { ifOpen = false } = {}) =>
      db.write(async (query) => {
        const condition = ifOpen ? 'AND NOT is_taken' : '';
        return (await query(`DELETE FROM treadle.inbox WHERE id = $1 ${condition}`, [id])).count > 0;
      }, 'written'),
    watch: (listener) => changes.watch(INBOX, listener),
  };
}
