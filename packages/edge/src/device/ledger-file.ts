import { open, type FileHandle } from 'node:fs/promises';
import type { BigIntStats } from 'node:fs';
import type { BlobReference, ResultReport } from '../protocol/report.ts';

/* The file of a ledger: a record in each line. */

export type CallState = 'running' | 'done' | 'interrupted' | 'cancelled' | 'forgotten';

/** A line of the file. */
export type LedgerRecord =
  | { readonly type: 'ledger'; readonly id: string }
  | { readonly type: 'begin'; readonly id: string; readonly at: number; readonly tool: string }
  | ({ readonly type: 'end'; readonly id: string; readonly at: number; readonly tool: string } & (
      | { readonly report: ResultReport }
      | { readonly blob: BlobReference; readonly state: CallState }
      | { readonly state: 'forgotten' }
    ))
  | { readonly type: 'ack'; readonly ids: readonly string[]; readonly at: number };

/** A part of the file. */
export interface Place {
  readonly offset: number;
  readonly bytes: number;
}

/** What is read or written at once while it is written anew. */
export const CHUNK_BYTES: number = 512 * 1024;

export async function openExisting(path: string): Promise<FileHandle | undefined> {
  try {
    return await open(path, 'r');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

interface ReadRecords {
  readonly records: readonly LedgerRecord[];
  /** Behind the last line that is complete. */
  readonly end: number;
}

export async function readRecords(file: FileHandle, path: string, start: number): Promise<ReadRecords> {
  const { size } = await file.stat();
  const bytes = Buffer.alloc(Math.max(0, size - start));
  const { bytesRead } = await file.read(bytes, 0, bytes.length, start);
  // What follows was not written to its end.
  const length = bytes.lastIndexOf('\n', bytesRead) + 1;
  const lines = length === 0 ? [] : bytes.toString('utf8', 0, length - 1).split('\n');
  const records = lines.map((line, index) => {
    try {
      return JSON.parse(line) as LedgerRecord;
    } catch {
      throw new Error(
        `${path}:${index + 1} is damaged, so it is not known which calls ran before. Move the file away to start without ` +
          `that knowledge.`,
      );
    }
  });
  return { records, end: start + length };
}

export async function readPart(file: FileHandle | undefined, { offset, bytes }: Place): Promise<Buffer> {
  if (!file) throw new Error('The ledger is closed.');
  const buffer = Buffer.alloc(bytes);
  const { bytesRead } = await file.read(buffer, 0, bytes, offset);
  if (bytesRead !== bytes) throw new Error('The ledger is shorter than it was.');
  return buffer;
}

/** Reads parts of a file that are mostly one after the other. */
export function chunkReader(file: FileHandle | undefined): (place: Place) => Promise<Buffer> {
  let chunk: Buffer = Buffer.alloc(0);
  let start = 0;
  return async ({ offset, bytes }) => {
    if (offset < start || offset + bytes > start + chunk.length) {
      const size = file ? Number((await file.stat()).size) : 0;
      start = offset;
      chunk = await readPart(file, { offset, bytes: Math.max(bytes, Math.min(CHUNK_BYTES, size - offset)) });
    }
    return Buffer.from(chunk.subarray(offset - start, offset - start + bytes));
  };
}

export function inodeIn({ dev, ino }: BigIntStats): string {
  return `${dev}:${ino}`;
}

export function lineOf(record: LedgerRecord): Buffer {
  return Buffer.from(`${JSON.stringify(record)}\n`);
}

/** So that a new or renamed file is found after a power failure. Not every system can do that. */
export async function syncFolder(folder: string): Promise<void> {
  try {
    const handle = await open(folder, 'r');
    try {
      await handle.sync();
    } finally {
      await handle.close();
    }
  } catch (error) {
    if (!['EISDIR', 'EPERM', 'EINVAL', 'EACCES'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
  }
}
