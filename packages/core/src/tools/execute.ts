import type { Clock } from '../platform.ts';
import { messageOf } from '../errors.ts';
import type { SettledResult } from '../machine/events.ts';
import type { Memory } from '../machine/rules.ts';
import type { Principal } from '../policy/port.ts';
import { Broken, Finished, Parked } from './child.ts';
import { errorResult, resultOf } from './result.ts';
import type { Tool, ToolContext } from './tool.ts';
import { validate } from './validate.ts';

export interface Execution {
  readonly tool: Tool;
  /** Validated. */
  readonly input: unknown;
  readonly key: string;
  readonly timeoutMs: number;
  readonly clock: Clock;
  readonly report: (progress: unknown) => void;
  readonly context: unknown;
  readonly principal: Principal | undefined;
  readonly run?: ToolContext['run'] | undefined;
  readonly memory?: Memory | undefined;
}

/** What comes of a call: a result, that it goes on elsewhere, or that it cannot be driven at all. */
export type Settled = SettledResult | Parked | Broken;

export interface Running {
  /** Never rejects. Not a promise when the tool gave its result at once. */
  readonly result: Settled | Promise<Settled>;
  /** Tells the tool to stop, and does not wait for it: what it gives after that is nobody's. */
  readonly abort: (reason?: unknown) => void;
}

/**
 * Runs a tool once. Whatever it does, there is a result: what it throws, what has no JSON form, what its output schema
 * refuses and what takes too long are error results. The timeout is hard: it does not need the tool's cooperation.
 */
export function execute(execution: Execution): Running {
  return perform(execution, EXECUTING);
}

/** Asks a tool whether a call of it took effect, under the same conditions. If that fails, nobody can tell. */
export function verify(execution: Execution): Running {
  return perform(execution, VERIFYING);
}

interface Performance {
  readonly call: (execution: Execution, context: ToolContext) => unknown;
  readonly settle: (execution: Execution, value: unknown) => Settled | Promise<Settled>;
  readonly failed: (why: string) => SettledResult;
}

const EXECUTING: Performance = {
  call: ({ tool, input }, context) => tool.execute!(input, context),
  settle: checked,
  failed: errorResult,
};

const VERIFYING: Performance = {
  call: ({ tool, input }, context) => tool.verify!(input, context),
  settle({ tool }, answer) {
    const { type } = answer as { type: unknown };
    if (type === 'done') return resultOf(tool.name, (answer as { result: unknown }).result);
    return { type: type === 'not-done' ? 'not-done' : 'unknown' };
  },
  failed: () => ({ type: 'unknown' }),
};

function perform(execution: Execution, performance: Performance): Running {
  const { key, context, principal, run, memory } = execution;
  const controller = new AbortController();
  let over = false;
  const report = (progress: unknown): void => {
    if (!over) execution.report(progress);
  };
  try {
    const { signal } = controller;
    const value = performance.call(execution, { signal, key, report, context, principal, run, memory });
    if (isAsync(value)) return awaited(execution, performance, controller, value, () => (over = true));
    const result = performance.settle(execution, value);
    if (result instanceof Promise) {
      return awaited(execution, { ...performance, settle: asIs }, controller, result, () => (over = true));
    }
    over = true;
    return { result, abort: nothing };
  } catch (thrown) {
    over = true;
    return { result: failure(execution, performance, thrown), abort: nothing };
  }
}

function nothing(): void {}

function failure({ tool }: Execution, { failed }: Performance, thrown: unknown): SettledResult {
  return failed(`The tool "${tool.name}" failed: ${messageOf(thrown)}`);
}

/** Waits for what a tool gives later, until its time is up. `onEnd`: from then on nobody hears it. */
function awaited(
  execution: Execution,
  performance: Performance,
  controller: AbortController,
  value: unknown,
  onEnd: () => void,
): Running {
  const { tool, timeoutMs, clock, report } = execution;
  const { promise, resolve } = Promise.withResolvers<Settled>();
  let over = false;
  const end = (result: Settled): void => {
    over = true;
    onEnd();
    callOff();
    resolve(result);
  };
  const stop = (why: string, reason?: unknown): void => {
    end(performance.failed(`The tool "${tool.name}" ${why}`));
    controller.abort(reason);
  };
  const timeOut = (): void => stop(`timed out after ${timeoutMs} ms. Ask for less, or try something else.`);
  const callOff = clock.timer(timeoutMs, timeOut);
  const due = clock.now() + timeoutMs;
  // What never waits leaves no timer a chance to fire.
  const take = (progress: unknown): void => {
    if (over) return;
    if (clock.now() >= due) timeOut();
    else report(progress);
  };
  void drained(value, take, controller.signal)
    .then((drawn) => performance.settle(execution, drawn))
    .catch((thrown) => failure(execution, performance, thrown))
    .then(end);
  return { result: promise, abort: (reason) => stop('was stopped.', reason) };
}

const asIs: Performance['settle'] = (_, result) => result as Settled;

function checked({ tool }: Execution, value: unknown): Settled | Promise<Settled> {
  if (value instanceof Parked || value instanceof Broken) return value;
  if (value instanceof Finished) return value.result;
  if (!tool.output) return resultOf(tool.name, value);
  const verdict = validate(tool.output, value);
  const settle = (validated: Awaited<typeof verdict>): SettledResult =>
    validated.type === 'valid'
      ? resultOf(tool.name, validated.value)
      : errorResult(
          `The tool "${tool.name}" returned something else than it promises: ${validated.problems.join('; ')}`,
        );
  return verdict instanceof Promise ? verdict.then(settle) : settle(verdict);
}

function isAsync(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return typeof (value as PromiseLike<unknown>).then === 'function' || Symbol.asyncIterator in value;
}

/** Waits for a promise, and for an iterable until its end or the signal; what comes on the way is progress. */
async function drained(value: unknown, report: (progress: unknown) => void, signal: AbortSignal): Promise<unknown> {
  const settled = await value;
  if (typeof settled !== 'object' || settled === null || !(Symbol.asyncIterator in settled)) return settled;
  const items: unknown[] = [];
  const iterator = (settled as AsyncIterable<unknown>)[Symbol.asyncIterator]();
  // It may hold a file or a connection, so it is told when nobody takes more from it.
  const leave = async (): Promise<unknown> => iterator.return?.();
  signal.addEventListener('abort', () => void leave().catch(() => {}), { once: true });
  while (!signal.aborted) {
    const next = await iterator.next();
    if (!next.done) {
      items.push(next.value);
      report(next.value);
    } else if (next.value !== undefined) return next.value;
    else break;
  }
  return items.every((item) => typeof item === 'string') ? items.join('') : items.at(-1);
}
