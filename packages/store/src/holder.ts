import { readlinkSync } from 'node:fs';
import { hostname } from 'node:os';
import { HAS_PROC, readProcess } from './process-table.ts';

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
  const namespace = HAS_PROC ? readlinkSync('/proc/self/ns/pid') : FIRST_PID_NAMESPACE;
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
  const found = readProcess(pid);
  return found?.isEnded ? 'ended' : found?.startedAt;
}
