import {
  appendFileSync,
  closeSync,
  existsSync,
  fstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeSync,
} from 'node:fs';
import { dirname } from 'node:path';
import type { KeptLog, LogLine } from '@treadle/server';

export interface LogFileOptions {
  readonly maxBytes?: number;
  /** How many files there are at most, the current one too. */
  readonly files?: number;
  /** Called once when the file cannot be written. The lines are then lost. */
  readonly onProblem?: (why: string) => void;
}

export interface LogFile extends KeptLog {
  write(line: string): void;
  close(): void;
}

/** Lines in memory, for `GET /v1/logs`. */
const RECENT = 2_000;

/**
 * Appends lines to a file that only this user can read. A full file is renamed to `FILE.1`, that one to `FILE.2`, and so on; the
 * oldest is deleted. Throws if the file cannot be opened. Later problems lose lines, and nothing else.
 */
export function openLogFile(file: string, options: LogFileOptions = {}): LogFile {
  const { maxBytes = 10 * 1024 * 1024, files = 5, onProblem } = options;
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  endLine(file);
  const recent: LogLine[] = keptLines(file)
    .slice(-RECENT)
    .map((line, index) => ({ seq: index + 1, line }));
  let last = recent.length;
  let descriptor = openSync(file, 'a', 0o600);
  let size = fstatSync(descriptor).size;
  let hasFailed = false;

  function rotate(): void {
    closeSync(descriptor);
    descriptor = -1;
    if (files === 1) rmSync(file);
    for (let number = files - 1; number > 0; number--) {
      const from = number === 1 ? file : `${file}.${number - 1}`;
      if (existsSync(from)) renameSync(from, `${file}.${number}`);
    }
    descriptor = openSync(file, 'a', 0o600);
    size = 0;
  }

  return {
    write(text) {
      for (const line of text.split('\n')) if (line !== '') recent.push({ seq: ++last, line });
      if (recent.length > 2 * RECENT) recent.splice(0, recent.length - RECENT);
      try {
        if (descriptor < 0) descriptor = openSync(file, 'a', 0o600);
        const bytes = Buffer.from(text);
        if (size > 0 && size + bytes.length > maxBytes) rotate();
        size += writeSync(descriptor, bytes);
        hasFailed = false;
      } catch (error) {
        if (!hasFailed) onProblem?.((error as Error).message);
        hasFailed = true;
      }
    },
    after: (seq) => recent.slice(Math.max(0, recent.length - (last - seq))),
    close() {
      if (descriptor >= 0) closeSync(descriptor);
    },
  };
}

/** The disk may have been full, or the machine have lost its power, in the middle of a line. */
function endLine(file: string): void {
  if (existsSync(file) && !/(^|\n)$/.test(readFileSync(file, 'utf8'))) appendFileSync(file, '\n');
}

/** The lines of the newest files, the oldest first. One that is being written, or whose process was killed, is no line yet. */
export function keptLines(file: string): readonly string[] {
  return [`${file}.1`, file].flatMap((one) =>
    existsSync(one) ? readFileSync(one, 'utf8').split('\n').slice(0, -1) : [],
  );
}
