import type { Event, LoopResult, RunStore } from '@treadle/core';
import type { RepeatedValues } from './again.ts';
import { askApproval } from './approval.ts';
import { askLine } from './ask-line.ts';
import { callLines } from './call-lines.ts';
import { coloursFor } from './colours.ts';
import { drive, type DriveOptions, type Start } from './drive.ts';
import { EXIT, exitCodeOf } from './exit-code.ts';
import { interruptible, type Interrupt } from './interrupt.ts';
import type { Io } from './io.ts';
import { nextSteps } from './next-steps.ts';
import { outcomeText } from './outcome-text.ts';
import type { Place } from './place.ts';
import { printable } from './printable.ts';
import type { OutputValues } from './session-flags.ts';

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
