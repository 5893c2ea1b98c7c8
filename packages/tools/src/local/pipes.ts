import { spawnSync } from 'node:child_process';
import { closeSync, constants, mkdtempSync, openSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/*
 * Pipes for the output of programs. Node connects programs by sockets, which cannot be opened by a name: "echo x >/dev/stderr"
 * fails in a program that has one. So these are named pipes that have lost their names. They are made in batches, because
 * that needs a program.
 */

export interface Pipe {
  /** Not blocking. */
  readonly reader: number;
  /** Blocking. For the program; has to be closed here. */
  readonly writer: number;
  /** What /proc shows for it in a process that has it open. */
  readonly shownAs: string | undefined;
}

const BATCH = 16;
const pool: Pipe[] = [];
let isPossible = process.platform !== 'win32';

/** Two pipes; undefined where they cannot be made. */
export function takePipes(): readonly [stdout: Pipe, stderr: Pipe] | undefined {
  if (pool.length < 2 && isPossible) {
    try {
      makePipes();
    } catch {
      isPossible = false;
    }
  }
  return pool.length < 2 ? undefined : [pool.pop()!, pool.pop()!];
}

function makePipes(): void {
  const folder = mkdtempSync(join(tmpdir(), 'treadle-pipes-'));
  try {
    const names = Array.from({ length: BATCH }, (_, index) => join(folder, String(index)));
    const { status } = spawnSync('mkfifo', names, { stdio: 'ignore' });
    if (status !== 0) throw new Error('mkfifo failed');
    for (const name of names) {
      const reader = openSync(name, constants.O_RDONLY | constants.O_NONBLOCK);
      const writer = openSync(name, constants.O_WRONLY);
      pool.push({ reader, writer, shownAs: process.platform === 'linux' ? `${name} (deleted)` : undefined });
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
}

export function closePipe({ reader, writer }: Pipe): void {
  closeSync(reader);
  closeSync(writer);
}
