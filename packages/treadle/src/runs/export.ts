import { writeFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { messageOf, type RunStore } from '@treadle/core';
import { CommandError, command, type Command, EXIT } from '../command-line/command.ts';
import { plural } from '../terminal/quantities.ts';
import { PLACE_FLAGS } from '../command-line/flags.ts';
import { shortId } from './run-id.ts';
import { writeRunFile, type RunFile } from './run-file.ts';
import { readRun } from './stored-run.ts';
import { withStore } from './with-store.ts';

export const exportCommand: Command = command({
  name: 'runs export',
  summary: 'Write a run, with its long results, as JSON lines to a file or to standard output',
  arguments: ['ID', '[FILE]'],
  flags: PLACE_FLAGS,
  notes: [
    'It holds everything that was said in the run. Runs that work for it or were forked from it are exported by themselves.',
    'Example:\n  treadle runs export 1a2b | treadle runs import - --store sqlite:/elsewhere/runs.db',
  ],
  run: ({ values, arguments: [given, file] }, io) =>
    withStore(values, io, async (store) => {
      const { summary, entries } = await readRun(store, given!);
      const run: RunFile = { runId: summary.runId, entries, blobs: await blobsOf(store, summary.runId) };
      const lines = writeRunFile(run);
      const inside = await runsInside(store, summary.runId);
      if (inside.length > 0) {
        const ids = inside.join(', ');
        io.stderr.write(
          `It does not hold the runs that work for it: ${ids}. Export them too, or it cannot go on elsewhere.\n`,
        );
      }
      if (file === undefined || file === '-') {
        for (const line of lines) io.stdout.write(line);
        return EXIT.completed;
      }
      await writeNew(resolve(io.cwd, file), [...lines].join(''), file);
      const blobs = run.blobs.length === 0 ? '' : ` and ${plural(run.blobs.length, 'long result')}`;
      io.stderr.write(
        `Wrote ${plural(entries.length, 'entry', 'entries')}${blobs} of ${shortId(run.runId)} to ${file}\n`,
      );
      return EXIT.completed;
    }),
});

/** Named after the call that each of them works for; a fork has a name of its own. */
async function runsInside(store: RunStore, runId: string): Promise<readonly string[]> {
  const children = await store.list({ parent: runId, limit: 1_000 });
  return children.flatMap((child) => (child.runId.startsWith(`${runId}.`) ? child.runId : []));
}

async function blobsOf(store: RunStore, runId: string): Promise<RunFile['blobs']> {
  const ids = await store.blobs.list(runId);
  return Promise.all(
    ids.map(async (id) => ({ id, text: (await store.blobs.read(runId, id, 0, Infinity))?.text ?? '' })),
  );
}

/** Only this user may read it, and nothing that is there is overwritten. */
async function writeNew(path: string, text: string, file: string): Promise<void> {
  try {
    await writeFile(path, text, { flag: 'wx', mode: 0o600 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') {
      throw new CommandError(`${file} is there already. Name another file, or remove it first.`);
    }
    throw new CommandError(`${file} cannot be written: ${messageOf(error)}.`);
  }
}
