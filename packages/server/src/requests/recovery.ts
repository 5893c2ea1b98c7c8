import { waiting, walkInSlices, type RunSummary } from '@treadle/core';
import type { ChurnMap } from '@treadle/core/churn';
import type { RequestRecord, UnfinishedRequest } from '@treadle/store';
import type { Capacity, Engine } from '../engine/engine.ts';
import { isDrivenElsewhere, isTooMuch } from './interruption.ts';
import type { FinishingRequest, RequestApi, ResumeOptions, StoredEnd, TakenRecord } from './requests.ts';
import { isAsleep, isClientAsked } from './run.ts';
import { holdStored, readEntries, type Reader } from '../engine/stored-reads.ts';

/** Finds the stored requests that no process drives, and resumes them when there is capacity and their time has come. */
export interface RequestRecovery {
  /**
   * Resumes requests that another process has detached from, and those whose time has come, in the background. Resolves to
   * their number.
   */
  recover(): Promise<number>;
  /**
   * Resumes the request of a record in the background. False if a process drives it, it has ended or sleeps, or it is resumed
   * later.
   */
  recoverRecord(record: UnfinishedRequest): Promise<boolean>;
  /** Resumes the requests with calls that are parked on this, such as a device that is back, before their time has come. */
  wakeParked(on: string): Promise<void>;
  /**
   * Does so for all when runs may have lost their driver, when a request that sleeps is due, and every 30 seconds, until the
   * returned function is called.
   */
  keepRecovering(): () => void;
  /** A run of this process has fallen asleep. */
  noteAsleep(): void;
  /** A request could not be stored. It is not resumed for a time that doubles with each failure. */
  postpone(id: string): void;
}

/** How this process resumes requests. */
export interface Resuming {
  apiOf(record: Pick<RequestRecord, 'kind'>): RequestApi | undefined;
  /** The requests that this process drives, by the id of their record. */
  readonly active: Pick<ChurnMap<string, Promise<StoredEnd>>, 'get' | 'has'>;
  readonly postponed: Postponements;
  takeOver(
    record: UnfinishedRequest,
    isWanted: (record: RequestRecord) => boolean | Promise<boolean>,
  ): Promise<TakenRecord | undefined>;
  resumeTaken(taken: TakenRecord, how?: ResumeOptions): Promise<FinishingRequest>;
}

/** By the ids of the records. */
export type Postponements = Map<string, Postponement>;

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

/** The line in the log that says how many runs were resumed: at the start, and later if there were any. */
export const RECOVERED = 'runs were recovered';

/** How often to look for requests to resume; and at most, if one of them is due before. */
const RECOVER_MS = 30_000;
const LEAST_RECOVER_MS = 1_000;

export function requestRecovery(
  { store, runs, log, metrics }: Pick<Engine, 'store' | 'runs' | 'log' | 'metrics'>,
  { apiOf, active, postponed, takeOver, resumeTaken }: Resuming,
): RequestRecovery {
  let onAsleep = (): void => {};
  /** A request was not resumed, because there is no capacity. */
  let isFull = false;
  /** The time of the last look. What was due by then has been found. */
  let lookedAt = Date.now();

  async function recoverAll(): Promise<number> {
    let count = 0;
    isFull = false;
    lookedAt = Date.now();
    for (const record of await store.requests.undriven(lookedAt)) {
      try {
        if (await recoverRecord(record)) count++;
      } catch (error) {
        if (isDrivenElsewhere(error)) continue;
        // It is still in progress. A later attempt may succeed.
        postpone(record.id);
        log.error({ err: error, response: record.id }, 'a response was not resumed');
      }
    }
    metrics?.runsRecovered(count);
    return count;
  }

  async function wakeParked(on: string): Promise<void> {
    for (const record of await store.requests.unfinished()) {
      try {
        if (await isParkedOn(store, record, on)) await resumeRecord(record, () => isParkedOn(store, record, on));
      } catch (error) {
        if (!isDrivenElsewhere(error)) log.error({ err: error, response: record.id }, 'a response was not resumed');
      }
    }
  }

  const recoverRecord = (found: UnfinishedRequest): Promise<boolean> =>
    resumeRecord(found, async (api) => {
      if (!(await isSleeping(store, found, api))) return true;
      // Its process died before it did so. Avoids useless lookups.
      await store.requests.markWaiting(found.id);
      return false;
    });

  async function resumeRecord(
    found: UnfinishedRequest,
    isWanted: (api: RequestApi) => Promise<boolean>,
  ): Promise<boolean> {
    const { id, tenant, runId } = found;
    if (performance.now() < (postponed.get(id)?.until ?? 0)) return false;
    const api = apiOf(found);
    if (!api || active.has(id)) return false;
    const capacity = reserveIfPossible(tenant);
    isFull ||= !capacity;
    if (!capacity) return false;
    const { hold, release } = capacity;
    let finished: Promise<unknown> | undefined;
    try {
      if (await store.isDriven(runId)) return false;
      await holdStored(store, found, hold);
      // Since it was found, another process may have woken it, and it may have fallen asleep again.
      const isDue = async ({ status }: RequestRecord): Promise<boolean> =>
        status === 'in_progress' && (await isWanted(api));
      const taken = await takeOver(found, isDue);
      if (taken) ({ finished } = await resumeTaken(taken, { hold }));
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

  /** Undefined if there is no capacity. */
  function reserveIfPossible(tenant: string): Capacity | undefined {
    try {
      return runs.reserve(tenant);
    } catch {
      return undefined;
    }
  }

  function keepRecovering(): () => void {
    let timer: NodeJS.Timeout | undefined;
    /** When the timer fires, by `performance.now()`. */
    let firesAt = Infinity;
    let isLooking = false;
    /** Runs may have lost their driver since the look began. */
    let isAgain = false;
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
      isAgain = false;
      let ms = RECOVER_MS;
      try {
        const recovered = await recoverAll();
        if (recovered > 0) log.info({ recovered }, RECOVERED);
        ms = isFull ? LEAST_RECOVER_MS : await msUntilDue();
      } catch (error) {
        log.error({ err: error }, 'could not look for detached responses');
      }
      isLooking = false;
      wait(isAgain ? 0 : ms);
    }
    onAsleep = () => void msUntilDue().then(wait, () => {});
    onAsleep();
    const stopWatching = store.watchDrivers(() => {
      isAgain = true;
      wait(0);
    });
    return () => {
      isStopped = true;
      stopWatching();
      clearTimeout(timer);
      onAsleep = () => {};
    };
  }

  function postpone(id: string): void {
    const failures = (postponed.get(id)?.failures ?? 0) + 1;
    const delayMs = Math.min(FIRST_RETRY_MS * 2 ** (failures - 1), LAST_RETRY_MS);
    postponed.set(id, { failures, until: performance.now() + delayMs });
  }

  return {
    recover: recoverAll,
    recoverRecord,
    wakeParked,
    keepRecovering,
    noteAsleep: () => onAsleep(),
    postpone,
  };
}

/** Whether a run waits for a later time or for answers. One that cannot be read does not: resuming it fails. */
export async function isSleeping(
  store: Engine['store'],
  { runId, ...reader }: Reader & { readonly runId: string },
  { waits = false }: Pick<RequestApi, 'waits'> = {},
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

async function isParkedOn(
  store: Engine['store'],
  { runId, ...reader }: Reader & { readonly runId: string },
  on: string,
): Promise<boolean> {
  const [{ status } = NOT_PAUSED] = await store.list({ runId, limit: 1 });
  if (status !== 'paused') return false;
  const { state } = await walkInSlices(await readEntries(store, runId, reader));
  return waiting(state).some((one) => one.type === 'parked' && (one.on === on || one.on.startsWith(`${on} `)));
}

const NOT_PAUSED: Pick<RunSummary, 'status' | 'wakeAt'> = { status: 'running' };
