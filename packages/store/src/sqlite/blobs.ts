import { createHash } from 'node:crypto';
import type { DatabaseSync } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import { TreadleError, type Blobs } from '@treadle/core';
import { nameKey } from './database.ts';
import { unknownRun } from './entries.ts';
import type { GroupCommit } from './group-commit.ts';

/** UTF-16 units per part. Reading a page of a text loads only the parts that it touches. */
const PART = 32_768;

/** Stores each text once, for all runs that use it, in parts of equal length. */
export interface SqliteBlobs {
  /** Also repairs a damaged text. */
  readonly put: Blobs['put'];
  /** Throws `journal-damaged` if a part of the page is missing or changed. */
  readonly read: (...args: Parameters<Blobs['read']>) => { readonly text: string; readonly length: number } | undefined;
  /** Throws `journal-damaged` if a text of the run is missing. */
  readonly list: (runId: string) => readonly string[];
}

interface PartRow {
  readonly part: number;
  readonly content: StoredPart;
  /** Null in a part that was stored before version 3. */
  readonly sum: number | null;
}

export function openBlobs(db: DatabaseSync, { write }: GroupCommit): SqliteBlobs {
  const findRun = db.prepare('SELECT id FROM runs WHERE run = ?');
  const upsertBlob = db.prepare(
    `INSERT INTO blobs (digest, length) VALUES (?, ?)
     ON CONFLICT (digest) DO UPDATE SET length = excluded.length RETURNING id`,
  );
  const upsertPart = db.prepare(
    `INSERT INTO blob_parts (blob, part, content, sum) VALUES (?, ?, ?, ?)
     ON CONFLICT (blob, part) DO UPDATE SET content = excluded.content, sum = excluded.sum
     WHERE content IS NOT excluded.content OR sum IS NOT excluded.sum`,
  );
  const insertBlobRun = db.prepare('INSERT OR IGNORE INTO blob_runs (run, blob) VALUES (?, ?)');
  const findOfRun = db.prepare(
    `SELECT blobs.id, blobs.length FROM blobs
     JOIN runs ON runs.run = ? JOIN blob_runs ON blob_runs.run = runs.id AND blob_runs.blob = blobs.id
     WHERE blobs.digest = ?`,
  );
  const findAllOfRun = db.prepare(
    `SELECT blobs.digest FROM runs JOIN blob_runs ON blob_runs.run = runs.id
     LEFT JOIN blobs ON blobs.id = blob_runs.blob WHERE runs.run = ?`,
  );
  const findParts = db.prepare(
    'SELECT part, content, sum FROM blob_parts WHERE blob = ? AND part BETWEEN ? AND ? ORDER BY part',
  );

  function storeText(digest: string, text: string): number {
    const { id } = upsertBlob.get(digest, text.length) as { readonly id: number };
    let index = 0;
    for (const part of partsOf(text)) {
      const content = encodePart(part);
      upsertPart.run(id, index, content, sumOf(content, digest, index));
      index++;
    }
    return id;
  }

  return {
    async put(runId, text, until) {
      const digest = digestOf(text);
      await write(() => {
        const run = findRun.get(nameKey(runId)) as { readonly id: number } | undefined;
        if (!run) throw unknownRun(runId);
        insertBlobRun.run(run.id, storeText(digest, text));
      }, until);
      return digest;
    },
    read(runId, digest, from, to) {
      const blob = findOfRun.get(nameKey(runId), digest) as
        | { readonly id: number; readonly length: number }
        | undefined;
      if (!blob) return undefined;
      const { id, length } = blob;
      const start = Math.min(Math.max(0, from), length);
      const end = Math.min(Math.max(start, to), length);
      if (start === end) return { text: '', length };
      const first = Math.floor(start / PART);
      const last = Math.floor((end - 1) / PART);
      const rows = findParts.all(id, first, last) as unknown as readonly PartRow[];
      const parts: string[] = [];
      for (let index = first; index <= last; index++) {
        const part = intactPart(rows[index - first], { digest, index, length });
        if (part.problem !== undefined) throw textDamaged(runId, digest, `part ${index} is ${part.problem}`);
        parts.push(part.text);
      }
      const text = parts.join('');
      const isWhole = start === 0 && end === length;
      if (isWhole && digestOf(text) !== digest) throw textDamaged(runId, digest, 'its parts do not match its id');
      return { text: text.slice(start - first * PART, end - first * PART), length };
    },
    list: (runId) =>
      findAllOfRun
        .all(nameKey(runId))
        .map(({ digest }) => {
          if (digest === null) throw textMissing(runId);
          return digest as string;
        })
        .sort(),
  };
}

type CheckedPart = { readonly text: string; readonly problem?: never } | { readonly problem: 'missing' | 'damaged' };

function intactPart(
  row: PartRow | undefined,
  { digest, index, length }: { readonly digest: string; readonly index: number; readonly length: number },
): CheckedPart {
  if (row?.part !== index) return { problem: 'missing' };
  const { content, sum } = row;
  if (sum !== null && sumOf(content, digest, index) !== sum) return { problem: 'damaged' };
  const text = decodePart(content);
  return text.length === Math.min(PART, length - index * PART) ? { text } : { problem: 'damaged' };
}

/** Continues the sum of text and position, so that a part fits only there. */
function sumOf(content: StoredPart, digest: string, index: number): number {
  return crc32(content, crc32(`${digest} ${index}`));
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

const REMEDY = 'Restore the store from a backup; other results are not affected.';

function textDamaged(runId: string, digest: string, problem: string): TreadleError {
  return new TreadleError(
    'journal-damaged',
    `The long result ${digest} of run "${runId}" is damaged: ${problem}. ${REMEDY}`,
  );
}

function textMissing(runId: string): TreadleError {
  return new TreadleError('journal-damaged', `A long result of run "${runId}" is missing. ${REMEDY}`);
}
