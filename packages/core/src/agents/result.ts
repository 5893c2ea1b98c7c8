import type { LoopResult } from '../driver/options.ts';
import { RunError, type Problem } from '../errors.ts';
import type { AgentState, Limit, Outcome, Waiting } from '../machine/state.ts';
import { textOf, type Message } from '../messages.ts';
import type { AnyAgent, ValidationFailure } from './define.ts';
import { failureText } from './output.ts';
import { submitName } from './tools.ts';

export type ExecuteResult<Output, Final = unknown> = ExecuteSuccess<Output, Final> | ExecuteFailure;

export interface ExecuteSuccess<Output, Final = unknown> {
  readonly type: 'success';
  /** Validated. Any value that the schema accepts, including `0`, `''`, `false` and `null`. */
  readonly output: Output;
  /** The return value of `projectFinalState`; absent if that is undefined or the agent has none. */
  readonly finalState?: Final;
  readonly metadata: ExecuteMetadata;
  /** The whole conversation as the model sees it: every call has its result. */
  readonly messages: readonly Message[];
  /** This result. */
  orThrow(): ExecuteSuccess<Output, Final>;
}

export interface ExecuteFailure {
  readonly type: 'failure';
  readonly error: AgentError;
  readonly metadata: ExecuteMetadata;
  /** The conversation up to the failure. */
  readonly messages: readonly Message[];
  /** Throws a `RunError` with the code and the message of `error`, and with the id of the run. */
  orThrow(): never;
}

/** The method of results. On their prototype, so that a result is still plain data for copies and comparisons. */
const RESULT = {
  orThrow(this: ExecuteResult<unknown>) {
    if (this.type === 'failure') throw new RunError(this.metadata.runId, this.error, this.error);
    return this;
  },
};

/** Adds `orThrow` to the facts about an execution. */
export function executeResult(
  facts: Omit<ExecuteSuccess<unknown>, 'orThrow'> | Omit<ExecuteFailure, 'orThrow'>,
): ExecuteResult<unknown> {
  return Object.assign(Object.create(RESULT) as ExecuteResult<unknown>, facts);
}

/** Covers all iterations and attempts, including those before a crash. */
export interface ExecuteMetadata {
  readonly runId: string;
  /** Attempts started; 0 if the model was never called. */
  readonly attempts: number;
  /** Model calls. */
  readonly iterations: number;
  /** Absent when `trackTokens` is off. */
  readonly tokens?: Tokens;
  /** In US dollars; absent when a price is unknown or `trackTokens` is off. */
  readonly cost?: number;
  /** Time that the run worked, without pauses and downtime; absent when `trackLatency` is off. */
  readonly latencyMs?: number;
  /** Calls and error results of each tool, by name. */
  readonly tools: Readonly<Record<string, ToolCount>>;
  /** Errors thrown by callbacks, in order. */
  readonly callbackErrors: readonly CallbackError[];
}

/** A count that the model does not report is absent. */
export interface Tokens {
  readonly input: number;
  readonly output: number;
  /** Parts of `input`. */
  readonly cacheRead?: number;
  readonly cacheWrite?: number;
  /** Part of `output`. */
  readonly reasoning?: number;
}

export interface ToolCount {
  readonly calls: number;
  readonly errors: number;
}

export interface CallbackError {
  readonly callback: string;
  readonly message: string;
}

/** The attempt and iteration of a run at which something happened. */
export interface Position {
  readonly attempt: number;
  readonly iteration: number;
}

type SpentLimit = Exclude<Limit, 'turns' | 'attempts' | 'errors' | 'repetition'>;

interface ErrorContexts {
  /** An attempt used all its iterations without an output. */
  MAX_ITERATIONS: { readonly attempt: number; readonly iterationCount: number; readonly maxIterations: number };
  SUBMIT_BEFORE_OUTPUT: Position;
  /** The model called no tool; `text` is its reply. */
  INVALID_RESPONSE: Position & { readonly text: string };
  MAX_ATTEMPTS_EXCEEDED: { readonly attempts: number; readonly lastError: ValidationFailure };
  /** `during`: what was in progress in the iteration. */
  EXECUTION_CANCELLED: Position & {
    readonly phase: 'prompt' | 'iteration' | 'validation';
    readonly during?: 'model' | 'tool';
  };
  /** A limit or a budget was reached, or a limit cannot be enforced because the model does not report its usage. */
  LIMIT_EXCEEDED: Position & { readonly limit: SpentLimit };
  /** The model failed with `code`. With a journal, executing the run again repeats the model call. */
  API_ERROR: Position & { readonly code: string };
  PROMPT_FAILED: { readonly prompt: 'system' | 'user' | 'error' };
  STATE_PROJECTION_FAILED: Position;
  /** The run waits for an answer. Executing it again with `answers` resumes it. */
  EXECUTION_PAUSED: Position & { readonly waiting: readonly Waiting[] };
}

export type AgentErrorCode = keyof ErrorContexts;

/** Discriminated by `code`, which determines the type of `context`. */
export type AgentError = {
  [Code in AgentErrorCode]: { readonly code: Code; readonly message: string; readonly context: ErrorContexts[Code] };
}[AgentErrorCode];

export function agentError<Code extends AgentErrorCode>(
  code: Code,
  message: string,
  context: ErrorContexts[Code],
): AgentError {
  return { code, message, context } as AgentError;
}

export function lastPosition({ agent, turns }: LoopResult): Position {
  return { attempt: agent?.attempt ?? 1, iteration: turns - (agent?.from ?? 0) };
}

/** The error of a run without an output. `aborted`: the signal of the execution has aborted. */
export function agentErrorOf(result: LoopResult, maxIterations: number, aborted: boolean): AgentError {
  const { outcome, waiting } = result;
  const position = lastPosition(result);
  switch (outcome?.type) {
    case undefined:
    case 'completed': // not without an output
      return agentError('EXECUTION_PAUSED', 'The run is paused. Execute it again with answers.', {
        ...position,
        waiting,
      });
    case 'exhausted':
      return limitError(outcome.limit, result, maxIterations);
    case 'failed':
      // A model may notice the abort before the run does.
      if (aborted && outcome.error.code === 'cancelled') return cancelledError('model', position);
      return failedRunError(outcome.error, result);
    case 'cancelled':
      return cancelledError(outcome.phase, position);
    default:
      return outcome satisfies never;
  }
}

function limitError(limit: Limit, result: LoopResult, maxIterations: number): AgentError {
  const position = lastPosition(result);
  const { attempt, iteration: iterationCount } = position;
  if (limit === 'turns') {
    const message = `Attempt ${attempt} gave no output within ${maxIterations} iterations.`;
    return agentError('MAX_ITERATIONS', message, { attempt, iterationCount, maxIterations });
  }
  if (limit !== 'attempts') {
    // The limits of errors and repetition are off for agents.
    const spent = limit as SpentLimit;
    return agentError('LIMIT_EXCEEDED', `The run reached its limit of ${limit}.`, { ...position, limit: spent });
  }
  const rejection = result.agent!.rejection!;
  const lastError = { ...rejection, message: failureText(rejection) };
  const message = `No output was accepted in ${attempt} ${attempt === 1 ? 'attempt' : 'attempts'}. ${lastError.message}`;
  return agentError('MAX_ATTEMPTS_EXCEEDED', message, { attempts: attempt, lastError });
}

function failedRunError({ code, message }: Problem, result: LoopResult): AgentError {
  const position = lastPosition(result);
  switch (code) {
    case 'submit-before-output':
      return agentError('SUBMIT_BEFORE_OUTPUT', message, position);
    case 'no-tool-called': {
      const last = result.messages.at(-1);
      const text = last?.role === 'assistant' ? textOf(last.content) : '';
      return agentError('INVALID_RESPONSE', message, { ...position, text });
    }
    case 'prompt-failed':
      return agentError('PROMPT_FAILED', message, { prompt: 'error' });
    case 'tokens-unknown':
    case 'cost-unknown': {
      const limit = code === 'tokens-unknown' ? 'tokens' : 'cost';
      return agentError('LIMIT_EXCEEDED', message, { ...position, limit });
    }
    default:
      return agentError('API_ERROR', message, { ...position, code });
  }
}

function cancelledError(phase: Extract<Outcome, { type: 'cancelled' }>['phase'], position: Position): AgentError {
  const message = 'The execution was cancelled.';
  if (phase === 'validation') return agentError('EXECUTION_CANCELLED', message, { ...position, phase });
  const during = phase === 'model' ? 'model' : 'tool';
  return agentError('EXECUTION_CANCELLED', message, { ...position, phase: 'iteration', during });
}

// ── Metadata ─────────────────────────────────────────────────────────────────────────────────────────────────────────

export function metadataOf(
  agent: AnyAgent,
  { runId, turns, usage, durationMs, messages, agent: progress }: LoopResult,
  callbackErrors: readonly CallbackError[],
): ExecuteMetadata {
  const { trackTokens = true, trackLatency = true } = agent.observability ?? {};
  const { inputTokens: input, outputTokens: output, cost } = usage;
  const parts = { cacheRead: usage.cachedTokens, cacheWrite: usage.cacheWriteTokens, reasoning: usage.reasoningTokens };
  return {
    runId,
    attempts: attemptsStarted(turns, progress),
    iterations: turns,
    ...(trackTokens && { tokens: { input, output, ...withoutUndefined(parts) }, ...withoutUndefined({ cost }) }),
    ...(trackLatency && { latencyMs: durationMs }),
    tools: toolCounts(messages, submitName(agent) ?? agent.tools.output.name),
    callbackErrors,
  };
}

/** Drops the properties that are undefined: `exactOptionalPropertyTypes` distinguishes them from absent ones. */
export function withoutUndefined<T extends object>(value: T): { [Key in keyof T]?: Exclude<T[Key], undefined> } {
  return Object.fromEntries(Object.entries(value).filter(([, one]) => one !== undefined)) as never;
}

/** An attempt without a model call, because a limit was reached before, does not count. */
function attemptsStarted(turns: number, progress: AgentState | undefined): number {
  if (!progress) return 0;
  return turns === progress.from ? progress.attempt - 1 : progress.attempt;
}

/** Counted from the conversation, which a resumed run has in full. A rejection is not an error of the `ending` tool. */
function toolCounts(messages: readonly Message[], ending: string): Record<string, ToolCount> {
  const counts = new Map<string, ToolCount>();
  for (const { role, content } of messages) {
    if (role !== 'tool') continue;
    for (const { name, isError } of content) {
      const { calls, errors } = counts.get(name) ?? { calls: 0, errors: 0 };
      counts.set(name, { calls: calls + 1, errors: errors + (isError && name !== ending ? 1 : 0) });
    }
  }
  return Object.fromEntries(counts);
}
