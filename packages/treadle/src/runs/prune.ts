import type { RunSummary } from '@treadle/core';
import type { SqliteStore } from '@treadle/store';
import { CommandError, command, type Command, EXIT } from '../command-line/command.ts';
import { plural, ageText, parseAge } from '../terminal/quantities.ts';
import { oneLine } from '../terminal/printable.ts';
import { PLACE_FLAGS } from '../command-line/flags.ts';
import { shortId } from './run-id.ts';
import { withStore } from './with-store.ts';

const ENDED = ['completed', 'exhausted', 'failed', 'cancelled'] as const;

export const pruneCommand: Command = command({
  name: 'runs prune',
  summary: 'Delete runs that ended some time ago',
  flags: {
    'older-than': { type: 'text', value: 'AGE', help: 'Such as 30d, 12h or 2w: since its last entry' },
    'dry-run': { type: 'switch', help: 'Only say what would be deleted' },
    ...PLACE_FLAGS,
  },
  notes: [
    'Runs that are paused, interrupted or driven stay, however old they are, and so do those of responses of the server,\n' +
      'which could not be continued without.',
  ],
  async run({ values }, io) {
    const given = values['older-than'];
    const age = given === undefined ? undefined : parseAge(given);
    if (age === undefined) {
      throw new CommandError(
        given === undefined
          ? 'Say how old they have to be: --older-than 30d.'
          : `--older-than cannot be ${JSON.stringify(given)}. It takes a number with s, m, h, d or w, such as 30d.`,
      );
    }
    return withStore(values, io, async (store) => {
      const now = Date.now();
      if (!values['dry-run']) {
        io.stderr.write(`Deleted ${plural(await store.prune(now - age), 'run')}.\n`);
        return EXIT.completed;
      }
      const old = await prunable(store, now - age);
      for (const run of old) io.stdout.write(`${rowOf(run, now)}\n`);
      io.stderr.write(`${plural(old.length, 'run')} would be deleted.\n`);
      return EXIT.completed;
    });
  },
});

async function prunable(store: SqliteStore, before: number): Promise<readonly RunSummary[]> {
  const found: RunSummary[] = [];
  for (const run of await store.list({ status: ENDED, limit: Infinity })) {
    if (run.updatedAt < before && !(await store.responses.hasRun(run.runId))) found.push(run);
  }
  return found;
}

function rowOf({ runId, status, updatedAt, title }: RunSummary, now: number): string {
  return `${shortId(runId)}  ${status.padEnd(9)}  ${ageText(now - updatedAt).padEnd(6)}  ${oneLine(title, 60)}`;
}
