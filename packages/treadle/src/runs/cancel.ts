import { runLoop, tool, type Model, type RunStore, type RunSummary, type Tool, type ToolFacts } from '@treadle/core';
import { CommandError, command, type Command, EXIT } from '../command-line/command.ts';
import { plural } from '../terminal/quantities.ts';
import { PLACE_FLAGS } from '../command-line/flags.ts';
import { isChild, shortId } from './run-id.ts';
import { readRun, stateOf } from './stored-run.ts';
import { withStore } from './with-store.ts';

export const cancelCommand: Command = command({
  name: 'runs cancel',
  summary: 'End a run that was interrupted or is paused',
  arguments: ['ID'],
  flags: PLACE_FLAGS,
  notes: [
    'Calls without a result get one that says so, and the runs that work for it end too. One that goes on is stopped\n' +
      'with Ctrl-C where it was started.',
  ],
  run: ({ values, arguments: [given] }, io) =>
    withStore(values, io, async (store) => {
      const { summary } = await readRun(store, given!);
      const id = shortId(summary.runId);
      if (isOver(summary)) throw new CommandError(`Run ${id} has ended already (${summary.status}).`);
      const ended = await cancelled(store, summary);
      const others = ended === 1 ? '' : `, and ${plural(ended - 1, 'run')} that worked for it`;
      io.stderr.write(`Cancelled ${id}${others}.\n`);
      return EXIT.completed;
    }),
});

function isOver({ status }: RunSummary): boolean {
  return status !== 'running' && status !== 'paused';
}

/** Gives how many ended. */
async function cancelled(store: RunStore, { runId }: RunSummary): Promise<number> {
  const { tools } = stateOf(await readRun(store, runId));
  await runLoop({ runId, journal: store, model: nobody, tools: tools.map(standIn), signal: AbortSignal.abort() });
  let count = 1;
  for (const child of await store.list({ parent: runId, limit: Infinity })) {
    if (isChild(child) && !isOver(child)) count += await cancelled(store, child);
  }
  return count;
}

/** The run ends before it could ask anybody. */
const nobody: Model = {
  id: 'nobody',
  reply: () => Promise.reject(new Error('A cancelled run asks no model.')),
};

function standIn({ name, description, parameters, effect, client }: ToolFacts): Tool {
  const execute = (): never => {
    throw new Error('A cancelled run calls no tool.');
  };
  return tool({ name, description, input: parameters, effect, ...(!client && { execute }) });
}
