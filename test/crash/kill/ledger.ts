import { closeSync, existsSync, fsyncSync, openSync, readFileSync, writeSync } from 'node:fs';
import path from 'node:path';
import type { ToolEffect } from '@treadle/core';

/** One line of the ledger that tools write outside of the store: a call starts to act, or has acted. */
export interface Line {
  readonly type: 'begin' | 'end';
  readonly effect: ToolEffect;
  readonly key: string;
}

export interface Ledger {
  /** Returns when the line is on disk. */
  readonly write: (line: Line) => void;
  readonly read: () => readonly Line[];
}

export function ledger(folder: string): Ledger {
  const file = path.join(folder, 'ledger.jsonl');
  return {
    write(line) {
      const fd = openSync(file, 'a');
      writeSync(fd, `${JSON.stringify(line)}\n`);
      fsyncSync(fd);
      closeSync(fd);
    },
    read() {
      if (!existsSync(file)) return [];
      // Text after the last newline is an incomplete line.
      return readFileSync(file, 'utf8')
        .split('\n')
        .slice(0, -1)
        .map((line) => JSON.parse(line));
    },
  };
}
