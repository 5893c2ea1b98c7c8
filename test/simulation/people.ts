import type { Waiting } from '@treadle/core';
import type { Process } from './machine.ts';
import { newJob, type Job, type Jobs, type Parts } from './jobs.ts';

/**
 * What people do with runs through any process: they read them, send messages, answer, fork and delete. What they are told
 * must hold, also after a power failure.
 */
export interface People {
  /** One of them does something now. */
  readonly act: () => void;
  /** When all runs have ended: some of them are deleted. False while that is not done. */
  readonly haveLeft: () => boolean;
}

export function createPeople({ world, checks, machines, jobs, isCalm }: Parts, { drive, ...driver }: Jobs): People {
  const { core, scheduler, cover } = world;
  const { random, after, log } = scheduler;
  let marks = 1_000;
  let forked = 0;
  let forking: { readonly job: Job; readonly by: Process } | undefined;

  function act(): void {
    const doing = random.pick(ACTS);
    const job = random.pick(jobs);
    const processes = machines.processes();
    // Rather where it can be done.
    if (processes.length === 0) return;
    const drivers = processes.filter(({ driving }) => driving.has(job.plan.runId));
    start(doing, random.pick(drivers.length > 0 ? drivers : processes), job);
  }

  function start(doing: keyof typeof acts, process: Process, job: Job): void {
    after(process, random.next() * 5, `somebody wants to ${doing} ${job.plan.runId}`, () => {
      if (job.deleted) return;
      acts[doing](process, job).catch((error: unknown) => {
        driver.expectError(process, doing, error);
      });
    });
  }

  let leaving: Job[] | undefined;

  function haveLeft(): boolean {
    leaving ??= random.chance(0.3) ? jobs.filter((job) => job.done && random.chance(0.6)) : [];
    const job = leaving[0];
    if (!job || job.deleted) return leaving.shift() === undefined;
    const processes = machines.processes();
    const isDriven = processes.some(({ driving }) => driving.has(job.plan.runId));
    if (processes.length > 0 && !isDriven && random.chance(0.3)) start('remove', random.pick(processes), job);
    return false;
  }

  /** Bytes leave the process only when what they say is durable. */
  async function show(process: Process, runId: string, entries: number): Promise<void> {
    await process.store.durable();
    if (process.alive) checks.onShown(runId, entries);
  }

  async function read(process: Process, { plan: { runId } }: Job): Promise<void> {
    const { store } = process;
    if (random.chance(0.5)) return show(process, runId, (await store.read(runId)).length);
    const [summary] = await store.list({ runId });
    if (summary) await show(process, runId, summary.entries);
  }

  /** Follows a run for a short time: each change is shown. */
  async function watch(process: Process, { plan: { runId } }: Job): Promise<void> {
    let next = 0;
    const look = async (): Promise<void> => {
      const page = await process.store.readPage(runId, next);
      next = Math.max(next, (page.at(-1)?.seq ?? -1) + 1);
      await show(process, runId, next);
    };
    const failed = (error: unknown): void => void driver.expectError(process, 'watch', error);
    const stop = process.store.watch(runId, () => void look().catch(failed));
    after(process, random.between(50, 600), 'stops watching', stop);
    await look();
  }

  async function send(process: Process, job: Job): Promise<void> {
    const { runId } = job.plan;
    // Also to a run that has ended.
    if (!process.driving.has(runId) && (!job.done || random.chance(0.5))) drive(process, job);
    const live = process.driving.get(runId)?.live;
    if (!live) return;
    const mark = `note ${++marks}`;
    const accepted = await live.send(mark);
    if (!process.alive) return;
    log(`"${mark}" was ${accepted ? 'accepted' : 'refused'}`);
    checks.onSaid(runId, mark, accepted);
  }

  async function answer(process: Process, { plan: { runId } }: Job): Promise<void> {
    const live = process.driving.get(runId)?.live;
    const state = checks.runs.get(runId)?.states.at(-1);
    // An answer that is one of some choices cannot be found again.
    const canMark = (wait: Waiting): boolean =>
      !wait.effect.includes('/') && !(wait.type === 'question' && wait.raises);
    const waits = state ? core.waiting(state).filter(canMark) : [];
    if (!live || waits.length === 0) return;
    const mark = ++marks;
    const given = driver.answerTo(random.pick(waits), mark);
    if (!given) return;
    const accepted = await live.answer(given).then(
      () => true,
      (error: unknown) => {
        if (driver.expectError(process, 'an answer', error) !== 'answer-unfit') throw error;
        return false;
      },
    );
    if (process.alive) checks.onSaid(runId, `said ${mark}`, accepted);
  }

  /** Of a run that has ended, and that nobody drives or is about to drive. */
  async function remove(process: Process, job: Job): Promise<void> {
    const { runId } = job.plan;
    const isDriven = machines.processes().some(({ driving }) => driving.has(runId));
    if (!job.done || isDriven || (forking?.job === job && forking.by.alive)) return;
    checks.deletable.add(runId);
    job.deleted = true;
    const deleted = await process.store.delete(runId);
    if (process.alive && deleted) checks.onDeleted(runId);
  }

  /** A fork is one more run that has to be done. Those with child runs are not forked: the fork would not have them. */
  async function fork(process: Process, job: Job): Promise<void> {
    const { plan } = job;
    const known = checks.runs.get(plan.runId);
    if (isCalm() || forked > 0 || !known || known.entries.length === 0) return;
    if (known.entries.some(({ event }) => event.type === 'child-started')) return;
    const newRunId = `fork${++forked}`;
    checks.forks.add(newRunId);
    forking = { job, by: process };
    const at = random.between(0, known.entries.length - 1);
    try {
      await core.forkRun({ journal: process.store, runId: plan.runId, at, newRunId, clock: process.clock });
    } catch (error) {
      if ((error as Error).message.includes('cannot be forked')) return;
      throw error;
    } finally {
      forking = undefined;
    }
    if (!process.alive) return;
    cover('fork');
    checks.onShown(newRunId, 1);
    jobs.push(newJob({ ...plan, runId: newRunId }));
  }

  const acts = { read, watch, send, answer, remove, fork };
  return { act, haveLeft };
}

/** Each is as probable as its number of mentions. */
const ACTS = ['read', 'read', 'read', 'watch', 'send', 'send', 'answer', 'answer', 'answer', 'remove', 'fork'] as const;
