import * as core from '@treadle/core';
import type { Answer, LoopOptions, TreadleErrorCode, Waiting } from '@treadle/core';
import { createChecks, Violation, type Checks } from './checks.ts';
import { createDisk, type Disk, type DiskFault } from './disk.ts';
import { createLedger } from './ledger.ts';
import { createMachines, loadStore, type Driving, type Machines, type Process } from './machine.ts';
import { useScheduler } from './platform.ts';
import { codeOf, planRun, rootOf, type Plan, type World } from './runs.ts';
import { OUTSIDE, startScheduler, type Scheduler } from './scheduler.ts';

/** How a schedule went. */
export interface Simulated {
  readonly seed: number;
  readonly steps: number;
  /** Of the whole trace. */
  readonly digest: number;
  /** What occurred in it. */
  readonly covered: ReadonlySet<string>;
  readonly failure?: { readonly check: string; readonly message: string };
}

/** A run that someone outside wants to be done, by any process. */
interface Job {
  readonly plan: Plan;
  /** Its end was reported. */
  done: boolean;
  /** It was not resumed, because it is damaged. */
  refused: boolean;
  cancelled: boolean;
}

type Fault =
  | 'crash'
  | 'power'
  | 'stall'
  | 'suspend'
  | 'clock'
  | 'full'
  | 'locked'
  | 'damage'
  | 'start'
  | 'cancel'
  | 'detach';

/** What a schedule is mostly about. */
interface Profile {
  /** Each schedule has about half of them, so that it has many of one kind. */
  readonly faults: readonly Fault[];
  /** The probability of a fault at each step. */
  readonly rates: readonly number[];
  readonly hosts: readonly number[];
  /** Many calls take longer than a lease. */
  readonly slow?: true;
}

const ALL: readonly Fault[] = [
  ...(['crash', 'crash', 'crash', 'power', 'stall', 'stall', 'stall', 'suspend', 'clock', 'full', 'locked'] as const),
  ...(['damage', 'start', 'start', 'cancel', 'detach'] as const),
];

const MIXED: Profile = { faults: ALL, rates: [0.02, 0.05, 0.1, 0.2], hosts: [1, 2, 2, 3] };

const PROFILES: readonly Profile[] = [
  MIXED,
  MIXED,
  { faults: ['stall', 'stall', 'stall', 'suspend', 'clock'], rates: [0.05, 0.1], hosts: [2, 3], slow: true },
  { faults: ['damage', 'damage', 'crash', 'crash'], rates: [0.1, 0.2], hosts: [1] },
];

/** More steps than any schedule needs to come to its end when all faults have stopped. */
const MOST_STEPS = 4_000;

const MOST_PROCESSES = 4;

const store = await loadStore();
let disk: Disk | undefined;

/** Runs one schedule. Everything that happens in it follows from the seed. */
export async function simulate(seed: number, print?: (line: string) => void): Promise<Simulated> {
  disk ??= createDisk(store.openDatabase(':memory:', 0));
  disk.reset();
  const covered = new Set<string>();
  const cover = (what: string): void => void covered.add(what);
  let failure: Error | undefined;
  const report = (error: Error): void => void (failure ??= error);
  const scheduler = startScheduler(seed, print);
  useScheduler(scheduler);
  const ledger = createLedger();
  const checks = createChecks(core, { scheduler, disk, ledger, cover, report });
  const profile = scheduler.random.pick(PROFILES);
  const machines = createMachines(store, { scheduler, disk, hosts: profile.hosts, onCommit });
  checks.use(machines);
  const { onStart, isStale, onAct } = checks;
  const slow = profile.slow === true;
  const world: World = { core, scheduler, ledger, slow, kill: machines.kill, onStart, isStale, onAct, cover };
  const schedule = createSchedule({ profile, scheduler, disk, checks, machines, world, cover, report });
  function onCommit(process: Process): void {
    checks.onCommit(process);
    schedule.onCommit(process);
  }
  let steps = 0;
  try {
    for (; failure === undefined && !schedule.isOver(); steps++) {
      if (steps === MOST_STEPS) throw new Violation('ending', schedule.describeOpen());
      schedule.disturb();
      if (failure === undefined) await scheduler.step();
    }
    if (failure === undefined) checks.atEnd();
  } catch (error) {
    report(error as Error);
  }
  useScheduler(undefined);
  const digest = scheduler.digest();
  if (failure === undefined) return { seed, steps, digest, covered };
  const check = failure instanceof Violation ? failure.check : 'error';
  const message = failure instanceof Violation ? failure.message : String(failure.stack);
  print?.(`${check}: ${message}`);
  return { seed, steps, digest, covered, failure: { check, message } };
}

interface ScheduleParts {
  readonly profile: Profile;
  readonly scheduler: Scheduler;
  readonly disk: Disk;
  readonly checks: Checks;
  readonly machines: Machines;
  readonly world: World;
  readonly cover: (what: string) => void;
  readonly report: (error: Error) => void;
}

interface Schedule {
  /** Perhaps causes a fault. After a number of steps all faults stop. */
  readonly disturb: () => void;
  /** Perhaps stalls the process before it learns that its transaction is committed. */
  readonly onCommit: (process: Process) => void;
  readonly isOver: () => boolean;
  readonly describeOpen: () => string;
}

function createSchedule({ profile, scheduler, disk, checks, machines, world, cover, report }: ScheduleParts): Schedule {
  const { random, after, log } = scheduler;
  const jobs = Array.from({ length: random.pick([1, 1, 1, 2]) }, (_, index): Job => ({
    plan: planRun(random, `run${index}`, profile.slow === true),
    done: false,
    refused: false,
    cancelled: false,
  }));
  const kinds = profile.faults.filter(() => random.chance(0.5));
  const rate = random.pick(profile.rates);
  let remaining = random.between(20, 150);
  let calm = false;

  for (let count = random.between(1, 3); count > 0; count--) startProcess();

  function startProcess(): void {
    const process = machines.start();
    after(process, random.between(0, 500), 'looks for work', () => poll(process));
  }

  /** A process tries to drive an open run from time to time. */
  function poll(process: Process): void {
    const open = jobs.filter((job) => !isOver(job) && !process.driving.has(job.plan.runId));
    if (open.length > 0) drive(process, random.pick(open));
    after(process, random.between(2_000, calm ? 6_000 : 12_000), 'looks for work', () => poll(process));
  }

  function drive(process: Process, job: Job): void {
    const { runId } = job.plan;
    const driving: Driving = { since: scheduler.now() };
    process.driving.set(runId, driving);
    log(`${process.name} tries to drive ${runId}`);
    driveRun(process, job, driving)
      .catch((error: unknown) => onError(process, job, error))
      .finally(() => process.driving.delete(runId));
  }

  async function driveRun(process: Process, job: Job, driving: Driving): Promise<void> {
    const { store: journal, clock } = process;
    const { plan } = job;
    const { runId } = plan;
    const entries = await journal.read(runId);
    const options: Omit<LoopOptions, 'input'> = { ...codeOf(world, process, plan), journal, clock, runId };
    const replayed = entries.length === 0 ? undefined : core.replay(entries).state;
    const answers = replayed ? core.waiting(replayed).flatMap((wait) => answerTo(wait)) : [];
    driving.live = core.startLoop(
      replayed ? { ...options, runId, journal, answers } : { ...options, ...plan.options, input: 'Do it.' },
    );
    if (job.cancelled) driving.live.cancel();
    const result = await driving.live.result;
    if (!process.alive) return;
    log(`${process.name}: ${runId} is ${result.outcome?.type ?? (result.detached ? 'detached' : 'paused')}`);
    if (result.detached) checks.onEndedEarly();
    checks.onResult(runId, result);
    const waits = new Set(result.waiting.map(({ effect }) => effect));
    const answered = result.detached ? [] : answers.filter(({ effect }) => !waits.has(effect));
    for (const { effect } of answered) checks.onAnswered(runId, effect);
    if (result.outcome) job.done = true;
  }

  function answerTo(wait: Waiting): readonly Answer[] {
    const { type, effect } = wait;
    if (!calm && random.chance(0.4)) return [];
    if (type === 'client') return [{ type: 'result', effect, content: 'picked' }];
    if (type === 'parked') return [];
    if (type === 'question') return [{ type: 'answer', effect, value: 'that' }];
    return [{ type: 'approval', effect, digest: wait.digest, approved: random.chance(0.8) }];
  }

  function isDamaged({ plan }: Job): boolean {
    return [...checks.runs.values()].some(({ runId, damage }) => damage !== undefined && rootOf(runId) === plan.runId);
  }

  /** A power failure can undo damage that was not synced. */
  function isOver(job: Job): boolean {
    return job.done || (job.refused && isDamaged(job));
  }

  function onError({ name, alive }: Process, job: Job, error: unknown): void {
    if (!alive) return;
    const { runId } = job.plan;
    const { code, message } = error as { code?: TreadleErrorCode; message: string };
    log(`${name}: ${runId} rejects with ${code}: ${message}`);
    cover(`rejects with ${code}`);
    // Unless it never had the lease.
    if (!message.startsWith(`Run "${runId}" is driven`)) checks.onEndedEarly();
    if (code === undefined || !EXPECTED.includes(code)) report(error as Error);
    // Nothing else can become of a run with damage, and the error names it.
    if (isDamaged(job) && DAMAGED.includes(code!) && message.includes(runId)) job.refused = true;
  }

  function disturb(): void {
    if (machines.processes().length === 0 || (random.chance(0.002) && machines.processes().length < MOST_PROCESSES))
      startProcess();
    if (calm || kinds.length === 0) return becomeCalm();
    remaining--;
    if (remaining <= 0) return becomeCalm();
    if (random.chance(rate)) cause(random.pick(kinds));
  }

  /** From now on all runs must come to an end. */
  function becomeCalm(): void {
    if (calm) return;
    calm = true;
    log('all faults stop');
    disk.fault = undefined;
  }

  function cause(fault: Fault): void {
    const processes = machines.processes();
    // Rather one that drives a run: faults of others change little.
    const busy = processes.filter(({ driving }) => driving.size > 0);
    const process = random.pick(busy.length > 0 && random.chance(0.8) ? busy : processes);
    switch (fault) {
      case 'crash':
        cover('crash');
        return machines.kill(process);
      case 'power':
        cover('power failure');
        machines.failPower();
        return checks.onPowerFailure();
      case 'stall':
        return stall(process);
      case 'suspend':
        cover('suspended host');
        return machines.suspend(process.host, random.between(20_000, 100_000));
      case 'clock':
        // A host that is suspended and has its clock set back at the same time cannot tell that time has passed.
        if (kinds.includes('suspend')) return;
        cover('clock jump');
        process.host.offset += random.between(-90_000, 90_000);
        return log(`the clock of ${process.host.name} jumps`);
      case 'full':
        return failDisk(random.pick(['statement', 'rolled back', 'commit']));
      case 'locked':
        return failDisk('locked');
      case 'damage':
        return damage();
      case 'start':
        if (processes.length < MOST_PROCESSES) startProcess();
        return;
      case 'cancel':
        return random.chance(0.5) ? cancel() : undefined;
      case 'detach':
        return void after(process, 0, 'detaches its runs', () => {
          for (const { live } of process.driving.values()) {
            if (live) cover('detach');
            void live?.detach();
          }
        });
      default:
        fault satisfies never;
    }
  }

  function stall(process: Process): void {
    cover('stall');
    machines.stall(process, random.pick(profile.slow ? [45_000, 100_000] : [5_000, 25_000, 45_000, 100_000]));
    if (profile.slow && random.chance(0.3)) after(OUTSIDE, random.between(1, 9_000), 'cancels a run', cancel);
  }

  function onCommit(process: Process): void {
    if (profile.slow && !calm && random.chance(0.05)) stall(process);
  }

  function failDisk(fault: DiskFault, room = random.between(0, 6)): void {
    if (calm || disk.fault) return;
    cover(fault === 'locked' ? 'locked store' : 'full disk');
    log(`writes fail: ${fault}`);
    disk.fault = fault;
    disk.room = room;
    after(OUTSIDE, random.pick([50, 2_000, 40_000]), 'writes succeed again', () => (disk.fault = undefined));
  }

  function cancel(): void {
    const job = random.pick(jobs);
    if (calm || isOver(job) || job.cancelled) return;
    cover('cancel');
    job.cancelled = true;
    if (kinds.includes('full')) after(OUTSIDE, random.next() * 3, 'fills the disk', () => failDisk('statement', 0));
    log(`${job.plan.runId} is cancelled`);
    for (const process of machines.processes()) {
      after(process, 0, 'cancels', () => process.driving.get(job.plan.runId)?.live?.cancel());
    }
  }

  /** Changes one row of one run, once in a schedule. The run that has it, and its parents, cannot be resumed any more. */
  function damage(): void {
    const stored = [...checks.runs.values()].filter((one) => one.entries.length > 0);
    if (stored.length === 0 || stored.some((one) => one.damage !== undefined)) return;
    const children = stored.filter(({ runId }) => runId.includes('.'));
    const known = random.pick(children.length > 0 && random.chance(0.7) ? children : stored);
    const { sql, what, harmless } = random.pick(DAMAGES);
    if (what === 'missing child run' && !checks.hasBegun(known.runId)) return;
    const last = known.entries.length - 1;
    const seq = random.chance(0.5) ? last : random.between(0, last);
    const changes = sql.map((text) => Number(disk.prepare(text).run({ run: known.runId, seq }).changes));
    if (!changes.includes(1)) return;
    cover(`damage: ${what}`);
    log(`damage: ${what} ${seq} of ${known.runId}`);
    if (!harmless) checks.onDamage(known);
  }

  return {
    disturb,
    onCommit,
    isOver: () => jobs.every(isOver),
    describeOpen: () =>
      jobs
        .filter((job) => !isOver(job))
        .map(({ plan: { runId } }) => `run ${runId} has not ended although all faults have stopped`)
        .join('; '),
  };
}

/** Errors that a caller of the loop must expect in this world. */
const EXPECTED: readonly string[] =
  'run-driven lease-lost journal-failed run-exists answer-unfit journal-damaged unknown-run store-full store-locked'.split(
    ' ',
  );

/** What damage leads to. `run-exists`: for a driver that goes on, and finds that the number of entries has changed. */
const DAMAGED: readonly string[] = ['journal-damaged', 'unknown-run', 'run-exists'];

const RUN_ID = '(SELECT id FROM runs WHERE run = $run)';

const DAMAGES: readonly { readonly what: string; readonly sql: readonly string[]; readonly harmless?: true }[] = [
  {
    what: 'changed entry',
    sql: [`UPDATE entries SET entry = replace(entry, '1', '2') WHERE run = ${RUN_ID} AND seq = $seq`],
  },
  { what: 'missing entry', sql: [`DELETE FROM entries WHERE run = ${RUN_ID} AND seq = $seq`] },
  { what: 'changed run', sql: ['UPDATE runs SET entries = $seq WHERE run = $run AND $seq < entries'] },
  {
    what: 'missing child run',
    sql: [
      // Both parameters are used, because SQLite rejects others.
      `DELETE FROM entries WHERE run = ${RUN_ID} AND $run LIKE '%.%' AND $seq >= 0`,
      `DELETE FROM runs WHERE run = $run AND $run LIKE '%.%' AND $seq >= 0`,
    ],
  },
  {
    what: 'changed snapshot',
    sql: [`UPDATE snapshots SET state = '{}', seq = max(seq, $seq) WHERE run = ${RUN_ID}`],
    harmless: true,
  },
];
