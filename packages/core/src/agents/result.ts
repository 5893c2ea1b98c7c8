import type { LoopResult } from '../driver/options.ts';
import type { Limit, Outcome, Rejection, Waiting } from '../machine/state.ts';
import { textOf, type Message } from '../messages.ts';
import type { ValidationFailure } from './define.ts';
import { failureText } from './validation.ts';

export type ExecuteResult<Output, Final = unknown> = ExecuteSuccess<Output, Final> | ExecuteFailure;

export interface ExecuteSuccess<Output, Final = unknown> {
  readonly type: 'success';
  /** Validated. May be any value that the schema takes, also `0`, `''`, `false` or `null`. */
  readonly output: Output;
  /** What `projectFinalState` gave; absent if there is none, or if that was nothing. */
  readonly finalState?: Final;
  readonly metadata: ExecuteMetadata;
  /** The whole conversation, as the model has it: every call has its result. */
  readonly messages: readonly Message[];
}

export interface ExecuteFailure {
  readonly type: 'failure';
  readonly error: AgentError;
  readonly metadata: ExecuteMetadata;
  /** What there was of the conversation. */
  readonly messages: readonly Message[];
}

/** Over all iterations and attempts, also those before a crash. */
export interface ExecuteMetadata {
  readonly runId: string;
  /** Attempts begun; 0 if the model was never asked. */
  readonly attempts: number;
  /** Model calls. */
  readonly iterations: number;
  /** Absent when `trackTokens` is off. */
  readonly tokens?: Tokens;
  /** In US dollars; absent when a price is unknown, or `trackTokens` is off. */
  readonly cost?: number;
  /** Time that the run worked, without pauses and crashes; absent when `trackLatency` is off. */
  readonly latencyMs?: number;
  /** By name, how often each tool was called and how many of its results were errors. */
  readonly tools: Readonly<Record<string, ToolCount>>;
  /** What callbacks threw or rejected with, in order. */
  readonly callbackErrors: readonly CallbackError[];
}

/** What a model does not tell is absent. */
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

/** Where in a run something happened. */
export interface At {
  readonly attempt: number;
  readonly iteration: number;
}

type SpentLimit = Exclude<Limit, 'turns' | 'attempts' | 'errors' | 'repetition'>;

interface ErrorContexts {
  /** An attempt spent its iterations without an output. */
  MAX_ITERATIONS: { readonly attempt: number; readonly iterationCount: number; readonly maxIterations: number };
  SUBMIT_BEFORE_OUTPUT: At;
  /** No tool was called; `text` is what the model said instead. */
  INVALID_RESPONSE: At & { readonly text: string };
  MAX_ATTEMPTS_EXCEEDED: { readonly attempts: number; readonly lastError: ValidationFailure };
  /** `during`: what was under way in an iteration. */
  EXECUTION_CANCELLED: At & {
    readonly phase: 'prompt' | 'iteration' | 'validation';
    readonly during?: 'model' | 'tool';
  };
  /** One of `limits` was met, or cannot be held because the model does not tell what it uses. */
  LIMIT_EXCEEDED: At & { readonly limit: SpentLimit };
  /** The model failed; `code` is its own. With a journal, executing the run again asks it again. */
  API_ERROR: At & { readonly code: string };
  PROMPT_FAILED: { readonly prompt: 'system' | 'user' | 'error' };
  STATE_PROJECTION_FAILED: At;
  /** It waits for somebody: executing it again with `answers` goes on. */
  EXECUTION_PAUSED: At & { readonly waiting: readonly Waiting[] };
}

export type AgentErrorCode = keyof ErrorContexts;

/** Told apart by `code`, which says what `context` is. */
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

/** Why a run gave no output. */
export function errorOf(result: LoopResult, at: At, maxIterations: number, aborted: boolean): AgentError {
  const { outcome, waiting } = result;
  switch (outcome?.type) {
    case undefined:
    case 'completed': // not without an output
      return agentError('EXECUTION_PAUSED', 'The run is paused. Execute it again with answers.', { ...at, waiting });
    case 'exhausted':
      return exhausted(outcome.limit, result, at, maxIterations);
    case 'failed':
      // A model may notice that its own signal aborted before the run does.
      if (aborted && outcome.error.code === 'cancelled') return cancelled('model', at);
      return failed(outcome.error, result, at);
    case 'cancelled':
      return cancelled(outcome.phase, at);
    default:
      return outcome satisfies never;
  }
}

function exhausted(limit: Limit, { agent }: LoopResult, at: At, maxIterations: number): AgentError {
  const { attempt, iteration: iterationCount } = at;
  if (limit === 'turns') {
    const message = `Attempt ${attempt} gave no output within ${maxIterations} iterations.`;
    return agentError('MAX_ITERATIONS', message, { attempt, iterationCount, maxIterations });
  }
  if (limit !== 'attempts') {
    // Neither errors nor repetition are limits of an agent.
    return agentError('LIMIT_EXCEEDED', `The run met its limit of ${limit}.`, { ...at, limit: limit as SpentLimit });
  }
  const lastError = told(agent!.rejection!);
  const message = `No output was accepted in ${attempt} ${attempt === 1 ? 'attempt' : 'attempts'}. ${lastError.message}`;
  return agentError('MAX_ATTEMPTS_EXCEEDED', message, { attempts: attempt, lastError });
}

function told(rejection: Rejection): ValidationFailure {
  return { ...rejection, message: failureText(rejection) };
}

type Failure = Extract<Outcome, { type: 'failed' }>['error'];

function failed({ code, message }: Failure, { messages }: LoopResult, at: At): AgentError {
  switch (code) {
    case 'submit-before-output':
      return agentError('SUBMIT_BEFORE_OUTPUT', message, at);
    case 'no-tool-called': {
      const last = messages.at(-1);
      return agentError('INVALID_RESPONSE', message, {
        ...at,
        text: last?.role === 'assistant' ? textOf(last.content) : '',
      });
    }
    case 'prompt-failed':
      return agentError('PROMPT_FAILED', message, { prompt: 'error' });
    case 'tokens-unknown':
    case 'cost-unknown':
      return agentError('LIMIT_EXCEEDED', message, { ...at, limit: code === 'tokens-unknown' ? 'tokens' : 'cost' });
    default:
      return agentError('API_ERROR', message, { ...at, code });
  }
}

function cancelled(phase: Extract<Outcome, { type: 'cancelled' }>['phase'], at: At): AgentError {
  const message = 'The execution was cancelled.';
  if (phase === 'validation') return agentError('EXECUTION_CANCELLED', message, { ...at, phase });
  const during = phase === 'model' ? 'model' : 'tool';
  return agentError('EXECUTION_CANCELLED', message, { ...at, phase: 'iteration', during });
}
