import { setTimeout as delay } from 'node:timers/promises';
import {
  runLoop,
  waiting,
  walkInSlices,
  type Answer,
  type Item,
  type Lease,
  type Model,
  type RunSummary,
  type State,
} from '@treadle/core';
import type { IdempotencyKey, ResponseRecord, UnfinishedResponse } from '@treadle/store';
import { ApiError, isStoreFailure } from '../api-error.ts';
import { checkRunKey, type StoredCaller } from './driven-runs.ts';
import type { Capacity, Engine } from './engine.ts';
import { KEY_MS, recordOfKey, responseDeleted, type RequestKey } from './idempotency.ts';
import {
  ASLEEP,
  isDrivenElsewhere,
  isTooMuch,
  leaveForLater,
  notDone,
  retryLater,
  SHUTTING_DOWN,
  STORE_FAILED,
  TAKEN_OVER,
  UNFIT,
  WAITING,
  type Interruption,
} from './interruption.ts';
import { isAsleep, isClientAsked, killProcess, onlyParked, runJournal, type Ending, type RunEnd } from './run.ts';
import { holdStored, readEntries, readRecord, type Reader, type StoredJournal } from './stored-reads.ts';

/**
 * The stored requests of both APIs, and their runs.
 *
 * 1. A stored request belongs to the process that has the lease of its run, from before it is created until its end is
 *    stored. A process that takes one over acquires the run first, and then reads the record and the run.
 * 2. A client learns that its request has ended only when the end is stored. If the end cannot be stored, or the run was
 *    detached, the client learns that the request was interrupted, and it is resumed later.
 */
export interface StoredRuns {
  /** Sets how records whose id starts with `prefix` are resumed. */
  handle(prefix: string, handler: RecordHandler): void;
  /**
   * Resumes requests that another process has detached from, and those whose time has come, in the background. Resolves to
   * their number.
   */
  recover(): Promise<number>;
  /**
   * Resumes the request of a record in the background. False if a process drives it, it has ended or sleeps, or it is resumed
   * later.
   */
  recoverRecord(record: UnfinishedResponse): Promise<boolean>;
  /** Does so for all every 30 seconds, and when a request that sleeps is due, until the returned function is called. */
  keepRecovering(): () => void;
  /**
   * Acquires the run of a record, then reads the record again, because another process may have finished it. Its bytes have
   * to be counted before (`holdStored`). Undefined if it is not wanted any more. Rejects with `run-driven` while another process drives it.
   */
  takeOver(
    record: UnfinishedResponse,
    isWanted: (record: ResponseRecord) => boolean | Promise<boolean>,
  ): Promise<TakenRecord | undefined>;
  /**
   * Resumes the run of a record now, with answers, or with a signal that cancels it. Resolves when the answers are durable, or
   * the run was cancelled; false if the request has ended. Rejects with `run-driven` while another process drives it, with a
   * 409 if an answer cannot be used, and with a 503 if the store fails.
   */
  resume(record: UnfinishedResponse, how: ResumeOptions): Promise<boolean>;
  /** Whether `fork` can be called for a record. */
  isForkable(id: string): boolean;
  /** Creates a request whose run is a fork of that of another one, and resumes it in the background. */
  fork(record: ResponseRecord, fork: ForkedRun): Promise<void>;
  /** Resolves when the request of a record has ended or was interrupted, if this process drives it. */
  whenEnded(id: string): Promise<void>;
  /** Waits for the end of a run that this process drives. Rejects if another process has taken over. */
  awaitEnd<T extends StoredEnd>(ended: Promise<RunEnd>, settling: Settling<T>): Promise<T>;
  /**
   * The id of the record that was created with the key; undefined if there is none. Rejects with a 409 for another body, and
   * if the record was deleted.
   */
  findKey(tenant: string, key: RequestKey): Promise<string | undefined>;
  /** The key as it is stored with a record that is created now. */
  keyToStore(key: RequestKey, now: number): IdempotencyKey;
  /**
   * Waits until the request that was first with the key has ended, in this process or another one, and resumes it if its
   * process has died. Resolves to its record; undefined if it has released the key. Rejects with a 409 if the record was
   * deleted, and with a 503 if the request is interrupted or asleep.
   */
  follow(repeated: RepeatedRequest, signal: AbortSignal): Promise<ResponseRecord | undefined>;
  /**
   * Waits until the request of a record has ended, as `follow` does. Resolves to the record; undefined if it was deleted.
   * Rejects with an error of `interrupted` if the request is interrupted or asleep.
   */
  ended(
    record: Reader & Pick<ResponseRecord, 'id'>,
    signal: AbortSignal,
    interrupted: (interruption: Interruption) => ApiError,
  ): Promise<ResponseRecord | undefined>;
  /** The record was deleted. */
  forget(id: string): void;
}

/** A request with a key that was used before. */
export interface RepeatedRequest extends Reader {
  readonly key: RequestKey;
  /** The id of the record. */
  readonly id: string;
}

/** A record that no other process resumes or finishes while this process has the lease. */
export interface TakenRecord {
  readonly record: ResponseRecord;
  readonly lease: Lease;
}

export interface ResumeOptions {
  /** For what the run waits for. */
  readonly answers?: readonly Answer[];
  /** Cancels the run. */
  readonly signal?: AbortSignal;
  /** Counts the bytes of what else is read. If they are too many, the run is resumed later. */
  readonly hold?: Capacity['hold'] | undefined;
}

/** How the requests of one API are resumed. */
export interface RecordHandler {
  /** Resumes the run of a record. Its key was checked. Rejects if it cannot be resumed. */
  resume(taken: TakenRecord, how: ResumeOptions): Promise<{ readonly finished: Promise<StoredEnd> }>;
  /** Ends a request that cannot be resumed, and releases the lease. */
  fail(taken: TakenRecord, error: unknown): Promise<StoredEnd>;
  /** The runs of these records may wait for answers: `waits` of their plans. */
  readonly waits?: boolean;
  /** Stores a record for a fork of the run of a record. Its status is `in_progress`. Absent: the runs cannot be forked. */
  readonly createFork?: (record: ResponseRecord, fork: ForkedRun) => Promise<ResponseRecord>;
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

export interface Settling<T> {
  /** The id of the record. */
  readonly id: string;
  /** Released at the end. Absent: the run is not stored. */
  readonly lease: Lease | undefined;
  /** Stores the end, calls `release`, and then notifies the client. */
  finish(end: FinalEnd, release: () => Promise<void>): Promise<T>;
  interrupt(interruption: Interruption): T;
}

export type FinalEnd = RunEnd & { readonly ending: Ending };

/**
 * A request that this process could not store. A store may accept small writes and reject large ones, and each attempt
 * may call the model, so the time between attempts doubles.
 */
interface Postponement {
  readonly failures: number;
  /** By `performance.now()`. */
  readonly until: number;
}

/** How long to wait before a request is resumed that could not be stored: after the first failure, and at most. */
const FIRST_RETRY_MS = 30_000;
const LAST_RETRY_MS = 3_600_000;

/** How long `follow` waits before it looks again for the end of a run in another process: at first, and at most. */
const FIRST_FOLLOW_MS = 50;
const LAST_FOLLOW_MS = 1_000;

/** The line in the log that says how many runs were resumed: at the start, and later if there were any. */
export const RECOVERED = 'runs were recovered';

/** How often to look for requests to resume; and at most, if one of them is due before. */
const RECOVER_MS = 30_000;
const LEAST_RECOVER_MS = 1_000;

/** `keptMs`: how long keys are kept. */
export function storedRuns(
  engine: Pick<Engine, 'store' | 'runs' | 'log' | 'driven' | 'metrics' | 'keys'>,
  keptMs: number = KEY_MS,
): StoredRuns {
  const { store, runs, log, driven, metrics } = engine;
  const records = store.responses;
  const handlers = new Map<string, RecordHandler>();
  const active = new Map<string, Promise<StoredEnd>>();
  const postponed = new Map<string, Postponement>();
  /** Called when a run of this process has fallen asleep. */
  let onAsleep = (): void => {};
  /** A request was not resumed, because there is no capacity. */
  let isFull = false;
  /** The time of the last look. What was due by then has been found. */
  let lookedAt = Date.now();

  const takeOver: StoredRuns['takeOver'] = async ({ id, tenant, runId }, isWanted) => {
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
  };

  async function recoverAll(): Promise<number> {
    let count = 0;
    isFull = false;
    lookedAt = Date.now();
    for (const record of await records.unfinished(lookedAt)) {
      try {
        if (await recoverRecord(record)) count++;
      } catch (error) {
        // It is still in progress. The next attempt may succeed.
        if (!isDrivenElsewhere(error)) log.error({ err: error, response: record.id }, 'a response was not resumed');
      }
    }
    metrics?.runsRecovered(count);
    return count;
  }

  function handlerOf(id: string): RecordHandler | undefined {
    return [...handlers].find(([prefix]) => id.startsWith(prefix))?.[1];
  }

  /** Resumes a request of any API. One that cannot be resumed fails. Rejects if the store fails. */
  async function resumeTaken(
    { resume, fail }: RecordHandler,
    taken: TakenRecord,
    how: ResumeOptions,
  ): Promise<{ readonly finished: Promise<StoredEnd> }> {
    const { id, tenant, request } = taken.record;
    try {
      // A run that is cancelled does nothing.
      if (!how.signal?.aborted) checkRunKey(engine, { ...(request as StoredCaller), tenant });
      return await resume(taken, how);
    } catch (error) {
      await leaveForLater(taken, error);
      log.warn({ err: error, response: id }, 'a request cannot be resumed');
      const failed = await fail(taken, error);
      return { finished: Promise.resolve(failed) };
    }
  }

  async function recoverRecord(found: UnfinishedResponse): Promise<boolean> {
    const { id, tenant, runId } = found;
    if (performance.now() < (postponed.get(id)?.until ?? 0)) return false;
    const handler = handlerOf(id);
    if (!handler || active.has(id) || (await store.isDriven(runId))) return false;
    const release = reserveIfPossible(tenant);
    isFull ||= !release;
    if (!release) return false;
    let finished: Promise<unknown> | undefined;
    try {
      await holdStored(store, found, release.hold);
      // Since it was found, another process may have woken it, and it may have fallen asleep again.
      const isDue = async ({ status }: ResponseRecord): Promise<boolean> =>
        status === 'in_progress' && !(await isSleeping(store, found, handler));
      const taken = await takeOver(found, isDue);
      if (taken) ({ finished } = await resumeTaken(handler, taken, { hold: release.hold }));
    } catch (error) {
      if (!isTooMuch(error)) throw error;
      isFull = true;
    } finally {
      if (!finished) release();
    }
    finished?.then(release, (error: unknown) => {
      release();
      log.error({ err: error, response: id }, 'a resumed response failed unexpectedly');
    });
    return finished !== undefined;
  }

  async function resumeNow(found: UnfinishedResponse, how: ResumeOptions): Promise<boolean> {
    const { id, tenant, runId } = found;
    const handler = handlerOf(id);
    const head = handler && (await records.head(tenant, id));
    if (!head || !isOpenRecord(head)) return false;
    // A run that is cancelled does nothing.
    const release = how.signal?.aborted ? runs.reserveBytes(tenant) : runs.reserve(tenant);
    let finished: Promise<StoredEnd> | undefined;
    try {
      await holdStored(store, found, release.hold);
      const taken = await takeOver(found, isOpenRecord);
      if (taken) ({ finished } = await resumeTaken(handler, taken, { ...how, hold: release.hold }));
    } finally {
      if (!finished) release();
    }
    if (!finished) return false;
    finished.then(release, release);
    const { answered } = how.answers ? (driven.get(runId) ?? {}) : {};
    const end = await (answered ? Promise.race([answered, finished]) : finished);
    if (end?.interruption) throw notDone(end.interruption);
    return true;
  }

  async function forkRecord(original: ResponseRecord, fork: ForkedRun): Promise<void> {
    const record = await handlerOf(original.id)!.createFork!(original, fork);
    // If there is no capacity now, it is resumed later.
    void recoverRecord(record).catch((error: unknown) => {
      log.error({ err: error, response: record.id }, 'a fork was not resumed');
    });
  }

  function keepRecovering(): () => void {
    let timer: NodeJS.Timeout | undefined;
    /** When the timer fires, by `performance.now()`. */
    let firesAt = Infinity;
    let isLooking = false;
    let isStopped = false;
    /** A timer is never postponed: responses that fall asleep all the time must not keep the others from waking. */
    const wait = (ms: number): void => {
      const at = performance.now() + ms;
      if (isStopped || isLooking || at >= firesAt) return;
      clearTimeout(timer);
      firesAt = at;
      timer = setTimeout(() => void look(), ms).unref();
    };
    async function msUntilDue(): Promise<number> {
      const [next] = await store.list({ due: { from: lookedAt + 1, to: Date.now() + RECOVER_MS }, limit: 1 });
      return Math.max(LEAST_RECOVER_MS, Math.min(RECOVER_MS, (next?.wakeAt ?? Infinity) - Date.now()));
    }
    async function look(): Promise<void> {
      firesAt = Infinity;
      isLooking = true;
      let ms = RECOVER_MS;
      try {
        const recovered = await recoverAll();
        if (recovered > 0) log.info({ recovered }, RECOVERED);
        ms = isFull ? LEAST_RECOVER_MS : await msUntilDue();
      } catch (error) {
        log.error({ err: error }, 'could not look for detached responses');
      }
      isLooking = false;
      wait(ms);
    }
    onAsleep = () => void msUntilDue().then(wait, () => {});
    onAsleep();
    return () => {
      isStopped = true;
      clearTimeout(timer);
      onAsleep = () => {};
    };
  }

  /** Undefined if there is no capacity. */
  function reserveIfPossible(tenant: string): Capacity | undefined {
    try {
      return runs.reserve(tenant);
    } catch {
      return undefined;
    }
  }

  async function settle<T>(ended: Promise<RunEnd>, settling: Settling<T>): Promise<T> {
    const { id, lease, finish, interrupt } = settling;
    const release = async (): Promise<void> => lease?.release();
    /** Only the request of the client ends. The run is resumed later, or belongs to another process. */
    const stop = async (interruption: Interruption): Promise<T> => {
      await release();
      return interrupt(interruption);
    };
    try {
      const end = await ended.catch((error: unknown) => unexpectedEnd(id, error));
      if (end.rejectedAnswer) return await stop({ code: UNFIT, reason: end.rejectedAnswer.message });
      if (end.isAsleep) {
        const isTimed = onlyParked(end.waiting ?? []);
        // Only so that nobody looks at it in vain.
        if (!isTimed) await records.markWaiting(id).catch(() => {});
        const value = await stop(isTimed ? ASLEEP : WAITING);
        onAsleep();
        return value;
      }
      if (!isFinal(end)) return await stop(SHUTTING_DOWN);
      const value = await finish(end, release);
      postponed.delete(id);
      return value;
    } catch (error) {
      if (isDrivenElsewhere(error)) {
        await stop(TAKEN_OVER);
        throw error;
      }
      // The client receives an error without details.
      log.error({ err: error, response: id }, 'a response was interrupted: the store cannot be written');
      const failures = (postponed.get(id)?.failures ?? 0) + 1;
      const delayMs = Math.min(FIRST_RETRY_MS * 2 ** (failures - 1), LAST_RETRY_MS);
      postponed.set(id, { failures, until: performance.now() + delayMs });
      return stop(STORE_FAILED);
    }
  }

  const endedRecord: StoredRuns['ended'] = async ({ id, ...reader }, signal, interrupted) => {
    const { tenant } = reader;
    for (let pauseMs = FIRST_FOLLOW_MS; ; pauseMs = Math.min(2 * pauseMs, LAST_FOLLOW_MS)) {
      // If another process takes over, its end is waited for.
      const { interruption } = (await active.get(id)?.catch(() => undefined)) ?? {};
      if (interruption) throw interrupted(interruption);
      const head = await records.head(tenant, id);
      if (head?.status !== 'in_progress') return head && readRecord(store, id, reader);
      const { runId } = head;
      const isAsleepNow =
        !(await store.isDriven(runId)) && (await isSleeping(store, { ...reader, runId }, handlerOf(id)));
      if (isAsleepNow) throw interrupted(ASLEEP);
      const isResumed = await recoverRecord({ id, tenant, runId }).catch((error: unknown) => {
        if (isDrivenElsewhere(error)) return false;
        throw error;
      });
      if (!isResumed) await delay(pauseMs, undefined, { signal }).catch(() => {});
      if (signal.aborted) throw disconnected();
    }
  };

  /** The run cannot be driven. If a later attempt may succeed, the request does not fail. */
  function unexpectedEnd(id: string, error: unknown): RunEnd {
    if (isDrivenElsewhere(error) || isStoreFailure(error)) throw error;
    log.error({ err: error, response: id }, 'a response failed unexpectedly');
    return { ending: { type: 'failed', error: UNEXPECTED, at: Date.now(), usage: NO_USAGE } };
  }

  return {
    handle: (prefix, handler) => void handlers.set(prefix, handler),
    resume: resumeNow,
    isForkable: (id) => handlerOf(id)?.createFork !== undefined,
    fork: forkRecord,
    async whenEnded(id) {
      await active.get(id)?.catch(() => {});
    },
    recover: recoverAll,
    recoverRecord,
    keepRecovering,
    takeOver,
    awaitEnd(ended, settling) {
      const finished = settle(ended, settling);
      active.set(settling.id, finished);
      const remove = (): void => void active.delete(settling.id);
      finished.then(remove, remove);
      return finished;
    },
    async findKey(tenant, key) {
      const id = await recordOfKey(records, tenant, key);
      if (id !== undefined && !(await records.head(tenant, id))) throw responseDeleted();
      return id;
    },
    keyToStore: (key, now) => ({ ...key, expiresAt: now + keptMs }),
    async follow({ key, ...repeated }, signal) {
      const { tenant, id } = repeated;
      const record = await endedRecord(repeated, signal, retryLater);
      if (!record) throw responseDeleted();
      const isReleased = record.status === 'failed' && (await recordOfKey(records, tenant, key)) !== id;
      return isReleased ? undefined : record;
    },
    ended: endedRecord,
    forget: (id) => void postponed.delete(id),
  };
}

/** The client does not receive it. */
function disconnected(): ApiError {
  return new ApiError(499, 'server_error', 'The client has disconnected.', { code: 'cancelled' });
}

function isFinal(end: RunEnd): end is FinalEnd {
  return end.ending !== undefined;
}

/** All items of a run so far, from its journal, and its state; `NEW` if it has not started. */
export async function replayItems(
  journal: StoredJournal,
  runId: string,
  reader: Reader,
): Promise<{ readonly items: readonly Item[]; readonly state: State }> {
  const items: Item[] = [];
  const entries = await readEntries(journal, runId, reader);
  const { state } = await walkInSlices(entries, (step) => void items.push(...step.items));
  return { items, state };
}

/** Whether a run waits for a later time or for answers. One that cannot be read does not: resuming it fails. */
async function isSleeping(
  store: Engine['store'],
  { runId, ...reader }: Reader & { readonly runId: string },
  { waits = false }: Pick<RecordHandler, 'waits'> = {},
): Promise<boolean> {
  try {
    const [{ status, wakeAt } = NOT_PAUSED] = await store.list({ runId, limit: 1 });
    if (status !== 'paused' || (wakeAt !== undefined && wakeAt <= Date.now())) return false;
    const entries = await readEntries(store, runId, reader);
    // If its client approves calls, it has ended for the client, and only that was not stored.
    const open = waiting((await walkInSlices(entries)).state);
    const others = open.filter((one) => !isClientAsked(one));
    return (others.length > 0 || open.length === 0) && isAsleep(others, wakeAt, waits);
  } catch (error) {
    if (isTooMuch(error)) throw error;
    return false;
  }
}

const NOT_PAUSED: Pick<RunSummary, 'status' | 'wakeAt'> = { status: 'running' };

/** Whether the request of a record can be resumed. */
export function isOpenRecord({ status }: Pick<ResponseRecord, 'status'>): boolean {
  return status === 'in_progress' || status === 'requires_action';
}

/** Never called: the run is cancelled before it calls a model. */
const NO_MODEL: Model = { id: 'none', reply: () => new Promise(() => {}) };

/** Ends a run that cannot be resumed. */
export async function cancelRun(store: Engine['store'], { record, lease }: TakenRecord): Promise<void> {
  const { runId } = record;
  const journal = runJournal(store, lease);
  const signal = AbortSignal.abort();
  await runLoop({ journal, runId, model: NO_MODEL, acceptChangedTools: true, killProcess, signal });
}

/** The same, but rejects only if the store fails: a run with a damaged journal stays as it is. */
export async function cancelIfReadable(store: Engine['store'], taken: TakenRecord): Promise<void> {
  await cancelRun(store, taken).catch((failure: unknown) => {
    if (isStoreFailure(failure)) throw failure;
  });
}

const NO_USAGE = { inputTokens: 0, outputTokens: 0 };

const UNEXPECTED = { code: 'server_error', message: 'The server failed unexpectedly. Its log has the reason.' };
