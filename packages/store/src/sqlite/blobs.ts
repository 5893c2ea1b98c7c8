import { createHash } from 'node:crypto';
import type { DatabaseSync } from 'node:sqlite';
import type { Blobs } from '@treadle/core';
import type { GroupCommit } from './group-commit.ts';
import type { Runs } from './runs.ts';

/** UTF-16 units in a part. A page of a text costs the parts that it touches, however long the text is. */
const PART = 32_768;

/** Each text once, in parts of the same length, for all the runs that keep it. */
export interface Texts {
  readonly put: Blobs['put'];
  readonly read: (...args: Parameters<Blobs['read']>) => { readonly text: string; readonly length: number } | undefined;
  readonly list: (runId: string) => readonly string[];
}

export function texts(db: DatabaseSync, { write }: GroupCommit, { idOf }: Runs): Texts {
  const findBlob = db.prepare('SELECT id FROM blobs WHERE digest = ?');
  const insertBlob = db.prepare('INSERT INTO blobs (digest, length) VALUES (?, ?)');
  const insertPart = db.prepare('INSERT INTO blob_parts (blob, part, content) VALUES (?, ?, ?)');
  const keep = db.prepare('INSERT OR IGNORE INTO blob_runs (run, blob) VALUES (?, ?)');
  const find = db.prepare(
    `SELECT blobs.id, blobs.length FROM blobs
     JOIN runs ON runs.run = ? JOIN blob_runs ON blob_runs.run = runs.id AND blob_runs.blob = blobs.id
     WHERE blobs.digest = ?`,
  );
  const findAll = db.prepare(
    `SELECT blobs.digest FROM blobs JOIN runs ON runs.run = ?
     JOIN blob_runs ON blob_runs.run = runs.id AND blob_runs.blob = blobs.id`,
  );
  const readParts = db.prepare('SELECT content FROM blob_parts WHERE blob = ? AND part BETWEEN ? AND ? ORDER BY part');

  function store(digest: string, text: string): number {
    const id = Number(insertBlob.run(digest, text.length).lastInsertRowid);
    let index = 0;
    for (const part of partsOf(text)) insertPart.run(id, index++, packed(part));
    return id;
  }

  return {
    async put(runId, text) {
      const digest = digestOf(text);
      await write(() => {
        const run = idOf(runId);
        const known = findBlob.get(digest) as { readonly id: number } | undefined;
        keep.run(run, known?.id ?? store(digest, text));
      });
      return digest;
    },
    read(runId, digest, from, to) {
      const blob = find.get(runId, digest) as { readonly id: number; readonly length: number } | undefined;
      if (!blob) return undefined;
      const { id, length } = blob;
      const start = Math.min(Math.max(0, from), length);
      const end = Math.min(Math.max(start, to), length);
      const first = Math.floor(start / PART);
      const rows = readParts.all(id, first, Math.floor(end / PART)) as unknown as readonly {
        readonly content: Packed;
      }[];
      const text = rows.map(({ content }) => unpacked(content)).join('');
      return { text: text.slice(start - first * PART, end - first * PART), length };
    },
    list: (runId) =>
      findAll
        .all(runId)
        .map(({ digest }) => digest as string)
        .sort(),
  };
}

function* partsOf(text: string): Generator<string> {
  for (let at = 0; at < text.length; at += PART) yield text.slice(at, at + PART);
}

/** SHA-256 of the text as UTF-16: any string has one of its own, also one that is cut in the middle of a character. */
function digestOf(text: string): string {
  const hash = createHash('sha256');
  for (const part of partsOf(text)) hash.update(Buffer.from(part, 'utf16le'));
  return hash.digest('hex');
}

type Packed = string | Uint8Array;

/** SQLite keeps text as UTF-8, which has no halves of a character; parts that begin or end in one are kept as they are. */
function packed(part: string): Packed {
  return part.isWellFormed() ? part : Buffer.from(part, 'utf16le');
}

function unpacked(part: Packed): string {
  return typeof part === 'string' ? part : Buffer.from(part).toString('utf16le');
}
