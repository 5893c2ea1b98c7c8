import type { Clock } from '../clock.ts';
import { messageOf } from '../errors.ts';
import type { CallCheck, SettledResult } from '../loop/events.ts';
import type { Memory } from '../loop/pinned.ts';
import type { Principal } from '../policy/port.ts';
import { Broken, errorResult, Finished, Parked, resultOf } from './result.ts';
import { validate, type Validated } from './schema.ts';
import type { Tool, ToolContext } from './tool.ts';

export type Parsed = { readonly type: 'parsed'; readonly value: unknown; readonly repaired?: string } | Problem;

export interface Problem {
  readonly type: 'problem';
  readonly problem: string;
}

/**
 * Reads the JSON text of a call. Repair is harmless only: code fences, a BOM, trailing commas, bare control characters.
 * It never closes a string, an array or an object, because a tool never runs on guessed arguments; and where the reply
 * was `cut` off there is no repair at all, since what can be read may be the beginning of something else.
 */
export function parseArguments(text: string, cut: boolean): Parsed {
  if (text.trim() === '' && !cut) return { type: 'parsed', value: {}, repaired: '{}' };
  const strict = parse(text);
  if (strict.type === 'parsed') return objectOnly(strict);
  if (cut)
    return { type: 'problem', problem: 'The reply was cut off in the middle of the call. Make the call shorter.' };
  const repaired = repair(text);
  const second = parse(repaired);
  if (second.type === 'parsed') return objectOnly({ ...second, repaired });
  return { type: 'problem', problem: `Its arguments are not valid JSON: ${second.problem}. Send them again in full.` };
}

function parse(text: string): Parsed {
  try {
    return { type: 'parsed', value: JSON.parse(text) };
  } catch (error) {
    return { type: 'problem', problem: shortened((error as Error).message) };
  }
}

/** The engine quotes the text it could not read, which may be large. */
function shortened(message: string): string {
  return message.length <= 200 ? message : `${message.slice(0, 200)}…`;
}

function objectOnly(parsed: Extract<Parsed, { type: 'parsed' }>): Parsed {
  const { value } = parsed;
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return parsed;
  const kind = value === null ? 'null' : Array.isArray(value) ? 'an array' : `a ${typeof value}`;
  return { type: 'problem', problem: `Its arguments are ${kind}, and must be a JSON object.` };
}

function repair(text: string): string {
  const bare = unfenced(text.replace(/^\uFEFF/, '').trim());
  const pieces: string[] = [];
  let inString = false;
  let from = 0;
  for (let i = 0; i < bare.length; i++) {
    const char = bare[i]!;
    if (inString) {
      if (char === '\\') i++;
      else if (char === '"') inString = false;
      else if (char < ' ') {
        pieces.push(bare.slice(from, i), escaped(char));
        from = i + 1;
      }
    } else if (char === '"') inString = true;
    else if (char === ',' && closesNext(bare, i + 1) && !opensBefore(bare, i - 1)) {
      pieces.push(bare.slice(from, i));
      from = i + 1;
    }
  }
  pieces.push(bare.slice(from));
  return pieces.join('');
}

function unfenced(text: string): string {
  if (!text.startsWith('```')) return text;
  const body = text.slice(3).replace(/^[a-zA-Z]+/, '');
  return (body.endsWith('```') ? body.slice(0, -3) : body).trim();
}

function closesNext(text: string, from: number): boolean {
  let i = from;
  while (i < text.length && ' \t\r\n'.includes(text[i]!)) i++;
  return text[i] === '}' || text[i] === ']';
}

/** A comma after which nothing comes is one too many; before which nothing came, something is missing. */
function opensBefore(text: string, from: number): boolean {
  let i = from;
  while (i >= 0 && ' \t\r\n'.includes(text[i]!)) i--;
  return text[i] === '{' || text[i] === '[';
}

function escaped(control: string): string {
  return JSON.stringify(control).slice(1, -1);
}

/** What is known of a call before anything runs; `input` is what the tool will get. */
export interface Checked {
  readonly check: CallCheck;
  readonly input?: unknown;
}

const FINE: CallCheck = {};

/** Reads and validates the arguments of one call. `cut`: the reply it stands in was cut off. */
export function checkCall(tool: Tool, text: string, cut: boolean): Checked | Promise<Checked> {
  if (tool.asWritten && !cut) return { check: FINE };
  const parsed = parseArguments(text, cut);
  if (parsed.type === 'problem') return { check: { problem: parsed.problem } };
  const verdict = validate(tool.input, parsed.value);
  const read = (validated: Validated): Checked => checkedOf(tool, validated, parsed.repaired);
  return verdict instanceof Promise ? verdict.then(read) : read(verdict);
}

function checkedOf(tool: Tool, validated: Validated, repaired: string | undefined): Checked {
  const mended = repaired !== undefined && { arguments: repaired };
  if (validated.type === 'invalid') return { check: { problem: problemOf(tool, validated.problems), ...mended } };
  const input = validated.value;
  if (repaired === undefined && !tool.resources) return { check: FINE, input };
  try {
    const resources = tool.resources?.(input);
    if (resources && !isTexts(resources)) {
      void Promise.resolve(resources).catch(() => {});
      throw new Error('"resources" must return a list of texts');
    }
    return {
      check: { ...mended, ...(resources && { resources }) },
      input,
    };
  } catch (thrown) {
    return { check: { problem: `What it needs for itself could not be told: ${messageOf(thrown)}` } };
  }
}

function isTexts(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((one) => typeof one === 'string');
}

function problemOf({ parameters }: Tool, problems: readonly string[]): string {
  const known = Object.keys(parameters['properties'] ?? {});
  const required = isTexts(parameters['required']) ? parameters['required'] : [];
  const optional = known.filter((name) => !required.includes(name));
  const signature = [
    required.length > 0 && `Required: ${required.join(', ')}.`,
    optional.length > 0 && `Optional: ${optional.join(', ')}.`,
  ].filter(Boolean);
  return ['Its arguments are not valid:', `${problems.join('; ')}.`, ...signature].join(' ');
}

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
