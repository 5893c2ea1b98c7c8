import type { RunStore, RunSummary } from '@treadle/core';
import { askLine } from '../terminal/prompt.ts';
import { CommandError, command, type Command, EXIT } from '../command-line/command.ts';
import { interruptible } from '../terminal/signals.ts';
import type { Io } from '../terminal/io.ts';
import { plural } from '../terminal/quantities.ts';
import { oneLine } from '../terminal/printable.ts';
import { PLACE_FLAGS } from '../command-line/flags.ts';
import { findRun } from './find-run.ts';
import { isChild, shortId } from './run-id.ts';
import { withStore } from './with-store.ts';

export const deleteCommand: Command = command({
  name: 'runs delete',
  summary: 'Delete runs, with everything that is kept of them',
  arguments: ['ID…'],
  flags: { yes: { type: 'switch', short: 'y', help: 'Do not ask' }, ...PLACE_FLAGS },
  notes: [
    'Runs that work for it are deleted with it, and the response of the server that it is; forks are not. A run that a\n' +
      'process drives is not deleted.',
  ],
  run: ({ values, arguments: given }, io) =>
    withStore(values, io, async (store) => {
      const named: RunSummary[] = [];
      for (const id of given) named.push(await findRun(store, id));
      const runs = [...new Map(named.map((run) => [run.runId, run])).values()];
      if (!values.yes && !(await isSure(runs, io))) {
        io.stderr.write('Nothing was deleted.\n');
        return EXIT.failed;
      }
      let count = 0;
      for (const { runId } of runs) count += await deleteWithChildren(store, runId);
      io.stderr.write(`Deleted ${plural(count, 'run')}.\n`);
      return EXIT.completed;
    }),
});

async function isSure(runs: readonly RunSummary[], io: Io): Promise<boolean> {
  if (!io.stdin.isTTY || !io.stderr.isTTY) {
    throw new CommandError('There is no terminal to ask on. Add --yes to delete without being asked.');
  }
  for (const { runId, status, title } of runs)
    io.stderr.write(`  ${shortId(runId)}  ${status}  ${oneLine(title, 60)}\n`);
  const interrupt = interruptible(io);
  try {
    const answer = await askLine(io, interrupt, `Delete ${runs.length === 1 ? 'it' : 'them'}? [y/N] `);
    return /^\s*y(es)?\s*$/i.test(answer ?? '');
  } finally {
    interrupt.release();
  }
}

async function deleteWithChildren(store: RunStore, runId: string): Promise<number> {
  const children = (await store.list({ parent: runId, limit: Infinity })).filter(isChild);
  let count = (await store.delete(runId)) ? 1 : 0;
  for (const child of children) count += await deleteWithChildren(store, child.runId);
  return count;
}
