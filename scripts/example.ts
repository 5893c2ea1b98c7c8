/** Runs an example: `npm run example NAME`. */
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import path from 'node:path';

const folder = path.join(import.meta.dirname, '..', 'examples');
const name = process.argv[2];
const file = path.join(folder, `${name}.ts`);
if (name !== undefined && existsSync(file)) {
  const { status } = spawnSync(process.execPath, ['--conditions=treadle-source', file], { stdio: 'inherit' });
  process.exitCode = status ?? 1;
} else {
  const names = readdirSync(folder).map((each) => path.basename(each, '.ts'));
  console.error(`Usage: npm run example NAME. Examples: ${names.join(', ')}`);
  process.exitCode = 2;
}
