import { TreadleError, type Answer, type RunStore, type State } from '@treadle/core';
import { chooseModelOf } from '../config/choose-model.ts';
import { CommandError, type Values } from '../command-line/command.ts';
import type { Io } from '../terminal/io.ts';
import { openModel } from '../models/open-model.ts';
import type { Place } from '../config/context.ts';
import type { ModelValues, OutputValues, PlaceValues } from '../command-line/flags.ts';
import { askAlways, isElsewhere, toolsOf } from '../run/session.ts';
import { work } from '../run/run-and-report.ts';
import { shortId } from './run-id.ts';

/** The flags of every command that goes on with a run. */
export const GO_ON_FLAGS = {
  'accept-changed-tools': {
    type: 'switch',
    help: 'Go on with the tools as they are now, though the run had others',
  },
} as const;

export interface GoOn {
  readonly runId: string;
  readonly state: State;
  readonly answers: readonly Answer[];
  readonly store: RunStore;
  readonly place: Place;
  readonly values: ModelValues & PlaceValues & OutputValues & Values<typeof GO_ON_FLAGS>;
  readonly io: Io;
}

/** Throws for a run that needs the code of the program that started it: going on without would fail it for good. */
export function refuseForeign(state: State): void {
  const foreign = foreignCode(state);
  if (foreign === undefined) return;
  throw new CommandError(`Run ${shortId(state.runId)} ${foreign}. Go on with it in that program.`);
}

/** Why only the program that started a run can go on with it, if that is so. */
export function foreignCode({ rules }: State): string | undefined {
  if (rules.agent) return `is one of the agent "${rules.agent.name}" of a program`;
  return rules.prepared && 'was started by a program that prepares each of its turns';
}

/** Goes on with a run of the store as `treadle run` would. Gives the exit code. */
export async function goOn({ runId, state, answers, store, place, values, io }: GoOn): Promise<number> {
  const choice = chooseModelOf(state.model, { model: values.model, baseUrl: values['base-url'] }, place.loaded, io.env);
  const elsewhere = isElsewhere(state.instructions, place.folder)
    ? `The run was told of another working folder than ${place.folder}, where its tools look now. --cwd names the right one.`
    : undefined;
  if (!values.quiet) for (const text of [choice.notice, elsewhere]) if (text) io.stderr.write(`${text}\n`);
  const start = {
    runId,
    answers,
    model: await openModel(choice),
    tools: toolsOf(place),
    // Whatever judged the calls before is not here: a person does.
    ...(state.rules.judged && { policy: askAlways }),
    acceptChangedTools: values['accept-changed-tools'] === true,
  };
  try {
    return await work({ start, store, place, values, io });
  } catch (error) {
    if (!(error instanceof TreadleError) || error.code !== 'tools-changed') throw error;
    throw new CommandError(`${error.message}\nHere that is done by --accept-changed-tools.`);
  }
}
