import {
  NEW,
  runLoop,
  walkInSlices,
  type Answer,
  type Guardrails,
  type Item,
  type Lease,
  type Model,
  type State,
} from '@treadle/core';
import { churnMap } from '@treadle/core/churn';
import type { IdempotencyKey, RequestRecord, UnfinishedRequest } from '@treadle/store';
import { isStoreFailure } from '../api-error.ts';
import { addToConversation, isBusy, type AddedRecord } from '../history/conversation-records.ts';
import type { Capacity, Engine } from '../engine/engine.ts';
import type { Toolset } from '../engine/tools.ts';
import { LARGE, nextTurn } from '../http/large-work.ts';
import { requestFollower, type RequestFollower } from './follow.ts';
import { checkInjection } from './injection.ts';
import { isKeyTaken, KEY_MS, type RequestKey } from './idempotency.ts';
import {
  ASLEEP,
  isDrivenElsewhere,
  leaveForLater,
  notDone,
  SHUTTING_DOWN,
  STORE_FAILED,
  TAKEN_OVER,
  UNFIT,
  unresumableReason,
  WAITING,
  type Interruption,
} from './interruption.ts';
import type { Walk } from './projection.ts';
import { requestRecovery, type Postponements, type RequestRecovery } from './recovery.ts';
import type { Ending } from './ending.ts';
import {
  addDriven,
  checkRunKey,
  definitionChange,
  driveRun,
  killProcess,
  NO_BUDGETS,
  onlyParked,
  runJournal,
  type DrivenRun,
  type DrivingEngine,
  type LiftedNarrowing,
  type ResumedRun,
  type RunEnd,
  type RunPlan,
  type StoredCaller,
  type StoredRunPlan,
  type Waits,
} from './run.ts';
import { holdStored, readEntries, readRecord, type Reader, type StoredJournal } from '../engine/stored-reads.ts';

/**
 * The life of a request, once for every API: it is created, driven, finished, and if its process dies, resumed.
 *
 * 1. What a request needs is acquired in one order (capacity, tools, lease, record), and given back if a later step fails.
 * 2. A stored request belongs to the process that has the lease of its run, from before it is created until its end is
 *    stored. A process that takes one over acquires the run first, and then reads the record and the run.
 * 3. A request is resumed only if the key that started it is still valid.
 * 4. A client learns that its request has ended only when the end is stored. If the end cannot be stored, or the run was
 *    detached, the client learns that the request was interrupted, and it is resumed later.
 * 5. A request that cannot be resumed fails. Its run is cancelled.
 */
export interface Requests extends RequestFollower, RequestRecovery {
  /** Sets the API of the requests of a kind. */
  register(kind: RequestKind, api: RequestApi): void;
  /** Plans a request, and stores it if it has a record. Rejects with an `ApiError` if it cannot be served. */
  create<P extends PlannedRequest, C extends PlannedRequest>(request: NewRequest<P, C>): Promise<CreatedRequest<C>>;
  /**
   * The same, once for a key, and once for what else a request may claim: `claimed` resolves to what was made with it before.
   * Of several that are created at the same time, one is.
   */
  createOnce<P extends PlannedRequest, C extends PlannedRequest, T = never>(
    request: NewRequest<P, C>,
    key: RequestKey | undefined,
    claimed?: () => Promise<T | undefined>,
  ): Promise<CreatedOnce<C, T>>;
  /** Drives the run of a request to its end, and releases the lease of its plan. */
  drive<T extends StoredEnd>(plan: RunPlan, driving: Driving<T>): DrivenRequest<T>;
  /**
   * Acquires the run of a record, then reads the record again, because another process may have finished it. Its bytes have
   * to be counted before (`holdStored`). Undefined if it is not wanted any more. Rejects with `run-driven` while another process drives it.
   */
  takeOver(
    record: UnfinishedRequest,
    isWanted: (record: RequestRecord) => boolean | Promise<boolean>,
  ): Promise<TakenRecord | undefined>;
  /** Continues a request that was taken over, for its client. If it cannot be planned, it stays as it is. */
  continueTaken<P extends PlannedRequest>(taken: TakenRecord, plan: () => Promise<P>): Promise<P>;
  /** Resumes a request that was taken over. One that cannot be resumed fails. Rejects if the store fails. */
  resumeTaken(taken: TakenRecord, how?: ResumeOptions): Promise<FinishingRequest>;
  /**
   * Resumes the run of a record now, with answers, or to cancel it. Resolves when the answers are durable, or the run was
   * cancelled; false if the request has ended. Rejects with `run-driven` while another process drives it, with a
   * 409 if an answer cannot be used, and with a 503 if the store fails.
   */
  resume(record: UnfinishedRequest, how: ResumeOptions): Promise<boolean>;
  /** Whether `fork` can be called for a record. */
  isForkable(record: Pick<RequestRecord, 'kind'>): boolean;
  /** Creates a request whose run is a fork of that of another one, and resumes it in the background. */
  fork(record: RequestRecord, fork: ForkedRun): Promise<void>;
  /** Resolves when the request of a record has ended or was interrupted, if this process drives it. */
  whenEnded(id: string): Promise<void>;
  /** The key as it is stored with a record that is created now. `id`: that of the record, for a key that is kept with it. */
  keyToStore(key: RequestKey, now: number, id?: string): IdempotencyKey;
  /** A record was deleted. */
  forget(id: string): void;
}

/**
 * The kinds of stored requests. Those that are `keyed` exist only for their idempotency key: no client can name them. Neither can one
 * name an `unstored-response`: it exists only for its run, which is recorded although the client does not want the response
 * to be stored. `message` is one
 * of a conversation, `anthropic-message` one of the Messages API. `items` and `turns` have no run: the items that a client has added
 * to a conversation, and the turns of a completion or of a message that the next request does not contain. `probe`: written to find
 * out whether the store can be.
 */
export type RequestKind =
  | 'response'
  | 'keyed-response'
  | 'unstored-response'
  | 'completion'
  | 'message'
  | 'anthropic-message'
  | 'mcp-call'
  | 'invocation'
  | 'device-call'
  | 'items'
  | 'turns'
  | 'probe';

/** What an API says about its stored requests. */
export interface RequestApi {
  /** Its runs may wait for answers: `waits` of their plans. */
  readonly waits?: Waits;
  /**
   * Plans the run of a stored request. `hold` counts the bytes of what else is read. Rejects with an `ApiError` if it cannot be
   * served any more.
   */
  plan(taken: TakenRun, hold: Reader['hold']): Promise<PlannedRequest & Resumption>;
  /** Stores that a request has failed that cannot be resumed. Its run is cancelled. */
  fail(taken: ReplayedRecord, ending: FailedEnding): Promise<unknown>;
  /** The end of a request that could not be resumed is stored, and its lease is released. */
  failed?(record: RequestRecord): void;
  /** Stores a record for a fork of the run of a record. Its status is `in_progress`. Absent: the runs cannot be forked. */
  readonly createFork?: (record: RequestRecord, fork: ForkedRun) => Promise<RequestRecord>;
}

/** A request whose run can be driven, and whose tools are open. */
export interface PlannedRequest {
  readonly plan: OpenPlan;
}

type OpenPlan = Pick<RunPlan, 'id' | 'size' | 'journal' | 'lease' | 'given' | 'facts'> & {
  readonly toolset: Pick<Toolset, 'close'>;
};

export interface Resumption {
  drive(): FinishingRequest | Promise<FinishingRequest>;
}

export interface FinishingRequest {
  readonly finished: Promise<StoredEnd>;
}

/** `P`: the request when its tools are open. `C`: the request when nothing about it can be refused any more. */
export interface NewRequest<P extends PlannedRequest, C extends PlannedRequest = P> {
  readonly tenant: string;
  /** Plans the run. `hold` counts the bytes of what it reads. Opening the tools is the last thing that can fail. */
  plan(hold: Capacity['hold']): Promise<P>;
  /** Checks what is left. Without a record, the request is not stored. If it rejects, the tools are closed. */
  complete(planned: P, hold: Capacity['hold']): CompleteRequest<C> | Promise<CompleteRequest<C>>;
}

interface CompleteRequest<C extends PlannedRequest> {
  readonly request: C;
  readonly stored?: NewRecord | undefined;
}

/** A record to store: as the newest one of a conversation, or alone. */
export type NewRecord = { readonly record: RecordToStore } & (
  | ({ readonly conversation: string } & Omit<AddedRecord, 'record'>)
  | ({ readonly conversation?: undefined } & Pick<AddedRecord, 'keys' | 'input'>)
);

/** Every request says what kind it is, and who sent it: its key is checked when it is resumed. */
export type RecordToStore<Stored extends StoredCaller = StoredCaller> = Omit<RequestRecord, 'kind' | 'request'> & {
  readonly kind: RequestKind;
  readonly request: Stored;
};

export type CreatedRequest<P extends PlannedRequest> = P & {
  /** Undefined: it is not stored. */
  readonly record: RequestRecord | undefined;
  /** To be called when the request has ended. */
  readonly releaseCapacity: () => void;
};

/** `repeated`: the id of the record that was created with the key before. */
export type CreatedOnce<C extends PlannedRequest, T> =
  | { readonly type: 'created'; readonly created: CreatedRequest<C> }
  | { readonly type: 'repeated'; readonly id: string }
  | { readonly type: 'claimed'; readonly claimed: T };

/** What an API does with the run of a request. */
export interface Driving<T extends StoredEnd> {
  /** The id of the record; default: that of the run. */
  readonly id?: string | undefined;
  /** What the client gets. Items of a run that is resumed are replayed before others are added. */
  readonly output: Pick<Walk<unknown, never, unknown>, 'open' | 'replay' | 'add'>;
  /** Set if the run has started before. */
  readonly resume?: ResumedRun | undefined;
  /** Starts the run, if it is not one of the loop itself. */
  readonly start?: ((plan: RunPlan) => DrivenRun) | undefined;
  /** Aborts when the client disconnects: the run is cancelled. Absent: it goes on without its client. */
  readonly signal?: AbortSignal | undefined;
  /** The run is cancelled when the server shuts down. Default: only if it is not stored. */
  readonly endsWithServer?: boolean;
  /** Called with the end of the run while the process has the lease, before anything is stored. */
  readonly flush?: ((end: RunEnd) => Promise<void>) | undefined;
  /** Stores the end, calls `releaseLease`, which alone gives the lease back, and then notifies the client. */
  finish(end: FinalEnd, releaseLease: () => Promise<void>): Promise<T>;
  /** The request has not ended. Its client is told why. */
  interrupt(interruption: Interruption): T;
}

export interface DrivenRequest<T> {
  readonly run: DrivenRun;
  /** Rejects if another process has taken over. */
  readonly finished: Promise<T>;
}

/** A record that no other process resumes or finishes while this process has the lease. */
export interface TakenRecord {
  readonly record: RequestRecord;
  readonly lease: Lease;
}

/** Its run so far. The state is `NEW` if it has not started, or if the journal cannot be read. */
export interface ReplayedRecord extends TakenRecord {
  readonly items: readonly Item[];
  readonly state: State;
}

/** A run to resume. */
export interface TakenRun extends ReplayedRecord {
  readonly run: StoredRunPlan;
  /** Undefined: the run has not started. Otherwise its conversation is in its journal. */
  readonly resume: ResumedRun | undefined;
}

export interface ResumeOptions {
  /** For what the run waits for. */
  readonly answers?: readonly Answer[];
  /** A message that is added. The run pauses again. */
  readonly input?: string;
  /** What a source narrows is lifted. */
  readonly lift?: LiftedNarrowing;
  /** The run is cancelled. */
  readonly cancel?: boolean;
  /** Counts the bytes of what else is read. If they are too many, the run is resumed later. */
  readonly hold?: Capacity['hold'] | undefined;
}

/** A run that was forked. It is not driven yet. */
export interface ForkedRun {
  readonly runId: string;
  /** The name of its model. Absent: that of the original. */
  readonly model?: string;
  readonly instructions?: string;
  /** The text that replaces the message with which the run was started. */
  readonly input?: string;
}

export interface StoredEnd {
  /** The request has not ended, and is resumed later. */
  readonly interruption?: Interruption;
}

export type FinalEnd = RunEnd & { readonly ending: Ending };

export type FailedEnding = Extract<Ending, { type: 'failed' }>;

/** What of this server requests need. */
export type RequestEngine = DrivingEngine & Pick<Engine, 'store' | 'runs' | 'namedAgents'>;

/** `keptMs`: how long keys are kept. */
export function requests(engine: RequestEngine, keptMs: number = KEY_MS): Requests {
  const { store, runs, log, driven } = engine;
  const records = store.requests;
  const apis = new Map<string, RequestApi>();
  const active = churnMap<string, Promise<StoredEnd>>();
  const apiOf = ({ kind }: Pick<RequestRecord, 'kind'>): RequestApi | undefined => apis.get(kind);
  const postponed: Postponements = new Map();
  const recovery = requestRecovery(engine, { apiOf, active, postponed, takeOver, resumeTaken });
  const follower = requestFollower(engine, { apiOf, active, recoverRecord: recovery.recoverRecord });

  const create: Requests['create'] = async ({ tenant, plan: planRequest, complete }) => {
    const { hold, release: releaseCapacity } = runs.reserve(tenant);
    try {
      const planned = await planRequest(hold);
      return await whileOpen(planned.plan, async () => {
        const { request, stored } = await complete(await checkGiven(planned), hold);
        const { plan } = request;
        const lease = stored && (await storeRecord(plan.id, stored));
        if (plan.size > LARGE) await nextTurn();
        const leased = lease && { plan: { ...plan, journal: store, lease } };
        return { ...request, ...leased, record: stored?.record, releaseCapacity };
      });
    } catch (error) {
      releaseCapacity();
      throw error;
    }
  };

  /** For all APIs alike. */
  async function checkGiven<P extends PlannedRequest>(planned: P): Promise<P> {
    const { given, facts, size } = planned.plan;
    const checked = given && (await checkInjection(engine, given, { facts, size }));
    return checked === undefined || checked === facts
      ? planned
      : { ...planned, plan: { ...planned.plan, facts: checked } };
  }

  async function storeRecord(runId: string, made: NewRecord): Promise<Lease> {
    const lease = await store.acquire(runId);
    try {
      if (made.conversation === undefined) await records.create(made.record, made.keys, made.input);
      else await addToConversation(store, made);
      return lease;
    } catch (error) {
      await lease.release();
      throw error;
    }
  }

  const createOnce: Requests['createOnce'] = async (request, key, claimed) => {
    for (;;) {
      const id = key && (await follower.findKey(request.tenant, key));
      if (id !== undefined) return { type: 'repeated', id };
      const before = await claimed?.();
      if (before !== undefined) return { type: 'claimed', claimed: before };
      try {
        return { type: 'created', created: await create(request) };
      } catch (error) {
        const isTaken = isKeyTaken(error) || (isBusy(error) && key && (await follower.findKey(request.tenant, key)));
        if (!isTaken || !(key ?? claimed)) throw error;
      }
    }
  };

  function drive<T extends StoredEnd>(plan: RunPlan, driving: Driving<T>): DrivenRequest<T> {
    const { id = plan.id, output, resume, start, signal, flush } = driving;
    const { endsWithServer = !plan.lease } = driving;
    output.open();
    output.replay(resume);
    const run = start ? addDriven(engine, plan, start(plan)) : driveRun(plan, engine, output.add, resume);
    signal?.addEventListener('abort', run.cancel, { once: true });
    if (plan.isCancelled || signal?.aborted) run.cancel();
    const ended = flush ? run.ended.then((end) => flush(end).then(() => end)) : run.ended;
    const finished = settle(ended, { ...driving, id, lease: plan.lease });
    active.set(id, finished);
    const remove = (): void => {
      signal?.removeEventListener('abort', run.cancel);
      if (active.get(id) === finished) active.delete(id);
    };
    finished.then(remove, remove);
    runs.add({ detach: () => (endsWithServer ? run.cancel() : void run.detach()), finished });
    return { run, finished };
  }

  type Settling<T extends StoredEnd> = Pick<Driving<T>, 'finish' | 'interrupt'> & {
    readonly id: string;
    readonly lease: Lease | undefined;
  };

  async function settle<T extends StoredEnd>(ended: Promise<RunEnd>, settling: Settling<T>): Promise<T> {
    const { id, lease, finish, interrupt } = settling;
    const releaseLease = async (): Promise<void> => lease?.release();
    /** Only the request of the client ends. The run is resumed later, or belongs to another process. */
    const stop = async (interruption: Interruption): Promise<T> => {
      await releaseLease();
      return interrupt(interruption);
    };
    try {
      const end = await ended.catch((error: unknown) => unexpectedEnd(id, error));
      if (end.rejectedAnswer) return await stop({ code: UNFIT, reason: end.rejectedAnswer.message });
      if (end.isAsleep) {
        const isTimed = onlyParked(end.waiting ?? []);
        // Avoids useless lookups.
        if (!isTimed) await records.markWaiting(id).catch(() => {});
        const value = await stop(isTimed ? ASLEEP : WAITING);
        recovery.noteAsleep();
        return value;
      }
      if (!isFinal(end)) return await stop(SHUTTING_DOWN);
      const value = await finish(end, releaseLease);
      postponed.delete(id);
      return value;
    } catch (error) {
      if (isDrivenElsewhere(error)) {
        await stop(TAKEN_OVER);
        throw error;
      }
      // The client receives an error without details.
      log.error({ err: error, response: id }, 'a response was interrupted: the store cannot be written');
      if (lease) recovery.postpone(id);
      return stop(STORE_FAILED);
    }
  }

  /** The run cannot be driven. If a later attempt may succeed, the request does not fail. */
  function unexpectedEnd(id: string, error: unknown): RunEnd {
    if (isDrivenElsewhere(error) || isStoreFailure(error)) throw error;
    log.error({ err: error, response: id }, 'a response failed unexpectedly');
    return { ending: { type: 'failed', error: UNEXPECTED, at: Date.now(), usage: NO_USAGE } };
  }

  async function takeOver(
    { id, tenant, runId }: UnfinishedRequest,
    isWanted: (record: RequestRecord) => boolean | Promise<boolean>,
  ): Promise<TakenRecord | undefined> {
    const lease = await store.acquire(runId);
    try {
      const record = await readRecord(store, id, { tenant });
      if (record && (await isWanted(record))) return { record, lease };
    } catch (error) {
      await lease.release();
      throw error;
    }
    await lease.release();
    return undefined;
  }

  const continueTaken: Requests['continueTaken'] = async ({ lease }, plan) => {
    try {
      return await plan();
    } catch (error) {
      await lease.release();
      throw error;
    }
  };

  async function resumeTaken(
    taken: TakenRecord,
    { answers, input, lift, cancel = false, hold }: ResumeOptions = {},
  ): Promise<FinishingRequest> {
    const { record, lease } = taken;
    const { id, tenant, runId } = record;
    const api = apiOf(record)!;
    try {
      const { key, scopes, facts } = record.request as StoredCaller;
      const caller = { tenant, key, scopes, facts };
      // A run that is cancelled does nothing.
      if (!cancel) checkRunKey(engine, caller);
      const { items, state } = await replayItems(store, runId, { tenant });
      const recorded = state.nextTools ?? state.tools;
      const definition = definitionIn(items);
      const run = { id: runId, caller, journal: store, lease, isCancelled: cancel, recorded, definition };
      const resume = {
        items,
        usedTokens: state.usage.outputTokens,
        ...(answers && { answers }),
        ...(input !== undefined && { input }),
        ...(lift && { lift }),
      };
      const hasStarted = state !== NEW;
      const [first] = items;
      const change = first?.type === 'fact' && !cancel ? await definitionChange(engine, first.event) : undefined;
      if (change !== undefined) log.warn({ run: runId, change }, 'the definition of the agent of a run has changed');
      const planned = await api.plan({ ...taken, items, state, run, resume: hasStarted ? resume : undefined }, hold);
      return await whileOpen(planned.plan, planned.drive);
    } catch (error) {
      await leaveForLater(taken, error);
      log.warn({ err: error, response: id }, 'a request cannot be resumed');
      const failed = await failUnresumable(api, taken, error);
      return { finished: Promise.resolve(failed) };
    }
  }

  async function failUnresumable(api: RequestApi, taken: TakenRecord, error: unknown): Promise<StoredEnd> {
    const { record, lease } = taken;
    try {
      const run = await replayItems(store, record.runId, record).catch((failure: unknown) => {
        if (isStoreFailure(failure)) throw failure;
        return { items: [], state: NEW };
      });
      if (run.state !== NEW) await cancelUnresumable(taken);
      const reason = { code: 'server_error', message: unresumableReason(error) };
      const { usage } = run.state;
      await api.fail({ ...taken, ...run }, { type: 'failed', error: reason, at: Date.now(), usage });
      return {};
    } finally {
      await lease.release();
      api.failed?.(record);
    }
  }

  /** Rejects only if the store fails: a run with a damaged journal stays as it is. */
  async function cancelUnresumable({ record: { runId }, lease }: TakenRecord): Promise<void> {
    const journal = runJournal(store, lease);
    const signal = AbortSignal.abort();
    try {
      await runLoop({
        journal,
        runId,
        model: NO_MODEL,
        // The run needs what it was started with, although nothing of it is used.
        ledger: NO_BUDGETS,
        guardrails: NO_GUARDRAILS,
        ...(engine.agents && { agents: engine.agents }),
        acceptChangedTools: true,
        killProcess,
        signal,
      });
    } catch (failure) {
      if (isStoreFailure(failure)) throw failure;
    }
  }

  async function resumeNow(found: UnfinishedRequest, how: ResumeOptions): Promise<boolean> {
    const { id, tenant, runId } = found;
    const head = apiOf(found) && (await records.head(tenant, id));
    if (!head || !isOpenRecord(head)) return false;
    // A run that is cancelled does nothing.
    const { hold, release: releaseCapacity } = how.cancel ? runs.reserveBytes(tenant) : runs.reserve(tenant);
    let finished: Promise<StoredEnd> | undefined;
    try {
      await holdStored(store, found, hold);
      const taken = await takeOver(found, isOpenRecord);
      if (taken) ({ finished } = await resumeTaken(taken, { ...how, hold }));
    } finally {
      if (!finished) releaseCapacity();
    }
    if (!finished) return false;
    finished.then(releaseCapacity, releaseCapacity);
    const { answered } = how.answers || how.lift || how.input !== undefined ? (driven.get(runId) ?? {}) : {};
    const end = await (answered ? Promise.race([answered, finished]) : finished);
    if (end?.interruption) throw notDone(end.interruption);
    return true;
  }

  return {
    ...recovery,
    ...follower,
    register: (kind, api) => void apis.set(kind, api),
    create,
    createOnce,
    drive,
    takeOver,
    continueTaken,
    resumeTaken,
    resume: resumeNow,
    isForkable: (record) => apiOf(record)?.createFork !== undefined,
    async fork(original, fork) {
      const record = await apiOf(original)!.createFork!(original, fork);
      // If there is no capacity now, it is resumed later.
      void recovery.recoverRecord(record).catch((error: unknown) => {
        log.error({ err: error, response: record.id }, 'a fork was not resumed');
      });
    },
    async whenEnded(id) {
      await active.get(id)?.catch(() => {});
    },
    forget: (id) => void postponed.delete(id),
    keyToStore: ({ isKept = false, ...key }, now, id) => ({
      ...key,
      ...(isKept && id !== undefined && { keptWith: id }),
      expiresAt: now + keptMs,
    }),
  };
}

/** The definition of the agent that a run was started with. */
function definitionIn([first]: readonly Item[]): unknown {
  return first?.type === 'fact' && first.event.type === 'run-started' ? first.event.definition : undefined;
}

/** Does something with open tools before they are used. If that fails, they are closed. */
async function whileOpen<T>({ toolset }: OpenPlan, act: () => T | Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    await toolset.close();
    throw error;
  }
}

function isFinal(end: RunEnd): end is FinalEnd {
  return end.ending !== undefined;
}

/** All items of a run so far, from its journal, and its state; `NEW` if it has not started. */
export async function replayItems(
  journal: StoredJournal,
  runId: string,
  { tenant, hold }: Reader,
): Promise<{ readonly items: readonly Item[]; readonly state: State }> {
  const items: Item[] = [];
  const entries = await readEntries(journal, runId, { tenant, hold });
  const { state } = await walkInSlices(entries, (step) => void items.push(...step.items));
  return { items, state };
}

/** Whether the request of a record can be resumed. */
export function isOpenRecord({ status }: Pick<RequestRecord, 'status'>): boolean {
  return status === 'in_progress' || status === 'requires_action';
}

/** Never called: the run is cancelled before it calls a model. */
const NO_MODEL: Model = { id: 'none', reply: () => new Promise(() => {}) };

const STOP = (): string => 'The run is cancelled.';
const NO_GUARDRAILS: Guardrails = { input: [STOP], output: [STOP] };

const NO_USAGE = { inputTokens: 0, outputTokens: 0 };

const UNEXPECTED = { code: 'server_error', message: 'The server failed unexpectedly. Its log has the reason.' };
