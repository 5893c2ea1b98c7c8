import type { Stats } from 'node:fs';

/** `node:fs` for the write-ahead log: its file is that of the simulated disk. */
export interface LogFile {
  /** Calls `done` when the content of the file is durable. */
  readonly sync: (done: (error: Error | null) => void) => void;
  readonly bytes: () => number;
}

let log: LogFile;

export function useLogFile(file: LogFile): void {
  log = file;
}

export function openSync(): number {
  return 1;
}

export function closeSync(): void {}

export function fstatSync(): Pick<Stats, 'size' | 'nlink' | 'ino' | 'dev'> {
  return { size: log.bytes(), nlink: 1, ino: 1, dev: 1 };
}

export function fdatasync(_: number, done: (error: Error | null) => void): void {
  log.sync(done);
}

/** Of the folder. */
export function fsync(_: number, done: (error: Error | null) => void): void {
  queueMicrotask(() => done(null));
}
