import type { Clock } from '../clock.ts';
import { messageOf } from '../errors.ts';
import type { SettledResult } from '../loop/types.ts';
import type { Principal } from '../policy/port.ts';
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
}

export interface Running {
  /** Never rejects. Not a promise when the tool gave its result at once. */
  readonly result: SettledResult | Promise<SettledResult>;
  /** Tells the tool to stop; what it gives after that is nobody's. */
  readonly abort: () => void;
}

/**
 * Runs a tool once. Whatever it does, there is a result: what it throws, what has no JSON form, what its output schema
 * refuses and what takes too long are error results. The timeout is hard: it does not need the tool's cooperation.
 */
export function execute(execution: Execution): Running {
  const { tool } = execution;
  return perform(execution, (context) => tool.execute!(execution.input, context), (value) => checked(execution, value));
}

/** Asks a tool whether a call of it took effect, under the same conditions. */
export function verify(execution: Execution): Running {
  const { tool, input } = execution;
  return perform(execution, (context) => tool.verify!(input, context), (answer) => {
    const { type } = answer as { type: unknown };
    if (type === 'done') return resultOf(tool.name, (answer as { result: unknown }).result);
    return { type: type === 'not-done' ? 'not-done' : 'unknown' };
  });
}

type Settle = (value: unknown) => SettledResult | Promise<SettledResult>;

function perform(execution: Execution, call: (context: ToolContext) => unknown, settle: Settle): Running {
  const { tool, timeoutMs, clock, key, report, context, principal } = execution;
  const controller = new AbortController();
  const abort = (): void => controller.abort();
  const failed = (thrown: unknown): SettledResult => errorResult(`The tool "${tool.name}" failed: ${messageOf(thrown)}`);
  let value: unknown;
  try {
    value = call({ signal: controller.signal, key, report, context, principal });
    if (!isAsync(value)) {
      const result = settle(value);
      if (!(result instanceof Promise)) return { result, abort };
      value = result;
      settle = asIs;
    }
  } catch (thrown) {
    return { result: failed(thrown), abort };
  }

  const result = new Promise<SettledResult>((resolve) => {
    const callOff = clock.timer(timeoutMs, () => {
      resolve(errorResult(`The tool "${tool.name}" timed out after ${timeoutMs} ms. Ask for less, or try something else.`));
      abort();
    });
    drained(value, report)
      .then(settle)
      .catch(failed)
      .then((settled) => {
        callOff();
        resolve(settled);
      });
  });
  return { result, abort };
}

const asIs: Settle = (result) => result as SettledResult;

function checked({ tool }: Execution, value: unknown): SettledResult | Promise<SettledResult> {
  if (!tool.output) return resultOf(tool.name, value);
  const verdict = validate(tool.output, value);
  const settle = (validated: Awaited<typeof verdict>): SettledResult =>
    validated.type === 'valid'
      ? resultOf(tool.name, validated.value)
      : errorResult(`The tool "${tool.name}" returned something else than it promises: ${validated.problems.join('; ')}`);
  return verdict instanceof Promise ? verdict.then(settle) : settle(verdict);
}

function isAsync(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return typeof (value as PromiseLike<unknown>).then === 'function' || Symbol.asyncIterator in value;
}

/** Waits for a promise, and for an iterable until its end; what comes on the way is progress. */
async function drained(value: unknown, report: (progress: unknown) => void): Promise<unknown> {
  const settled = await value;
  if (typeof settled !== 'object' || settled === null || !(Symbol.asyncIterator in settled)) return settled;
  const items: unknown[] = [];
  const iterator = (settled as AsyncIterable<unknown>)[Symbol.asyncIterator]();
  for (let next = await iterator.next(); ; next = await iterator.next()) {
    if (!next.done) {
      items.push(next.value);
      report(next.value);
    } else if (next.value !== undefined) return next.value;
    else return items.every((item) => typeof item === 'string') ? items.join('') : items.at(-1);
  }
}
