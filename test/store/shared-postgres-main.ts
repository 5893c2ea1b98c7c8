/** The server that all test files of a run share. It ends with the process of the test run. */
import { renameSync, writeFileSync } from 'node:fs';
import { startPostgres } from './postgres-server.ts';

const [file, owner] = process.argv.slice(2);
// Nothing here is about what survives a failure of the machine.
const server = await startPostgres({
  settings: ['fsync=off', 'full_page_writes=off', 'max_wal_size=256MB'],
});
writeFileSync(`${file}.new`, server.url());
renameSync(`${file}.new`, file!);
const timer = setInterval(() => {
  try {
    process.kill(Number(owner), 0);
  } catch {
    clearInterval(timer);
    void server[Symbol.asyncDispose]();
  }
}, 200);
