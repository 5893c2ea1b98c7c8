/** Measures the tools of `@treadle/tools`. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { measureShell } from './shell.ts';

const folder = mkdtempSync(path.join(tmpdir(), 'treadle-bench-'));
try {
  await measureShell(folder);
} finally {
  rmSync(folder, { recursive: true });
}
