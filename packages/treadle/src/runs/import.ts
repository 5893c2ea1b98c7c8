import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { messageOf, replay, type JournalEntry, type RunStore } from '@treadle/core';
import { CommandError, command, type Command, EXIT } from '../command-line/command.ts';
import type { Io } from '../terminal/io.ts';
import { findPlace } from '../config/context.ts';
import { plural } from '../terminal/quantities.ts';
import { PLACE_FLAGS } from '../command-line/flags.ts';
import { readAll } from '../run/run.ts';
import { openStore } from '../config/store.ts';
import { readRunFile, type RunFile } from './run-file.ts';

export const importCommand: Command = command({
  name: 'runs import',
  summary: 'Put an exported run into the store',
  arguments: ['FILE'],
  flags: {
    as: { type: 'text', value: 'ID', help: 'Under another id; default: its own' },
    ...PLACE_FLAGS,
  },
  notes: [
    'With "-" it is read from standard input. A file that is damaged, foreign or of a newer version is refused as a whole.',
  ],
  async run({ values, arguments: [file] }, io) {
    const run = readRunFile(await contentOf(file!, io), file === '-' ? 'Standard input' : file!);
    const runId = values.as ?? run.runId;
    if (!/^[\w.-]{1,200}$/.test(runId)) {
      throw new CommandError(
        `--as cannot be ${JSON.stringify(runId)}. An id is made of letters, digits, "_", "-" and ".".`,
      );
    }
    const place = await findPlace(values, io);
    if (place.store.type === 'memory') {
      throw new CommandError('memory: keeps no run beyond this command. Name a store: --store sqlite:PATH.');
    }
    const store = await openStore(place.store);
    try {
      await put(store, { ...run, runId });
      const replayed = replay(await store.read(runId));
      if (replayed.type === 'diverged') {
        io.stderr.write(
          `It does not replay with this version: at entry ${replayed.seq}, ${replayed.difference}. It can be looked at, but not resumed.\n`,
        );
      }
      io.stderr.write(`Imported ${plural(run.entries.length, 'entry', 'entries')}.\n`);
      io.stdout.write(`${runId}\n`);
      return EXIT.completed;
    } finally {
      await store.close();
    }
  },
});

async function contentOf(file: string, io: Io): Promise<string> {
  if (file === '-') return readAll(io);
  try {
    return await readFile(resolve(io.cwd, file), 'utf8');
  } catch (error) {
    throw new CommandError(`${file} cannot be read: ${messageOf(error)}.`);
  }
}

/** All of it or nothing. */
async function put(store: RunStore, { runId, entries, blobs }: RunFile): Promise<void> {
  if ((await store.read(runId)).length > 0) {
    throw new CommandError(`The store has a run ${runId} already. Import it under another id: --as ID.`);
  }
  await store.append(
    runId,
    entries.map((entry) => renamed(entry, runId)),
  );
  try {
    for (const { id, text } of blobs) {
      if ((await store.blobs.put(runId, text)) !== id) {
        throw new CommandError(
          `The long result ${id} is not what its id says. The file is damaged; export the run again.`,
        );
      }
    }
  } catch (error) {
    await store.delete(runId);
    throw error;
  }
}

function renamed(entry: JournalEntry, runId: string): JournalEntry {
  const { event } = entry;
  return event.type === 'run-started' && event.runId !== runId ? { ...entry, event: { ...event, runId } } : entry;
}
