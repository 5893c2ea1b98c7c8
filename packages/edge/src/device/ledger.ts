import { createHash, randomUUID } from 'node:crypto';
import { mkdir, open, readdir, readFile, rename, rm, stat, type FileHandle } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { BlobReference, ResultReport } from '../protocol/report.ts';
import {
  CHUNK_BYTES,
  chunkReader,
  inodeIn,
  lineOf,
  openExisting,
  readPart,
  readRecords,
  syncFolder,
  type CallState,
  type LedgerRecord,
  type Place,
} from './ledger-file.ts';

export type { CallState } from './ledger-file.ts';

/*
 * What a device remembers about calls, on its disk.
 *
 * 1. `begin` resolves when the record is synced. A call executes only after that.
 * 2. `end` resolves when the result is synced. It is reported only after that.
 * 3. A call that began and has not ended when the ledger is opened was interrupted: nobody knows whether it took effect.
 * 4. A result is kept until it is acknowledged, and for KEEP_MS more: who acknowledges it may crash before it is recorded there.
 *    A large one that was acknowledged makes room for others earlier. Results are on the disk, and not in memory.
 * 5. An id is kept for a week after it was acknowledged. A command that is delivered after that has expired. What nobody has
 *    acknowledged is kept for ever: `maxResults` bounds it.
 * 6. Only the last line of the file can be incomplete: it was never synced, and is dropped. Any other damage is an error. What a
 *    failed write left is cut off before the next one.
 * 7. A ledger has a random id, which is synced before it is used. Without its file it is another ledger, with another id: what it
 *    does not know, the first one may have begun.
 * 8. Whoever opens a ledger takes it from a process that has it open: `begin` rejects there, and what it has written is known here.
 *    Opening puts a new file in place of the old one, and then reads what was written to the old one meanwhile. A write counts if its
 *    file is still in place after it.
 */

export interface Ledger {
  readonly id: string;
  /** Undefined: the call never began here. */
  stateOf(id: string): CallState | undefined;
  begin(id: string, tool: string): Promise<void>;
  /** Records the result of a call that began, or why one will never begin. */
  end(report: ResultReport): Promise<void>;
  /** The recorded report. Undefined: there is none, or it is forgotten. */
  reportOf(id: string): Promise<ResultReport | undefined>;
  /** Where the report is, if it is too large for a message. */
  blobOf(id: string): BlobReference | undefined;
  readBlob(blob: string, offset: number, length: number): Promise<Uint8Array | undefined>;
  acknowledge(ids: readonly string[]): Promise<void>;
  /** Calls whose results nobody has acknowledged, oldest first. */
  unacknowledged(): readonly string[];
  /** Why no further call may begin, or undefined. */
  whyFull(): string | undefined;
  /** Another process has opened it, or it was removed: nothing that is known here can be relied on. Never rejects. */
  isLost(): Promise<boolean>;
  close(): Promise<void>;
}

export interface LedgerOptions {
  /** Created if it does not exist. */
  readonly folder: string;
  readonly now?: () => number;
  /** Results that nobody has acknowledged; default 1000. */
  readonly maxResults?: number;
  /** Bytes of large results; default 256 MB. */
  readonly maxBlobBytes?: number;
}

interface Entry {
  readonly tool: string;
  /** When it began or ended. */
  at: number;
  state: CallState;
  /** Until it is on the disk. */
  report?: ResultReport;
  /** Of the line with its report. */
  place?: Place;
  blob?: BlobReference;
  acknowledgedAt?: number;
}

/** A file that was written anew. */
interface Copied {
  readonly places: ReadonlyMap<Entry, Place>;
  readonly lines: number;
  readonly bytes: number;
}

const FILE = 'ledger.jsonl';
const LOST = 'another process has opened the store of this device, or it was removed';
const KEEP_MS = 3_600_000;
const KEEP_IDS_MS = 7 * 86_400_000;
/** Larger reports are files of their own. */
const MAX_LINE_BYTES = 16 * 1024;
/** Reports larger than this are served in parts. It leaves room for the other fields of a message. */
const MAX_INLINE_BYTES = 768 * 1024;
/** The file is written anew when it has as many lines that mean nothing any more, or has grown by as much. */
const MAX_DEAD_LINES = 5_000;
const MAX_GROWTH_BYTES = 8 * 1024 * 1024;
const MAX_RESULTS = 1_000;
const MAX_BLOB_BYTES = 256 * 1024 * 1024;

/** Opens the ledger of a folder. Rejects if it is damaged: what ran before would be unknown. */
export async function openLedger(options: LedgerOptions): Promise<Ledger> {
  const ledger = new FileLedger(options);
  await ledger.open();
  return ledger;
}

class FileLedger implements Ledger {
  readonly #folder: string;
  readonly #now: () => number;
  readonly #maxResults: number;
  readonly #maxBlobBytes: number;
  readonly #entries = new Map<string, Entry>();
  #id: string = randomUUID();
  /** Ids of calls whose results nobody has acknowledged, oldest first. */
  readonly #unacknowledged = new Set<string>();
  /** Bytes of large results by the ids of their calls, oldest first. */
  readonly #blobs = new Map<string, number>();
  #file: FileHandle | undefined;
  /** Which file that is, and which is about to take its place. */
  #inodes: readonly string[] = [];
  /** Of blobs that are being written, and that no entry names yet. */
  readonly #blobsToCome = new Set<string>();
  #lines = 0;
  /** Of the lines that are synced. */
  #bytes = 0;
  /** Of the file when it was written anew. */
  #firstBytes = 0;
  #hasFailed = false;
  /** Lines that are not written yet, with those who wait for them. */
  #waiting: {
    readonly line: Buffer;
    readonly done: (place: Place) => void;
    readonly fail: (error: unknown) => void;
  }[] = [];
  #writing: Promise<void> | undefined;

  constructor({ folder, now = Date.now, maxResults = MAX_RESULTS, maxBlobBytes = MAX_BLOB_BYTES }: LedgerOptions) {
    this.#folder = folder;
    this.#now = now;
    this.#maxResults = maxResults;
    this.#maxBlobBytes = maxBlobBytes;
  }

  async open(): Promise<void> {
    await mkdir(this.#blobFolder(), { recursive: true, mode: 0o700 });
    const before = await openExisting(this.#path());
    try {
      const read = before ? await readRecords(before, this.#path(), 0) : undefined;
      this.#take(read?.records ?? []);
      await this.#compact();
      const late = before && (await readRecords(before, this.#path(), read!.end));
      if (!late || late.records.length === 0) return;
      this.#take(late.records);
      await this.#compact();
    } finally {
      await before?.close();
    }
  }

  #take(records: readonly LedgerRecord[]): void {
    for (const record of records) this.#apply(record);
    for (const [id, entry] of this.#entries) {
      if (entry.state !== 'running') continue;
      entry.state = 'interrupted';
      entry.report = interruptedReport(id, entry);
      this.#unacknowledged.add(id);
    }
  }

  get id(): string {
    return this.#id;
  }

  stateOf(id: string): CallState | undefined {
    return this.#entries.get(id)?.state;
  }

  async begin(id: string, tool: string): Promise<void> {
    const record = { type: 'begin', id, at: this.#now(), tool } as const;
    this.#apply(record);
    try {
      await this.#write(record);
    } catch (error) {
      this.#entries.delete(id);
      throw error;
    }
  }

  async end(report: ResultReport): Promise<void> {
    const { request_id: id, tool = '' } = report;
    const at = this.#now();
    const bytes = Buffer.from(JSON.stringify(report));
    if (bytes.length <= MAX_LINE_BYTES) {
      const record = { type: 'end', id, at, tool, report } as const;
      this.#apply(record);
      const ended = this.#entries.get(id)!;
      return this.#write(record, (place) => {
        ended.place = place;
        delete ended.report;
      });
    }
    const blob = { id: createHash('sha256').update(bytes).digest('hex'), bytes: bytes.length };
    const entry = this.#entries.get(id);
    // Until the file is there, the report is in memory.
    if (entry) Object.assign(entry, { report, state: stateIn(report), at });
    this.#blobsToCome.add(blob.id);
    try {
      await this.#writeBlob(blob.id, bytes);
      const record = { type: 'end', id, at, tool, blob, state: stateIn(report) } as const;
      this.#apply(record);
      return await this.#write(record);
    } finally {
      this.#blobsToCome.delete(blob.id);
    }
  }

  async reportOf(id: string): Promise<ResultReport | undefined> {
    const { report, blob, place } = this.#entries.get(id) ?? {};
    if (report) return report;
    if (blob) return JSON.parse(await readFile(this.#blobPath(blob.id), 'utf8')) as ResultReport;
    if (!place) return undefined;
    const line = JSON.parse((await readPart(this.#file, place)).toString()) as { readonly report: ResultReport };
    return line.report;
  }

  blobOf(id: string): BlobReference | undefined {
    const { blob } = this.#entries.get(id) ?? {};
    return blob && blob.bytes > MAX_INLINE_BYTES ? blob : undefined;
  }

  async readBlob(blob: string, offset: number, length: number): Promise<Uint8Array | undefined> {
    let file: FileHandle;
    try {
      file = await open(this.#blobPath(blob), 'r');
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
      throw error;
    }
    try {
      const buffer = Buffer.alloc(length);
      const { bytesRead } = await file.read(buffer, 0, length, offset);
      return buffer.subarray(0, bytesRead);
    } finally {
      await file.close();
    }
  }

  async acknowledge(ids: readonly string[]): Promise<void> {
    const known = ids.filter((id) => {
      const entry = this.#entries.get(id);
      return entry && entry.state !== 'running' && entry.acknowledgedAt === undefined;
    });
    if (known.length === 0) return;
    const record = { type: 'ack', ids: known, at: this.#now() } as const;
    this.#apply(record);
    await this.#write(record);
    await this.#makeRoom();
    const hasGrown = this.#bytes > this.#firstBytes * 2 + MAX_GROWTH_BYTES;
    if (hasGrown || this.#lines > this.#entries.size * 2 + MAX_DEAD_LINES) await this.#compact();
  }

  unacknowledged(): readonly string[] {
    return [...this.#unacknowledged];
  }

  whyFull(): string | undefined {
    const waiting = this.#unacknowledged.size;
    if (waiting >= this.#maxResults) return `${waiting} results wait for somebody to acknowledge them`;
    const bytes = this.#blobBytes();
    return bytes >= this.#maxBlobBytes ? `large results take ${bytes} bytes` : undefined;
  }

  async isLost(): Promise<boolean> {
    const before = this.#inodes;
    try {
      const inode = inodeIn(await stat(this.#path(), { bigint: true }));
      // The file may have been written anew meanwhile.
      return !before.includes(inode) && !this.#inodes.includes(inode);
    } catch {
      return true;
    }
  }

  async close(): Promise<void> {
    await this.#writing?.catch(() => {});
    await this.#file?.close();
    this.#file = undefined;
  }

  #apply(record: LedgerRecord): void {
    switch (record.type) {
      case 'ledger':
        this.#id = record.id;
        return;
      case 'begin':
        this.#entries.set(record.id, { tool: record.tool, at: record.at, state: 'running' });
        return;
      case 'end': {
        const { id, at, tool } = record;
        const acknowledgedAt = this.#entries.get(id)?.acknowledgedAt;
        const state = 'report' in record ? stateIn(record.report) : record.state;
        if (state !== 'forgotten' && acknowledgedAt === undefined) this.#unacknowledged.add(id);
        if ('blob' in record) this.#blobs.set(id, record.blob.bytes);
        this.#entries.set(id, {
          tool,
          at,
          state,
          ...('report' in record && { report: record.report }),
          ...('blob' in record && { blob: record.blob }),
          ...(acknowledgedAt !== undefined && { acknowledgedAt }),
        });
        return;
      }
      case 'ack':
        for (const id of record.ids) {
          const entry = this.#entries.get(id);
          if (entry) entry.acknowledgedAt ??= record.at;
          this.#unacknowledged.delete(id);
        }
        return;
      default:
        record satisfies never;
    }
  }

  /** Resolves when the line is on the disk. Lines that wait at the same time are synced together. */
  #write(record: LedgerRecord, onPlaced: (place: Place) => void = () => {}): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const done = (place: Place): void => {
      onPlaced(place);
      resolve();
    };
    this.#waiting.push({ line: lineOf(record), done, fail: reject });
    this.#writing ??= this.#writeAll();
    return promise;
  }

  async #writeAll(): Promise<void> {
    while (this.#waiting.length > 0) {
      const batch = this.#waiting;
      this.#waiting = [];
      try {
        if (!this.#file) throw new Error('The ledger is closed.');
        if (this.#hasFailed) await this.#file.truncate(this.#bytes);
        this.#hasFailed = true;
        await this.#file.appendFile(Buffer.concat(batch.map(({ line }) => line)));
        await this.#file.datasync();
        if (await this.isLost()) throw new Error(LOST);
        this.#hasFailed = false;
        this.#lines += batch.length;
        for (const { line, done } of batch) {
          done({ offset: this.#bytes, bytes: line.length });
          this.#bytes += line.length;
        }
      } catch (error) {
        for (const { fail } of batch) fail(error);
      }
    }
    this.#writing = undefined;
  }

  /** Forgets what is old, and writes the file anew. Lines that come meanwhile wait, and are written to the new file. */
  async #compact(): Promise<void> {
    while (this.#writing) await this.#writing;
    const gate = Promise.withResolvers<void>();
    this.#writing = gate.promise;
    try {
      this.#forgetOld();
      const path = this.#path();
      await rm(`${path}.new`, { force: true });
      const next = await open(`${path}.new`, 'ax+', 0o600);
      const before = { file: this.#file, inodes: this.#inodes };
      let copied: Copied;
      try {
        copied = await this.#copyTo(next);
        await next.datasync();
        if (before.file && (await this.isLost())) throw new Error(LOST);
        const inode = inodeIn(await next.stat({ bigint: true }));
        this.#inodes = [...before.inodes, inode];
        await rename(`${path}.new`, path);
        this.#inodes = [inode];
      } catch (error) {
        this.#inodes = before.inodes;
        await next.close();
        throw error;
      }
      // Until the folder is synced too, a power failure could bring back the old file. Without it nothing can be recorded.
      try {
        await syncFolder(this.#folder);
      } catch (error) {
        this.#file = undefined;
        await Promise.all([next.close(), before.file?.close()]);
        throw error;
      }
      this.#use(next, copied);
      await before.file?.close();
      await this.#removeBlobs();
    } finally {
      this.#writing = undefined;
      gate.resolve();
      if (this.#waiting.length > 0) this.#writing = this.#writeAll();
    }
  }

  /** Writes all that is known to an empty file. */
  async #copyTo(file: FileHandle): Promise<Copied> {
    const places = new Map<Entry, Place>();
    const read = chunkReader(this.#file);
    let waiting: Buffer[] = [];
    let [lines, bytes, flushed] = [0, 0, 0];
    const add = (line: Buffer): Place => {
      const place = { offset: bytes, bytes: line.length };
      waiting.push(line);
      lines++;
      bytes += line.length;
      return place;
    };
    const flush = async (): Promise<void> => {
      await file.appendFile(Buffer.concat(waiting));
      waiting = [];
      flushed = bytes;
    };
    add(lineOf({ type: 'ledger', id: this.#id }));
    for (const [id, entry] of this.#entries) {
      const { place, report, blob, acknowledgedAt: at } = entry;
      const ended = place ? await read(place) : lineOf(endOf(id, entry));
      const copy = add(ended);
      if (place || (report && !blob)) places.set(entry, copy);
      if (at !== undefined) add(lineOf({ type: 'ack', ids: [id], at }));
      if (bytes - flushed >= CHUNK_BYTES) await flush();
    }
    await flush();
    return { places, lines, bytes };
  }

  /** From now on, lines are appended to this file, and results are read from it. */
  #use(file: FileHandle, { places, lines, bytes }: Copied): void {
    this.#file = file;
    this.#hasFailed = false;
    this.#lines = lines;
    this.#bytes = bytes;
    this.#firstBytes = bytes;
    for (const [entry, place] of places) {
      if (entry.state === 'forgotten') continue;
      entry.place = place;
      delete entry.report;
    }
  }

  #forgetOld(): void {
    const now = this.#now();
    for (const [id, entry] of this.#entries) {
      const age = now - (entry.acknowledgedAt ?? now);
      if (age > KEEP_MS) this.#forget(id, entry);
      if (age > KEEP_IDS_MS) this.#entries.delete(id);
    }
  }

  #forget(id: string, entry: Entry): void {
    entry.state = 'forgotten';
    delete entry.report;
    delete entry.place;
    delete entry.blob;
    this.#blobs.delete(id);
  }

  #blobBytes(): number {
    return [...this.#blobs.values()].reduce((sum, bytes) => sum + bytes, 0);
  }

  /** Without it, a device that is never started again would take no calls at some time. */
  async #makeRoom(): Promise<void> {
    let bytes = this.#blobBytes();
    const removed: string[] = [];
    for (const [id, own] of this.#blobs) {
      if (bytes <= this.#maxBlobBytes / 2) break;
      const entry = this.#entries.get(id)!;
      const { blob, acknowledgedAt } = entry;
      if (!blob || acknowledgedAt === undefined) continue;
      bytes -= own;
      removed.push(blob.id);
      this.#forget(id, entry);
    }
    await Promise.all(removed.map((id) => rm(this.#blobPath(id), { force: true })));
  }

  /** Removes those that no entry names. */
  async #removeBlobs(): Promise<void> {
    const named = new Set([...this.#entries.values()].flatMap(({ blob }) => blob?.id ?? []));
    for (const name of await readdir(this.#blobFolder())) {
      if (!named.has(name) && !this.#blobsToCome.has(name)) await rm(join(this.#blobFolder(), name), { force: true });
    }
  }

  async #writeBlob(id: string, bytes: Uint8Array): Promise<void> {
    const path = this.#blobPath(id);
    const file = await open(path, 'w', 0o600);
    try {
      await file.writeFile(bytes);
      await file.datasync();
    } finally {
      await file.close();
    }
    await syncFolder(dirname(path));
  }

  #path(): string {
    return join(this.#folder, FILE);
  }

  #blobFolder(): string {
    return join(this.#folder, 'blobs');
  }

  #blobPath(id: string): string {
    return join(this.#blobFolder(), id);
  }
}

/** The record of a call whose report is not in the file. */
function endOf(id: string, { tool, at, state, report, blob }: Entry): LedgerRecord {
  const head = { id, at, tool };
  if (state === 'running') return { type: 'begin', ...head };
  if (blob) return { type: 'end', ...head, blob, state };
  return report ? { type: 'end', ...head, report } : { type: 'end', ...head, state: 'forgotten' };
}

function stateIn({ error_type: type, elapsed_ms: elapsed }: ResultReport): CallState {
  if (type === 'interrupted') return 'interrupted';
  // What was cancelled after it began is done.
  return type === 'cancelled' && elapsed === undefined ? 'cancelled' : 'done';
}

function interruptedReport(id: string, { tool, at }: Pick<Entry, 'tool' | 'at'>): ResultReport {
  return {
    request_id: id,
    status: 'error',
    tool,
    error: `The device ended while the tool '${tool}' ran. It is not known whether it took effect.`,
    error_type: 'interrupted',
    timestamp: at,
  };
}
