import type { Clock } from '../platform.ts';
import { messageOf } from '../errors.ts';
import { turnsUsed } from '../machine/step.ts';
import type { Item } from '../journal/items.ts';
import type { Listener } from '../driver/shell.ts';
import type { State } from '../machine/state.ts';
import { textOf, type ToolCall } from '../messages.ts';
import type { ValidationFailure } from './define.ts';
import type { AgentError, At, CallbackError } from './result.ts';
import { submitName, type AnyAgent } from './tools.ts';
import { failureText, readOutput } from './validation.ts';

/** How far an execution is. */
export interface ExecutionState {
  /** From 1. */
  readonly attempt: number;
  readonly maxAttempts: number;
  /** Of this attempt, from 1; 0 before the model was asked. */
  readonly iteration: number;
  /** Per attempt: `maxIterationsPerAttempt`. */
  readonly maxIterations: number;
}

/**
 * Called as things happen, in order; one execution ends with exactly one `onSuccess` or `onFailure`. Nobody waits for
 * what they return before the execution goes on: the result waits for promises that are still open, for 5 seconds at
 * most. What they throw or reject with is collected in `metadata.callbackErrors` and changes nothing else. A run that is
 * gone on with tells only what happens from then on.
 */
export interface ExecuteCallbacks<Output> {
  /** Before the first model call of an attempt. */
  onAttemptStart?(state: ExecutionState): unknown;
  /** For every attempt in which the model was asked: after its validation, or when the run ends without one. */
  onAttemptComplete?(state: ExecutionState, how: AttemptEnd): unknown;
  /**
   * Before a helper or the reflection runs, and for a submit; also for a call that is refused, such as that of a tool that
   * does not exist. `toolInput` is what the model called it with, not validated. Without reflection, not for the output.
   */
  onToolCall?(state: ExecutionState, toolName: string, toolInput: unknown): unknown;
  /** Once for each `onToolCall`. The result as the model gets it, also of a tool that threw or does not exist. */
  onToolResult?(state: ExecutionState, toolName: string, toolResult: string): unknown;
  /** The output was rejected, also in the last attempt. */
  onValidationFailure?(state: ExecutionState, failure: ValidationFailure): unknown;
  onSuccess?(state: ExecutionState, output: Output): unknown;
  /** Also for limits, for being cancelled and for being paused. */
  onFailure?(state: ExecutionState, error: AgentError): unknown;
}

/** `stopped`: it ended without a verdict on an output, at a limit, by a failure, by being cancelled or paused. */
export type AttemptEnd = 'accepted' | 'rejected' | 'stopped';

export interface Follower {
  /** Takes every item of the run, and calls back what it means. */
  readonly follow: Listener;
  readonly state: (at?: At) => ExecutionState;
  /** The last word: closes the attempt that is open. */
  readonly succeed: (at: At, output: unknown) => void;
  readonly fail: (at: At, error: AgentError) => void;
  /** What went wrong in callbacks, once those that take their time are done, or have had enough of it. */
  readonly errors: () => Promise<readonly CallbackError[]>;
}

/** The limits are those that the run was started with: the agent may have others by now. */
export interface FollowerOptions extends Pick<ExecutionState, 'maxAttempts' | 'maxIterations'> {
  readonly clock: Clock;
}

const PATIENCE_MS = 5_000;

/** Follows a run from item to item and tells its story in callbacks. */
export function follower(
  agent: AnyAgent,
  callbacks: ExecuteCallbacks<never>,
  { clock, maxAttempts, maxIterations }: FollowerOptions,
): Follower {
  const errors: CallbackError[] = [];
  const open = new Map<Promise<unknown>, string>();
  const started = new Set<string>();
  let at: At = { attempt: 1, iteration: 0 };
  /** How the attempt went that is not completed yet: `stopped`, until there is more to tell. */
  let ending: AttemptEnd | undefined;

  const state = ({ attempt, iteration }: At = at): ExecutionState => ({
    attempt,
    maxAttempts,
    iteration,
    maxIterations,
  });

  function call<Name extends keyof ExecuteCallbacks<never>>(name: Name, ...given: unknown[]): void {
    const callback = callbacks[name] as ((...given: unknown[]) => unknown) | undefined;
    if (!callback) return;
    const failed = (thrown: unknown): void => void errors.push({ callback: name, message: messageOf(thrown) });
    try {
      const returned = callback.call(callbacks, ...given);
      if (typeof (returned as PromiseLike<unknown> | undefined)?.then !== 'function') return;
      const promise = Promise.resolve(returned);
      open.set(promise, name);
      promise.catch(failed).finally(() => open.delete(promise));
    } catch (thrown) {
      failed(thrown);
    }
  }

  function complete(): void {
    if (ending) call('onAttemptComplete', state(), ending);
    ending = undefined;
  }

  function follow(item: Item, before?: State, after?: State): void {
    if (!before || !after) return;
    switch (item.type) {
      case 'turn-started':
        if (ending !== 'stopped') complete();
        at = positionOf(after);
        ending = 'stopped';
        if (at.iteration === 1 && before.turn !== after.turn) call('onAttemptStart', state());
        return;
      case 'call-started':
        at = positionOf(after);
        ending = 'stopped';
        return begun(item.call);
      case 'call-answered':
        at = positionOf(before);
        if (!started.has(item.call.id)) begun(item.call);
        if (isTold(item.call)) call('onToolResult', state(), item.call.name, textOf(item.result.content));
        return;
      case 'fact':
        if (item.event.type !== 'output-checked') return;
        at = positionOf(before);
        if (item.event.result.type === 'valid') ending = 'accepted';
        else {
          const { problems, validator } = item.event.result;
          const failure = { problems, ...(validator !== undefined && { validator }) };
          const output = outputIn(before);
          call('onValidationFailure', state(), { ...failure, ...output, message: failureText(failure) });
          ending = 'rejected';
        }
    }
  }

  /** Without reflection the output is not executed: it is told by how its validation ends. */
  function isTold({ name }: ToolCall): boolean {
    return name !== agent.tools.output.name || submitName(agent) !== undefined;
  }

  function begun(called: ToolCall): void {
    if (started.has(called.id)) return;
    started.add(called.id);
    if (isTold(called)) call('onToolCall', state(), called.name, inputOf(called));
  }

  const end = (last: At): void => {
    complete();
    at = last;
  };
  return {
    follow,
    state,
    succeed(last, output) {
      end(last);
      call('onSuccess', state(), output);
    },
    fail(last, error) {
      end(last);
      call('onFailure', state(), error);
    },
    async errors() {
      if (open.size > 0) await settledOrLate(open, clock);
      for (const name of open.values())
        errors.push({ callback: name, message: `It had not ended after ${PATIENCE_MS} ms.` });
      return [...errors];
    },
  };
}

async function settledOrLate(open: ReadonlyMap<Promise<unknown>, string>, clock: Clock): Promise<void> {
  const { promise: late, resolve } = Promise.withResolvers<void>();
  const callOff = clock.timer(PATIENCE_MS, resolve);
  await Promise.race([late, Promise.allSettled(open.keys())]);
  // What removes them from the open ones was registered before, but runs one step later.
  await Promise.resolve();
  callOff();
}

function positionOf(state: State): At {
  return { attempt: state.agent?.attempt ?? 1, iteration: turnsUsed(state) };
}

/** What is being validated, as the model gave it. */
function outputIn({ phase }: State): { readonly output?: unknown } {
  if (phase.type !== 'validating') return {};
  const read = readOutput(phase.text);
  return 'given' in read ? { output: read.given } : {};
}

/** What the model called with; arguments that are no JSON as the text that they are. */
function inputOf({ arguments: text }: ToolCall): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
