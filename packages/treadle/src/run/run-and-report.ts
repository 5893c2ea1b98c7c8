import type { Event, LoopResult, RunStore, Waiting } from '@treadle/core';
import { type RepeatedValues, type OutputValues, again, againThere } from '../command-line/flags.ts';
import { askApproval, askLine } from '../terminal/prompt.ts';
import { coloursFor } from '../terminal/colours.ts';
import { EXIT, exitCodeOf } from '../command-line/command.ts';
import { interruptible, type Interrupt } from '../terminal/signals.ts';
import type { Io } from '../terminal/io.ts';
import type { Place } from '../config/context.ts';
import { printable } from '../terminal/printable.ts';
import { shortId } from '../runs/run-id.ts';
import { callLines } from './transcript.ts';
import { drive, type DriveOptions, type Start } from './drive-run.ts';
import { outcomeText } from './outcome-text.ts';

export interface Work {
  readonly start: Start;
  readonly store: RunStore;
  readonly place: Place;
  readonly values: RepeatedValues & OutputValues;
  readonly io: Io;
}

/**
 * Drives a run until it ends or somebody has to decide who cannot be asked, tells of it on the way, and prints what came
 * of it. Ctrl-C leaves it to be gone on with where it is kept, and ends it where it is not. Gives the exit code.
 */
export async function work({ start, store, place, values, io }: Work): Promise<number> {
  const say = (text: string): void => void io.stderr.write(`${text}\n`);
  const colours = coloursFor(io.stderr, io.env);
  const kept = place.store.type !== 'memory';
  const interrupt = interruptible(io);
  interrupt.signal.addEventListener('abort', () =>
    say(`${kept ? 'Stopping' : 'Cancelling'}; Ctrl-C again quits at once.`),
  );
  const tell = values.quiet ? undefined : callLines({ write: say, colours, width: io.stderr.columns ?? 120 });
  let last: Event['type'] | undefined;
  let result: LoopResult;
  try {
    result = await drive({
      start,
      store,
      signal: interrupt.signal,
      stopping: kept ? 'detach' : 'cancel',
      onItem(item) {
        if (item.type === 'fact') last = item.event.type;
        tell?.(item);
      },
      ...approver(io, interrupt),
    });
  } finally {
    interrupt.release();
  }

  if (values.json) io.stdout.write(`${JSON.stringify(result, null, 2)}\n`);
  else if (result.outcome?.type === 'completed') io.stdout.write(`${forOutput(result.text, io)}\n`);
  else if (result.text !== '') say(`The model's last words: ${printable(result.text)}`);
  const ending = outcomeText(result);
  if (ending) say(result.outcome?.type === 'completed' || result.detached ? ending : colours.red(ending));
  const steps = nextSteps(result, {
    kept,
    canRetry: last === 'model-failed',
    canAsk: canAsk(io),
    values,
  });
  for (const line of steps) say(line);
  return !result.outcome && interrupt.signal.aborted ? EXIT.cancelled : exitCodeOf(result);
}

function approver(io: Io, interrupt: Interrupt): Pick<DriveOptions, 'approve'> {
  if (!canAsk(io)) return {};
  const say = (line: string): void => void io.stderr.write(`${line}\n`);
  return { approve: (asked) => askApproval(asked, { say, ask: (prompt) => askLine(io, interrupt, prompt) }) };
}

function canAsk(io: Io): boolean {
  return Boolean(io.stdin.isTTY && io.stderr.isTTY);
}

/** As it is for a program that reads it, harmless for a terminal. */
function forOutput(text: string, io: Io): string {
  return io.stdout.isTTY ? printable(text) : text;
}

/** What the user can do about a run that has not come to its end; nothing when it has. */
export function nextSteps(
  result: LoopResult,
  about: {
    /** It is in a store, so it can be gone on with. */
    readonly kept: boolean;
    /** It ended because the model could not be asked. */
    readonly canRetry: boolean;
    /** There is a terminal to ask on. */
    readonly canAsk: boolean;
    /** What was given, so that the commands find the same store and model. */
    readonly values: RepeatedValues;
  },
): readonly string[] {
  const { outcome, detached, waiting, turns } = result;
  const { kept, canRetry, canAsk, values } = about;
  const id = shortId(result.runId);
  if (outcome) {
    return kept && outcome.type === 'failed' && canRetry
      ? [`Try again with: ${again(['runs', 'resume', id], values)}`]
      : [];
  }
  if (detached) {
    if (turns === 0) return ['Nothing had begun.'];
    return [
      `Go on with: ${again(['runs', 'resume', id], values)}`,
      `End it with: ${againThere(['runs', 'cancel', id], values)}`,
    ];
  }
  const asks = waiting.some(({ type }) => type === 'approval');
  const reason = asks && !canAsk ? ['There is no terminal to ask on.'] : [];
  if (!kept) return [...reason, 'Run it in a terminal, without --ask, or with a store to go on with it later.'];
  return [...reason, `Go on with: ${again(['runs', 'resume', id, ...waiting.flatMap(answerFlags)], values)}`];
}

/** The flags of `runs resume` that it waits for. */
export function answerFlags(waiting: Waiting): readonly string[] {
  if (waiting.type === 'approval') return ['--approve', waiting.effect];
  return waiting.type === 'client' ? ['--answer', `${waiting.effect}=RESULT`] : [];
}
