import type { DatabaseSync } from 'node:sqlite';
import type { SplitJson } from '../records/input.ts';
import { MESSAGE, storedSize, type SharedTexts } from './shared-texts.ts';

/**
 * The messages in the input of runs, and the items in the requests of responses, each stored once. Both are called messages
 * here.
 *
 * 1. An input is a path in a tree: the row of a message refers to the message before it, and the row of a run or response to
 *    its last message. So a run that continues a conversation adds only the messages that are new.
 * 2. A message is found by its digest: SHA-256 of the digest of the message before it and its own text. So equal messages
 *    after different conversations are different rows.
 * 3. A message has a higher id than the message before it, because it is inserted while that one exists.
 * 4. A message is deleted when no run, no response and no message after it refers to it.
 */
export interface Messages {
  /**
   * Inside a transaction: stores the messages that are not stored yet. Returns the id of the last one; undefined if a
   * message that is stored already is damaged, so that the input has to stay where it was.
   */
  readonly store: (split: SplitJson) => number | undefined;
  /** The JSON that `splitInput` was called with. Another text if a message is damaged or missing. */
  readonly restore: (rest: string, { input_last, input_at }: InputPlace) => string;
  /** The ids of the messages up to this one, in order. */
  readonly path: (last: number) => readonly number[];
  /** The JSON of one message. Another text if it is damaged or missing. */
  readonly text: (id: number) => string;
  /** The bytes that `restore` adds. It reads no message. */
  readonly size: (last: number | null) => number;
  /** Inside a transaction, after a run or response was deleted: deletes the messages that are not used any more. */
  readonly release: (last: number | null) => void;
}

/** Where an input is. Columns of `runs` and `responses`; null if it is in the first entry or in the request. */
export interface InputPlace {
  /** The id of the last message. */
  readonly input_last: number | null;
  /** The position of the messages in the JSON of the entry or request. */
  readonly input_at: number | null;
}

export function openMessages(db: DatabaseSync, shared: SharedTexts): Messages {
  const findMessage = db.prepare('SELECT id FROM messages WHERE digest = ?');
  const insertMessage = db.prepare('INSERT INTO messages (previous, digest, text) VALUES (?, ?, ?)');
  // `<`, so that a damaged reference cannot lead into a circle.
  const findTexts = db.prepare(
    `WITH RECURSIVE path (id, previous, text) AS (
       SELECT id, previous, text FROM messages WHERE id = ?
       UNION ALL
       SELECT one.id, one.previous, one.text FROM path JOIN messages one ON one.id = path.previous AND one.id < path.id
     ) SELECT text FROM path`,
  );
  const findPath = db.prepare(
    `WITH RECURSIVE path (id, previous) AS (
       SELECT id, previous FROM messages WHERE id = ?
       UNION ALL
       SELECT one.id, one.previous FROM path JOIN messages one ON one.id = path.previous AND one.id < path.id
     ) SELECT id FROM path`,
  );
  const findText = db.prepare('SELECT text FROM messages WHERE id = ?');
  const sumSizes = db.prepare(
    `WITH RECURSIVE path (id, previous, size) AS (
       SELECT id, previous, ${storedSize('text')} FROM messages WHERE id = ?
       UNION ALL
       SELECT one.id, one.previous, ${storedSize('one.text')}
       FROM path JOIN messages one ON one.id = path.previous AND one.id < path.id
     ) SELECT sum(size + 1) AS size FROM path`,
  );
  const findUse = db.prepare(
    `SELECT 1 FROM messages WHERE previous = ?1 UNION ALL SELECT 1 FROM runs WHERE input_last = ?1
     UNION ALL SELECT 1 FROM requests WHERE input_last = ?1`,
  );
  const deleteMessage = db.prepare('DELETE FROM messages WHERE id = ? RETURNING previous');

  /** The messages up to this one, as they are in a JSON list. */
  function joinedTexts(last: number): string {
    const texts = findTexts.all(last).map(({ text }) => shared.restore(text as string));
    return texts.reverse().join();
  }

  /** Whether the messages up to this one are the first `count` of a list. Compared one by one: joined, they need twice the time. */
  function isPathOf(last: number, list: readonly string[], count: number): boolean {
    const rows = findTexts.all(last);
    return (
      rows.length === count &&
      rows.every(({ text }, index) => shared.restore(text as string) === list[count - 1 - index])
    );
  }

  function idOf(digest: Buffer): number | null {
    return (findMessage.get(digest)?.['id'] as number | undefined) ?? null;
  }

  return {
    store({ messages, digests }) {
      // From the end, because most conversations continue one that is stored.
      let known = messages.length;
      let last: number | null = null;
      while (known > 0 && (last = idOf(digests[known - 1]!)) === null) known--;
      if (last !== null && !isPathOf(last, messages, known)) return undefined;
      for (let index = known; index < messages.length; index++) {
        const used: number[] = [];
        const text = shared.share(messages[index]!, used);
        last = Number(insertMessage.run(last, digests[index]!, text).lastInsertRowid);
        shared.use([MESSAGE, last], used);
      }
      return last!;
    },

    restore(rest, { input_last: last, input_at: at }) {
      return last === null || at === null ? rest : rest.slice(0, at) + joinedTexts(last) + rest.slice(at);
    },

    path: (last) =>
      findPath
        .all(last)
        .map(({ id }) => id as number)
        .toReversed(),
    text: (id) => shared.restore((findText.get(id)?.['text'] as string | undefined) ?? ''),

    size: (last) => (last === null ? 0 : ((sumSizes.get(last)?.['size'] as number | null | undefined) ?? 0)),

    release(last) {
      for (let id = last; id !== null && !findUse.get(id);) {
        const deleted = deleteMessage.get(id);
        shared.release([MESSAGE, id]);
        id = (deleted?.['previous'] as number | null | undefined) ?? null;
      }
    },
  };
}
