import { waiting, type Answer, type State } from '@treadle/core';
import { CommandError, command, type Command } from '../command-line/command.ts';
import { waitingText } from '../run/outcome-text.ts';
import { MODEL_FLAGS, OUTPUT_FLAGS, PLACE_FLAGS } from '../command-line/flags.ts';
import { goOn, GO_ON_FLAGS, refuseForeign } from './go-on.ts';
import { pairsOf } from './pairs.ts';
import { isChild, shortId } from './run-id.ts';
import { readRun, stateOf, type StoredRun } from './stored-run.ts';
import { withStore } from './with-store.ts';

export const resumeCommand: Command = command({
  name: 'runs resume',
  summary: 'Go on with a run that was interrupted, is paused, or failed with its model',
  arguments: ['ID'],
  flags: {
    approve: {
      type: 'text',
      value: 'EFFECT',
      many: true,
      help: 'Approve what it waits for, such as t1.approval.0, or "all"',
    },
    deny: { type: 'text', value: 'EFFECT', many: true, help: 'Deny it, or "all"' },
    answer: {
      type: 'text',
      value: 'EFFECT=TEXT',
      many: true,
      help: 'Give the result of a call that is executed elsewhere',
    },
    ...GO_ON_FLAGS,
    ...MODEL_FLAGS,
    ...PLACE_FLAGS,
    ...OUTPUT_FLAGS,
  },
  notes: [
    'It goes on like "treadle run", by the rules that it was started with: on a terminal it asks for approvals, otherwise\n' +
      'it pauses again. Nothing that has a result is executed twice; what was under way is taken up as its tool allows.',
    'The model is the one that the run was started with, if it is in the configuration; any other is given by --model.',
  ],
  run: ({ values, arguments: [given] }, io) =>
    withStore(values, io, async (store, place) => {
      const run = await readRun(store, given!);
      const state = stateOf(run);
      refuseWhatIsOver(run, state);
      refuseForeign(state);
      const answers = answersFor(state, values);
      return goOn({ runId: run.summary.runId, state, answers, store, place, values, io });
    }),
});

function refuseWhatIsOver({ summary }: StoredRun, { phase }: State): void {
  const id = shortId(summary.runId);
  if (isChild(summary)) {
    throw new CommandError(
      `Run ${id} works for ${shortId(summary.parent!)} and goes on with that: resume ${shortId(summary.parent!)}.`,
    );
  }
  if (phase.type !== 'ended' || phase.effect !== undefined) return;
  throw new CommandError(
    `Run ${id} has ended (${phase.outcome.type}), so there is nothing to go on with. "treadle runs show ${id}" shows it, ` +
      `"treadle runs fork ${id} --at N" goes another way from one of its entries.`,
  );
}

function answersFor(
  state: State,
  given: {
    readonly approve?: readonly string[];
    readonly deny?: readonly string[];
    readonly answer?: readonly string[];
  },
): readonly Answer[] {
  const waits = waiting(state);
  const approvals = waits.filter((wait) => wait.type === 'approval');
  const decided = (effects: readonly string[], approved: boolean): readonly Answer[] => {
    const meant = effects.includes('all') ? approvals : effects.map((effect) => approvalOf(effect));
    return meant.map(({ effect, digest }) => ({ type: 'approval', effect, digest, approved, by: 'command line' }));
  };
  const approvalOf = (effect: string): (typeof approvals)[number] => {
    const found = approvals.find((one) => one.effect === effect);
    if (found) return found;
    const open = waits.map((wait) => `\n  ${wait.effect}: ${waitingText(wait)}`).join('');
    throw new CommandError(
      `Run ${shortId(state.runId)} waits for no approval ${JSON.stringify(effect)}.${open === '' ? ' It waits for nothing.' : ` It waits for:${open}`}`,
    );
  };
  const results = pairsOf('--answer', given.answer ?? []);
  return [
    ...decided(given.approve ?? [], true),
    ...decided(given.deny ?? [], false),
    ...results.map(([effect, content]): Answer => ({ type: 'client-result', effect, content })),
  ];
}
