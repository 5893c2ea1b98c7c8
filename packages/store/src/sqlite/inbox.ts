import type { DatabaseSync } from 'node:sqlite';
import { INBOX_PATIENCE_MS, type InboxStore } from '../ports/inbox.ts';
import type { Changes } from './changes.ts';
import { parseJson } from '../records/json.ts';
import type { GroupCommit } from './group-commit.ts';

/** The methods of an `InboxStore`. Those that only read are synchronous and need a transaction of the caller. */
export interface Inbox extends Omit<InboxStore, 'open' | 'replyTo'> {
  readonly open: () => Awaited<ReturnType<InboxStore['open']>>;
  readonly replyTo: (id: number) => unknown;
}

/** The name for listeners. No run or stream of the server has it. */
const INBOX = '\0inbox';

/** What is older was left by a process that died. */
const MOST_AGE_MS = 3_600_000;

interface InboxParts {
  readonly commit: GroupCommit;
  readonly changes: Changes;
  readonly now: () => number;
}

export function openInbox(db: DatabaseSync, { commit, changes, now }: InboxParts): Inbox {
  const removeOld = db.prepare('DELETE FROM inbox WHERE at < ?');
  const insert = db.prepare('INSERT INTO inbox (run, request, at) VALUES (?, ?, ?)');
  // The clock may have been set back since a request was added.
  const isOpen = 'is_taken = 0 AND abs(at - :now) <= :patience';
  const findOpen = db.prepare(`SELECT id, run, request FROM inbox WHERE ${isOpen} ORDER BY id`);
  const take = db.prepare(`UPDATE inbox SET is_taken = 1 WHERE id = :id AND ${isOpen}`);
  const setReply = db.prepare('UPDATE inbox SET reply = ? WHERE id = ?');
  const findReply = db.prepare('SELECT reply FROM inbox WHERE id = ?');
  const remove = db.prepare('DELETE FROM inbox WHERE id = ?');
  const removeIfOpen = db.prepare('DELETE FROM inbox WHERE id = ? AND is_taken = 0');

  const opened = () => ({ now: now(), patience: INBOX_PATIENCE_MS });

  return {
    add: (runId, request) =>
      commit.write(() => {
        removeOld.run(now() - MOST_AGE_MS);
        changes.changed(INBOX);
        return Number(insert.run(runId, JSON.stringify(request), now()).lastInsertRowid);
      }, 'written'),
    open: () =>
      findOpen.all(opened()).map(({ id, run, request }) => ({
        id: id as number,
        runId: run as string,
        request: parseJson(request as string),
      })),
    take: (id) => commit.write(() => take.run({ id, ...opened() }).changes > 0, 'written'),
    async reply(id, reply) {
      await commit.write(() => {
        setReply.run(JSON.stringify(reply), id);
        changes.changed(INBOX);
      }, 'written');
    },
    replyTo(id) {
      const { reply } = findReply.get(id) ?? {};
      return typeof reply === 'string' ? parseJson(reply) : undefined;
    },
    remove: (id, { ifOpen = false } = {}) =>
      commit.write(() => (ifOpen ? removeIfOpen : remove).run(id).changes > 0, 'written'),
    watch: (listener) => changes.watch(INBOX, listener),
  };
}
