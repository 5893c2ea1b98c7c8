import type { ConversationStore } from '../ports/conversations.ts';
import { text, type Database, type Query } from './connection.ts';
import { COLUMNS, findConversation, responsesOf, type ConversationRow } from './conversation-rows.ts';
import type { Requests } from './requests.ts';
import { awaitRemovals, PRUNE_BATCH_ENTRIES } from './runs.ts';
import type { Streams } from './streams.ts';

/** How many conversations are found in one transaction. */
const PRUNE_CONVERSATIONS = 20;
/** How many responses are checked in one transaction. */
const CHECKED_AT_ONCE = 100;
/** How many parts are removed in one transaction. */
const PARTS_AT_ONCE = 10;

interface RemovalParts {
  readonly requests: Requests;
  readonly streams: Streams;
}

/** Deletes conversations: rule 2 of `openConversations`. */
export function conversationRemoval(
  db: Database,
  { requests, streams }: RemovalParts,
): Pick<ConversationStore, 'delete' | 'prune'> {
  /** Whether `is` resolves to true for one of the responses. Called in several transactions. */
  async function hasResponse(
    row: ConversationRow,
    is: (query: Query, response: Buffer) => Promise<boolean>,
  ): Promise<boolean> {
    const parts = await db.read((query) => responsesOf(query, row.id));
    for (let at = 0; at < parts.length; at += CHECKED_AT_ONCE) {
      const some = parts.slice(at, at + CHECKED_AT_ONCE);
      const isFound = await db.write(async (query) => {
        for (const { response } of some) if (await is(query, response)) return true;
        return false;
      }, 'written');
      if (isFound) return true;
    }
    return false;
  }

  /** Whether it was marked; not if the conversation was extended or deleted meanwhile. */
  function markDeleted({ id, head }: ConversationRow, until: 'durable' | 'written'): Promise<boolean> {
    return db.write(async (query) => {
      const { count } = await query(
        'UPDATE treadle.conversations SET is_deleted = true WHERE id = $1 AND NOT is_deleted AND head IS NOT DISTINCT FROM $2',
        [id, head],
      );
      return count > 0;
    }, until);
  }

  /** Removes what is left of a deleted conversation, but not the runs that are driven: a later call does. */
  async function removeDeleted(row: ConversationRow): Promise<void> {
    for (let before: number | undefined = 2_147_483_647; before !== undefined;) {
      const position: number = before;
      before = await db.write((query) => removeSomeParts(query, row, position), 'written');
    }
  }

  /** Removes the last parts before this one. Resolves to the first of them; undefined if there are no more. */
  async function removeSomeParts(query: Query, row: ConversationRow, before: number): Promise<number | undefined> {
    await awaitRemovals(query);
    const { count } = await query('SELECT 1 FROM treadle.conversations WHERE id = $1 AND is_deleted FOR UPDATE', [
      row.id,
    ]);
    if (count === 0) return undefined;
    const { rows } = await query<{ readonly id: number; readonly place: number; readonly response: Buffer | null }>(
      `SELECT id, place, response FROM treadle.conversation_parts WHERE conversation = $1 AND place < $2
       ORDER BY place DESC LIMIT ${PARTS_AT_ONCE}`,
      [row.id, before],
    );
    let entries = 0;
    let first: number | undefined;
    for (const { id, place, response } of rows) {
      if (entries > PRUNE_BATCH_ENTRIES) break;
      first = place;
      const removed =
        response && (await isLastUse(query, response)) ? await removeResponse(query, row.tenant, response) : 0;
      if (removed === null) continue;
      entries += removed;
      await query('DELETE FROM treadle.conversation_parts WHERE id = $1', [id]);
    }
    if (first !== undefined) return first;
    const { count: left } = await query('SELECT 1 FROM treadle.conversation_parts WHERE conversation = $1 LIMIT 1', [
      row.id,
    ]);
    if (left > 0) return undefined;
    await streams.removeNow(query, row.conversation);
    await query('DELETE FROM treadle.conversations WHERE id = $1', [row.id]);
    return undefined;
  }

  async function findOld(before: number, after: readonly [number, number]): Promise<readonly ConversationRow[]> {
    const { rows } = await db.read((query) =>
      query<ConversationRow>(
        `SELECT ${COLUMNS} FROM treadle.conversations c WHERE c.updated_at < $1 AND (c.updated_at, c.id) > ($2, $3)
           AND NOT c.is_deleted ORDER BY c.updated_at, c.id LIMIT ${PRUNE_CONVERSATIONS}`,
        [before, ...after],
      ),
    );
    return rows;
  }

  return {
    async delete(tenant, id) {
      for (;;) {
        const row = await db.read((query) => findConversation(query, id));
        if (!row || text(row.tenant) !== tenant) return false;
        await hasResponse(row, async (query, response) => {
          if (await isLastUse(query, response)) await requests.checkRemovable(query, text(response));
          return false;
        });
        if (!(await markDeleted(row, 'durable'))) continue;
        await removeDeleted(row);
        return true;
      }
    },

    async prune(before) {
      let pruned = 0;
      const { rows: interrupted } = await db.read((query) =>
        query<ConversationRow>(`SELECT ${COLUMNS} FROM treadle.conversations c WHERE c.is_deleted`),
      );
      for (const row of interrupted) await removeDeleted(row);
      let position: readonly [number, number] | undefined = [-Infinity, 0];
      while (position) {
        const old = await findOld(before, position);
        for (const row of old) {
          if (await hasResponse(row, (query, response) => requests.isBusy(query, text(response)))) continue;
          if (!(await markDeleted(row, 'written'))) continue;
          await removeDeleted(row);
          pruned += 1;
        }
        const last = old.at(-1);
        position = last && old.length === PRUNE_CONVERSATIONS ? [last.updated_at, last.id] : undefined;
      }
      return pruned;
    },
  };
}

/** Whether a response is deleted with its conversation: no other one has it. */
async function isLastUse(query: Query, response: Buffer): Promise<boolean> {
  const { rows } = await query<{ readonly uses: number }>(
    'SELECT count(*) AS uses FROM treadle.conversation_parts WHERE response = $1',
    [response],
  );
  return rows[0]!.uses === 1;
}

/** The number of deleted entries; null if a run of the response is driven. */
async function removeResponse(query: Query, tenant: Buffer, response: Buffer): Promise<number | null> {
  const { rows } = await query<{ readonly run: Buffer }>(
    'SELECT run FROM treadle.requests WHERE response = $1 AND tenant = $2',
    [response, tenant],
  );
  if (!rows[0]) return 0;
  const removed = await query<{ readonly entries: number | null }>('SELECT treadle.remove_with_runs($1) AS entries', [
    rows[0].run,
  ]);
  return removed.rows[0]!.entries;
}
