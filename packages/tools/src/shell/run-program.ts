import type { ToolContext, ToolOutput } from '@treadle/core';
import type { Execution, Exit, OutputChunk } from '../ops.ts';
import { ToolError } from '../tool-error.ts';
import { jobOf } from './background.ts';
import { outputCollector, outputText, type OutputCollector } from './output.ts';

/* A program that is the work of a call: its output, exit code and time limit as a result for the model. */

/** A program is killed at its time limit, and the result has its output. The loop ends the call only if that hangs. */
export const KILL_MS = 10_000;
/** Characters of a call that are reported as progress. */
const MAX_REPORTED = 256 * 1024;
const MAX_STDERR = 2_000;

interface ProgramCall {
  readonly start: () => Promise<Execution>;
  readonly context: ToolContext;
  /** Undefined in the background. */
  readonly limitMs: number | undefined;
  /** What the model is told if the time limit is reached. */
  readonly advice: string;
  /** What a sandbox may have stopped, as far as the output of a program that failed shows it. */
  readonly blocked?: ((output: string) => string | undefined) | undefined;
}

/** Runs a program until it ends, or kills it with all its descendants when the call is aborted or its time is over. */
export async function runProgram({ start, context, limitMs, advice, blocked }: ProgramCall): Promise<ToolOutput> {
  const job = jobOf(context);
  const starting = start();
  job?.waitFor(starting);
  const execution = await starting;
  job?.onWrite({ write: (text) => execution.write(text), end: () => execution.endInput() });
  const stop = stopping(context.signal, limitMs);
  const all = outputCollector();
  const errors = outputCollector();
  const report = reporter(context);
  const reading = (async (): Promise<Exit> => {
    for await (const chunk of execution.output) {
      all.add(chunk);
      if (chunk.stream === 'stderr') errors.add(chunk);
      report(chunk);
    }
    return execution.exit;
  })();
  try {
    const end = await Promise.race([reading, stop.stopped]);
    // In the background the output was reported.
    if (typeof end !== 'string') {
      const shown = all.text();
      return withBlocked(exitOutput(job ? '' : shown, end, errors), blocked?.(shown));
    }
    const problem = await killed(execution, reading);
    return stoppedOutput({ why: end, text: all.text(), limitMs, advice, problem });
  } finally {
    stop.release();
  }
}

/** Says what the sandbox may have stopped. */
export function withBlocked(output: ToolOutput, blocked: string | undefined): ToolOutput {
  if (!output.isError || blocked === undefined) return output;
  return { ...output, content: withEnding(String(output.content), `[${blocked}]`) };
}

/** Kills the program, and reads what is left of its output. Returns why that failed. */
async function killed(execution: Execution, reading: Promise<unknown>): Promise<string | undefined> {
  try {
    await execution.kill();
    await reading;
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
}

type Stopped = 'timeout' | 'aborted';

/** Why a program could not be started, for the model. */
export function startFailure(
  error: unknown,
  { missing, tooLong }: { readonly missing: string; readonly tooLong: string },
): unknown {
  const { code, message } = error as NodeJS.ErrnoException;
  const failure = (text: string, errorType: ToolError['errorType']): ToolError =>
    new ToolError(text, errorType, { cause: error });
  switch (code) {
    case 'ENOENT':
      return failure(`The command could not be started: ${message}. ${missing}`, 'not_found');
    case 'EACCES':
    case 'EPERM':
      return failure(`The command could not be started: permission denied (${message}).`, 'permission_denied');
    case 'E2BIG':
      return failure(tooLong, 'invalid_params');
    default:
      return error;
  }
}

/** Settles when the call is aborted, or at its time limit. */
export function stopping(
  signal: AbortSignal,
  limitMs: number | undefined,
): { readonly stopped: Promise<Stopped>; why(): Stopped; release(): void } {
  const { promise, resolve } = Promise.withResolvers<Stopped>();
  let reason: Stopped = 'aborted';
  const onAbort = (): void => resolve('aborted');
  const onTimeout = (): void => resolve((reason = 'timeout'));
  const timer = limitMs === undefined ? undefined : setTimeout(onTimeout, limitMs);
  signal.addEventListener('abort', onAbort);
  if (signal.aborted) onAbort();
  return {
    stopped: promise,
    why: () => reason,
    release() {
      clearTimeout(timer);
      signal.removeEventListener('abort', onAbort);
    },
  };
}

/** Reports output as progress. In the background that is all there is of it; otherwise the result has it too. */
export function reporter(context: ToolContext): (chunk: OutputChunk) => void {
  let left = jobOf(context) ? Infinity : MAX_REPORTED;
  const text = outputText();
  return (chunk) => {
    if (left <= 0) return;
    left -= chunk.bytes.length;
    context.report(text(chunk));
    if (left <= 0) context.report('\n[the rest of the output is not shown as progress]\n');
  };
}

function exitOutput(text: string, { exitCode, signal }: Exit, errors: OutputCollector): ToolOutput {
  if (exitCode === 0) return { content: text === '' ? '[exit code 0]' : text };
  const ending = exitCode === undefined ? `[killed by ${signal}]` : `[exit code ${exitCode}]`;
  return {
    content: withEnding(text, ending),
    isError: true,
    errorType: 'execution_failed',
    ...(exitCode !== undefined && { exitCode }),
    stderr: errors.text().slice(-MAX_STDERR).toWellFormed(),
  };
}

export function withEnding(text: string, ending: string): string {
  return text === '' ? ending : `${text.endsWith('\n') ? text : `${text}\n`}${ending}`;
}

export interface StoppedProgram {
  readonly why: Stopped;
  readonly text: string;
  readonly limitMs: number | undefined;
  readonly advice: string;
  readonly problem?: string | undefined;
}

export function stoppedOutput({ why, text, limitMs, advice, problem }: StoppedProgram): ToolOutput {
  const ending =
    why === 'timeout'
      ? `[timed out after ${limitMs} ms, and was killed with all processes that it started. ${advice}]`
      : '[stopped]';
  const left = problem === undefined ? '' : `\n[Not all of its processes could be killed: ${problem}]`;
  return {
    content: withEnding(text, ending.toWellFormed() + left),
    isError: true,
    errorType: why === 'timeout' ? 'timeout' : 'interrupted',
  };
}
