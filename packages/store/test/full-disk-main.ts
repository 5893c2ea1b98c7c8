/**
 * Fills the small disk at the given path and prints the results as JSON. A process of its own, because the disk is mounted
 * in a namespace that ends with the process.
 */
import { rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { TreadleError, type RunStore } from '@treadle/core';
import { sqliteStore } from '../src/index.ts';
import { entry } from './entries.ts';

const folder = process.argv[2]!;
const reserve = path.join(folder, 'reserve');
writeFileSync(reserve, Buffer.alloc(200_000));

const outcome = async (work: () => unknown): Promise<string> => {
  try {
    await work();
    return 'done';
  } catch (error) {
    return error instanceof TreadleError ? error.code : String(error);
  }
};

const open = (): RunStore => sqliteStore(path.join(folder, 'runs.db'));
const text = 'x'.repeat(10_000);
let store = open();
let stored = 0;
let failure = 'done';
while (failure === 'done') {
  failure = await outcome(() => store.append('a', [entry(stored, text)]));
  if (failure === 'done') stored++;
}
const again = await outcome(() => store.append('a', [entry(stored, text)]));
const readWhileFull = (await store.read('a')).length;
await store.close();
store = open();
const readAfterOpening = (await store.read('a')).length;
rmSync(reserve);
const afterFreeing = await outcome(() => store.append('a', [entry(stored, text)]));
const readAtLast = (await store.read('a')).length;
await store.close();
process.stdout.write(
  JSON.stringify({ stored, failure, again, readWhileFull, readAfterOpening, afterFreeing, readAtLast }),
);
