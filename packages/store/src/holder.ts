import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { isThreadEnded, pidNamespace, readPlace, readProcess, thisThread } from './process-table.ts';

/*
 * The identity of who drives a run, or of a process that a run has started. Made and compared only here.
 *
 * 1. A pid and a start time mean something only within one boot of one machine and one namespace of pids: `place`. The name of
 *    the host says nothing about that: it can change, and containers that share pids have different names.
 * 2. A holder of the same place is alive or dead as the system says. One that the system says nothing about is not dead.
 * 3. A holder of an earlier boot of this machine is dead. A machine is recognised by the name of its host, outside of
 *    containers. Leases in a store that machines share do not rely on that (`isDeadHere`).
 * 4. Of every other holder nobody can say here whether it lives (`elsewhere`).
 * 5. Holders without a place (those of earlier versions, and where the system does not tell the boot) are compared by `host`.
 */

/** Identifies the process, or the worker thread, that drives a run. */
export interface Holder {
  /** The name of the host, with the namespace of pids in a container. */
  readonly host: string;
  readonly pid: number;
  /** Start time in a system-specific format. Distinguishes the process from a later one with the same pid. */
  readonly startedAt?: string;
  /** Where the pid is valid. Two holders can be compared if they have the same one. */
  readonly place?: string;
  /** A thread of the process other than its main thread: its id and its start time. Absent where threads cannot be seen. */
  readonly thread?: string;
}

/** `unknown`: a process with this pid exists, but a start time is missing, so it may be a different one. */
export type ProcessState = 'alive' | 'dead' | 'unknown';

let self: Holder | undefined;

/** Each worker thread has its own copy of this module. */
export function thisProcess(): Holder {
  if (self) return self;
  const [place, thread] = [readPlace(), thisThread()];
  self = {
    host: thisHost(),
    pid: process.pid,
    ...startedAtOf(process.pid),
    ...(place !== undefined && { place }),
    ...(thread !== undefined && { thread }),
  };
  return self;
}

/** Whether a holder still runs, as far as `here` can see. `stateHere` knows the processes of the place of `here`. */
export function holderState(
  other: Holder,
  here: Holder = thisProcess(),
  stateHere: (other: Holder) => ProcessState = processState,
): ProcessState | 'elsewhere' {
  const isComparable = other.place !== undefined && here.place !== undefined;
  const isHere = isComparable ? other.place === here.place : other.host === here.host;
  if (isHere) return stateHere(other);
  const isEarlierBoot = other.host === here.host && isMachine(other.place) && isMachine(here.place);
  return isEarlierBoot ? 'dead' : 'elsewhere';
}

/**
 * Whether a holder has died, as far as `here` can see, in a store that machines share. They may have the same name, so a name
 * says nothing.
 */
export function isDeadHere(other: Holder, here: Holder, stateHere: (other: Holder) => ProcessState): boolean {
  return other.place !== undefined && other.place === here.place && stateHere(other) === 'dead';
}

/** Not a container, whose place also names its namespaces. */
function isMachine(place: string | undefined): boolean {
  return place !== undefined && !place.includes(' ');
}

/** Whether a process of this place still runs. */
export function processState({ pid, startedAt, thread }: Holder): ProcessState {
  const start = pidExists(pid) ? startOf(pid) : 'ended';
  if (start === 'ended') return 'dead';
  if (start === undefined || startedAt === undefined) return 'unknown';
  if (start !== startedAt) return 'dead';
  return thread !== undefined && isThreadEnded(pid, thread) ? 'dead' : 'alive';
}

/** A process of this place; undefined if there is no such process. */
export function holderOf(pid: number): Holder | undefined {
  const { host, place } = thisProcess();
  const holder = { host, ...(place !== undefined && { place }), pid, ...startedAtOf(pid) };
  return pidExists(pid) && holder.startedAt !== 'ended' ? holder : undefined;
}

/** One text for `host` and `place`, for records that have a single field for both. */
export function whereText({ host, place }: Pick<Holder, 'host' | 'place'>): string {
  return place === undefined ? host : `${host}${WITH_PLACE}${place}`;
}

/** The inverse of `whereText`. */
export function parseWhere(text: string): Pick<Holder, 'host' | 'place'> {
  const at = text.lastIndexOf(WITH_PLACE);
  return at === -1 ? { host: text } : { host: text.slice(0, at), place: text.slice(at + WITH_PLACE.length) };
}

const WITH_PLACE = ' @ ';

function startedAtOf(pid: number): Pick<Holder, 'startedAt'> {
  const startedAt = startOf(pid);
  return startedAt === undefined ? {} : { startedAt };
}

/** Containers can share a host name without seeing each other's processes. Without the namespace nothing can be compared. */
function thisHost(): string {
  const namespace = pidNamespace();
  if (namespace === undefined) return `${hostname()} ${randomUUID()}`;
  return namespace === '' ? hostname() : `${hostname()} ${namespace}`;
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
