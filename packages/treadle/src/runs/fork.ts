import { forkRun, type ForkChanges } from '@treadle/core';
import { chooseModelOf } from '../config/choose-model.ts';
import { CommandError, command, type Command, EXIT } from '../command-line/command.ts';
import { openModel } from '../models/open-model.ts';
import { MODEL_FLAGS, OUTPUT_FLAGS, PLACE_FLAGS } from '../command-line/flags.ts';
import { goOn, GO_ON_FLAGS, refuseForeign } from './go-on.ts';
import { pairsOf } from './pairs.ts';
import { shortId } from './run-id.ts';
import { readRun, stateOf, type StoredRun } from './stored-run.ts';
import { withStore } from './with-store.ts';

export const forkCommand: Command = command({
  name: 'runs fork',
  summary: 'Branch a run after one of its entries, and go another way from there',
  arguments: ['ID'],
  flags: {
    at: {
      type: 'count',
      value: 'N',
      min: 0,
      help: 'The last entry that both share, as "runs show" counts; default: that of --result',
    },
    instructions: { type: 'text', value: 'TEXT', help: 'Other instructions from there on' },
    result: {
      type: 'text',
      value: 'EFFECT=TEXT',
      many: true,
      help: 'Another result for a call up to there, such as t1.tool.0',
    },
    'no-tools': { type: 'switch', help: 'No tools from there on' },
    'no-run': { type: 'switch', help: 'Only make it, and print its id' },
    ...GO_ON_FLAGS,
    ...MODEL_FLAGS,
    ...PLACE_FLAGS,
    ...OUTPUT_FLAGS,
  },
  notes: [
    'The run itself stays as it is. What was under way at that entry and has come to its end since is taken over, so that\n' +
      'nothing is executed twice; the model is asked anew if something was changed. --model changes the model too.',
    'Examples:\n' +
      '  treadle runs fork 1a2b --result t1.tool.0="the file is empty"\n' +
      '  treadle runs fork 1a2b --at 4 --model openai/MODEL --instructions "Answer in French."',
  ],
  run: ({ values, arguments: [given] }, io) =>
    withStore(values, io, async (store, place) => {
      const run = await readRun(store, given!);
      const { runId } = run.summary;
      const results = pairsOf('--result', values.result ?? []);
      const at = values.at ?? cutFor(run, results);
      const changes: ForkChanges = {
        ...(values.instructions !== undefined && { instructions: values.instructions }),
        ...(values['no-tools'] && { tools: [] }),
        ...(results.length > 0 && { results: Object.fromEntries(results) }),
      };
      // Before anything is made: what cannot go on, or has no model to go on with, must leave no fork behind.
      const cut = stateOf(run, at + 1);
      if (!values['no-run']) refuseForeign(cut);
      const { model: had } = cut;
      const wish = { model: values.model, baseUrl: values['base-url'] };
      const needed = values.model !== undefined || !values['no-run'];
      const choice = needed ? chooseModelOf(had, wish, place.loaded, io.env) : undefined;
      const model = values.model !== undefined && choice ? (await openModel(choice)).id : undefined;
      const isOther = model !== undefined && model !== had;
      const fork = await forkRun({
        journal: store,
        runId,
        at,
        changes: { ...changes, ...(isOther && { model }) },
      });
      if (values['no-run']) {
        io.stdout.write(`${fork}\n`);
        return EXIT.completed;
      }
      io.stderr.write(`Forked from ${shortId(runId)} after entry ${at}: ${fork}\n`);
      const state = stateOf(await readRun(store, fork));
      return goOn({ runId: fork, state, answers: [], store, place, values, io });
    }),
});

/** After the last of the results that are to be others. */
function cutFor({ summary, entries }: StoredRun, results: ReturnType<typeof pairsOf>): number {
  const effects = new Set(results.map(([effect]) => effect));
  const cut = entries.findLastIndex(({ event }) => event.type === 'tool-settled' && effects.has(event.effect));
  if (cut >= 0) return cut;
  const id = shortId(summary.runId);
  throw new CommandError(
    `Say after which entry of 0 to ${entries.length - 1}: --at N. "treadle runs show ${id}" shows them.`,
  );
}
