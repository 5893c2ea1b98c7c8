import { execFileSync } from 'node:child_process';
import { readFileSync, readlinkSync } from 'node:fs';
import { hostname } from 'node:os';

/** The process that drives a run. */
export interface Holder {
  /** Where its pid means something: the machine, or the container. */
  readonly host: string;
  readonly pid: number;
  /** When it was started, in the words of its system; tells it from a later process with the same pid. */
  readonly startedAt?: string;
}

/** Every system has this one; only containers have others. */
const FIRST_PID_NAMESPACE = 'pid:[4026531836]';

let self: Holder | undefined;

export function thisProcess(): Holder {
  if (self) return self;
  const startedAt = startOf(process.pid);
  self = { host: thisHost(), pid: process.pid, ...(startedAt !== undefined && { startedAt }) };
  return self;
}

/** Of a process of this host. Unknown: there is one with its pid, and no telling whether it is the same. */
export function fateOf({ pid, startedAt }: Holder): 'alive' | 'dead' | 'unknown' {
  const start = isThere(pid) ? startOf(pid) : 'gone';
  if (start === 'gone') return 'dead';
  if (start === undefined || startedAt === undefined) return 'unknown';
  return start === startedAt ? 'alive' : 'dead';
}

/** Containers can share the name of their machine and yet not see each other's processes. */
function thisHost(): string {
  const namespace = attempt(() => readlinkSync('/proc/self/ns/pid')) ?? FIRST_PID_NAMESPACE;
  return namespace === FIRST_PID_NAMESPACE ? hostname() : `${hostname()} ${namespace}`;
}

function isThere(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH';
  }
}

/** `gone`: it has ended, and only its parent has not yet taken note. */
function startOf(pid: number): string | 'gone' | undefined {
  return process.platform === 'linux' ? startInProc(pid) : startByPs(pid);
}

/** Ticks since the system was started, so they count only together with which start that was. */
function startInProc(pid: number): string | 'gone' | undefined {
  return attempt(() => {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The second field is the program's name in brackets, which may hold spaces and brackets itself.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    if (hasEnded(fields[0]!)) return 'gone';
    return `${readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()} ${fields[19]}`;
  });
}

function startByPs(pid: number): string | 'gone' | undefined {
  return attempt(() => {
    const env = { ...process.env, LC_ALL: 'C', TZ: 'UTC' };
    const shown = execFileSync('ps', ['-o', 'stat=', '-o', 'lstart=', '-p', String(pid)], {
      encoding: 'utf8',
      env,
      stdio: 'pipe',
    });
    const [state, ...start] = shown.trim().split(/\s+/);
    return hasEnded(state!) ? 'gone' : start.join(' ');
  });
}

function hasEnded(state: string): boolean {
  return state.startsWith('Z') || state.startsWith('X');
}

function attempt<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch {
    return undefined;
  }
}
