import { execFileSync } from 'node:child_process';
import { readFileSync, readlinkSync } from 'node:fs';
import { hostname } from 'node:os';

/** Identifies the process that drives a run. */
export interface Holder {
  /** Where the pid is valid: the machine, or the container. */
  readonly host: string;
  readonly pid: number;
  /** Start time in a system-specific format. Distinguishes the process from a later one with the same pid. */
  readonly startedAt?: string;
}

/** The initial namespace of every Linux system. Containers have others. */
const FIRST_PID_NAMESPACE = 'pid:[4026531836]';

let self: Holder | undefined;

export function thisProcess(): Holder {
  self ??= { host: thisHost(), pid: process.pid, ...startedAtOf(process.pid) };
  return self;
}

/** A process of this host; undefined if there is no such process. */
export function holderOf(pid: number): Holder | undefined {
  const holder = { host: thisProcess().host, pid, ...startedAtOf(pid) };
  return pidExists(pid) && holder.startedAt !== 'ended' ? holder : undefined;
}

function startedAtOf(pid: number): Pick<Holder, 'startedAt'> {
  const startedAt = startOf(pid);
  return startedAt === undefined ? {} : { startedAt };
}

/**
 * Whether a process of this host still runs. `unknown`: a process with this pid exists, but a start time is missing, so it
 * may be a different one.
 */
export function processState({ pid, startedAt }: Holder): 'alive' | 'dead' | 'unknown' {
  const start = pidExists(pid) ? startOf(pid) : 'ended';
  if (start === 'ended') return 'dead';
  if (start === undefined || startedAt === undefined) return 'unknown';
  return start === startedAt ? 'alive' : 'dead';
}

/** Containers can share a host name without seeing each other's processes. */
function thisHost(): string {
  const namespace = orUndefined(() => readlinkSync('/proc/self/ns/pid')) ?? FIRST_PID_NAMESPACE;
  return namespace === FIRST_PID_NAMESPACE ? hostname() : `${hostname()} ${namespace}`;
}

function pidExists(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH';
  }
}

/** `ended`: a zombie, whose parent has not yet waited for it. Undefined if the start time cannot be read. */
function startOf(pid: number): string | 'ended' | undefined {
  return process.platform === 'linux' ? startInProc(pid) : startByPs(pid);
}

/** The start is in ticks since boot, so it is unique only together with the id of the boot. */
function startInProc(pid: number): string | 'ended' | undefined {
  return orUndefined(() => {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The second field is the program name in brackets, which may itself contain spaces and brackets.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    if (isEndedState(fields[0]!)) return 'ended';
    return `${readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()} ${fields[19]}`;
  });
}

function startByPs(pid: number): string | 'ended' | undefined {
  return orUndefined(() => {
    const env = { ...process.env, LC_ALL: 'C', TZ: 'UTC' };
    const output = execFileSync('ps', ['-o', 'stat=', '-o', 'lstart=', '-p', String(pid)], {
      encoding: 'utf8',
      env,
      stdio: 'pipe',
    });
    const [state, ...start] = output.trim().split(/\s+/);
    return isEndedState(state!) ? 'ended' : start.join(' ');
  });
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
