import type { Clock } from '../platform.ts';
import { messageOf } from '../errors.ts';
import { turnsUsed } from '../machine/step.ts';
import type { Item } from '../journal/items.ts';
import type { Listener } from '../driver/shell.ts';
import type { State } from '../machine/state.ts';
import { textOf, type ToolCall } from '../messages.ts';
import type { AnyAgent, ValidationFailure } from './define.ts';
import { failureText, parseOutput } from './output.ts';
import type { AgentError, CallbackError, Position } from './result.ts';
import { submitName } from './tools.ts';

/** The progress of an execution. */
export interface ExecutionState {
  /** From 1. */
  readonly attempt: number;
  readonly maxAttempts: number;
  /** Of this attempt, from 1; 0 before the first model call. */
  readonly iteration: number;
  /** Per attempt: `maxIterationsPerAttempt`. */
  readonly maxIterations: number;
}

/**
 * Called in order, as things happen. An execution ends with exactly one `onSuccess` or `onFailure`. The run does not wait
 * for returned promises; the result of the execution does, for at most 5 seconds. Errors that callbacks throw or reject
 * with are collected in `metadata.callbackErrors` and have no other effect. A resumed run reports only new events.
 */
export interface ExecuteCallbacks<Output> {
  /** Before the first model call of an attempt. */
  onAttemptStart?(state: ExecutionState): unknown;
  /** For every attempt with a model call: after its validation, or when the run ends without one. */
  onAttemptComplete?(state: ExecutionState, how: AttemptEnd): unknown;
  /**
   * Before a helper or the reflection runs, and for a submit. Also for a refused call, such as one of an unknown tool.
   * `toolInput` is the input from the model, not validated. Without reflection, not called for the output tool.
   */
  onToolCall?(state: ExecutionState, toolName: string, toolInput: unknown): unknown;
  /** Once for each `onToolCall`. The result as the model gets it, including errors. */
  onToolResult?(state: ExecutionState, toolName: string, toolResult: string): unknown;
  /** The output was rejected, also in the last attempt. */
  onValidationFailure?(state: ExecutionState, failure: ValidationFailure): unknown;
  onSuccess?(state: ExecutionState, output: Output): unknown;
  /** Also when a limit is reached, and when the execution is cancelled or paused. */
  onFailure?(state: ExecutionState, error: AgentError): unknown;
}

/** `stopped`: ended without a verdict on an output, by a limit, a failure, a cancellation or a pause. */
export type AttemptEnd = 'accepted' | 'rejected' | 'stopped';

export interface CallbackDispatcher {
  /** Takes every item of the run and invokes the callbacks for it. */
  readonly onItem: Listener;
  readonly state: () => ExecutionState;
  /** Completes the open attempt and invokes `onSuccess`. */
  readonly succeed: (position: Position, output: unknown) => void;
  /** Completes the open attempt and invokes `onFailure`. */
  readonly fail: (position: Position, error: AgentError) => void;
  /** The errors of all callbacks. Waits for pending promises, for at most `PATIENCE_MS`. */
  readonly errors: () => Promise<readonly CallbackError[]>;
}

/** The limits are those that the run was started with; the agent may have changed since. */
export interface DispatcherOptions extends Pick<ExecutionState, 'maxAttempts' | 'maxIterations'> {
  readonly clock: Clock;
}

const PATIENCE_MS = 5_000;

/** Translates the items of a run into callbacks. */
export function callbackDispatcher(
  agent: AnyAgent,
  callbacks: ExecuteCallbacks<never>,
  { clock, maxAttempts, maxIterations }: DispatcherOptions,
): CallbackDispatcher {
  const errors: CallbackError[] = [];
  const pending = new Map<Promise<unknown>, string>();
  const startedCalls = new Set<string>();
  let position: Position = { attempt: 1, iteration: 0 };
  /** The end of the open attempt so far; undefined if no attempt is open. */
  let attemptEnd: AttemptEnd | undefined;

  const state = (): ExecutionState => ({
    attempt: position.attempt,
    maxAttempts,
    iteration: position.iteration,
    maxIterations,
  });

  function invoke<Name extends keyof ExecuteCallbacks<never>>(name: Name, ...args: unknown[]): void {
    const callback = callbacks[name] as ((...args: unknown[]) => unknown) | undefined;
    if (!callback) return;
    const callbackFailed = (thrown: unknown): void => void errors.push({ callback: name, message: messageOf(thrown) });
    try {
      const returned = callback.call(callbacks, ...args);
      if (typeof (returned as PromiseLike<unknown> | undefined)?.then !== 'function') return;
      const promise = Promise.resolve(returned);
      pending.set(promise, name);
      promise.catch(callbackFailed).finally(() => pending.delete(promise));
    } catch (thrown) {
      callbackFailed(thrown);
    }
  }

  function completeAttempt(): void {
    if (attemptEnd) invoke('onAttemptComplete', state(), attemptEnd);
    attemptEnd = undefined;
  }

  function onItem(item: Item, before?: State, after?: State): void {
    if (!before || !after) return;
    switch (item.type) {
      case 'turn-started':
        if (attemptEnd !== 'stopped') completeAttempt();
        position = positionOf(after);
        attemptEnd = 'stopped';
        if (position.iteration === 1 && before.turn !== after.turn) invoke('onAttemptStart', state());
        return;
      case 'call-started':
        position = positionOf(after);
        attemptEnd = 'stopped';
        return callStarted(item.call);
      case 'call-answered':
        position = positionOf(before);
        callStarted(item.call);
        if (isReported(item.call)) invoke('onToolResult', state(), item.call.name, textOf(item.result.content));
        return;
      case 'fact':
        if (item.event.type !== 'output-checked') return;
        position = positionOf(before);
        if (item.event.result.type === 'valid') attemptEnd = 'accepted';
        else {
          const { problems, validator } = item.event.result;
          const failure = { problems, ...(validator !== undefined && { validator }) };
          const output = outputIn(before);
          invoke('onValidationFailure', state(), { ...failure, ...output, message: failureText(failure) });
          attemptEnd = 'rejected';
        }
    }
  }

  /** Without reflection the output tool is not executed; its validation has callbacks of its own. */
  function isReported({ name }: ToolCall): boolean {
    return name !== agent.tools.output.name || submitName(agent) !== undefined;
  }

  /** A refused call is answered without having been started. */
  function callStarted(call: ToolCall): void {
    if (startedCalls.has(call.id)) return;
    startedCalls.add(call.id);
    if (isReported(call)) invoke('onToolCall', state(), call.name, inputOf(call));
  }

  const endAt = (last: Position): void => {
    completeAttempt();
    position = last;
  };
  return {
    onItem,
    state,
    succeed(last, output) {
      endAt(last);
      invoke('onSuccess', state(), output);
    },
    fail(last, error) {
      endAt(last);
      invoke('onFailure', state(), error);
    },
    async errors() {
      if (pending.size > 0) {
        const { promise: late, resolve } = Promise.withResolvers<void>();
        const cancelTimer = clock.timer(PATIENCE_MS, resolve);
        await Promise.race([late, Promise.allSettled(pending.keys())]);
        // The handlers that remove the promises were registered first, but run one microtask later.
        await Promise.resolve();
        cancelTimer();
      }
      for (const name of pending.values())
        errors.push({ callback: name, message: `Its promise was not settled after ${PATIENCE_MS} ms.` });
      return [...errors];
    },
  };
}

function positionOf(state: State): Position {
  return { attempt: state.agent?.attempt ?? 1, iteration: turnsUsed(state) };
}

/** The output that is being validated, as the model gave it. */
function outputIn({ phase }: State): { readonly output?: unknown } {
  if (phase.type !== 'validating') return {};
  const parsed = parseOutput(phase.text);
  return 'value' in parsed ? { output: parsed.value } : {};
}

/** The parsed arguments, or their text if they are not JSON. */
function inputOf({ arguments: text }: ToolCall): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
