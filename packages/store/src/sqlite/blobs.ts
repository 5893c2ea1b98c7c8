import type { DatabaseSync } from 'node:sqlite';
import type { BlobPart, Blobs } from '@treadle/core';
import {
  blobPage,
  contentMissing,
  encodeBlob,
  joinBlobParts,
  type EncodedBlob,
  type EncodedPart,
} from '../records/blob-parts.ts';
import { unknownRun } from '../records/errors.ts';
import { nameKey } from '../records/json.ts';
import type { GroupCommit } from './group-commit.ts';

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

  function storeContent({ digest, length, mediaType, parts }: EncodedBlob): number {
    const { id } = upsertBlob.get(digest, length, mediaType) as { readonly id: number };
    for (const { part, content, sum } of parts()) upsertPart.run(id, part, content, sum);
    return id;
  }

  return {
    async put(runId, given, until) {
      const blob = encodeBlob(given);
      await write(() => {
        const run = findRun.get(nameKey(runId)) as { readonly id: number } | undefined;
        if (!run) throw unknownRun(runId);
        insertBlobRun.run(run.id, storeContent(blob));
      }, until);
      return blob.digest;
    },
    read(runId, digest, from, to) {
      const blob = findOfRun.get(nameKey(runId), digest) as unknown as BlobRow | undefined;
      if (!blob) return undefined;
      const { id, length, media_type: mediaType } = blob;
      const page = blobPage(length, from, to);
      const rows = findParts.all(id, page.first, page.last) as unknown as readonly EncodedPart[];
      return joinBlobParts({ runId, digest, length, mediaType }, page, rows);
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
