/**
 * Swaps a folder and a file with links that lead out, as fast as it can: `node swap-main.ts FOLDER`. FOLDER has `dir`,
 * `dir.link`, `file.txt` and `file.link`. Prints a line when it has started, and the number of swaps when its input ends.
 */
import { renameSync } from 'node:fs';
import { join } from 'node:path';

const folder = process.argv[2]!;
let swaps = 0;
let strays = 0;
let ended = false;
process.stdin.on('end', () => (ended = true)).resume();

function swap(name: string, link: string): void {
  const [real, hidden, linked] = [name, `${name}.hidden`, link].map((one) => join(folder, one)) as [
    string,
    string,
    string,
  ];
  move(real, hidden);
  move(linked, real);
  move(real, linked);
  move(hidden, real);
  swaps++;
}

/** Moves away what others have created at the new place meanwhile. */
function move(from: string, to: string): void {
  for (;;) {
    try {
      return renameSync(from, to);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') throw error;
      renameSync(to, `${to}.stray-${strays++}`);
    }
  }
}

function swapOn(): void {
  for (let i = 0; i < 50; i++) {
    swap('dir', 'dir.link');
    swap('file.txt', 'file.link');
  }
  if (ended) process.stdout.write(`${swaps}\n`);
  else setImmediate(swapOn);
}

process.stdout.write('started\n');
swapOn();
