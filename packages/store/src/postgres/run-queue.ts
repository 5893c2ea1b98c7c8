/**
 * Orders what changes the heads of runs, and performs it in groups.
 *
 * 1. Jobs of one run are performed one after the other, in the order of the calls.
 * 2. Jobs of one kind, of different runs, are performed together. While a group is performed, the next one gathers.
 * 3. A job that is only accepted waits up to `ACCEPT_MS` for another one of its run, or until somebody hurries.
 */
export interface RunQueue {
  readonly add: (job: Job) => void;
  /** Performs accepted jobs now. Resolves when all jobs so far, or those of one run, have settled; nothing if they already have. */
  readonly settled: (runId?: string) => void | Promise<void>;
  /** The same for accepted jobs only. */
  readonly accepted: () => void | Promise<void>;
  /** Removes the jobs of a run that have not begun, and returns them. */
  readonly take: (runId: string, isTaken: (job: Job) => boolean) => readonly Job[];
}

export interface Job {
  readonly kind: string;
  readonly runId: string;
  readonly isAccepted: boolean;
  /** How much it writes. */
  readonly chars: number;
}

/** Jobs of one run that are performed together. */
export type Jobs = readonly [Job, ...Job[]];

export interface Kind {
  /** Whether a job can be performed together with the one of this kind before it. */
  readonly isJoined: (before: Job, job: Job) => boolean;
  /** Settles each job. Never rejects. */
  readonly perform: (groups: readonly Jobs[]) => Promise<void>;
}

/** The longest time for which an accepted job is only in memory, in milliseconds. */
export const ACCEPT_MS = 5;
/** A group ends after the run with which it has so many characters, or runs. */
const GROUP_CHARS = 1_000_000;
const GROUP_RUNS = 500;

interface RunJobs {
  readonly waiting: Job[];
  isActive: boolean;
  /** The timer of accepted jobs has passed, or somebody waits. */
  isDue: boolean;
  /** Resolved when all of its jobs have settled. */
  readonly idle: PromiseWithResolvers<void>;
}

export function runQueue(kinds: Readonly<Record<string, Kind>>): RunQueue {
  const runs = new Map<string, RunJobs>();
  const working = new Set<string>();
  let isScheduled = false;
  let isTimed = false;
  let acceptedCount = 0;

  function schedule(): void {
    if (isScheduled) return;
    isScheduled = true;
    // After the callbacks of this turn, so that replies that arrived together are written together.
    setImmediate(() => {
      isScheduled = false;
      for (const kind of Object.keys(kinds)) void work(kind);
    });
  }

  async function work(kind: string): Promise<void> {
    if (working.has(kind)) return;
    const { isJoined, perform } = kinds[kind]!;
    const groups: Jobs[] = [];
    let chars = 0;
    for (const [, jobs] of runs) {
      const [first] = jobs.waiting;
      if (!first || first.kind !== kind || jobs.isActive || !jobs.isDue) continue;
      let count = 1;
      for (let next = jobs.waiting[1]; next?.kind === kind; next = jobs.waiting[count]) {
        if (!isJoined(jobs.waiting[count - 1]!, next)) break;
        count++;
      }
      const group = jobs.waiting.splice(0, count) as unknown as Jobs;
      jobs.isActive = true;
      groups.push(group);
      for (const job of group) chars += job.chars;
      if (chars >= GROUP_CHARS || groups.length >= GROUP_RUNS) break;
    }
    if (groups.length === 0) return;
    working.add(kind);
    await perform(groups);
    working.delete(kind);
    for (const group of groups) finish(group);
    schedule();
  }

  function finish(group: Jobs): void {
    const [{ runId }] = group;
    for (const job of group) if (job.isAccepted) acceptedCount--;
    const jobs = runs.get(runId)!;
    jobs.isActive = false;
    if (jobs.waiting.length === 0) {
      runs.delete(runId);
      jobs.idle.resolve();
    } else if (jobs.waiting.every(({ isAccepted }) => isAccepted)) {
      jobs.isDue = false;
      workSoon();
    }
  }

  function workSoon(): void {
    if (isTimed) return;
    isTimed = true;
    setTimeout(() => {
      isTimed = false;
      hurry();
    }, ACCEPT_MS);
  }

  function hurry(): void {
    for (const jobs of runs.values()) jobs.isDue = true;
    schedule();
  }

  return {
    add(job) {
      const jobs = runs.get(job.runId) ?? {
        waiting: [],
        isActive: false,
        isDue: false,
        idle: Promise.withResolvers<void>(),
      };
      runs.set(job.runId, jobs);
      jobs.waiting.push(job);
      if (job.isAccepted) {
        acceptedCount++;
        workSoon();
      } else {
        jobs.isDue = true;
        schedule();
      }
    },
    settled(runId) {
      if (runId !== undefined) {
        const jobs = runs.get(runId);
        if (!jobs) return undefined;
        jobs.isDue = true;
        schedule();
        return jobs.idle.promise;
      }
      if (runs.size === 0) return undefined;
      hurry();
      return Promise.all([...runs.values()].map(({ idle }) => idle.promise)).then(() => {});
    },
    accepted() {
      if (acceptedCount === 0) return undefined;
      hurry();
      const waiting = [...runs.values()].map(({ idle }) => idle.promise);
      return Promise.all(waiting).then(() => {});
    },
    take(runId, isTaken) {
      const jobs = runs.get(runId);
      if (!jobs) return [];
      const taken = jobs.waiting.filter(isTaken);
      const kept = jobs.waiting.filter((job) => !taken.includes(job));
      jobs.waiting.splice(0, jobs.waiting.length, ...kept);
      for (const job of taken) if (job.isAccepted) acceptedCount--;
      return taken;
    },
  };
}
