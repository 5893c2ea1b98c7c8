/**
 * Backs up or restores a store: `node --conditions=treadle-source killed-program.ts backup|restore STORE FILE STEPS`. Kills
 * itself when that number of steps is reported. If there are fewer, prints how many.
 */
import { backupStore, restoreStore } from '@treadle/store';

const [what, store, file, steps] = process.argv.slice(2);
let reported = 0;

const onProgress = (): void => {
  if (++reported === Number(steps)) process.kill(process.pid, 'SIGKILL');
};

await (what === 'backup' ? backupStore : restoreStore)(store!, file!, { onProgress });
process.stdout.write(`${reported}\n`);
