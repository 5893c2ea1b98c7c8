import type { Clock } from '../platform.ts';
import { messageOf, TreadleError } from '../errors.ts';
import type { CallCheck, SettledResult } from '../machine/events.ts';
import type { Memory } from '../machine/rules.ts';
import type { ErrorFacts } from '../messages.ts';
import { Broken, errorFactsOf, errorResult, Finished, Parked, resultOf } from './result.ts';
import type { PatternMatcher } from './json-schema.ts';
import { validate, type Validated } from './schema.ts';
import type { Held, HoldRequest, NewRun, QuestionOptions, StartedByCall, Tool, ToolContext } from './tool.ts';

/* From a call to its result: parse the arguments, check the call, execute the tool or verify an interrupted call. */

/** `repaired` is the corrected JSON text, if the text of the call was not valid JSON. */
export type ParsedArguments =
  | { readonly type: 'parsed'; readonly value: unknown; readonly repaired?: string }
  | { readonly type: 'problem'; readonly problem: string };

/**
 * Parses the JSON text of a call. Only unambiguous errors are repaired: code fences, a BOM, trailing commas, unescaped
 * control characters. Unterminated strings, arrays and objects are never closed, so no tool runs on guessed arguments.
 * If the reply was `cut` off, nothing is repaired, because a readable text may still be incomplete.
 */
export function parseArguments(text: string, cut: boolean): ParsedArguments {
  // Nearly all texts begin with a brace, and are not trimmed.
  if (text[0] !== '{' && text.trim() === '' && !cut) return { type: 'parsed', value: {}, repaired: '{}' };
  const strict = parseArgumentsJson(text);
  if (strict.type === 'parsed') return requireObject(strict);
  if (cut)
    return { type: 'problem', problem: 'The reply was cut off in the middle of the call. Make the call shorter.' };
  const repaired = repairJson(text);
  const second = parseArgumentsJson(repaired);
  if (second.type === 'parsed') return requireObject({ ...second, repaired });
  return { type: 'problem', problem: `Its arguments are not valid JSON: ${second.problem}. Send them again in full.` };
}

function parseArgumentsJson(text: string): ParsedArguments {
  try {
    return { type: 'parsed', value: JSON.parse(text) };
  } catch (error) {
    return { type: 'problem', problem: shortened((error as Error).message) };
  }
}

/** The message of the engine quotes the text, which may be large. */
function shortened(message: string): string {
  return message.length <= 200 ? message : `${message.slice(0, 200).toWellFormed()}…`;
}

function requireObject(parsed: Extract<ParsedArguments, { type: 'parsed' }>): ParsedArguments {
  const { value } = parsed;
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return parsed;
  const kind = value === null ? 'null' : Array.isArray(value) ? 'an array' : `a ${typeof value}`;
  return { type: 'problem', problem: `Its arguments are ${kind}, and must be a JSON object.` };
}

function repairJson(text: string): string {
  const bare = withoutFence(text.replace(/^\uFEFF/, '').trim());
  const pieces: string[] = [];
  let inString = false;
  let from = 0;
  for (let i = 0; i < bare.length; i++) {
    const char = bare[i]!;
    if (inString) {
      if (char === '\\') i++;
      else if (char === '"') inString = false;
      else if (char < ' ') {
        pieces.push(bare.slice(from, i), JSON.stringify(char).slice(1, -1));
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

function withoutFence(text: string): string {
  if (!text.startsWith('```')) return text;
  const body = text.slice(3).replace(/^[a-zA-Z]+/, '');
  return (body.endsWith('```') ? body.slice(0, -3) : body).trim();
}

function closesNext(text: string, from: number): boolean {
  let i = from;
  while (i < text.length && ' \t\r\n'.includes(text[i]!)) i++;
  return text[i] === '}' || text[i] === ']';
}

/** In `{,}` a value is missing; the comma is not a trailing one. */
function opensBefore(text: string, from: number): boolean {
  let i = from;
  while (i >= 0 && ' \t\r\n'.includes(text[i]!)) i--;
  return text[i] === '{' || text[i] === '[';
}

// ── Checking ─────────────────────────────────────────────────────────────────────────────────────────────────────────

/** The check of a call before anything runs. `input` is the validated input for the tool. */
export interface Checked {
  readonly check: CallCheck;
  readonly input?: unknown;
}

const PASSED: CallCheck = {};

/** Parses and validates the arguments of a call. `cut`: the reply that contains the call was cut off. */
export function checkCall(
  tool: Tool,
  text: string,
  cut: boolean,
  matchPattern?: PatternMatcher,
): Checked | Promise<Checked> {
  if (tool.asWritten && !cut) return { check: PASSED };
  const parsed = parseArguments(text, cut);
  if (parsed.type === 'problem') return { check: { problem: parsed.problem } };
  const verdict = validate(tool.input, parsed.value, matchPattern);
  const { repaired } = parsed;
  if (!(verdict instanceof Promise)) return checkedInput(tool, repaired, verdict);
  return verdict.then(checkedInput.bind(undefined, tool, repaired));
}

/** A check by a validator that returns a promise. The promise may never settle, so the tool's timeout applies. */
export function checkWithin(
  check: Promise<Checked>,
  { timeoutMs }: Tool,
  { clock, toolTimeoutMs }: { readonly clock: Clock; readonly toolTimeoutMs: number },
): Promise<Checked> {
  const ms = typeof timeoutMs === 'number' ? timeoutMs : toolTimeoutMs;
  return settledWithin(check, ms, clock, () => {
    return { check: { problem: `The check of its arguments timed out after ${ms} ms.`, errorType: 'timeout' } };
  });
}

/** The result of code that may never settle its promise; `late` gives it after the time. */
export function settledWithin<T>(result: Promise<T>, ms: number, clock: Clock, late: () => T): Promise<T> {
  const timedOut = Promise.withResolvers<T>();
  const cancelTimer = clock.timer(ms, () => timedOut.resolve(late()));
  return Promise.race([result, timedOut.promise]).finally(cancelTimer);
}

function checkedInput(tool: Tool, repaired: string | undefined, validated: Validated): Checked {
  const repair = repaired !== undefined && { arguments: repaired };
  if (validated.type === 'invalid')
    return { check: { problem: argumentsProblem(tool, validated.problems), ...repair } };
  const input = validated.value;
  const recipient = tool.recipient && recipientOf(tool.recipient, input);
  if (repaired === undefined && !tool.resources && recipient === undefined) return { check: PASSED, input };
  try {
    const resources = tool.resources?.(input);
    if (resources && !areStrings(resources)) {
      void Promise.resolve(resources).catch(() => {});
      throw new Error('"resources" must return a list of strings');
    }
    return {
      check: { ...repair, ...(resources && { resources }), ...(recipient !== undefined && { recipient }) },
      input,
    };
  } catch (thrown) {
    const names = typeof tool.remembers === 'function' ? '"resources" or "remembers"' : '"resources"';
    return { check: { problem: `Its ${names} function failed: ${messageOf(thrown)}` } };
  }
}

function recipientOf(recipient: NonNullable<Tool['recipient']>, input: unknown): string | undefined {
  try {
    const found: unknown = recipient(input);
    return typeof found === 'string' ? found : undefined;
  } catch {
    return undefined;
  }
}

function areStrings(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((one) => typeof one === 'string');
}

/** A long list of wrong values has a problem for each of them, and a problem quotes names of the arguments. */
const MAX_PROBLEMS = 10;

export function argumentsProblem({ parameters }: Tool, problems: readonly string[]): string {
  const known = Object.keys(parameters['properties'] ?? {});
  const required = areStrings(parameters['required']) ? parameters['required'] : [];
  const optional = known.filter((name) => !required.includes(name));
  const signature = [
    required.length > 0 && `Required: ${required.join(', ')}.`,
    optional.length > 0 && `Optional: ${optional.join(', ')}.`,
  ].filter(Boolean);
  const shown = problems.slice(0, MAX_PROBLEMS).map(shortened);
  if (problems.length > MAX_PROBLEMS) shown.push(`and ${problems.length - MAX_PROBLEMS} more`);
  return ['Its arguments are not valid:', `${shown.join('; ')}.`, ...signature].join(' ');
}

// ── Executing ────────────────────────────────────────────────────────────────────────────────────────────────────────

export interface Execution extends Omit<ToolContext, 'signal' | 'ask' | 'hold' | 'offer' | 'startRun' | 'traceparent'> {
  readonly tool: Tool;
  /** Absent: the tool is not called by a run. */
  readonly host?: CallHost | undefined;
  /** The time of the last answer that the tool waited for; `Infinity` while it waits. The timeout counts from there. */
  resumedAt?: number | undefined;
  /** Validated. */
  readonly input: unknown;
  /** Absent: the tool remembers nothing. */
  readonly remembered?: Remembered | undefined;
  /** For the schema of its output. */
  readonly matchPattern?: PatternMatcher | undefined;
  readonly timeoutMs: number;
  readonly clock: Clock;
}

/** The keys of the run's memory that a call gets, and their values before the call. */
export interface Remembered {
  readonly keys: readonly string[];
  readonly before: Memory;
}

/** What the tools of a run may use while they run; the same for all calls of the run. */
export interface CallHost {
  readonly ask: (call: RunningCall, question: string | QuestionOptions) => Promise<unknown>;
  /** The questions of the call with this key. */
  readonly asked: (key: string) => ToolContext['asked'];
  readonly hold: (call: RunningCall, request: HoldRequest) => Promise<Held<unknown>>;
  readonly offer: (tools: readonly Tool[], signal: AbortSignal) => Promise<void>;
  readonly traceparent?: ((key: string) => string | undefined) | undefined;
  readonly startRun?: ((call: RunningCall, run: NewRun) => Promise<StartedByCall>) | undefined;
}

/** A tool while it executes a call. The signal aborts when its result does not count any more. */
export interface RunningCall {
  readonly execution: Execution;
  readonly signal: AbortSignal;
}

/** `ask`, `hold` and others are getters, because most calls do not use them: they need no functions of their own for them. */
class CallContext implements ToolContext {
  readonly signal: AbortSignal;
  readonly key: string;
  readonly lease: number | undefined;
  readonly report: ToolContext['report'];
  readonly context: unknown;
  readonly principal: ToolContext['principal'];
  readonly narrowedBy: ToolContext['narrowedBy'];
  readonly narrowedRules: ToolContext['narrowedRules'];
  readonly run: ToolContext['run'];
  readonly memory: ToolContext['memory'];
  readonly parked: ToolContext['parked'];
  readonly recipient: ToolContext['recipient'];
  readonly #execution: Execution;
  readonly #mayAsk: boolean;

  constructor(execution: Execution, { takesEffect }: Mode, { signal, report }: Pick<ToolContext, 'signal' | 'report'>) {
    this.signal = signal;
    this.key = execution.key;
    this.lease = execution.lease;
    this.report = report;
    this.context = execution.context;
    this.principal = execution.principal;
    this.narrowedBy = execution.narrowedBy;
    this.narrowedRules = execution.narrowedRules;
    this.run = execution.run;
    this.memory = execution.memory;
    this.parked = execution.parked;
    this.recipient = execution.recipient;
    this.#execution = execution;
    this.#mayAsk = takesEffect;
  }

  get ask(): ToolContext['ask'] {
    const execution = this.#execution;
    const mayAsk = this.#mayAsk;
    const { signal } = this;
    const ask = async (question: string | QuestionOptions): Promise<unknown> => {
      if (!execution.host || !mayAsk) throw new Error('Only a call of a run can ask, and not in "verify".');
      return execution.host.ask({ execution, signal }, question);
    };
    return ask as ToolContext['ask'];
  }

  get traceparent(): string | undefined {
    return this.#execution.host?.traceparent?.(this.key);
  }

  get startRun(): ToolContext['startRun'] {
    const execution = this.#execution;
    const start = this.#mayAsk ? execution.host?.startRun : undefined;
    return start && ((run) => start({ execution, signal: this.signal }, run));
  }

  get asked(): ToolContext['asked'] {
    return this.#execution.host?.asked(this.key);
  }

  get hold(): ToolContext['hold'] {
    const execution = this.#execution;
    const { signal } = this;
    return async (name, open, close, options) => {
      if (!execution.host) throw new TreadleError('no-run', 'Only a call of a run can hold a resource.');
      const request = { ...options, name, open, close } as HoldRequest;
      return execution.host.hold({ execution, signal }, request) as never;
    };
  }

  get offer(): ToolContext['offer'] {
    const { host } = this.#execution;
    const { signal } = this;
    return async (tools) => {
      if (!host) throw new TreadleError('no-run', 'Only a call of a run can offer tools.');
      return host.offer(tools, signal);
    };
  }
}

/** The end of a call: a result, `Parked` if it continues elsewhere, `Broken` if its own run cannot be driven. */
export type Settled = SettledResult | Parked | Broken;

export interface Running {
  /** Never rejects. Not a promise if the tool returned its result synchronously. */
  readonly result: Settled | Promise<Settled>;
  /** Aborts the signal of the tool and settles the result without waiting for the tool. */
  readonly abort: (reason?: unknown) => void;
}

/**
 * Runs a tool once. There is always a result: a thrown error, a value without a JSON form, an output that its schema
 * rejects and a timeout are error results. The timeout does not need the cooperation of the tool. A `once` tool that timed
 * out may have taken effect: if its `verify` reports that it did, the result is the one that `verify` returns.
 */
export function executeTool(execution: Execution): Running {
  return invokeTool(execution, EXECUTE);
}

/** Asks a tool whether an earlier call of it took effect, with the same timeout. If that fails: `unknown`. */
export function verifyTool(execution: Execution): Running {
  return invokeTool(execution, VERIFY);
}

interface Mode {
  readonly call: (execution: Execution, context: ToolContext) => unknown;
  readonly settle: (execution: Execution, value: unknown) => Settled | Promise<Settled>;
  readonly fail: (why: string, facts?: ErrorFacts) => SettledResult;
  /** A timeout leaves open whether the call took effect, unless the tool may run again. */
  readonly takesEffect: boolean;
}

const EXECUTE: Mode = {
  call: ({ tool, input }, context) => tool.execute!(input, context),
  settle: settleExecution,
  fail: errorResult,
  takesEffect: true,
};

const VERIFY: Mode = {
  call: ({ tool, input }, context) => tool.verify!(input, context),
  settle({ tool }, answer) {
    if (answer instanceof Parked) return answer;
    const { type } = answer as { type: unknown };
    if (type === 'done') return resultOf(tool.name, (answer as { result: unknown }).result);
    return { type: type === 'not-done' ? 'not-done' : 'unknown' };
  },
  fail: () => ({ type: 'unknown' }),
  takesEffect: false,
};

function invokeTool(execution: Execution, mode: Mode): Running {
  const controller = new AbortController();
  let ended = false;
  const report = (progress: unknown): void => {
    if (!ended) execution.report(progress);
  };
  try {
    const value = mode.call(execution, new CallContext(execution, mode, { signal: controller.signal, report }));
    if (isAsync(value)) return awaitTool(execution, mode, controller, value, () => (ended = true));
    const result = mode.settle(execution, value);
    if (result instanceof Promise) {
      return awaitTool(execution, { ...mode, settle: alreadySettled }, controller, result, () => (ended = true));
    }
    ended = true;
    return { result, abort: ignoreAbort };
  } catch (thrown) {
    ended = true;
    return { result: toolFailed(execution, mode, thrown), abort: ignoreAbort };
  }
}

function ignoreAbort(): void {}

function toolFailed({ tool }: Execution, { fail }: Mode, thrown: unknown): SettledResult {
  return fail(`The tool "${tool.name}" failed: ${messageOf(thrown)}`, errorFactsOf(thrown));
}

/** Waits for an asynchronous tool until its timeout. After `onEnd` the progress and the value of the tool are ignored. */
function awaitTool(
  execution: Execution,
  mode: Mode,
  controller: AbortController,
  value: unknown,
  onEnd: () => void,
): Running {
  const { tool, timeoutMs, clock, report } = execution;
  const { promise, resolve } = Promise.withResolvers<Settled>();
  let ended = false;
  let verification: Running | undefined;
  const end = (result: Settled | Promise<Settled>): void => {
    ended = true;
    onEnd();
    cancelTimer();
    resolve(result);
  };
  const stop = (why: string, facts: ErrorFacts, reason?: unknown): void => {
    end(mode.fail(`The tool "${tool.name}" ${why}`, facts));
    controller.abort(reason);
  };
  const timeOut = (): void => {
    const { resumedAt } = execution;
    const left = resumedAt === undefined ? 0 : Math.min(timeoutMs, resumedAt + timeoutMs - clock.now());
    if (left > 0) {
      cancelTimer();
      cancelTimer = clock.timer(left, timeOut);
      return;
    }
    const problem = timeoutProblem(execution);
    if (!mode.takesEffect || tool.effect !== 'once' || !tool.verify) return stop(problem, TIMEOUT);
    ended = true;
    onEnd();
    controller.abort();
    verification = verifyTool(execution);
    end(doneOr(verification.result, mode.fail(`The tool "${tool.name}" ${problem}`, TIMEOUT)));
  };
  let cancelTimer = clock.timer(timeoutMs, timeOut);
  const due = clock.now() + timeoutMs;
  // An iterable that yields without ever waiting keeps the timer from firing, so each item checks the time.
  const onItem = (progress: unknown): void => {
    if (ended) return;
    if (clock.now() >= due) timeOut();
    if (!ended) report(progress);
  };
  void drain(value, onItem, controller.signal)
    .then((drained) => mode.settle(execution, drained))
    .catch((thrown) => toolFailed(execution, mode, thrown))
    .then(end);
  const abort = (reason?: unknown): void => {
    verification?.abort(reason);
    stop('was stopped.', INTERRUPTED, reason);
  };
  return { result: promise, abort };
}

/** What timed out, and what the model can do. A tool with the argument `timeout_ms` may allow more time. */
function timeoutProblem({ tool, input, timeoutMs }: Execution): string {
  const { timeout_ms: time } = (tool.parameters['properties'] ?? {}) as Readonly<Record<string, { maximum?: number }>>;
  const longest = time?.maximum ?? 0;
  const longer = longest > timeoutMs ? ` with a larger timeout_ms, at most ${longest}` : '';
  const timedOut = `timed out after ${timeoutMs} ms`;
  const args = argumentsText(input);
  if (tool.effect === 'once') {
    return `${timedOut}, and it is not known whether it took effect.${args} Find out before you call it again${longer}.`;
  }
  const instead = longer ? `Call it again${longer}, or ask` : 'Ask';
  return `${timedOut}.${args} ${instead} for less, try another way, or say what could not be done.`;
}

function argumentsText(input: unknown): string {
  try {
    const text = JSON.stringify(input) ?? '{}';
    return text === '{}' ? '' : ` Arguments: ${shortened(text)}.`;
  } catch {
    return '';
  }
}

const TIMEOUT: ErrorFacts = { errorType: 'timeout' };
const INTERRUPTED: ErrorFacts = { errorType: 'interrupted' };

/**
 * The result of a call that a verification found done, or parks. The tool may still be running, so `not-done` proves
 * nothing.
 */
async function doneOr(verified: Settled | Promise<Settled>, unknown: SettledResult): Promise<Settled> {
  const answer = await verified;
  if (answer instanceof Parked) return answer;
  return 'type' in answer && answer.type === 'result' ? answer : unknown;
}

const alreadySettled: Mode['settle'] = (_, result) => result as Settled;

function settleExecution({ tool, matchPattern }: Execution, value: unknown): Settled | Promise<Settled> {
  if (value instanceof Parked || value instanceof Broken) return value;
  if (value instanceof Finished) return value.result;
  if (!tool.output) return resultOf(tool.name, value);
  const verdict = validate(tool.output, value, matchPattern);
  const toResult = (validated: Validated): SettledResult =>
    validated.type === 'valid'
      ? resultOf(tool.name, validated.value)
      : errorResult(
          `The tool "${tool.name}" returned a value that does not match its output schema: ${validated.problems.join('; ')}`,
        );
  return verdict instanceof Promise ? verdict.then(toResult) : toResult(verdict);
}

function isAsync(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return typeof (value as PromiseLike<unknown>).then === 'function' || Symbol.asyncIterator in value;
}

/** Awaits a promise, and reads an async iterable until its end or the abort. Each item goes to `onItem`. */
async function drain(value: unknown, onItem: (progress: unknown) => void, signal: AbortSignal): Promise<unknown> {
  const awaited = await value;
  if (typeof awaited !== 'object' || awaited === null || !(Symbol.asyncIterator in awaited)) return awaited;
  const items: unknown[] = [];
  const iterator = (awaited as AsyncIterable<unknown>)[Symbol.asyncIterator]();
  // Lets the iterator release what it holds, such as a file or a connection.
  const close = async (): Promise<unknown> => iterator.return?.();
  signal.addEventListener('abort', () => void close().catch(() => {}), { once: true });
  while (!signal.aborted) {
    const next = await iterator.next();
    if (!next.done) {
      items.push(next.value);
      onItem(next.value);
    } else if (next.value !== undefined) return next.value;
    else break;
  }
  return items.every((item) => typeof item === 'string') ? items.join('') : items.at(-1);
}
