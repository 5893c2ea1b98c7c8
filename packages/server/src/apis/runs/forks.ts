import {
  forkRun,
  outstanding,
  planFork,
  textOf,
  TreadleError,
  waiting,
  type Effect,
  type ForkChanges,
  type Waiting,
} from '@treadle/core';
import type { NamedAgent } from '@treadle/core/named-agents';
import { ApiError, badRequest } from '../../api-error.ts';
import { agentNameIn, mayInvoke, modelNamed, type Engine } from '../../engine/engine.ts';
import { readEntries, readRecord } from '../../engine/stored-reads.ts';
import type { Caller } from '../../http/admission.ts';
import { newResponseId } from '../../ids.ts';
import type { Requests } from '../../requests/requests.ts';
import { encodeStart, startedAgent } from '../../requests/run.ts';
import { conflict, findRun, requestOf, runNotFound } from './stored-runs.ts';

export interface ForkRequest {
  /** The last entry that both runs share, or the step of a workflow before which it is. */
  readonly at: number | { readonly step: string };
  /** The definition of the workflow as it is now. */
  readonly definition?: 'current';
  /** The name of a model of the server. */
  readonly model?: string;
  readonly instructions?: string;
  readonly results?: Readonly<Record<string, string>>;
  /** The text of the last message of a user up to that entry. */
  readonly input?: string;
  /** Names of tools that the run has there. */
  readonly tools?: readonly string[];
  readonly limits?: NonNullable<ForkChanges['limits']>;
}

export interface ForkPreview {
  /** The number of entries at the beginning that both runs share. */
  readonly shared: number;
  /** The `seq` of the later entries of the original whose results are taken over. */
  readonly copied: readonly number[];
  /** What is performed at once. */
  readonly performs: readonly Effect[];
  /** What the fork waits for. */
  readonly waiting: readonly Waiting[];
}

interface ForkLimits {
  readonly turns: number;
  readonly durationMs: number;
}

export interface RunForks {
  /** Starts a run that has the first entries of another one. Resolves to its id. */
  fork(runId: string, fork: ForkRequest, caller: Caller): Promise<string>;
  /** What that run would have and do first. Starts and stores nothing. */
  previewFork(runId: string, fork: ForkRequest, caller: Caller): Promise<ForkPreview>;
}

export function runForks(engine: Engine, stored: Requests): RunForks {
  const { store } = engine;

  const forkJournal = {
    ...store,
    async append(...[runId, entries, ...others]: Parameters<typeof store.append>) {
      await encodeStart(entries);
      await store.append(runId, entries, ...others);
    },
  };

  /** Forks are made one at a time, because each needs a few times the memory of its run. */
  let lastFork: Promise<unknown> = Promise.resolve();

  /** The id of the record of a run that can be forked, and what `forkRun` takes. */
  async function forkOptions(runId: string, fork: ForkRequest, caller: Caller) {
    const record = await requestOf(store, await findRun(store, runId, caller));
    const { id } = record;
    if (!stored.isForkable(record)) {
      throw conflict(
        `Run ${JSON.stringify(runId)} cannot be forked here: it is not that of a response.`,
        'run_not_forkable',
      );
    }
    const { at, model, limits, definition, ...others } = fork;
    checkLimits(limits, await checkForkedAgent(runId, fork, caller));
    const changes: ForkChanges = {
      ...others,
      ...(model !== undefined && { model: modelNamed(engine, model).id }),
      ...(limits && { limits }),
      ...(definition && (await currentDefinition(runId, caller))),
    };
    const entry = typeof at === 'number' ? at : await entryBefore(runId, at.step, caller);
    return { id, options: { journal: forkJournal, runId, at: entry, changes } };
  }

  async function workflowOf(runId: string, param: string): Promise<NamedAgent> {
    const { pinnedAgent } = await import('@treadle/core/named-agents');
    const agent = await pinnedAgent(store, runId);
    if (agent?.workflow) return agent;
    throw badRequest(`Run ${JSON.stringify(runId)} is not that of a workflow.`, param, 'invalid_fork');
  }

  async function currentDefinition(runId: string, caller: Caller): Promise<Partial<ForkChanges>> {
    const { name } = await workflowOf(runId, 'definition');
    const { currentWorkflow } = await import('../../engine/agent-plan.ts');
    return currentWorkflow(engine, name, caller);
  }

  async function entryBefore(runId: string, step: string, caller: Caller): Promise<number> {
    const workflow = await workflowOf(runId, 'step');
    const { entryBeforeStep, flowOf } = await import('@treadle/tools/workflows');
    const found = entryBeforeStep(await readEntries(store, runId, caller), flowOf(workflow), step);
    if (found !== undefined) return found;
    const message = `The run has not come to a step ${JSON.stringify(step)}, or has undone what it did.`;
    throw badRequest(message, 'step', 'invalid_fork');
  }

  /**
   * A fork of the run of an agent stays one, with its model and its limits. Returns those. Throws a 403 if the key may use neither the
   * agent nor models: the fork acts for the key that started the run.
   */
  async function checkForkedAgent(
    runId: string,
    { model, instructions }: ForkRequest,
    { key, scopes }: Caller,
  ): Promise<ForkLimits> {
    const { started, name } = await startedAgent(store, runId);
    const isOwn = name !== undefined && instructions === undefined;
    if (!mayInvoke(scopes, isOwn ? name : undefined)) {
      const what = isOwn ? `runs of the agent ${JSON.stringify(name)}` : 'runs of models, or change instructions';
      const message = `The key "${key}" may not fork ${what}: its scopes name other agents.`;
      throw new ApiError(403, 'permission_error', message, { code: 'insufficient_scope' });
    }
    if (model !== undefined && (name !== undefined || agentNameIn(model) !== undefined)) {
      const message = 'A fork cannot change the model of an agent, or become the run of one. Invoke the agent instead.';
      throw badRequest(message, 'model', 'invalid_fork');
    }
    const { maxTurns, maxDurationMs } = engine.limits;
    if (name === undefined) return { turns: maxTurns, durationMs: maxDurationMs };
    const { rules } = started!;
    return { turns: rules.maxTurns, durationMs: rules.limits.durationMs ?? maxDurationMs };
  }

  /** Does something with a fork of a run after the forks before it. */
  async function forkInTurn<T>(runId: string, { hold }: Caller, make: () => Promise<T>): Promise<T> {
    // It is read, and written.
    const size = 2 * (await store.sizeOf(runId));
    hold?.(size);
    const made = lastFork.then(make);
    lastFork = made.catch(() => {});
    try {
      return await made;
    } catch (error) {
      if (error instanceof TreadleError && error.code === 'invalid-options')
        throw badRequest(error.message, 'at', 'invalid_fork');
      throw error;
    } finally {
      hold?.(-size);
    }
  }

  async function fork(runId: string, asked: ForkRequest, caller: Caller): Promise<string> {
    const { id, options } = await forkOptions(runId, asked, caller);
    const newRunId = newResponseId();
    await forkInTurn(runId, caller, () => forkRun({ ...options, newRunId }));
    const { model, instructions, input } = asked;
    const forked = {
      runId: newRunId,
      ...(model !== undefined && { model }),
      ...(instructions !== undefined && { instructions }),
      ...(input !== undefined && (await isStartedWith(newRunId, input)) && { input }),
    };
    try {
      const record = await readRecord(store, id, caller);
      if (!record) throw runNotFound(runId);
      await stored.fork(record, forked);
    } catch (error) {
      // Nobody would ever resume it.
      await store.delete(newRunId).catch(() => {});
      throw error;
    }
    return newRunId;
  }

  async function previewFork(runId: string, fork: ForkRequest, caller: Caller): Promise<ForkPreview> {
    const { options } = await forkOptions(runId, fork, caller);
    const { state, copied } = await forkInTurn(runId, caller, () => planFork(options));
    const open = waiting(state);
    const waits = new Set(open.map(({ effect }) => effect));
    return {
      shared: options.at + 1,
      copied,
      performs: outstanding(state).filter(({ id }) => !waits.has(id)),
      waiting: open,
    };
  }

  /** Whether the last message that a run was started with is this text. */
  async function isStartedWith(runId: string, text: string): Promise<boolean> {
    const [first] = await store.readPage(runId, 0);
    if (first?.event.type !== 'run-started') return false;
    const said = first.event.input.findLast((message) => message.role === 'user');
    return said !== undefined && textOf(said.content) === text;
  }

  return { fork, previewFork };
}

/** A client may lower what is allowed, but not exceed it. */
function checkLimits({ turns = 0, durationMs = 0 }: NonNullable<ForkRequest['limits']> = {}, most: ForkLimits): void {
  if (turns > most.turns) throw badRequest(`At most ${most.turns} turns are allowed.`, 'limits.turns');
  if (durationMs <= most.durationMs) return;
  throw badRequest(`At most ${most.durationMs} milliseconds are allowed.`, 'limits.duration_ms');
}
