/** Runs an example: `npm run example NAME`. */
import { existsSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const folder = path.join(import.meta.dirname, '..', 'examples');
const name = process.argv[2];
const file = path.join(folder, `${name}.ts`);
if (name !== undefined && existsSync(file)) await import(pathToFileURL(file).href);
else {
  const names = readdirSync(folder).map((each) => path.basename(each, '.ts'));
  console.error(`Usage: npm run example NAME. Examples: ${names.join(', ')}`);
  process.exitCode = 2;
}
