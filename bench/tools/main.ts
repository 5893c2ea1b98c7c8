/** Measures the tools of `@treadle/tools`. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { measureSearch } from './search.ts';

const folder = mkdtempSync(path.join(tmpdir(), 'treadle-bench-'));
try {
  await measureSearch(folder);
} finally {
  rmSync(folder, { recursive: true });
}
