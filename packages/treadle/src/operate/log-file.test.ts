import { appendFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { keptLines, openLogFile } from './log-file.ts';

test('a line that is not complete is not read, and spoils no other', () => {
  const folder = mkdtempSync(join(tmpdir(), 'treadle-log-'));
  try {
    const file = join(folder, 'server.log');
    writeFileSync(file, 'one\ntw');
    expect(keptLines(file)).toEqual(['one']);
    appendFileSync(file, 'o\n');
    expect(keptLines(file)).toEqual(['one', 'two']);
    // The disk was full.
    appendFileSync(file, 'thr');
    const log = openLogFile(file);
    log.write('four\n');
    expect(log.after(0).map(({ line }) => line)).toEqual(['one', 'two', 'thr', 'four']);
    log.close();
    expect(keptLines(file)).toEqual(['one', 'two', 'thr', 'four']);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
