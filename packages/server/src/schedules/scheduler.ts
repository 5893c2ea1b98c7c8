import { messageOf, stableJson, systemClock, type Clock } from '@treadle/core';
import type { ScheduleContent, StoredSchedule } from '@treadle/store';
import { ApiError, isStoreFailure } from '../api-error.ts';
import type { Invocations } from '../apis/agents/invocations.ts';
import type { Engine } from '../engine/engine.ts';
import type { Caller } from '../http/admission.ts';
import { DEFAULT_TENANT } from '../http/keys.ts';
import { bodyDigest } from '../requests/idempotency.ts';
import type { ScheduleDefinition } from './definition.ts';
import { mayNotStart, starterCaller, type StarterKeys } from './starter.ts';
import { dueTimes, nextDue, startedTimes } from './timing.ts';

/*
 * Starts runs when they are due, on one of the servers with the same store.
 *
 * 1. What is started is decided once: of the servers that see that a schedule is due, the one that changes its entry has decided. The
 *    entry has the times that are to be started, so that a crash loses none.
 * 2. Each of these times starts at most one run: it is the key of the request. A server that dies between the start and the change of
 *    the entry leaves it to another one, which finds the run.
 * 3. The next time follows from the last one and the definition alone, so all servers agree on it.
 * 4. A schedule of the configuration is started by servers that have it. What the store has of others is left alone.
 */
export interface Scheduler {
  /** Those of the configuration instead of the earlier ones. They begin with the next look. */
  configure(schedules: ReadonlyMap<string, ConfiguredSchedule>): void;
  /** Begins to start runs. Resolves when the schedules of the configuration are stored. */
  start(): Promise<void>;
  stop(): Promise<void>;
  list(tenant: string): Promise<readonly KnownSchedule[]>;
  find(tenant: string, name: string): Promise<KnownSchedule | undefined>;
  /** False if one of this name exists. */
  add(caller: Pick<Caller, 'tenant' | 'key'>, name: string, definition: ScheduleDefinition): Promise<boolean>;
  remove(tenant: string, name: string): Promise<void>;
}

export interface ConfiguredSchedule extends ScheduleDefinition {
  /** The key of the server as which its runs are started. Empty: the server has no keys. */
  readonly key: string;
}

export interface KnownSchedule extends ScheduleState {
  readonly tenant: string;
  readonly name: string;
  readonly source: 'config' | 'api';
  readonly key: string;
  readonly definition: ScheduleDefinition;
}

/** What is stored of a schedule, so its fields must not change. */
interface StoredDefinition extends ScheduleDefinition {
  readonly source: 'config' | 'api';
  readonly key: string;
}

interface ScheduleState {
  /** The next due time that nothing was decided about. Null: there is none. */
  readonly next: number | null;
  /** Due times that are to be started, the earliest first. */
  readonly pending: readonly number[];
  /** How often the first of them could not be started. */
  readonly attempts: number;
  readonly last: { readonly due: number; readonly run: string } | null;
  /** How many due times were skipped: they were missed, or the run before had not ended. */
  readonly skipped: number;
  /** Why the last due time was not started. */
  readonly problem: { readonly due: number; readonly message: string } | null;
}

/** How long a server that has decided has to start what it has decided, before another one does. */
const CLAIM_MS = 25_000;
/** How often to look at least, and at most. */
const LOOK_MS = 30_000;
const LEAST_LOOK_MS = 1_000;
/** How often to look whether an earlier run has ended that a schedule waits for. */
const WAIT_MS = 5_000;
const FIRST_RETRY_MS = 2_000;
const LAST_RETRY_MS = 300_000;
/** Then the due time is given up. */
const MOST_ATTEMPTS = 50;
const MOST_PENDING = 100;
/** In the names of the store. */
const PREFIX = 'schedule ';

export interface SchedulerOptions {
  readonly engine: Pick<Engine, 'store' | 'log'>;
  readonly invocations: Pick<Invocations, 'prepare'>;
  readonly keys: StarterKeys;
  readonly clock?: Clock;
}

export function scheduler({ engine, invocations, keys, clock = systemClock }: SchedulerOptions): Scheduler {
  const { store, log } = engine;
  const { schedules } = store;
  let configured: ReadonlyMap<string, ConfiguredSchedule> = new Map();
  let isSynced = true;

  const starterOf = ({ tenant, name, key }: KnownSchedule): Caller => {
    const caller = starterCaller(keys, { log, kind: 'schedule', name, key });
    if (caller.tenant === tenant) return caller;
    throw mayNotStart('schedule', name, `The key "${key}" belongs to another tenant now`);
  };

  /* What is stored */

  function tenantOf(key: string): string {
    return key === '' ? DEFAULT_TENANT : (keys.named(key)?.tenant ?? DEFAULT_TENANT);
  }

  function known({ tenant, name: stored, definition: content, state }: StoredSchedule): KnownSchedule | undefined {
    if (!stored.startsWith(PREFIX)) return undefined;
    const name = stored.slice(PREFIX.length);
    const { source, key, ...definition } = content as StoredDefinition;
    if (source === 'config') {
      const own = configured.get(name);
      if (!own || tenantOf(own.key) !== tenant || !isSame(own, { ...definition, key })) return undefined;
    }
    return { tenant, name, source, key, definition, ...(state as ScheduleState) };
  }

  function newState(definition: ScheduleDefinition): ScheduleState {
    const next = nextDue(definition.timing, clock.now()) ?? null;
    return { next, pending: [], attempts: 0, last: null, skipped: 0, problem: null };
  }

  /** Adds and changes the entries of the configuration. One of an earlier definition keeps what it has started. */
  async function sync(): Promise<void> {
    for (const [name, own] of configured) {
      const tenant = tenantOf(own.key);
      const definition: StoredDefinition = { ...own, source: 'config' };
      const stored = await schedules.get(tenant, PREFIX + name);
      if (!stored) {
        const state = newState(own);
        await schedules.add({ tenant, name: PREFIX + name, ...content(definition, state) });
        continue;
      }
      const { source, ...before } = stored.definition as StoredDefinition;
      if (source === 'config' && isSame(before, own)) continue;
      if (source !== 'config') log.warn({ schedule: name }, 'a schedule of the configuration replaces one of a client');
      const { last, skipped } = stored.state as ScheduleState;
      await schedules.change(stored, content(definition, { ...newState(own), last, skipped }));
    }
  }

  /* Starting what is due */

  async function handle(stored: StoredSchedule, schedule: KnownSchedule): Promise<void> {
    const decided = await decide(stored, schedule);
    if (!decided) return;
    let [entry, now] = decided;
    for (const due of now.pending) {
      if (now.definition.overlap === 'wait' && (await isRunning(now.last?.run))) {
        await write(entry, now);
        return;
      }
      const after = { ...now, ...(await startOne(now, due)) };
      const isPostponed = after.pending.length === now.pending.length;
      const written = await write(entry, after, isPostponed ? retryAt(after.attempts) : undefined);
      if (!written || isPostponed) return;
      [entry, now] = written;
    }
  }

  /** Decides what is started, and claims it. Undefined: another server has. */
  async function decide(
    stored: StoredSchedule,
    schedule: KnownSchedule,
  ): Promise<readonly [StoredSchedule, KnownSchedule] | undefined> {
    const now = clock.now();
    const { definition, next, last } = schedule;
    const { timing, missed, overlap } = definition;
    const times = next === null ? [] : dueTimes(timing, next, now);
    const pending = [...schedule.pending];
    if (times.length > 0) {
      let starts = startedTimes(times, missed, now);
      if (overlap === 'skip') {
        const isBusy = pending.length > 0 || (starts.length > 0 && (await isRunning(last?.run)));
        starts = isBusy ? [] : starts.slice(-1);
      }
      pending.push(...starts);
    }
    const kept = pending.slice(0, MOST_PENDING);
    const started = kept.length - schedule.pending.length;
    const skipped = schedule.skipped + times.length - started;
    if (times.length > started)
      log.warn({ schedule: schedule.name, times: times.length - started }, 'due times were skipped');
    const after = times.length === 0 ? next : (nextDue(timing, now, times.at(-1)) ?? null);
    return write(
      stored,
      { ...schedule, next: after, pending: kept, skipped },
      kept.length > 0 ? now + CLAIM_MS : undefined,
    );
  }

  /** Undefined if it was changed meanwhile. `wakeAt`: when to look at it, if not at its next due time. */
  async function write(
    stored: StoredSchedule,
    schedule: KnownSchedule,
    wakeAt?: number,
  ): Promise<readonly [StoredSchedule, KnownSchedule] | undefined> {
    const { next, pending, attempts, last, skipped, problem } = schedule;
    const state: ScheduleState = { next, pending, attempts, last, skipped, problem };
    const made = content(stored.definition as StoredDefinition, state, wakeAt);
    if (!(await schedules.change(stored, made))) return undefined;
    const entry = await schedules.get(stored.tenant, stored.name);
    // Another server may have changed it since.
    return entry && stableJson(entry.state) === stableJson(state) ? [entry, schedule] : undefined;
  }

  function content(definition: StoredDefinition, state: ScheduleState, wakeAt?: number): ScheduleContent {
    const waits = state.pending.length > 0 ? clock.now() + WAIT_MS : Infinity;
    const dueAt = wakeAt ?? Math.min(waits, state.next ?? Infinity);
    return { definition, state, ...(Number.isFinite(dueAt) && { dueAt }) };
  }

  async function isRunning(run: string | undefined): Promise<boolean> {
    return run !== undefined && (await store.requests.headOfRun(run))?.status === 'in_progress';
  }

  /** Starts the run of a due time, unless it was started before. Rejects if the store fails. */
  async function startOne(schedule: KnownSchedule, due: number): Promise<Partial<ScheduleState>> {
    const { name, definition, pending, attempts } = schedule;
    const rest = { pending: pending.slice(1), attempts: 0 };
    try {
      const { agent, inputs } = definition;
      const id = new Date(due).toISOString();
      // No client can send it, because it contains spaces.
      const key = {
        key: `schedule ${name} ${id}`,
        digest: bodyDigest('schedules', { name, id }),
        isKept: true,
      } as const;
      const request = { agent, mode: 'iterative', inputs, options: {}, background: true } as const;
      const answer = await (await invocations.prepare(request, starterOf(schedule), key)).start();
      if (answer.type === 'failed') throw answer.error;
      const run = answer.type === 'result' ? answer.result.run_id : answer.unfinished.run_id;
      log.info({ schedule: name, due: id, run }, 'a schedule has started a run');
      return { ...rest, last: { due, run }, problem: null };
    } catch (error) {
      if (isStoreFailure(error)) throw error;
      const problem = { due, message: messageOf(error) };
      const canRetry = error instanceof ApiError && (error.status === 429 || error.status === 503);
      if (canRetry && attempts + 1 < MOST_ATTEMPTS) return { attempts: attempts + 1, problem };
      log.error(
        { schedule: name, due: new Date(due).toISOString(), why: problem.message },
        'a due run was not started',
      );
      return { ...rest, problem, skipped: schedule.skipped + 1 };
    }
  }

  function retryAt(attempts: number): number {
    return clock.now() + Math.min(FIRST_RETRY_MS * 2 ** (attempts - 1), LAST_RETRY_MS);
  }

  /* When to look */

  let cancelTimer = (): void => {};
  let looking: Promise<void> | undefined;
  let isAgain = false;
  let isStopped = true;
  let stopWatching = (): void => {};
  let lookedAt = -Infinity;

  function lookIn(ms: number): void {
    if (isStopped) return;
    cancelTimer();
    cancelTimer = clock.timer(Math.max(0, ms, lookedAt + LEAST_LOOK_MS - clock.now()), () => {
      looking ??= look().finally(() => (looking = undefined));
    });
  }

  async function look(): Promise<void> {
    lookedAt = clock.now();
    isAgain = false;
    let ms = LOOK_MS;
    try {
      if (!isSynced) {
        isSynced = true;
        await sync();
      }
      let earliest = Infinity;
      for (const stored of await schedules.list()) {
        const schedule = known(stored);
        if (!schedule || isStopped) continue;
        if ((stored.dueAt ?? Infinity) <= clock.now()) {
          await handle(stored, schedule);
          isAgain = true;
        } else earliest = Math.min(earliest, stored.dueAt ?? Infinity);
      }
      ms = Math.min(LOOK_MS, earliest - clock.now());
    } catch (error) {
      isSynced = false;
      if (!isStopped) log.error({ err: error }, 'schedules could not be looked at');
      ms = LEAST_LOOK_MS;
    }
    lookIn(isAgain ? 0 : ms);
  }

  function lookAgain(): void {
    if (looking) isAgain = true;
    else lookIn(0);
  }

  return {
    configure(given) {
      configured = given;
      isSynced = false;
      lookAgain();
    },
    async start() {
      isStopped = false;
      await sync();
      isSynced = true;
      stopWatching = schedules.watch(lookAgain);
      lookIn(0);
    },
    async stop() {
      isStopped = true;
      stopWatching();
      cancelTimer();
      await looking;
    },
    list: async (tenant) =>
      (await schedules.list()).flatMap((stored) => (stored.tenant === tenant ? (known(stored) ?? []) : [])),
    async find(tenant, name) {
      const stored = await schedules.get(tenant, PREFIX + name);
      return stored && known(stored);
    },
    add({ tenant, key }, name, definition) {
      const stored: StoredDefinition = { ...definition, source: 'api', key };
      return schedules.add({ tenant, name: PREFIX + name, ...content(stored, newState(definition)) });
    },
    remove: async (tenant, name) => void (await schedules.remove(tenant, PREFIX + name)),
  };
}

function isSame(one: object, other: object): boolean {
  return stableJson(one) === stableJson(other);
}
