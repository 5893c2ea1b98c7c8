/**
 * Loaded into a server before anything else: records up to where the log of the store is durable, for a power cut. A sync does
 * not reach the disk: it covers what the file has when it starts, and takes as long as the test says.
 */
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { isMainThread } from 'node:worker_threads';

const { TREADLE_SYNCED: record, TREADLE_SYNC_MS: ms, TREADLE_SYNC_LIES: lies } = process.env;

if (isMainThread && record !== undefined) {
  const descriptor = fs.openSync(record, 'w');
  fs.fdatasync = ((log: number, done: (error: null) => void) => {
    const { size } = fs.fstatSync(log);
    setTimeout(
      () => {
        // Survives the process, and precedes whatever follows from the sync.
        if (lies === undefined) fs.writeSync(descriptor, String(size).padEnd(16), 0);
        done(null);
      },
      Number(ms) * Math.random() * 2,
    );
  }) as typeof fs.fdatasync;
  syncBuiltinESMExports();
}
