import type { DatabaseSync } from 'node:sqlite';
import { putBackStrings, referencesIn, stringDigest, takeOutStrings } from '../records/long-strings.ts';

/**
 * Long strings in stored JSON, each stored once: a reply is in an event of its run, in the response of the server, and in the
 * input of the runs that continue it.
 *
 * 1. In the JSON, a long string (`takeOutStrings`) is replaced by the id of a row of `texts`, between two marks. JSON does not
 *    contain the mark, because it escapes control characters. So JSON that was stored before is read as it is.
 * 2. A text is found by its digest: SHA-256 of the string, as it is escaped in JSON.
 * 3. A row of `text_uses` is the use of a text by a run (in any of its entries), a message or a response. A text is deleted
 *    with its last use.
 * 4. The sum of what contains a text is that of the complete JSON. So a missing or changed text damages what contains it, and
 *    nothing else.
 */
export interface SharedTexts {
  /**
   * Inside a transaction: stores the long strings that are not stored yet, and repairs those that are damaged. Returns the
   * JSON to store, and adds the ids of its texts to `used`, for `use`.
   */
  readonly share: (json: string, used: number[]) => string;
  /** Inside the same transaction. */
  readonly use: (user: TextUser, used: readonly number[]) => void;
  /** The JSON that `share` was called with. Another text if a string is damaged or missing. */
  readonly restore: (stored: string) => string;
  /** Inside a transaction, after the user was deleted: deletes the texts that are not used any more. */
  readonly release: (user: TextUser) => void;
}

/** The number of its row, and of its table. */
export type TextUser = readonly [kind: number, id: number];

export const RUN = 1;
export const MESSAGE = 2;
export const RESPONSE = 3;

export function openSharedTexts(db: DatabaseSync): SharedTexts {
  const findDigest = db.prepare('SELECT id, text FROM texts WHERE digest = ?');
  const findText = db.prepare('SELECT text FROM texts WHERE id = ?');
  const findSize = db.prepare('SELECT octet_length(text) AS size FROM texts WHERE id = ?');
  const insertText = db.prepare('INSERT INTO texts (digest, text) VALUES (?, ?)');
  const updateText = db.prepare('UPDATE texts SET text = ? WHERE id = ?');
  const deleteText = db.prepare('DELETE FROM texts WHERE id = ?');
  const insertUse = db.prepare('INSERT OR IGNORE INTO text_uses (kind, user, text) VALUES (?, ?, ?)');
  const deleteUses = db.prepare('DELETE FROM text_uses WHERE kind = ? AND user = ? RETURNING text');
  const findUse = db.prepare('SELECT 1 FROM text_uses WHERE text = ?');

  db.function('size_of_texts', { directOnly: true }, (stored) =>
    textIdsIn(stored as string).reduce((sum, id) => sum + ((findSize.get(id)?.['size'] as number | undefined) ?? 0), 0),
  );

  function store(text: string): number {
    const digest = stringDigest(text);
    const known = findDigest.get(digest) as { readonly id: number; readonly text: string } | undefined;
    if (!known) return Number(insertText.run(digest, text).lastInsertRowid);
    if (known.text !== text) updateText.run(text, known.id);
    return known.id;
  }

  return {
    share: (json, used) =>
      takeOutStrings(json, (text) => {
        const id = store(text);
        used.push(id);
        return String(id);
      }),

    use([kind, id], used) {
      for (const text of used) insertUse.run(kind, id, text);
    },

    restore: (stored) =>
      putBackStrings(stored, (id) => (findText.get(Number(id))?.['text'] as string | undefined) ?? ''),

    release([kind, id]) {
      for (const { text } of deleteUses.all(kind, id)) if (!findUse.get(text!)) deleteText.run(text!);
    },
  };
}

/** In SQL: the bytes of the JSON that a column contains, with its texts. They are not read. */
export function storedSize(column: string): string {
  return `coalesce(octet_length(${column}) + iif(instr(${column}, char(1)) > 0, size_of_texts(${column}), 0), 0)`;
}

/** The ids of the texts in stored JSON. */
export function textIdsIn(stored: string): readonly number[] {
  return referencesIn(stored).map(Number);
}
