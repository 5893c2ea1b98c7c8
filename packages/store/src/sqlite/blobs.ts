import { createHash } from 'node:crypto';
import type { DatabaseSync } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import { checkedBytes, TreadleError, type BlobPart, type Blobs } from '@treadle/core';
import { nameKey } from './database.ts';
import { unknownRun } from './entries.ts';
import type { GroupCommit } from './group-commit.ts';

/** UTF-16 units, or bytes, per part. Reading a page loads only the parts that it touches. */
const PART = 32_768;

/** Stores each content once, for all runs that use it, in parts of equal length. */
export interface SqliteBlobs {
  /** Also repairs a damaged content. */
  readonly put: Blobs['put'];
  /** Throws `journal-damaged` if a part of the page is missing or changed. */
  readonly read: (...args: Parameters<Blobs['read']>) => BlobPart | undefined;
  /** Throws `journal-damaged` if a content of the run is missing. */
  readonly list: (runId: string) => readonly string[];
}

interface BlobRow {
  readonly id: number;
  readonly length: number;
  /** Null: a text. */
  readonly media_type: string | null;
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
    `INSERT INTO blobs (digest, length, media_type) VALUES (?, ?, ?)
     ON CONFLICT (digest) DO UPDATE SET length = excluded.length, media_type = excluded.media_type RETURNING id`,
  );
  const upsertPart = db.prepare(
    `INSERT INTO blob_parts (blob, part, content, sum) VALUES (?, ?, ?, ?)
     ON CONFLICT (blob, part) DO UPDATE SET content = excluded.content, sum = excluded.sum
     WHERE content IS NOT excluded.content OR sum IS NOT excluded.sum`,
  );
  const insertBlobRun = db.prepare('INSERT OR IGNORE INTO blob_runs (run, blob) VALUES (?, ?)');
  const findOfRun = db.prepare(
    `SELECT blobs.id, blobs.length, blobs.media_type FROM blobs
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

  function storeContent(digest: string, content: string | Uint8Array, mediaType: string | null): number {
    const { id } = upsertBlob.get(digest, content.length, mediaType) as { readonly id: number };
    let index = 0;
    for (const part of partsOf(content)) {
      const content = encodePart(part);
      upsertPart.run(id, index, content, sumOf(content, digest, index));
      index++;
    }
    return id;
  }

  return {
    async put(runId, given, until) {
      const mediaType = typeof given === 'string' ? null : checkedBytes(given).mediaType;
      // A copy, because the caller may change the bytes before they are written.
      const content = typeof given === 'string' ? given : Uint8Array.from(given.bytes);
      const digest = digestOf(content, mediaType);
      await write(() => {
        const run = findRun.get(nameKey(runId)) as { readonly id: number } | undefined;
        if (!run) throw unknownRun(runId);
        insertBlobRun.run(run.id, storeContent(digest, content, mediaType));
      }, until);
      return digest;
    },
    read(runId, digest, from, to) {
      const blob = findOfRun.get(nameKey(runId), digest) as unknown as BlobRow | undefined;
      if (!blob) return undefined;
      const { id, length, media_type: mediaType } = blob;
      const start = Math.min(Math.max(0, from), length);
      const end = Math.min(Math.max(start, to), length);
      const first = Math.floor(start / PART);
      const last = start === end ? first - 1 : Math.floor((end - 1) / PART);
      const rows = findParts.all(id, first, last) as unknown as readonly PartRow[];
      const parts: (string | Uint8Array)[] = [];
      for (let index = first; index <= last; index++) {
        const part = intactPart(rows[index - first], { digest, index, length, mediaType });
        if (part.problem !== undefined) throw contentDamaged(runId, digest, `part ${index} is ${part.problem}`);
        parts.push(part.content);
      }
      const content = mediaType === null ? parts.join('') : Buffer.concat(parts as Uint8Array[]);
      const isWhole = start === 0 && end === length;
      if (isWhole && digestOf(content, mediaType) !== digest) {
        throw contentDamaged(runId, digest, 'its parts do not match its id');
      }
      const page = content.slice(start - first * PART, end - first * PART);
      if (typeof page === 'string') return { text: page, length };
      return { bytes: new Uint8Array(page), mediaType: mediaType!, length };
    },
    list: (runId) =>
      findAllOfRun
        .all(nameKey(runId))
        .map(({ digest }) => {
          if (digest === null) throw contentMissing(runId);
          return digest as string;
        })
        .sort(),
  };
}

type CheckedPart =
  | { readonly content: string | Uint8Array; readonly problem?: never }
  | { readonly problem: 'missing' | 'damaged' };

interface PartPosition {
  readonly digest: string;
  readonly index: number;
  /** The length and media type of the whole. */
  readonly length: number;
  readonly mediaType: string | null;
}

function intactPart(row: PartRow | undefined, { digest, index, length, mediaType }: PartPosition): CheckedPart {
  if (row?.part !== index) return { problem: 'missing' };
  const { content, sum } = row;
  if (sum !== null && sumOf(content, digest, index) !== sum) return { problem: 'damaged' };
  if (mediaType !== null && typeof content === 'string') return { problem: 'damaged' };
  const decoded = mediaType === null ? decodePart(content) : content;
  return decoded.length === Math.min(PART, length - index * PART) ? { content: decoded } : { problem: 'damaged' };
}

/** Continues the sum of text and position, so that a part fits only there. */
function sumOf(content: StoredPart, digest: string, index: number): number {
  return crc32(content, crc32(`${digest} ${index}`));
}

function* partsOf(content: string | Uint8Array): Generator<string | Uint8Array> {
  for (let at = 0; at < content.length; at += PART) yield content.slice(at, at + PART);
}

/**
 * SHA-256 of the text as UTF-16, which also distinguishes strings with unpaired surrogates. For bytes: of the media type, a
 * newline and the bytes, with a prefix.
 */
function digestOf(content: string | Uint8Array, mediaType: string | null): string {
  const hash = createHash('sha256');
  if (mediaType !== null) hash.update(`${mediaType}\n`);
  for (const part of partsOf(content)) hash.update(typeof part === 'string' ? Buffer.from(part, 'utf16le') : part);
  return `${mediaType === null ? '' : 'bytes-'}${hash.digest('hex')}`;
}

type StoredPart = string | Uint8Array;

/** SQLite stores text as UTF-8, which cannot represent unpaired surrogates. Parts that contain one are stored as UTF-16. */
function encodePart(part: string | Uint8Array): StoredPart {
  return typeof part !== 'string' || part.isWellFormed() ? part : Buffer.from(part, 'utf16le');
}

function decodePart(part: StoredPart): string {
  return typeof part === 'string' ? part : Buffer.from(part).toString('utf16le');
}

const REMEDY = 'Restore the store from a backup; other results are not affected.';

function contentDamaged(runId: string, digest: string, problem: string): TreadleError {
  return new TreadleError(
    'journal-damaged',
    `The long result ${digest} of run "${runId}" is damaged: ${problem}. ${REMEDY}`,
  );
}

function contentMissing(runId: string): TreadleError {
  return new TreadleError('journal-damaged', `A long result of run "${runId}" is missing. ${REMEDY}`);
}
