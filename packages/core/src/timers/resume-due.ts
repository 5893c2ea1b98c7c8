import { atLeast } from '../driver/open.ts';
import { runLoop } from '../driver/run.ts';
import type { ContinueOptions, LoopResult } from '../driver/options.ts';
import { TreadleError } from '../errors.ts';
import type { RunStore, RunSummary } from '../journal/port.ts';
import { systemClock, type Clock } from '../platform.ts';

/** The code to resume a run with, a function that resumes it, or undefined to leave it. */
export type ResumeDueRun = (run: RunSummary) => ResumeWith | undefined | Promise<ResumeWith | undefined>;

/** A function gets the journal to resume the run with. With another one, two processes may resume the run one after the other. */
type ResumeWith = Omit<ContinueOptions, 'runId' | 'journal'> | ((journal: RunStore) => Promise<LoopResult>);

export interface DueOptions {
  /** The most runs that are resumed at once, at least 1; default 10. */
  readonly maxParallel?: number;
  readonly clock?: Clock;
  /** No more runs are resumed after it aborts. */
  readonly signal?: AbortSignal;
}

/**
 * What became of a run that was due. `driven`: another process resumes it, or has done so. `left`: `resume` returned nothing for it.
 * `failed`: it could not be resumed; it is still due.
 */
export type DueRun =
  | { readonly type: 'resumed'; readonly runId: string; readonly result: LoopResult }
  | { readonly type: 'driven' | 'left'; readonly runId: string }
  | { readonly type: 'failed'; readonly runId: string; readonly error: unknown };

/** How many due runs are read at once. */
const PAGE = 100;

/**
 * Resumes every run of a store whose `wakeAt` has passed, each in one process: the lease decides which. Resolves when all of
 * them have ended or paused again. The failure of one run does not stop the others. Rejects only if the store cannot be read,
 * and with `invalid-options`.
 */
export async function resumeDue(
  store: RunStore,
  resume: ResumeDueRun,
  { maxParallel = 10, clock = systemClock, signal }: DueOptions = {},
): Promise<readonly DueRun[]> {
  if (typeof store?.list !== 'function' || typeof resume !== 'function') {
    const form = 'resumeDue(store, (run) => ({ model, tools }))';
    throw new TreadleError('invalid-options', `resumeDue takes a store and a function. Call ${form}.`);
  }
  atLeast(1, 'maxParallel', maxParallel);
  const done: DueRun[] = [];
  const inProgress = new Set<Promise<unknown>>();
  await visitDue(store, clock.now(), async (run) => {
    while (inProgress.size >= maxParallel) await Promise.race(inProgress);
    if (signal?.aborted) return false;
    const resumed: Promise<unknown> = resumeRun(store, run, resume, clock).then((one) => {
      done.push(one);
      inProgress.delete(resumed);
    });
    inProgress.add(resumed);
    return true;
  });
  await Promise.all(inProgress);
  return done;
}

/** Calls `visit` for each run that is due at time `to`, once, until it returns false. */
async function visitDue(
  store: RunStore,
  to: number,
  visit: (run: RunSummary) => boolean | Promise<boolean>,
): Promise<void> {
  const seen = new Set<string>();
  for (let [from, limit] = [-Infinity, PAGE]; ;) {
    const page = await store.list({ due: { from, to }, limit });
    // A store that does not know the filter lists others, too.
    const due = page.filter(({ wakeAt = Infinity }) => wakeAt <= to);
    const fresh = due.filter(({ runId }) => !seen.has(runId));
    for (const run of fresh) {
      seen.add(run.runId);
      if (!(await visit(run))) return;
    }
    if (page.length < limit) return;
    // Runs with the same time may fill a page.
    if (fresh.length === 0) limit *= 2;
    from = due.at(-1)?.wakeAt ?? from;
  }
}

async function resumeRun(store: RunStore, run: RunSummary, resume: ResumeDueRun, clock: Clock): Promise<DueRun> {
  const { runId } = run;
  try {
    const given = await resume(run);
    if (!given) return { type: 'left', runId };
    const journal = unchangedSince(run, store);
    const result =
      typeof given === 'function' ? await given(journal) : await runLoop({ clock, ...given, runId, journal });
    return { type: 'resumed', runId, result };
  } catch (error) {
    const isDriven = error instanceof TreadleError && (error.code === 'run-driven' || error.code === 'lease-lost');
    return isDriven ? { type: 'driven', runId } : { type: 'failed', runId, error };
  }
}

/** The store, in which a run can be resumed only if nobody has resumed it since it was listed. */
function unchangedSince({ runId, entries }: RunSummary, store: RunStore): RunStore {
  const acquire: RunStore['acquire'] = async (id) => {
    const lease = await store.acquire(id);
    try {
      if (id !== runId || (await store.read(id, entries)).length === 0) return lease;
      throw new TreadleError('run-driven', `Run "${id}" was resumed by another process when it was due.`);
    } catch (error) {
      await lease.release();
      throw error;
    }
  };
  return new Proxy(store, {
    get(target, name) {
      if (name === 'acquire') return acquire;
      const value: unknown = Reflect.get(target, name);
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
}

export interface WakeOptions extends Omit<DueOptions, 'signal'> {
  /** How often to look for runs that other processes have stored; default 10 seconds, at least one. */
  readonly pollMs?: number;
  /** Called when a run that was due has ended, has paused again, or could not be resumed. What it throws is ignored. */
  readonly onWoken?: (run: DueRun) => void;
  /** Called if the store cannot be read. The next look may succeed. */
  readonly onError?: (error: unknown) => void;
}

export interface Waker {
  /** Looks soon, such as after a run has paused. */
  look(): void;
  /** Resumes nothing more. Resolves when the runs that it resumes have ended or paused. */
  stop(): Promise<void>;
}

/** Looks for due runs at most this often. */
const LEAST_MS = 1_000;

/**
 * Resumes runs when they are due, until it is stopped. Between two looks there is one timer, for the next run that is due,
 * and nothing else: a run that waits costs no memory.
 */
export function wakeRuns(store: RunStore, resume: ResumeDueRun, options: WakeOptions = {}): Waker {
  const { maxParallel = 10, clock = systemClock, onWoken, onError } = options;
  atLeast(1, 'maxParallel', maxParallel);
  const pollMs = Math.max(LEAST_MS, options.pollMs ?? 10_000);
  const active = new Map<string, Promise<unknown>>();
  let looking: Promise<void> | undefined;
  let cancelTimer = (): void => {};
  /** The times of runs that were due and could not be resumed. They are tried again with the next poll. */
  const tried = new Map<string, number>();
  let polledAt = -Infinity;
  let isStopped = false;
  let isAskedAgain = false;
  let lookedAt = -Infinity;

  /** Waits while too many runs are in progress. */
  async function start(run: RunSummary): Promise<boolean> {
    const { runId, wakeAt } = run;
    if (active.has(runId) || tried.get(runId) === wakeAt) return true;
    while (active.size >= maxParallel) await Promise.race(active.values());
    if (isStopped) return false;
    const resumed = resumeRun(store, run, resume, clock).then((one) => {
      active.delete(runId);
      // It may have paused for a short time.
      if (one.type === 'resumed') look();
      else tried.set(runId, wakeAt!);
      if (one.type !== 'left') onWoken?.(one);
    });
    active.set(
      runId,
      resumed.catch(() => {}),
    );
    return true;
  }

  async function lookAndWait(): Promise<void> {
    lookedAt = clock.now();
    if (Math.abs(lookedAt - polledAt) >= pollMs) {
      polledAt = lookedAt;
      tried.clear();
    }
    let next: RunSummary | undefined;
    try {
      await visitDue(store, lookedAt, start);
      [next] = await store.list({ due: { from: lookedAt + 1, to: clock.now() + pollMs }, limit: 1 });
    } catch (error) {
      onError?.(error);
    }
    looking = undefined;
    wait(isAskedAgain ? 0 : Math.min(pollMs, (next?.wakeAt ?? Infinity) - clock.now()));
    isAskedAgain = false;
  }

  function wait(ms: number): void {
    cancelTimer();
    const least = lookedAt + LEAST_MS - clock.now();
    // A clock that was set back must not delay the next look.
    const delay = Math.min(pollMs, Math.max(0, ms, least));
    if (!isStopped) cancelTimer = clock.timer(delay, () => void (looking ??= lookAndWait()));
  }

  function look(): void {
    if (looking) isAskedAgain = true;
    else wait(0);
  }

  look();
  return {
    look,
    async stop() {
      isStopped = true;
      cancelTimer();
      await looking;
      await Promise.all(active.values());
    },
  };
}
