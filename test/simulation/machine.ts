import type { DatabaseSync } from 'node:sqlite';
import type { Clock, StartedRun } from '@treadle/core';
import type { Holder, SqliteStore } from '@treadle/store';
import type { Disk } from './disk.ts';
import { EPOCH } from './platform.ts';
import { useLogFile } from './replaced/fs.ts';
import type { Owner, Scheduler } from './scheduler.ts';

/** The lease time of all stores. */
export const LEASE_MS = 30_000;

/** What the store needs of a machine. */
interface Machine {
  readonly location: string;
  readonly ttlMs: number;
  readonly clock: Clock;
  readonly holder: Holder;
  readonly processState: (holder: Holder) => 'alive' | 'dead' | 'unknown';
  readonly defer: (act: () => void, ms?: number) => void;
  readonly busyTimeoutMs: number;
}

/** The write-ahead log. */
interface Wal {
  readonly sync: () => void | Promise<void>;
}

/** What the log gets of the machine, apart from its file. */
interface WalSystem {
  readonly syncFile: (descriptor: number) => Promise<void>;
  readonly startWorker: () => object;
}

/** The parts of the store that its package does not export. */
export interface StoreCode {
  readonly openDatabase: (file: string, busyTimeoutMs: number) => DatabaseSync;
  readonly storeOn: (db: DatabaseSync, machine: Machine & Wal) => SqliteStore;
  readonly openWal: (db: DatabaseSync, location: string, system: WalSystem) => Wal;
  /** The log on a real machine. */
  readonly SYSTEM: WalSystem;
  readonly INBOX_PATIENCE_MS: number;
}

/** Loads them by path: packages may be imported only by what they export. */
export async function loadStore(): Promise<StoreCode> {
  const load = async (file: string): Promise<object> =>
    (await import(new URL(`../../packages/store/src/sqlite/${file}.ts`, import.meta.url).href)) as object;
  const [inner, port] = [['database', 'store', 'wal'], '../ports/inbox'];
  return Object.assign({}, ...(await Promise.all([...inner, port].map(load)))) as StoreCode;
}

/** Where pids are valid: a machine, or a container. All hosts share the disk. */
export interface Host {
  readonly name: string;
  /** How fast its monotonic clock is. */
  readonly rate: number;
  /** How far its wall clock is from the right time. */
  offset: number;
  /** How far its wall clock was set back, in all. */
  setBackMs: number;
  /** By its monotonic clock, which stands still while the machine is suspended. */
  readonly monotonic: () => number;
  readonly suspended: { from: number; until: number; earlierMs: number };
}

/** A run that a process drives, and since when. */
export interface Driving {
  readonly since: number;
  live?: StartedRun;
}

export interface Process extends Owner {
  readonly host: Host;
  readonly holder: Holder & { readonly startedAt: string };
  readonly clock: Clock;
  readonly store: SqliteStore;
  alive: boolean;
  stalledUntil: number;
  /** The runs that it drives, or is about to drive. */
  readonly driving: Map<string, Driving>;
}

export interface Machines {
  readonly hosts: readonly Host[];
  readonly processes: () => readonly Process[];
  readonly find: (pid: number, startedAt: string) => Process | undefined;
  readonly start: () => Process;
  /** All its callbacks vanish, and its promises never settle. */
  readonly kill: (process: Process) => void;
  /** All processes die, and a part of what is not synced is lost. */
  readonly failPower: () => void;
  /** None of its callbacks run for a while: it is suspended, or its event loop is blocked. */
  readonly stall: (process: Process, ms: number) => void;
  /** All processes of the host and its monotonic clock stand still for a while. */
  readonly suspend: (host: Host, ms: number) => void;
}

/** Few, so that pids are used again. */
const PIDS = 3;

interface MachineOptions {
  readonly scheduler: Scheduler;
  readonly disk: Disk;
  /** How many hosts there can be. */
  readonly hosts: readonly number[];
  readonly onCommit: (process: Process) => void;
}

export function createMachines(
  { storeOn, openWal, SYSTEM }: StoreCode,
  { scheduler, disk, hosts: counts, onCommit }: MachineOptions,
): Machines {
  const { random, now, after, log, current, within } = scheduler;
  const hosts = Array.from({ length: random.pick(counts) }, (_, index) => createHost(index));
  const everyProcess: Process[] = [];
  const syncMs = random.pick([0, 2, 20, 200]);
  disk.framesPerCommit = random.pick([1, 1, 100, 700]);
  useLogFile({ sync: syncDisk, bytes: disk.logBytes });

  function createHost(index: number): Host {
    const rate = 0.95 + random.next() * 0.1;
    const suspended = { from: 0, until: 0, earlierMs: 0 };
    return {
      name: `h${index}`,
      rate,
      offset: random.chance(0.5) ? 0 : random.between(-120_000, 120_000),
      setBackMs: 0,
      suspended,
      monotonic() {
        const { from, until, earlierMs } = suspended;
        return (now() - earlierMs - Math.max(0, Math.min(now(), until) - from)) * rate;
      },
    };
  }

  function alive(): Process[] {
    return everyProcess.filter((process) => process.alive);
  }

  function start(): Process {
    const host = random.pick(hosts);
    const used = new Set(alive().map(({ holder }) => (holder.host === host.name ? holder.pid : 0)));
    let pid = 1 + random.between(0, PIDS - 1);
    while (used.has(pid)) pid++;
    const name = `p${everyProcess.length}`;
    const holder = { host: host.name, pid, startedAt: name };
    const clock = clockOf(host, () => process);
    const process: Process = {
      name,
      host,
      holder,
      clock,
      alive: true,
      stalledUntil: host.suspended.until,
      driving: new Map(),
      store: undefined as never,
    };
    const store = within(process, () => openStore(process));
    // Snapshots after a few entries, so that short runs have some.
    Object.assign(process, { store: { ...store, snapshotFrom: 4 } });
    everyProcess.push(process);
    log(`${name} starts on ${host.name} with pid ${pid}`);
    return process;
  }

  function openStore(process: Process): SqliteStore {
    const { clock, holder } = process;
    const location = 'the simulated disk';
    const db = disk.open(() => onCommit(process));
    const wal = openWal(db, location, { ...SYSTEM, startWorker: () => checkpointWorker(process) });
    return storeOn(db, {
      location,
      ttlMs: LEASE_MS,
      clock,
      holder,
      processState: (other) => stateOf(other),
      defer: (act, ms = random.next()) => void after(process, ms, 'flush', act),
      busyTimeoutMs: 5_000,
      ...wal,
    });
  }

  /** The worker thread for checkpoints. */
  function checkpointWorker(process: Process): object {
    let finished = (_: { readonly log: number }): void => {};
    const checkpoint = (): { readonly log: number } => {
      try {
        return disk.checkpoint();
      } catch {
        return { log: -1 };
      }
    };
    return {
      ref() {},
      unref() {},
      off() {},
      on(event: string, listener: typeof finished) {
        if (event === 'message') finished = listener;
      },
      postMessage: () => void after(process, random.between(1, 300), 'ends a checkpoint', () => finished(checkpoint())),
    };
  }

  function stateOf({ host, pid, startedAt }: Holder): 'alive' | 'dead' {
    const other = alive().find(({ holder }) => holder.host === host && holder.pid === pid);
    return other && other.holder.startedAt === startedAt ? 'alive' : 'dead';
  }

  /** A sync that starts now covers what is committed now, by any process. */
  function syncDisk(done: (error: Error | null) => void): void {
    const covered = disk.commits();
    const process = current();
    after(process, random.next() * syncMs, `synced ${covered}`, () => {
      if (disk.fault === 'sync') return done(new Error('EIO: i/o error, fdatasync'));
      disk.synced(covered);
      done(null);
    });
  }

  function clockOf(host: Host, owner: () => Process): Clock & { monotonic: () => number } {
    const { monotonic } = host;
    return {
      now: () => Math.floor(EPOCH + now() + host.offset),
      monotonic,
      timer(ms, fire) {
        const due = monotonic() + ms;
        let cancel = (): void => {};
        const wait = (): void => {
          cancel = after(owner(), Math.max(0, (due - monotonic()) / host.rate), 'timer', () => {
            // The monotonic clock may have stood still.
            if (monotonic() < due - 0.01) wait();
            else fire();
          });
        };
        wait();
        return () => cancel();
      },
    };
  }

  function kill(process: Process): void {
    process.alive = false;
    log(`${process.name} dies`);
  }

  return {
    hosts,
    processes: alive,
    find: (pid, startedAt) => everyProcess.find(({ holder }) => holder.pid === pid && holder.startedAt === startedAt),
    start,
    kill,
    failPower() {
      for (const process of alive()) process.alive = false;
      const kept = random.between(disk.durable(), disk.commits());
      log(`the power fails: ${kept} of ${disk.commits()} transactions are left, ${disk.durable()} were synced`);
      disk.rollBackTo(kept);
    },
    stall(process, ms) {
      process.stalledUntil = Math.max(process.stalledUntil, now() + ms);
      log(`${process.name} stalls for ${ms} ms`);
    },
    suspend({ name, suspended }, ms) {
      if (suspended.until > now()) return;
      suspended.earlierMs += suspended.until - suspended.from;
      suspended.from = now();
      suspended.until = now() + ms;
      log(`${name} is suspended for ${ms} ms`);
      for (const process of alive()) {
        if (process.holder.host === name) process.stalledUntil = Math.max(process.stalledUntil, suspended.until);
      }
    },
  };
}
