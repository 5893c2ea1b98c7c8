import { createHash } from 'node:crypto';
import type { DatabaseSync } from 'node:sqlite';
import type { Blobs } from '@treadle/core';
import { unknownRun } from './entries.ts';
import type { GroupCommit } from './group-commit.ts';

/** UTF-16 units per part. Reading a page of a text loads only the parts that it touches. */
const PART = 32_768;

/** Stores each text once, for all runs that use it, in parts of equal length. */
export interface SqliteBlobs {
  readonly put: Blobs['put'];
  readonly read: (...args: Parameters<Blobs['read']>) => { readonly text: string; readonly length: number } | undefined;
  readonly list: (runId: string) => readonly string[];
}

export function openBlobs(db: DatabaseSync, { write }: GroupCommit): SqliteBlobs {
  const findRun = db.prepare('SELECT id FROM runs WHERE run = ?');
  const findByDigest = db.prepare('SELECT id FROM blobs WHERE digest = ?');
  const insertBlob = db.prepare('INSERT INTO blobs (digest, length) VALUES (?, ?)');
  const insertPart = db.prepare('INSERT INTO blob_parts (blob, part, content) VALUES (?, ?, ?)');
  const insertBlobRun = db.prepare('INSERT OR IGNORE INTO blob_runs (run, blob) VALUES (?, ?)');
  const findOfRun = db.prepare(
    `SELECT blobs.id, blobs.length FROM blobs
     JOIN runs ON runs.run = ? JOIN blob_runs ON blob_runs.run = runs.id AND blob_runs.blob = blobs.id
     WHERE blobs.digest = ?`,
  );
  const findAllOfRun = db.prepare(
    `SELECT blobs.digest FROM blobs JOIN runs ON runs.run = ?
     JOIN blob_runs ON blob_runs.run = runs.id AND blob_runs.blob = blobs.id`,
  );
  const findParts = db.prepare('SELECT content FROM blob_parts WHERE blob = ? AND part BETWEEN ? AND ? ORDER BY part');

  function insertText(digest: string, text: string): number {
    const id = Number(insertBlob.run(digest, text.length).lastInsertRowid);
    let index = 0;
    for (const part of partsOf(text)) insertPart.run(id, index++, encodePart(part));
    return id;
  }

  return {
    async put(runId, text) {
      const digest = digestOf(text);
      await write(() => {
        const run = findRun.get(runId) as { readonly id: number } | undefined;
        if (!run) throw unknownRun(runId);
        const known = findByDigest.get(digest) as { readonly id: number } | undefined;
        insertBlobRun.run(run.id, known?.id ?? insertText(digest, text));
      });
      return digest;
    },
    read(runId, digest, from, to) {
      const blob = findOfRun.get(runId, digest) as { readonly id: number; readonly length: number } | undefined;
      if (!blob) return undefined;
      const { id, length } = blob;
      const start = Math.min(Math.max(0, from), length);
      const end = Math.min(Math.max(start, to), length);
      const first = Math.floor(start / PART);
      const rows = findParts.all(id, first, Math.floor(end / PART)) as unknown as readonly {
        readonly content: StoredPart;
      }[];
      const text = rows.map(({ content }) => decodePart(content)).join('');
      return { text: text.slice(start - first * PART, end - first * PART), length };
    },
    list: (runId) =>
      findAllOfRun
        .all(runId)
        .map(({ digest }) => digest as string)
        .sort(),
  };
}

function* partsOf(text: string): Generator<string> {
  for (let at = 0; at < text.length; at += PART) yield text.slice(at, at + PART);
}

/** SHA-256 of the text as UTF-16, which also distinguishes strings with unpaired surrogates. */
function digestOf(text: string): string {
  const hash = createHash('sha256');
  for (const part of partsOf(text)) hash.update(Buffer.from(part, 'utf16le'));
  return hash.digest('hex');
}

type StoredPart = string | Uint8Array;

/** SQLite stores text as UTF-8, which cannot represent unpaired surrogates. Parts that contain one are stored as UTF-16. */
function encodePart(part: string): StoredPart {
  return part.isWellFormed() ? part : Buffer.from(part, 'utf16le');
}

function decodePart(part: StoredPart): string {
  return typeof part === 'string' ? part : Buffer.from(part).toString('utf16le');
}
