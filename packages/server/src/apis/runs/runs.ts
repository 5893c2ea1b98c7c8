import {
  waiting,
  walkInSlices,
  type Answer,
  type JournalEntry,
  type Outcome,
  type Replayed,
  type RunFilter,
  type RunSummary,
  type Usage,
  type Waiting,
} from '@treadle/core';
import { traceOf, type Trace } from '@treadle/core/trace';
import { readRunFamily, runFileLines } from '@treadle/store';
import type { Engine } from '../../engine/engine.ts';
import { readEntries } from '../../engine/stored-reads.ts';
import { storedState } from '../../history/conversation.ts';
import type { Caller } from '../../http/admission.ts';
import { inTurn, LARGE, nextTurn } from '../../http/large-work.ts';
import type { EventSource } from '../../requests/event-log.ts';
import type { Requests } from '../../requests/requests.ts';
import { checkMayActOn, definitionChange, sourcesOf } from '../../requests/run.ts';
import { runActs } from './acts.ts';
import { runForks, type RunForks } from './forks.ts';
import type { PerformAct } from './inbox.ts';
import { runChanges, type RunChange } from './run-changes.ts';
import { findRun, requestOf, runNotFound } from './stored-runs.ts';

/**
 * The stored runs of a tenant, whichever API started them. For a run of another tenant everything rejects with a 404. What
 * acts on a run that another server drives is done there (inbox.ts). Rejects with a 409 if that process is not a server.
 */
export interface Runs extends RunForks {
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

/** The most characters that runs of a page wait for. The first one may exceed it. */
const MAX_WAITING_CHARS = 4_000_000;

/** The most child runs and forks of a run that its trace contains. */
const MAX_FAMILY = 200;

export function runs(engine: Engine, stored: Requests): Runs {
  const { store } = engine;
  const { perform, performHere } = runActs(engine, stored);
  const changes = runChanges(store);

  return {
    list: (filter, { tenant }) => {
      const { model, ...others } = filter;
      // Clients name a model by its name on this server, and runs by its id.
      const id = model === undefined ? undefined : (engine.models.models.get(model)?.id ?? model);
      return store.list({ ...others, ...(id !== undefined && { model: id }), tenant });
    },
    find: (runId, caller) => findRun(store, runId, caller),
    async retrieve(runId, caller) {
      const summary = await findRun(store, runId, caller);
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
    ...runForks(engine, stored),
    async resume(runId, caller) {
      const summary = await findRun(store, runId, caller);
      await checkMayActOn(store, runId, caller);
      const record = await requestOf(store, summary);
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
      await findRun(store, runId, caller);
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
      await findRun(store, runId, caller);
      const entries = await readEntries(store, runId, caller);
      return { entries: entries.length, replayed: await walkInSlices(entries) };
    },
  };
}
