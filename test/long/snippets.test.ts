import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { expect, test } from 'vitest';
import { writeSnippets } from '../snippets.ts';

/** In `npm run verify`, because it checks the types of all packages once more. `npm test` runs the snippets. */
test('all snippets of the pages compile', () => {
  const compiler = path.resolve(import.meta.dirname, '../../node_modules/typescript/bin/tsc');
  const folder = writeSnippets('compiled-snippets');
  const { status, stdout } = spawnSync(process.execPath, [compiler, '-p', '.'], { cwd: folder, encoding: 'utf8' });
  expect(status, stdout).toBe(0);
});
