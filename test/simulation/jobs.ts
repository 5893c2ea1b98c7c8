import type {
  Answer,
  JournalEntry,
  LoopOptions,
  LoopResult,
  RunStore,
  State,
  TreadleErrorCode,
  Waiting,
} from '@treadle/core';
import { wakeRuns } from '@treadle/core/timers';
import type { Checks } from './checks.ts';
import { isExpected, type Cause } from './expected-errors.ts';
import type { Driving, Machines, Process } from './machine.ts';
import { BUDGET, codeOf, rootOf, type Plan, type World } from './runs.ts';

/** A run that someone outside wants to be done, by any process. */
export interface Job {
  readonly plan: Plan;
  /** Its end was reported. */
  done: boolean;
  /** It was not resumed, because it is damaged. */
  refused: boolean;
  cancelled: boolean;
  /** Nobody wants it any more. */
  deleted: boolean;
}

/** What everything that happens in a schedule needs. */
export interface Parts {
  readonly world: World;
  readonly checks: Checks;
  readonly machines: Machines;
  readonly causes: Set<Cause>;
  readonly jobs: Job[];
  /** All faults have stopped. */
  readonly isCalm: () => boolean;
  readonly report: (error: Error) => void;
}

export interface Jobs {
  /** A process that drives open runs from now on. */
  readonly startProcess: () => void;
  /** Tries to drive the run of a job, unless the process does already. */
  readonly drive: (process: Process, job: Job) => void;
  readonly isOver: (job: Job) => boolean;
  readonly answerTo: (wait: Waiting, mark: number) => Answer | undefined;
  /** Reports an error that nothing in this schedule explains. */
  readonly expectError: (process: Process, about: string, error: unknown) => TreadleErrorCode | undefined;
}

export function newJob(plan: Plan): Job {
  return { plan, done: false, refused: false, cancelled: false, deleted: false };
}

export function createJobs({ world, checks, machines, causes, jobs, isCalm, report }: Parts): Jobs {
  const { core, scheduler, cover } = world;
  const { random, after, log, within } = scheduler;
  /** Only wakers resume runs that sleep. */
  const hasWakers = jobs.some(({ plan }) => JSON.stringify(plan.script).includes('"nap"')) && random.chance(0.8);
  const limits = {
    ...(random.chance(0.7) && { calls: random.between(1, 6) }),
    ...(random.chance(0.3) && { tokens: random.between(20, 600) }),
  };
  /** People decide about what exceeds the budget. */
  const budget = { limits, ...(random.chance(0.6) && { atLimit: 'ask' as const }) };
  /** The processes that have set the budget. */
  const budgeting = new Set<Process>();
  let [given, started] = [0, 0];

  function startProcess(): void {
    const process = machines.start();
    if (++started > 1) causes.add('rivals');
    after(process, random.between(0, 500), 'looks for work', () => poll(process));
    if (hasWakers) within(process, () => startWaker(process));
  }

  /** A process tries to drive an open run from time to time. */
  function poll(process: Process): void {
    const open = jobs.filter((job) => isOpenTo(process, job));
    if (open.length > 0) drive(process, random.pick(open));
    after(process, random.between(2_000, isCalm() ? 6_000 : 12_000), 'looks for work', () => poll(process));
  }

  function isOpenTo(process: Process, job: Job): boolean {
    const { runId } = job.plan;
    if (isOver(job) || process.driving.has(runId) || (hasWakers && checks.isAsleep(runId))) return false;
    const drivers = machines.processes().filter(({ driving }) => driving.has(runId));
    if (drivers.length === 0) return true;
    // It is refused at once.
    if (drivers.some(({ host }) => host === process.host)) return !isCalm() && random.chance(0.3);
    return !isCalm() || drivers.some(({ stalledUntil }) => stalledUntil > scheduler.now());
  }

  function drive(process: Process, job: Job): void {
    void driveWith(process, job, process.store).catch((error: unknown) => onError(process, job, error));
  }

  function startWaker(process: Process): void {
    wakeRuns(
      process.store,
      async ({ runId }) => {
        const job = jobs.find(({ plan }) => plan.runId === runId);
        if (!job || isOver(job)) return undefined;
        // Meanwhile, another process may resume it.
        if (random.chance(0.4)) await pause(process, random.between(1, 9_000));
        if (job.deleted || process.driving.has(runId)) return undefined;
        return (journal) => driveWith(process, job, whenWoken(process, journal));
      },
      {
        clock: process.clock,
        pollMs: 4_000,
        onWoken(woken) {
          const job = jobs.find(({ plan }) => plan.runId === woken.runId)!;
          if (woken.type === 'failed') onError(process, job, woken.error);
        },
        onError: (error) => void expectError(process, 'the waker', error),
      },
    );
  }

  function pause(process: Process, ms: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    after(process, ms, 'is ready to resume a run', resolve);
    return promise;
  }

  function whenWoken(process: Process, journal: RunStore): RunStore {
    return new Proxy(journal, {
      get(target, name) {
        const value: unknown = Reflect.get(target, name);
        if (name !== 'acquire') return value;
        return async (runId: string) => {
          const lease = await target.acquire(runId).catch((error: Error) => {
            // It has released the lease again, which it may have taken over from a process that died.
            if (error.message.includes('was resumed by another process')) checks.onEndedEarly();
            throw error;
          });
          if (!runId.includes('.')) checks.onWoken(runId, process);
          return lease;
        };
      },
    });
  }

  async function driveWith(process: Process, job: Job, journal: RunStore): Promise<LoopResult> {
    const { runId } = job.plan;
    const driving: Driving = { since: scheduler.now() };
    process.driving.set(runId, driving);
    log(`${process.name} tries to drive ${runId}`);
    try {
      return await driveRun(process, job, driving, journal);
    } finally {
      process.driving.delete(runId);
    }
  }

  async function driveRun(process: Process, job: Job, driving: Driving, journal: RunStore): Promise<LoopResult> {
    const { clock } = process;
    const { plan } = job;
    const { runId, input } = plan;
    if (plan.isBudgeted && !budgeting.has(process)) {
      await process.store.budgets.set(BUDGET, budget);
      budgeting.add(process);
    }
    const code: Omit<LoopOptions, 'input'> = {
      ...codeOf(world, process, plan),
      ...(plan.isShown && {
        durableItems: true,
        onItem: (item) => void (item.type === 'fact' && checks.onShown(runId, item.seq + 1)),
      }),
    };
    let answers: readonly Answer[] = [];
    if (random.chance(0.3)) {
      driving.live = core.startLoop({ ...code, ...plan.options, journal, clock, runId, input, resume: 'auto' });
    } else {
      const entries = await journal.read(runId);
      const replayed = entries.length === 0 ? undefined : stateAfter(runId, entries);
      answers = replayed ? core.waiting(replayed).flatMap((wait) => answerAtResume(wait)) : [];
      const options = { ...code, journal, clock, runId };
      driving.live = core.startLoop(replayed ? { ...options, answers } : { ...options, ...plan.options, input });
    }
    if (job.cancelled) driving.live.cancel();
    const result = await driving.live.result;
    if (!process.alive) return result;
    log(`${process.name}: ${runId} is ${result.outcome?.type ?? (result.detached ? 'detached' : 'paused')}`);
    if (result.detached) checks.onEndedEarly();
    checks.onResult(runId, result);
    const waits = new Set(result.waiting.map(({ effect }) => effect));
    const answered = result.detached ? [] : answers.filter(({ effect }) => !waits.has(effect));
    for (const { effect } of answered) checks.onAnswered(runId, effect);
    if (result.outcome) job.done = true;
    return result;
  }

  /** The checks have replayed what is stored, unless it is damaged. */
  function stateAfter(runId: string, entries: readonly JournalEntry[]): State {
    const known = checks.runs.get(runId);
    return (known?.damage ? undefined : known?.states[entries.length]) ?? core.replay(entries).state;
  }

  function answerAtResume(wait: Waiting): readonly Answer[] {
    if (!isCalm() && random.chance(0.4)) return [];
    const answer = answerTo(wait, ++given);
    return answer ? [answer] : [];
  }

  /** Contains `said N`, so that it is found in the journal. */
  function answerTo(wait: Waiting, mark: number): Answer | undefined {
    const { type, effect } = wait;
    const said = `said ${mark}`;
    if (type === 'client') return { type: 'result', effect, content: said };
    if (type === 'parked') return undefined;
    if (type === 'question') {
      const { choices } = wait.question;
      return { type: 'answer', effect, value: choices ? random.pick(choices) : said };
    }
    return { type: 'approval', effect, digest: wait.digest, approved: random.chance(0.8), by: said };
  }

  function isDamaged({ plan }: Job): boolean {
    return [...checks.runs.values()].some(({ runId, damage }) => damage !== undefined && rootOf(runId) === plan.runId);
  }

  /** A power failure can undo damage that was not synced. */
  function isOver(job: Job): boolean {
    return job.done || job.deleted || (job.refused && isDamaged(job));
  }

  function expectError({ name, alive }: Process, about: string, error: unknown): TreadleErrorCode | undefined {
    if (!alive) return undefined;
    const { code, message } = error as { code?: TreadleErrorCode; message: string };
    log(`${name}: ${about} rejects with ${code}: ${message}`);
    cover(`rejects with ${code}`);
    if (!isExpected(code, causes)) report(error as Error);
    return code;
  }

  function onError(process: Process, job: Job, error: unknown): void {
    if (!process.alive) return;
    const { runId } = job.plan;
    const { message } = error as Error;
    // Unless it never had the lease.
    if (!message.startsWith(`Run "${runId}" is driven`)) checks.onEndedEarly();
    const code = expectError(process, runId, error);
    // Nothing else can become of a run with damage, and the error names it.
    if (isDamaged(job) && DAMAGED.includes(code!) && message.includes(runId)) job.refused = true;
  }

  return { startProcess, drive, isOver, answerTo, expectError };
}

/** What damage leads to. `run-exists`: for a driver that goes on, and finds that the number of entries has changed. */
const DAMAGED: readonly string[] = ['journal-damaged', 'unknown-run', 'run-exists'];
