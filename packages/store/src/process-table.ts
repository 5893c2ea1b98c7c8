import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';

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

const ON_LINUX = process.platform === 'linux';

/**
 * Whether the system shows its processes, their environments and their open files in /proc. In a namespace of pids that was
 * made without its own /proc, the pids there are those of another namespace.
 */
export const HAS_PROC: boolean = ON_LINUX && orUndefined(() => readlinkSync('/proc/self')) === String(process.pid);

/** The columns of `ps` that every system has. */
const PS_COLUMNS = ['pid', 'ppid', 'pgid', 'stat', 'lstart'].flatMap((column) => ['-o', `${column}=`]);

/** One process; undefined if there is none with this pid, or it cannot be read. */
export function readProcess(pid: number): ProcessEntry | undefined {
  return ON_LINUX ? readStat(pid) : readPs(['-p', String(pid)])[0];
}

export function allProcesses(): readonly ProcessEntry[] {
  if (!ON_LINUX) return readPs(['-A']);
  return HAS_PROC ? numbersIn('/proc').flatMap((pid) => readStat(pid) ?? []) : [];
}

/** The start is in ticks since boot, so it is unique only together with the id of the boot. */
function readStat(pid: number): ProcessEntry | undefined {
  const boot = bootId();
  if (!HAS_PROC || boot === undefined) return undefined;
  return orUndefined(() => {
    const fields = statFields(`/proc/${pid}/stat`);
    return {
      pid,
      parent: Number(fields[1]),
      group: Number(fields[2]),
      session: Number(fields[3]),
      isEnded: isEndedState(fields[0]!),
      startedAt: `${boot} ${fields[START_FIELD]}`,
    };
  });
}

/** The fields after the program name, which is in brackets and may itself contain spaces and brackets. */
function statFields(file: string): readonly string[] {
  const stat = readFileSync(file, 'utf8');
  return stat.slice(stat.lastIndexOf(')') + 2).split(' ');
}

const START_FIELD = 19;

/** The thread that calls this: its id and its start time. Undefined for the main thread, and where threads cannot be seen. */
export function thisThread(): string | undefined {
  return orUndefined(() => {
    const [pid, id] = HAS_PROC ? readlinkSync('/proc/thread-self').split('/task/') : [];
    return id === undefined || id === pid ? undefined : threadText(process.pid, id);
  });
}

/** Whether a thread of a process has ended. False if that cannot be read. */
export function isThreadEnded(pid: number, thread: string): boolean {
  try {
    return threadText(pid, thread.split(' ')[0]!) !== thread;
  } catch (error) {
    return ['ENOENT', 'ESRCH'].includes((error as NodeJS.ErrnoException).code!);
  }
}

function threadText(pid: number, id: string): string {
  return `${id} ${statFields(`/proc/${pid}/task/${id}/stat`)[START_FIELD]}`;
}

let knownBoot: string | undefined;

/** Another one each time that the machine starts. Undefined if the system does not tell it. */
function bootId(): string | undefined {
  knownBoot ??= orUndefined(() => {
    if (ON_LINUX) return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
    if (process.platform !== 'darwin') return undefined;
    return execFileSync('/usr/sbin/sysctl', ['-n', 'kern.bootsessionuuid'], { encoding: 'utf8', stdio: 'pipe' }).trim();
  });
  return knownBoot === '' ? undefined : knownBoot;
}

/** The namespaces that every Linux system starts with. Containers have others. */
const FIRST_NAMESPACES: ReadonlySet<string> = new Set(['pid:[4026531836]', 'time:[4026531834]']);

/** The namespace of pids of this process. Empty: the first one, or the system has none. Undefined if it cannot be read. */
export function pidNamespace(): string | undefined {
  return ON_LINUX ? namespace('pid') : '';
}

function namespace(name: 'pid' | 'time'): string | undefined {
  const found = orUndefined(() => readlinkSync(`/proc/self/ns/${name}`));
  return found !== undefined && FIRST_NAMESPACES.has(found) ? '' : found;
}

/**
 * Where pids and start times mean the same as here: the boot, and in a container its namespaces. Undefined if the system does
 * not tell. A namespace of time shifts the start times that a process sees; old systems have none.
 */
export function readPlace(): string | undefined {
  const [boot, pids] = [bootId(), pidNamespace()];
  if (boot === undefined || pids === undefined) return undefined;
  return [boot, pids, (ON_LINUX && namespace('time')) || ''].filter((part) => part !== '').join(' ');
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

/** Whether a process shows no environment: it becomes another program at the moment, or was started without one. */
export function hasNoEnvironment(pid: number): boolean {
  const isProgram = (): boolean =>
    readlinkSync(`/proc/${pid}/exe`) !== '' && readFileSync(`/proc/${pid}/environ`).length === 0;
  return HAS_PROC && orUndefined(isProgram) === true;
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
