import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';

/** A process of this host. */
export interface ProcessEntry {
  readonly pid: number;
  readonly parent: number;
  readonly group: number;
  /** Its session. Undefined where it cannot be read. */
  readonly session: number | undefined;
  /** It is a zombie, whose parent has not yet waited for it. */
  readonly isEnded: boolean;
  /** When it started, in a system-specific format; together with the pid it identifies the process. */
  readonly startedAt: string;
}

/** Whether the system shows its processes, their environments and their open files in /proc. */
export const HAS_PROC: boolean = process.platform === 'linux' && existsSync('/proc/self/stat');

/** The columns of `ps` that every system has. */
const PS_COLUMNS = ['pid', 'ppid', 'pgid', 'stat', 'lstart'].flatMap((column) => ['-o', `${column}=`]);

/** One process; undefined if there is none with this pid, or it cannot be read. */
export function readProcess(pid: number): ProcessEntry | undefined {
  return HAS_PROC ? readStat(pid) : readPs(['-p', String(pid)])[0];
}

export function allProcesses(): readonly ProcessEntry[] {
  return HAS_PROC ? numbersIn('/proc').flatMap((pid) => readStat(pid) ?? []) : readPs(['-A']);
}

let bootId: string | undefined;

/** The start is in ticks since boot, so it is unique only together with the id of the boot. */
function readStat(pid: number): ProcessEntry | undefined {
  return orUndefined(() => {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The second field is the program name in brackets, which may itself contain spaces and brackets.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    bootId ??= readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
    return {
      pid,
      parent: Number(fields[1]),
      group: Number(fields[2]),
      session: Number(fields[3]),
      isEnded: isEndedState(fields[0]!),
      startedAt: `${bootId} ${fields[19]}`,
    };
  });
}

/** Exported for tests on systems with /proc. */
export function readPs(which: readonly string[]): readonly ProcessEntry[] {
  const output = orUndefined(() =>
    execFileSync('ps', [...which, ...PS_COLUMNS], {
      encoding: 'utf8',
      env: { ...process.env, LC_ALL: 'C', TZ: 'UTC' },
      stdio: 'pipe',
    }),
  );
  return (output ?? '').split('\n').flatMap((line) => {
    const [pid, parent, group, state, ...start] = line.trim().split(/\s+/);
    if (state === undefined) return [];
    return {
      pid: Number(pid),
      parent: Number(parent),
      group: Number(group),
      session: undefined,
      isEnded: isEndedState(state),
      startedAt: start.join(' '),
    };
  });
}

/** Whether a variable is in the environment that a process was started with. False where that cannot be read. */
export function hasVariable(pid: number, name: string): boolean {
  return (
    HAS_PROC && orUndefined(() => `\0${readFileSync(`/proc/${pid}/environ`, 'latin1')}`.includes(`\0${name}=`)) === true
  );
}

/** The soft limit of file locks of a process; undefined if there is none, or it cannot be read. */
export function lockLimit(pid: number): bigint | undefined {
  const limits = HAS_PROC ? orUndefined(() => readFileSync(`/proc/${pid}/limits`, 'latin1')) : undefined;
  const limit = limits && /^Max file locks +(\d+)/m.exec(limits)?.[1];
  return limit === undefined || limit === '' ? undefined : BigInt(limit);
}

/** What the open files of a process are, as /proc shows them. Empty where that cannot be read. */
export function openFiles(pid: number): readonly string[] {
  if (!HAS_PROC) return [];
  const fds = orUndefined(() => numbersIn(`/proc/${pid}/fd`)) ?? [];
  return fds.flatMap((fd) => orUndefined(() => readlinkSync(`/proc/${pid}/fd/${fd}`)) ?? []);
}

function numbersIn(folder: string): readonly number[] {
  return readdirSync(folder).map(Number).filter(Number.isInteger);
}

function isEndedState(state: string): boolean {
  return state.startsWith('Z') || state.startsWith('X');
}

function orUndefined<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}
