import { executeAgent, type Agent, type ExecuteAgentOptions, type ExecuteCallbacks } from '@treadle/core';
import type { AgentError, ExecuteFailure, ExecuteResult, ExecuteSuccess, ModelRequest } from '@treadle/core';
import { scriptedModel, type ScriptStep, type ScriptedCall } from '@treadle/core/testing';
import { expect } from 'vitest';
import { historyProblem } from '../provider/rules/messages.ts';
import { wireProblem } from './wire.ts';

/** A recorded callback: its name, its state as `attempt/maxAttempts iteration/maxIterations`, its other arguments. */
export type CallbackEntry = readonly [callback: string, state: string, ...args: unknown[]];

export interface Ran<Output, Final> {
  readonly result: ExecuteResult<Output, Final>;
  /** Every callback, in order. */
  readonly log: readonly CallbackEntry[];
  readonly requests: readonly ModelRequest[];
}

/**
 * Executes an agent with a scripted model and checks what must hold for every execution: the history is valid for every
 * provider, at each request and at the end; the order of the callbacks is complete; the whole script was used.
 */
export async function run<Input, Output, Run, Attempt, Final>(
  agent: Agent<Input, Output, Run, Attempt, Final>,
  script: readonly ScriptStep[],
  options: ExecuteAgentOptions<Input, Output>,
): Promise<Ran<Output, Final>> {
  using model = scriptedModel(script);
  const { callbacks, log } = recorder<Output>(options.callbacks);
  const result = await executeAgent(agent, { ...options, model, callbacks });
  await checkHistories(model.requests, result);
  checkCallbackOrder(log, result);
  return { result, log, requests: model.requests };
}

/** `run` for an execution that must succeed. */
export async function succeed<Input, Output, Run, Attempt, Final>(
  agent: Agent<Input, Output, Run, Attempt, Final>,
  script: readonly ScriptStep[],
  options: ExecuteAgentOptions<Input, Output>,
): Promise<Ran<Output, Final> & { readonly result: ExecuteSuccess<Output, Final> }> {
  const { result, ...ran } = await run(agent, script, options);
  if (result.type !== 'success') expect.fail(`${result.error.code}: ${result.error.message}`);
  return { ...ran, result };
}

/** `run` for an execution that must fail. */
export async function fail<Input, Output, Run, Attempt, Final>(
  agent: Agent<Input, Output, Run, Attempt, Final>,
  script: readonly ScriptStep[],
  options: ExecuteAgentOptions<Input, Output>,
): Promise<Ran<Output, Final> & { readonly result: ExecuteFailure; readonly error: AgentError }> {
  const { result, ...ran } = await run(agent, script, options);
  if (result.type !== 'failure') expect.fail(`it succeeded with ${JSON.stringify(result.output)}`);
  return { ...ran, result, error: result.error };
}

/** Checks the histories in our own format and in the format of every provider. */
export async function checkHistories(requests: readonly ModelRequest[], result: ExecuteResult<unknown>): Promise<void> {
  for (const [index, request] of requests.entries()) {
    expect(historyProblem(request.messages), `request ${index}`).toBeUndefined();
    expect(await wireProblem(request), `request ${index}`).toBeUndefined();
  }
  if (result.type === 'failure' && result.error.code === 'EXECUTION_PAUSED') return;
  // A run that was not started has no messages.
  if (result.messages.length === 0) expect(result.metadata.iterations).toBe(0);
  else expect(historyProblem(result.messages), 'the whole conversation').toBeUndefined();
}

/** For executions that were not resumed. */
function checkCallbackOrder(log: readonly CallbackEntry[], { type, metadata }: ExecuteResult<unknown>): void {
  const names = log.map(([name]) => name);
  const count = (name: string): number => names.filter((one) => one === name).length;
  expect(names.at(-1)).toBe(type === 'success' ? 'onSuccess' : 'onFailure');
  expect(count('onSuccess') + count('onFailure')).toBe(1);
  expect(count('onAttemptStart')).toBe(metadata.attempts);
  const frames = names.filter((name) => name === 'onAttemptStart' || name === 'onAttemptComplete');
  expect(frames).toEqual(
    Array.from({ length: metadata.attempts }, () => ['onAttemptStart', 'onAttemptComplete']).flat(),
  );
  expect(toolsOf(log, 'onToolResult')).toEqual(toolsOf(log, 'onToolCall'));
}

function toolsOf(log: readonly CallbackEntry[], callback: string): readonly unknown[] {
  return log.flatMap(([name, , tool]) => (name === callback ? [tool] : [])).toSorted();
}

/** Callbacks that record their arguments, then call `inner`. */
export function recorder<Output>(inner: ExecuteCallbacks<Output> = {}): {
  readonly callbacks: ExecuteCallbacks<Output>;
  readonly log: readonly CallbackEntry[];
} {
  const log: CallbackEntry[] = [];
  const names = [
    'onAttemptStart',
    'onAttemptComplete',
    'onToolCall',
    'onToolResult',
    'onValidationFailure',
    'onSuccess',
    'onFailure',
  ] as const;
  const callbacks = Object.fromEntries(
    names.map((name) => [
      name,
      (...[state, ...rest]: Parameters<NonNullable<ExecuteCallbacks<Output>['onToolCall']>>) => {
        const { attempt, maxAttempts, iteration, maxIterations } = state;
        log.push([name, `${attempt}/${maxAttempts} ${iteration}/${maxIterations}`, ...rest]);
        return (inner[name] as ((...all: unknown[]) => unknown) | undefined)?.(state, ...rest);
      },
    ]),
  );
  return { callbacks, log };
}

/** A reply that calls one tool. */
export function calling(name: string, args: unknown = {}): { readonly calls: readonly ScriptedCall[] } {
  return callingAll([name, args]);
}

/** A reply that calls several tools. */
export function callingAll(...calls: readonly (readonly [name: string, args?: unknown])[]): {
  readonly calls: readonly ScriptedCall[];
} {
  return { calls: calls.map(([name, args = {}]) => ({ name, arguments: args })) };
}
