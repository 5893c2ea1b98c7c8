import { readdirSync } from 'node:fs';
import * as core from '@treadle/core';
import { keyedModel } from '../crash/keyed-model.ts';
import { createChecks, type Checks } from './checks.ts';
import { createDisk, type Disk, type DiskFault } from './disk.ts';
import type { Cause } from './expected-errors.ts';
import { createInboxChecks, type InboxChecks } from './inbox-checks.ts';
import { createJobs, newJob, type Job, type Parts } from './jobs.ts';
import { createLedger } from './ledger.ts';
import { createMachines, loadStore, type Host, type Machines, type Process } from './machine.ts';
import { createPeople } from './people.ts';
import { useScheduler } from './platform.ts';
import { planRun, type Resource, type World } from './runs.ts';
import { OUTSIDE, outsideOfPromises, startScheduler, type Scheduler } from './scheduler.ts';
import { createServers, type ServerCode, type Servers } from './servers.ts';
import { createTold, type Told } from './told.ts';
import { Violation } from './violation.ts';

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

type Fault =
  | 'crash'
  | 'power'
  | 'stall'
  | 'suspend'
  | 'clock'
  | 'full'
  | 'locked'
  | 'sync'
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
  /** Processes are servers, and clients send requests to them. */
  readonly serves?: true;
}

const ALL: readonly Fault[] = [
  ...(['crash', 'crash', 'crash', 'power', 'stall', 'stall', 'stall', 'suspend', 'clock', 'full', 'locked'] as const),
  ...(['damage', 'start', 'start', 'cancel', 'detach', 'sync'] as const),
];

const MIXED: Profile = { faults: ALL, rates: [0.03, 0.08, 0.15, 0.3], hosts: [1, 2, 2, 3] };

const SLOW: Profile = {
  faults: ['stall', 'stall', 'stall', 'suspend', 'clock'],
  rates: [0.08, 0.15],
  hosts: [2, 3],
  slow: true,
};

const DAMAGED: Profile = { faults: ['damage', 'damage', 'crash', 'crash'], rates: [0.15, 0.3], hosts: [1] };

const SERVED: Profile = {
  faults: ['crash', 'crash', 'power', 'power', 'stall', 'suspend', 'full', 'locked', 'sync', 'start', 'start'],
  rates: [0.02, 0.04, 0.08],
  hosts: [1, 1, 2],
  serves: true,
};

/** Each is as probable as its number of mentions. Servers take several times as long as the others. */
const PROFILES: readonly Profile[] = [MIXED, MIXED, MIXED, MIXED, SLOW, SLOW, DAMAGED, DAMAGED, SERVED];

/** More steps than any schedule needs to come to its end when all faults have stopped. */
const MOST_STEPS = 4_000;

const MOST_PROCESSES = 4;

const store = await loadStore();
await loadLazyModules();
await useLazyModules();
let serverCode: ServerCode | undefined;
let disk: Disk | undefined;

/** What schedules may be about. */
export type About = 'everything' | 'runs';

export interface SimulateOptions {
  /** Default: everything. */
  readonly about?: About;
  readonly print?: (line: string) => void;
}

/** Runs one schedule. Everything that happens in it follows from the seed. */
export async function simulate(seed: number, { about, print }: SimulateOptions = {}): Promise<Simulated> {
  disk ??= createDisk(store.openDatabase(':memory:', 0));
  disk.reset();
  const covered = new Set<string>();
  const cover = (what: string): void => void covered.add(what);
  let failure: Error | undefined;
  const report = (error: Error): void => void (failure ??= error);
  const scheduler = startScheduler(seed, print);
  useScheduler(scheduler);
  const ledger = createLedger();
  const resources: Resource[] = [];
  const jobs: Job[] = [];
  const isBudgeted = (root: string): boolean => jobs.some(({ plan }) => plan.runId === root && plan.isBudgeted);
  const isFiltered = (root: string): boolean => jobs.some(({ plan }) => plan.runId === root && plan.isFiltered);
  const checks = createChecks(core, { scheduler, disk, ledger, resources, isBudgeted, isFiltered, cover, report });
  const profile = scheduler.random.pick(about === 'runs' ? PROFILES.filter(({ serves }) => !serves) : PROFILES);
  if (profile.serves) serverCode ??= await loadServer();
  const machines = createMachines(store, { scheduler, disk, hosts: profile.hosts, onCommit });
  checks.use(machines);
  const { onStart, onAsked, onWaits, isStale, onAct, onHeld } = checks;
  const { kill } = machines;
  const slow = profile.slow === true;
  const causes = new Set<Cause>();
  const block = (process: Process, ms: number): void => {
    causes.add('stall');
    machines.stall(process, ms);
  };
  const checked = { onStart, onAsked, onWaits, isStale, onAct, onHeld };
  const world: World = { core, scheduler, ledger, slow, kill, block, resources, cover, ...checked };
  const told = createTold(disk);
  const { now } = scheduler;
  const inbox = createInboxChecks({ disk, now, patienceMs: store.INBOX_PATIENCE_MS, cover, report });
  const parts = { profile, scheduler, disk, checks, told, inbox, machines, world, causes, jobs, cover, report };
  const schedule = createSchedule(parts);
  function onCommit(process: Process): void {
    checks.onCommit(process);
    if (profile.serves) {
      told.onCommit();
      inbox.onCommit(process);
    }
    schedule.onCommit(process);
  }
  let [steps, digest] = [0, 0];
  await outsideOfPromises(() => {
    try {
      for (; failure === undefined && !schedule.isOver(); steps++) {
        if (steps === (profile.serves ? 3 : 1) * MOST_STEPS) throw new Violation('ending', schedule.describeOpen());
        schedule.disturb();
        if (failure === undefined) scheduler.step();
      }
      if (failure === undefined) checks.atEnd();
    } catch (error) {
      report(error as Error);
    }
    digest = scheduler.digest();
    if (profile.serves) scheduler.settle();
  });
  useScheduler(undefined);
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
  readonly told: Told;
  readonly inbox: InboxChecks;
  readonly machines: Machines;
  readonly world: World;
  /** Both are empty at first. */
  readonly causes: Set<Cause>;
  readonly jobs: Job[];
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

function createSchedule(parts: ScheduleParts): Schedule {
  const { profile, scheduler, disk, checks, told, inbox, machines, world, causes, jobs, cover, report } = parts;
  const { random, after, log } = scheduler;
  const kinds = profile.faults.filter(() => random.chance(0.5));
  const rate = random.pick(profile.rates);
  /** How often people do something, at each step. */
  const actRate = profile.serves ? 0.25 : random.pick([0, 0.02, 0.06, 0.15]);
  let remaining = random.between(15, 90);
  let calm = false;
  const all = { world, checks, machines, causes, jobs, isCalm: () => calm, report };
  const outside = profile.serves ? createServers(all, told, serverCode!) : createRuns(all, profile.slow === true);
  const { startProcess } = outside;

  for (let count = random.between(1, 3); count > 0; count--) startProcess();

  function disturb(): void {
    if (machines.processes().length === 0 || (random.chance(0.002) && machines.processes().length < MOST_PROCESSES))
      startProcess();
    if ((remaining > 0 || profile.serves) && random.chance(calm ? actRate / 3 : actRate)) outside.act();
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
    // A store whose sync has failed has to be opened again.
    if (causes.has('sync')) for (const process of machines.processes()) machines.kill(process);
  }

  function cause(fault: Fault): void {
    const processes = machines.processes();
    // Rather one that drives a run: faults of others change little.
    const busy = processes.filter(({ driving }) => driving.size > 0);
    const process = random.pick(busy.length > 0 && random.chance(0.8) ? busy : processes);
    if (fault !== 'start' && fault !== 'cancel') causes.add(fault);
    switch (fault) {
      case 'crash':
        cover('crash');
        return machines.kill(process);
      case 'power':
        cover('power failure');
        machines.failPower();
        told.onPowerFailure();
        inbox.onPowerFailure();
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
        return setClock(process.host, random.between(-90_000, 90_000));
      case 'full':
        return failDisk(random.pick(['statement', 'rolled back', 'commit']));
      case 'locked':
        return failDisk('locked');
      case 'sync':
        return failDisk('sync');
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

  function setClock(host: Host, ms: number): void {
    host.offset += ms;
    host.setBackMs += Math.max(0, -ms);
    log(`the clock of ${host.name} jumps`);
  }

  function stall(process: Process): void {
    cover('stall');
    causes.add('stall');
    machines.stall(process, random.pick(profile.slow ? [45_000, 100_000] : [5_000, 25_000, 45_000, 100_000]));
    if (profile.slow && random.chance(0.3)) after(OUTSIDE, random.between(1, 9_000), 'cancels a run', cancel);
  }

  function onCommit(process: Process): void {
    if (profile.slow && !calm && random.chance(0.05)) stall(process);
  }

  function failDisk(fault: DiskFault, room = random.between(0, 6)): void {
    if (calm || disk.fault) return;
    cover(fault === 'locked' ? 'locked store' : fault === 'sync' ? 'failed sync' : 'full disk');
    causes.add(fault === 'locked' || fault === 'sync' ? fault : 'full');
    log(`writes fail: ${fault}`);
    disk.fault = fault;
    disk.room = room;
    after(OUTSIDE, random.pick([50, 2_000, 40_000]), 'writes succeed again', () => (disk.fault = undefined));
  }

  function cancel(): void {
    const job = random.pick(jobs);
    if (calm || job.done || job.deleted || job.cancelled) return;
    cover('cancel');
    job.cancelled = true;
    checks.onCancel(job.plan.runId, 'asked');
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
    const changes = sql.map((text) => disk.change(text, { run: known.runId, seq }));
    if (!changes.includes(1)) return;
    cover(`damage: ${what}`);
    log(`damage: ${what} ${seq} of ${known.runId}`);
    if (!harmless) checks.onDamage(known);
  }

  return {
    disturb,
    onCommit,
    isOver: outside.isOver,
    describeOpen: outside.describeOpen,
  };
}

/** What a schedule is about, apart from its faults. */
type Outside = Pick<Servers, 'startProcess' | 'act' | 'isOver' | 'describeOpen'>;

/** Runs of the loop itself, and people who use them. */
function createRuns(parts: Parts, nested: boolean): Outside {
  const { jobs, world } = parts;
  const { random } = world.scheduler;
  for (let count = random.pick([1, 1, 1, 2]); count > 0; count--) {
    jobs.push(newJob(planRun(random, `run${jobs.length}`, nested)));
  }
  const driver = createJobs(parts);
  const people = createPeople(parts, driver);
  return {
    startProcess: driver.startProcess,
    act: people.act,
    isOver: () => jobs.every(driver.isOver) && people.haveLeft(),
    describeOpen: () =>
      jobs
        .filter((job) => !driver.isOver(job))
        .map(({ plan: { runId } }) => `run ${runId} has not ended although all faults have stopped`)
        .join('; '),
  };
}

/** Modules that the core loads when it first needs them: that takes real time, which must not be part of a schedule. */
async function loadLazyModules(): Promise<void> {
  for (const folder of ['agents', 'driver', 'journal', 'tools']) {
    const files = new URL(`../../packages/core/src/${folder}/`, import.meta.url);
    const names = readdirSync(files).filter((name) => name.endsWith('.ts') && !name.endsWith('.test.ts'));
    for (const name of names) await import(new URL(name, files).href);
  }
}

/** Code that waits for such a module only once: a schedule must not depend on whether it is the first one. */
async function useLazyModules(): Promise<void> {
  const model = keyedModel({ 't1.model.0': { calls: [['look', {}]] }, 't2.model.0': 'It is done.' });
  const look = core.tool({
    name: 'look',
    description: 'look',
    input: { type: 'object' },
    effect: 'pure',
    touches: () => [{ type: 'read', path: '/list' }],
    execute: () => 'seen',
  });
  core.agentTool({ name: 'child', description: 'child', model });
  const policy: core.Policy = { judge: (calls) => calls.map(() => ({ type: 'allow' })) };
  await core.runLoop({ model, tools: [look], policy, input: 'Look.' });
}

/** Loads it by path, after the platform has replaced the modules that it uses. */
async function loadServer(): Promise<ServerCode> {
  return (await import(new URL('../../packages/server/src/index.ts', import.meta.url).href)) as ServerCode;
}

const RUN_ID = '(SELECT id FROM runs WHERE run = $run)';

/** The run is a child that uses no texts and contents: nobody would ever free them. */
const IS_LONELY_CHILD = `$run LIKE '%.%' AND ${RUN_ID} NOT IN (SELECT run FROM blob_runs)
  AND ${RUN_ID} NOT IN (SELECT user FROM text_uses WHERE kind = 1)`;

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
      // Both parameters are used, because SQLite rejects others. What the run uses of other tables would be left over.
      `DELETE FROM entries WHERE run = ${RUN_ID} AND ${IS_LONELY_CHILD} AND $seq >= 0`,
      `DELETE FROM runs WHERE run = $run AND ${IS_LONELY_CHILD} AND $seq >= 0`,
    ],
  },
  {
    what: 'changed snapshot',
    sql: [`UPDATE snapshots SET state = '{}', seq = max(seq, $seq) WHERE run = ${RUN_ID}`],
    harmless: true,
  },
];
