import {
  forkRun,
  narrowingSource,
  outstanding,
  planFork,
  textOf,
  TreadleError,
  waiting,
  walkInSlices,
  type Answer,
  type Effect,
  type ForkChanges,
  type JournalEntry,
  type Outcome,
  type Replayed,
  type RunFilter,
  type RunSummary,
  type Usage,
  type Waiting,
} from '@treadle/core';
import type { NamedAgent } from '@treadle/core/named-agents';
import { traceOf, type Trace } from '@treadle/core/trace';
import { readRunFamily, runFileLines, type OwnedRequest } from '@treadle/store';
import { ApiError, badRequest, type ApiErrorCode } from '../../api-error.ts';
import { storedState } from '../../history/conversation.ts';
import { agentNameIn, mayInvoke, modelNamed, type Engine } from '../../engine/engine.ts';
import type { EventSource } from '../../requests/event-log.ts';
import {
  checkMayActOn,
  definitionChange,
  encodeStart,
  isRejectedAnswer,
  sourcesOf,
  startedAgent,
} from '../../requests/run.ts';
import { answerUnfit, isDrivenElsewhere, isLeaseLost } from '../../requests/interruption.ts';
import type { Requests } from '../../requests/requests.ts';
import { readEntries, readRecord } from '../../engine/stored-reads.ts';
import type { Caller } from '../../http/admission.ts';
import { inTurn, LARGE, nextTurn } from '../../http/large-work.ts';
import { newResponseId } from '../../ids.ts';
import { askDriver, perhapsDone, type Actor, type PerformAct, type RunAct } from './inbox.ts';
import { runChanges, type RunChange } from './run-changes.ts';

/**
 * The stored runs of a tenant, whichever API started them. For a run of another tenant everything rejects with a 404. What
 * acts on a run that another server drives is done there (inbox.ts). Rejects with a 409 if that process is not a server.
 */
export interface Runs {
  /** Newest first. */
  list(filter: RunFilter, caller: Caller): Promise<readonly RunSummary[]>;
  find(runId: string, caller: Pick<Caller, 'tenant'>): Promise<RunSummary>;
  retrieve(runId: string, caller: Caller): Promise<RunDetails>;
  /** The entries of a run, which is not checked: call `find` first. Live while the run is running. */
  entries(runId: string, caller: Caller): EventSource<JournalEntry>;
  /** The changes of all runs of the caller's tenant. */
  changes(caller: Caller): EventSource<RunChange>;
  /** Adds a message at the next turn of a run. Resolves when it is durable. */
  send(runId: string, text: string, caller: Caller): Promise<void>;
  /**
   * Answers what a run waits for, in order. A run that is paused is resumed. Resolves when the answers are durable. The name
   * of the caller's key is recorded as the one who answered. Rejects with a 409 if one cannot be used: if the run is paused,
   * none was applied, otherwise those before it were. `input`: a message that the model gets with them.
   */
  answer(runId: string, answers: readonly Answer[], caller: Caller, input?: string): Promise<void>;
  /**
   * What a source narrows does not apply any more, from the next turn of a run on. A run that is paused is resumed for it, and
   * pauses again. Resolves when it is durable, or at once if nothing of the source narrows the run. The name of the caller's key is recorded.
   */
  liftNarrowing(runId: string, source: string, caller: Caller): Promise<void>;
  /**
   * Stops a run that is running or paused. Resolves when its end is stored, to the id of the run that undoes it, if there is one. Does
   * nothing if it has ended.
   */
  cancel(runId: string, caller: Pick<Caller, 'tenant' | 'key' | 'scopes'>): Promise<string | null>;
  /** Does one of these here, for another process. */
  readonly performHere: PerformAct;
  /** Starts a run that has the first entries of another one. Resolves to its id. */
  fork(runId: string, fork: ForkRequest, caller: Caller): Promise<string>;
  /** What that run would have and do first. Starts and stores nothing. */
  previewFork(runId: string, fork: ForkRequest, caller: Caller): Promise<ForkPreview>;
  /** Resumes an interrupted run now, if no process drives it. Others are left as they are. */
  resume(runId: string, caller: Caller): Promise<void>;
  /**
   * What runs wait for, in the same order. Empty for a run that has ended. Ends before the texts of all are too long together,
   * because the arguments of calls can be.
   */
  waitingOf(runs: readonly RunSummary[], caller: Caller): Promise<readonly (readonly Waiting[])[]>;
  /** The run with its child runs and long results, as `treadle runs import` reads it. */
  exported(runId: string, caller: Caller): Promise<Buffer>;
  /** The trace of a run; undefined if its entries do not replay, or if it was deleted meanwhile. */
  trace(runId: string, caller: Caller): Promise<Trace | undefined>;
  /** The runs that come from a run: its child runs at every depth, and its forks. */
  family(runId: string, caller: Caller): Promise<RunFamily>;
  /** Replays the journal of a run, without performing anything. */
  replay(runId: string, caller: Caller): Promise<{ readonly entries: number; readonly replayed: Replayed }>;
}

export interface RunFamily {
  readonly children: readonly RunSummary[];
  readonly forks: readonly RunSummary[];
}

/** The current state of a run. */
export interface RunDetails {
  readonly summary: RunSummary;
  /** A process drives it. */
  readonly isDriven: boolean;
  readonly waiting: readonly Waiting[];
  readonly outcome?: Outcome;
  readonly usage: Usage;
  readonly turns: number;
  readonly calls: number;
  /** The sources of what narrows it. */
  readonly narrowedBy: readonly string[];
  /** What of the definition of its agent has changed since it was started. Absent: nothing. */
  readonly definitionChange?: string;
}

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

/** The most characters that runs of a page wait for. The first one may exceed it. */
const MAX_WAITING_CHARS = 4_000_000;

/** The most child runs and forks of a run that its trace contains. */
const MAX_FAMILY = 200;

/** How often an act follows a run that moves from one process to another. */
const MOST_MOVES = 3;

export function runs(engine: Engine, stored: Requests): Runs {
  const { store, driven } = engine;

  async function findRun(runId: string, { tenant }: Pick<Actor, 'tenant'>): Promise<RunSummary> {
    const [summary] = await store.list({ runId, tenant, limit: 1 });
    if (summary) return summary;
    throw runNotFound(runId);
  }

  /** The request that a run belongs to. Only such runs can be resumed: the request names their model and tools. */
  async function requestOf({ runId, parent }: RunSummary): Promise<OwnedRequest> {
    const record = await store.requests.headOfRun(runId);
    if (record) return record;
    const advice = parent === undefined ? '' : ` If it is a child run, use its parent, ${JSON.stringify(parent)}.`;
    throw conflict(`No request started the run ${JSON.stringify(runId)}.${advice}`, 'run_not_resumable');
  }

  /** Passes answers to a run that this process drives. Returns those that are left because the run has paused. */
  async function answerDriven(
    run: { answer(answer: Answer): Promise<void> },
    runId: string,
    { answers, caller }: { readonly answers: readonly Answer[]; readonly caller: Actor },
  ): Promise<readonly Answer[]> {
    for (const [index, answer] of answers.entries()) {
      try {
        await run.answer(answer);
      } catch (error) {
        if (!isRejectedAnswer(error)) throw error;
        const { status } = await findRun(runId, caller);
        if (status !== 'paused' || error.code === 'answer-refused') throw answerUnfit(error.message);
        return answers.slice(index);
      }
    }
    return [];
  }

  async function answerRun(
    runId: string,
    { answers: given, input }: Extract<RunAct, { type: 'answer' }>,
    caller: Actor,
  ): Promise<void> {
    const summary = await findRun(runId, caller);
    const record = await requestOf(summary);
    const answers = given.map((answer) => withName(answer, caller));
    const run = driven.get(runId);
    const left = run ? await answerDriven(run, runId, { answers, caller }) : answers;
    if (left.length === 0) return input === undefined ? undefined : sendInput(runId, input, caller);
    await stored.whenEnded(record.id);
    // It is recorded first, so that the model gets it with the answers.
    if (input !== undefined && (await stored.resume(record, { input }))) await stored.whenEnded(record.id);
    if (await stored.resume(record, { answers: left })) return;
    const { status } = await findRun(runId, caller);
    const what = status === 'paused' ? 'the request that started it has ended' : `it is ${status}`;
    throw answerUnfit(`Run ${JSON.stringify(runId)} cannot be answered: ${what}.`);
  }

  async function cancelRun(runId: string, caller: Actor): Promise<void> {
    const summary = await findRun(runId, caller);
    if (summary.status !== 'running' && summary.status !== 'paused') return;
    const record = await requestOf(summary);
    driven.get(runId)?.cancel();
    await stored.whenEnded(record.id);
    await stored.resume(record, { cancel: true });
  }

  async function liftNarrowing(runId: string, source: string, caller: Actor): Promise<void> {
    const summary = await findRun(runId, caller);
    const by = caller.key || undefined;
    if (await driven.get(runId)?.liftNarrowing(by, source)) return;
    if (summary.status === 'running' || summary.status === 'paused') {
      const state = await storedState(store, runId, caller);
      const found = state?.narrowing?.filter((one) => narrowingSource(one) === source) ?? [];
      if (found.length === 0) return;
      if (found.every(({ fixed }) => fixed)) {
        throw badRequest(
          `${JSON.stringify(source)} belongs to the run, and cannot be lifted.`,
          'source',
          'unsupported_value',
        );
      }
      const record = await requestOf(summary);
      await stored.whenEnded(record.id);
      if (record.status === 'in_progress' && (await stored.resume(record, { lift: { by, source } }))) return;
    }
    const { status } = await findRun(runId, caller);
    throw conflict(`Nothing of the run ${JSON.stringify(runId)} can be lifted: it is ${status}.`, 'run_not_running');
  }

  async function sendInput(runId: string, text: string, caller: Actor): Promise<void> {
    await findRun(runId, caller);
    const run = driven.get(runId);
    if (await run?.send(text)) return;
    if (!run && (await store.isDriven(runId))) {
      throw new TreadleError('run-driven', `Another process drives the run "${runId}".`);
    }
    const { status } = await findRun(runId, caller);
    const what = status === 'running' ? 'interrupted, and is resumed soon. Retry then' : status;
    throw conflict(`Run ${JSON.stringify(runId)} takes no input: it is ${what}.`, 'run_not_running');
  }

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
    const record = await requestOf(await findRun(runId, caller));
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

  /** Throws a 404 for a run of another tenant, and a 403 for one that the key may not act on. */
  async function checkDirected(runId: string, caller: Pick<Caller, 'tenant' | 'key' | 'scopes'>): Promise<void> {
    await findRun(runId, caller);
    await checkMayActOn(store, runId, caller);
  }

  /** A client may lower what is allowed, but not exceed it. */
  function checkLimits({ turns = 0, durationMs = 0 }: NonNullable<ForkRequest['limits']> = {}, most: ForkLimits): void {
    if (turns > most.turns) throw badRequest(`At most ${most.turns} turns are allowed.`, 'limits.turns');
    if (durationMs <= most.durationMs) return;
    throw badRequest(`At most ${most.durationMs} milliseconds are allowed.`, 'limits.duration_ms');
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

  async function forkFrom(runId: string, fork: ForkRequest, caller: Caller): Promise<string> {
    const { id, options } = await forkOptions(runId, fork, caller);
    const newRunId = newResponseId();
    await forkInTurn(runId, caller, () => forkRun({ ...options, newRunId }));
    const { model, instructions, input } = fork;
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

  /** The last act on each run. */
  const acts = new Map<string, Promise<unknown>>();

  function performNow(runId: string, act: RunAct, actor: Actor): Promise<void> {
    switch (act.type) {
      case 'send':
        return sendInput(runId, act.text, actor);
      case 'answer':
        return answerRun(runId, act, actor);
      case 'lift':
        return liftNarrowing(runId, act.source, actor);
      case 'cancel':
        return cancelRun(runId, actor);
      default:
        return act satisfies never;
    }
  }

  /** Acts on a run after the acts before it, so that this process does not compete with itself for the lease. */
  async function performHere(runId: string, act: RunAct, actor: Actor): Promise<void> {
    const before = acts.get(runId);
    const perform = (): Promise<void> => performNow(runId, act, actor);
    const done = before ? before.then(perform, perform) : perform();
    acts.set(runId, done);
    try {
      await done;
    } catch (error) {
      // The journal may have it: another process must not do it again, nor refuse it. A second cancel changes nothing.
      if (act.type !== 'cancel' && isLeaseLost(error)) throw perhapsDone(runId);
      throw error;
    } finally {
      if (acts.get(runId) === done) acts.delete(runId);
    }
  }

  /** Acts on a run here, or where it is driven. It may move in between. */
  async function perform(runId: string, act: RunAct, caller: Pick<Caller, 'tenant' | 'key' | 'scopes'>): Promise<void> {
    await checkDirected(runId, caller);
    const { tenant, key } = caller;
    const actor = { tenant, key };
    for (let attempt = 0; attempt < MOST_MOVES; attempt++) {
      try {
        return await performHere(runId, act, actor);
      } catch (error) {
        if (!isDrivenElsewhere(error)) throw error;
      }
      const reply = await askDriver(store, runId, { act, actor });
      if (reply === 'done') return;
      if (reply === 'refused') break;
    }
    throw drivenElsewhere(runId);
  }

  const changes = runChanges(store);

  return {
    list: (filter, { tenant }) => {
      const { model, ...others } = filter;
      // Clients name a model by its name on this server, and runs by its id.
      const id = model === undefined ? undefined : (engine.models.models.get(model)?.id ?? model);
      return store.list({ ...others, ...(id !== undefined && { model: id }), tenant });
    },
    find: findRun,
    async retrieve(runId, caller) {
      const summary = await findRun(runId, caller);
      const state = await storedState(store, runId, caller);
      if (!state) throw runNotFound(runId);
      const [first] = await store.readPage(runId, 0);
      const change = first && (await definitionChange(engine, first.event));
      return {
        summary,
        isDriven: await store.isDriven(runId),
        waiting: waiting(state),
        ...(state.phase.type === 'ended' && { outcome: state.phase.outcome }),
        usage: state.usage,
        turns: state.turn,
        calls: state.calls,
        narrowedBy: sourcesOf(state.narrowing),
        ...(change !== undefined && { definitionChange: change }),
      };
    },
    entries: (runId, { tenant }) => ({
      size: (after) => store.pageSize(runId, after + 1),
      read: (after) => inTurn(() => store.readPage(runId, after + 1), tenant),
      async isLive() {
        const [summary] = await store.list({ runId, tenant, limit: 1 });
        return summary?.status === 'running';
      },
      watch: (listener) => store.watch(runId, listener),
    }),
    changes: ({ tenant }) => changes(tenant),
    send: (runId, text, caller) => perform(runId, { type: 'send', text }, caller),
    answer: (runId, answers, caller, input) =>
      perform(runId, { type: 'answer', answers, ...(input !== undefined && { input }) }, caller),
    liftNarrowing: (runId, source, caller) => perform(runId, { type: 'lift', source }, caller),
    async cancel(runId, caller) {
      await perform(runId, { type: 'cancel' }, caller);
      return null;
    },
    performHere,
    fork: (runId, fork, caller) => forkFrom(runId, fork, caller),
    previewFork,
    async resume(runId, caller) {
      const summary = await findRun(runId, caller);
      await checkMayActOn(store, runId, caller);
      const record = await requestOf(summary);
      if (summary.status === 'running' || summary.status === 'paused') await stored.recoverRecord(record);
    },
    async waitingOf(summaries, { tenant, hold }) {
      const found: (readonly Waiting[])[] = [];
      let chars = 0;
      for (const { runId, status } of summaries) {
        const isOpen = status === 'running' || status === 'paused';
        const size = isOpen ? await store.sizeOf(runId) : 0;
        hold?.(size);
        const state = isOpen ? await storedState(store, runId, { tenant }) : undefined;
        const open = state ? waiting(state) : [];
        hold?.(-size);
        const own = open.length === 0 ? 0 : JSON.stringify(open).length;
        if (found.length > 0 && chars + own > MAX_WAITING_CHARS) break;
        chars += own;
        hold?.(own);
        found.push(open);
      }
      return found;
    },
    async exported(runId, caller) {
      await findRun(runId, caller);
      const beforeRead = (bytes: number): void | Promise<void> => {
        caller.hold?.(bytes);
        return bytes > LARGE ? nextTurn() : undefined;
      };
      const family = await inTurn(() => readRunFamily(store, runId, beforeRead), caller.tenant);
      const lines: Buffer[] = [];
      let chars = 0;
      for (const line of runFileLines(family)) {
        chars += line.length;
        const isLarge = chars > LARGE;
        if (isLarge) chars = 0;
        if (isLarge) await nextTurn();
        lines.push(Buffer.from(line));
        if (isLarge) await nextTurn();
      }
      return Buffer.concat(lines);
    },
    async trace(runId, caller) {
      return traceOf(await readEntries(store, runId, caller));
    },
    async family(runId, caller) {
      const children: RunSummary[] = [];
      const forks: RunSummary[] = [];
      const { tenant } = caller;
      async function addFamily(id: string): Promise<void> {
        for (const run of await store.list({ parent: id, tenant, limit: MAX_FAMILY })) {
          if (!run.runId.startsWith(`${id}.`)) forks.push(run);
          else if (children.push(run) < MAX_FAMILY) await addFamily(run.runId);
        }
      }
      await addFamily(runId);
      return { children, forks };
    },
    async replay(runId, caller) {
      await findRun(runId, caller);
      const entries = await readEntries(store, runId, caller);
      return { entries: entries.length, replayed: await walkInSlices(entries) };
    },
  };
}

/** The answer with the name of the key that gave it. On a server without keys, nobody has a name. */
function withName(answer: Answer, { key }: Actor): Answer {
  const isNamed = answer.type === 'approval' || answer.type === 'answer';
  return isNamed && key !== '' ? { ...answer, by: key } : answer;
}

function runNotFound(runId: string): ApiError {
  const message = `There is no run ${JSON.stringify(runId)}. It was deleted, was not stored, or never existed.`;
  return new ApiError(404, 'not_found_error', message, { param: 'run_id', code: 'run_not_found' });
}

function conflict(message: string, code: ApiErrorCode): ApiError {
  return new ApiError(409, 'invalid_request_error', message, { param: 'run_id', code });
}

function drivenElsewhere(runId: string): ApiError {
  const message = `Another process drives the run ${JSON.stringify(runId)}, and does not take requests of this one. Act on it there, or retry when it has paused or ended.`;
  return conflict(message, 'run_driven_elsewhere');
}
