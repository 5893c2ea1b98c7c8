import { replay } from '@treadle/core';
import { coloursFor } from '../terminal/colours.ts';
import { command, type Command, EXIT } from '../command-line/command.ts';
import { plural } from '../terminal/quantities.ts';
import { oneLine } from '../terminal/printable.ts';
import { PLACE_FLAGS } from '../command-line/flags.ts';
import { shortId } from './run-id.ts';
import { readRun } from './stored-run.ts';
import { withStore } from './with-store.ts';

export const replayCommand: Command = command({
  name: 'runs replay',
  summary: 'Rebuild a run from its journal, and say whether it comes out the same',
  arguments: ['ID'],
  flags: PLACE_FLAGS,
  notes: [
    'Nothing is executed. Exits with 1 and names the first entry that comes out otherwise, if code, wording or rules have\n' +
      'changed since it was written.',
  ],
  run: ({ values, arguments: [given] }, io) =>
    withStore(values, io, async (store) => {
      const { summary, entries } = await readRun(store, given!);
      const replayed = replay(entries);
      if (replayed.type === 'replayed') {
        io.stdout.write(`${plural(entries.length, 'entry replays', 'entries replay')} the same.\n`);
        return EXIT.completed;
      }
      const { seq, event, effect, difference } = replayed;
      const { red } = coloursFor(io.stdout, io.env);
      io.stdout.write(
        [
          red(`Run ${shortId(summary.runId)} comes out otherwise at entry ${seq} of 0 to ${entries.length - 1}.`),
          `  event    ${event}`,
          ...(effect === undefined ? [] : [`  effect   ${effect}`]),
          `  differs  ${oneLine(difference, 1_000)}`,
          '',
        ].join('\n'),
      );
      return EXIT.failed;
    }),
});
