import { executeAgent, type Agent, type ExecuteAgentOptions, type ExecuteCallbacks } from '@treadle/core';
import type { AgentError, ExecuteFailure, ExecuteResult, ExecuteSuccess, ModelRequest } from '@treadle/core';
import { scriptedModel, type ScriptStep, type ScriptedCall } from '@treadle/core/testing';
import { expect } from 'vitest';
import { historyProblem } from '../provider/rules/messages.ts';
import { wireProblem } from './wire.ts';

/** One callback: its name, where the execution was (`attempt/maxAttempts iteration/maxIterations`), and what it got. */
export type Told = readonly [callback: string, at: string, ...given: unknown[]];

export interface Ran<Output, Final> {
  readonly result: ExecuteResult<Output, Final>;
  /** Every callback, in order. */
  readonly told: readonly Told[];
  readonly requests: readonly ModelRequest[];
}

/**
 * Executes an agent with a model that says what it is told to, and holds against what is always true: the history is one
 * that every provider takes, at each request and at the end, the callbacks tell a whole story, and all was said.
 */
export async function run<Input, Output, Run, Attempt, Final>(
  agent: Agent<Input, Output, Run, Attempt, Final>,
  script: readonly ScriptStep[],
  options: ExecuteAgentOptions<Input, Output>,
): Promise<Ran<Output, Final>> {
  using model = scriptedModel(script);
  const { callbacks, told } = recorder<Output>(options.callbacks);
  const result = await executeAgent(agent, { ...options, model, callbacks });
  await checkHistories(model.requests, result);
  checkStory(told, result);
  return { result, told, requests: model.requests };
}

/** `run` for one that has to succeed. */
export async function succeed<Input, Output, Run, Attempt, Final>(
  agent: Agent<Input, Output, Run, Attempt, Final>,
  script: readonly ScriptStep[],
  options: ExecuteAgentOptions<Input, Output>,
): Promise<Ran<Output, Final> & { readonly result: ExecuteSuccess<Output, Final> }> {
  const { result, ...ran } = await run(agent, script, options);
  if (result.type !== 'success') expect.fail(`${result.error.code}: ${result.error.message}`);
  return { ...ran, result };
}

/** `run` for one that has to fail. */
export async function fail<Input, Output, Run, Attempt, Final>(
  agent: Agent<Input, Output, Run, Attempt, Final>,
  script: readonly ScriptStep[],
  options: ExecuteAgentOptions<Input, Output>,
): Promise<Ran<Output, Final> & { readonly result: ExecuteFailure; readonly error: AgentError }> {
  const { result, ...ran } = await run(agent, script, options);
  if (result.type !== 'failure') expect.fail(`it succeeded with ${JSON.stringify(result.output)}`);
  return { ...ran, result, error: result.error };
}

/** In our own form and in that of every provider. */
export async function checkHistories(requests: readonly ModelRequest[], result: ExecuteResult<unknown>): Promise<void> {
  for (const [index, request] of requests.entries()) {
    expect(historyProblem(request.messages), `request ${index}`).toBeUndefined();
    expect(await wireProblem(request), `request ${index}`).toBeUndefined();
  }
  if (result.type === 'failure' && result.error.code === 'EXECUTION_PAUSED') return;
  // A run that never began has said nothing.
  if (result.messages.length === 0) expect(result.metadata.iterations).toBe(0);
  else expect(historyProblem(result.messages), 'the whole conversation').toBeUndefined();
}

/** Of an execution that was not resumed. */
function checkStory(told: readonly Told[], { type, metadata }: ExecuteResult<unknown>): void {
  const names = told.map(([name]) => name);
  const count = (name: string): number => names.filter((one) => one === name).length;
  expect(names.at(-1)).toBe(type === 'success' ? 'onSuccess' : 'onFailure');
  expect(count('onSuccess') + count('onFailure')).toBe(1);
  expect(count('onAttemptStart')).toBe(metadata.attempts);
  const frames = names.filter((name) => name === 'onAttemptStart' || name === 'onAttemptComplete');
  expect(frames).toEqual(
    Array.from({ length: metadata.attempts }, () => ['onAttemptStart', 'onAttemptComplete']).flat(),
  );
  expect(toolsOf(told, 'onToolResult')).toEqual(toolsOf(told, 'onToolCall'));
}

function toolsOf(told: readonly Told[], callback: string): readonly unknown[] {
  return told.flatMap(([name, , tool]) => (name === callback ? [tool] : [])).toSorted();
}

/** Callbacks that write down what they get, and then do what the given ones do. */
export function recorder<Output>(given: ExecuteCallbacks<Output> = {}): {
  readonly callbacks: ExecuteCallbacks<Output>;
  readonly told: readonly Told[];
} {
  const told: Told[] = [];
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
        told.push([name, `${attempt}/${maxAttempts} ${iteration}/${maxIterations}`, ...rest]);
        return (given[name] as ((...all: unknown[]) => unknown) | undefined)?.(state, ...rest);
      },
    ]),
  );
  return { callbacks, told };
}

/** A reply that calls one tool. */
export function calling(name: string, given: unknown = {}): { readonly calls: readonly ScriptedCall[] } {
  return callingAll([name, given]);
}

/** A reply that calls several tools. */
export function callingAll(...calls: readonly (readonly [name: string, given?: unknown])[]): {
  readonly calls: readonly ScriptedCall[];
} {
  return { calls: calls.map(([name, given = {}]) => ({ name, arguments: given })) };
}
