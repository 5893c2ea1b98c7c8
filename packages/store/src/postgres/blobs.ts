import type { Blobs } from '@treadle/core';
import {
  blobPage,
  contentMissing,
  encodeBlob,
  joinBlobParts,
  type EncodedPart,
  type StoredPart,
} from '../records/blob-parts.ts';
import { unknownRun } from '../records/errors.ts';
import { bytes, bytesOrNull, text, type Database } from './connection.ts';

/** Stores each content once, for all runs that use it, in parts of equal length. */
/** `settled`: the entries that were appended to a run before are written. */
export function openBlobs(db: Database, settled: (runId: string) => void | Promise<void>): Blobs {
  return {
    async put(runId, given, until) {
      const { digest, length, mediaType, parts } = encodeBlob(given);
      const encoded = [...parts()];
      await settled(runId);
      await db.write(
        async (query) => {
          const { rows: runs } = await query<{ readonly id: number }>(
            'SELECT id FROM treadle.runs WHERE run = $1 FOR KEY SHARE',
            [bytes(runId)],
          );
          if (!runs[0]) throw unknownRun(runId);
          const { rows } = await query<{ readonly id: number }>(
            `INSERT INTO treadle.blobs (digest, length, media_type) VALUES ($1, $2, $3)
             ON CONFLICT (digest) DO UPDATE SET length = excluded.length, media_type = excluded.media_type RETURNING id`,
            [digest, length, bytesOrNull(mediaType)],
          );
          const { id } = rows[0]!;
          for (const { part, content, sum } of encoded) {
            await query(
              `INSERT INTO treadle.blob_parts AS p (blob, part, content, is_text, sum) VALUES ($1, $2, $3, $4, $5)
               ON CONFLICT (blob, part) DO UPDATE SET content = excluded.content, is_text = excluded.is_text, sum = excluded.sum
               WHERE p.content <> excluded.content OR p.is_text <> excluded.is_text OR p.sum <> excluded.sum`,
              [id, part, Buffer.from(content as Uint8Array), typeof content === 'string', sum],
            );
          }
          await query('INSERT INTO treadle.blob_runs (run, blob) VALUES ($1, $2) ON CONFLICT DO NOTHING', [
            runs[0].id,
            id,
          ]);
        },
        until === 'durable' || until === undefined ? 'durable' : 'written',
      );
      return digest;
    },

    read: (runId, digest, from, to) =>
      db.read(async (query) => {
        const { rows: blobs } = await query<{
          readonly id: number;
          readonly length: number;
          readonly media_type: Buffer | null;
        }>(
          `SELECT b.id, b.length, b.media_type FROM treadle.runs r
           JOIN treadle.blob_runs u ON u.run = r.id JOIN treadle.blobs b ON b.id = u.blob WHERE r.run = $1 AND b.digest = $2`,
          [bytes(runId), digest.isWellFormed() && !digest.includes('\0') ? digest : ''],
        );
        const [blob] = blobs;
        if (!blob) return undefined;
        const { id, length } = blob;
        const page = blobPage(length, from, to);
        const { rows } = await query<{ part: number; content: Buffer; is_text: boolean; sum: number }>(
          'SELECT part, content, is_text, sum FROM treadle.blob_parts WHERE blob = $1 AND part BETWEEN $2 AND $3 ORDER BY part',
          [id, page.first, page.last],
        );
        const parts = rows.map(({ part, content, is_text: isText, sum }): EncodedPart => ({
          part,
          content: (isText ? text(content) : content) as StoredPart,
          sum,
        }));
        const mediaType = blob.media_type === null ? null : text(blob.media_type);
        return joinBlobParts({ runId, digest, length, mediaType }, page, parts);
      }),

    list: (runId) =>
      db.read(async (query) => {
        const { rows } = await query<{ readonly digest: string | null }>(
          `SELECT b.digest FROM treadle.runs r JOIN treadle.blob_runs u ON u.run = r.id
           LEFT JOIN treadle.blobs b ON b.id = u.blob WHERE r.run = $1`,
          [bytes(runId)],
        );
        return rows
          .map(({ digest }) => {
            if (digest === null) throw contentMissing(runId);
            return digest;
          })
          .sort();
      }),
  };
}
