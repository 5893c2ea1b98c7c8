import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { HeldProcess } from '@treadle/core';
import {
  holderOf,
  holderState,
  parseWhere,
  processState,
  thisProcess,
  whereText,
  type ProcessState,
} from './holder.ts';
import {
  allProcesses,
  HAS_PROC,
  hasNoEnvironment,
  hasVariable,
  lockLimit,
  openFiles,
  readProcess,
  type ProcessEntry,
} from './process-table.ts';

/*
 * Kills processes with all their descendants.
 *
 * 1. A process is found by its pid and start time, by the group and the session that it leads, by a variable in its
 *    environment or a limit (its mark), by an open pipe, or because its parent is found.
 * 2. All are stopped before any is killed, and the table of processes is read again until no new one appears. So a process
 *    cannot escape by starting another one at the same time, and a child is found while it still has its parent.
 * 3. This process and its ancestors are never killed.
 *
 * A process escapes if its ancestors up to the one that was started have ended, it has left their group and session, it has
 * another environment and none of their pipes, and it has changed its limit or was not started by a shell. Without /proc
 * (macOS) environments, limits and pipes cannot be seen, so one that has left the group escapes when its parent has ended.
 */

/** The time in which killed processes have to end. It can take longer if they wait for a device. */
const END_MS = 5_000;
const POLL_MS = 2;
/** The longest time that the exit of this process is delayed. */
const EXIT_MS = 1_000;
/** Followed by the mark. Each mark is a variable of its own, because a marked process may mark others. */
const MARK = 'TREADLE_PROCESS_';

/**
 * A running process of this host, for `process` of a resource that a tool holds. `group`: it leads a group of processes
 * (started with `detached: true`), and the whole group is killed. Throws if the process does not run.
 */
export function heldProcess(pid: number | undefined, options: { readonly group?: boolean } = {}): HeldProcess {
  const holder = pid === undefined ? undefined : holderOf(pid);
  if (!holder) throw new Error(`There is no process with the pid ${pid}.`);
  const { startedAt } = holder;
  return {
    host: whereText(holder),
    pid: holder.pid,
    ...(startedAt !== undefined && { startedAt }),
    ...(options.group && { group: true }),
  };
}

/**
 * Kills a process that a run has left behind, with its descendants, and waits until they have ended. Does not kill another
 * process that has its pid by now. False: it belongs to another host, or it is not known whether it is the same process.
 * Rejects if it cannot be killed.
 */
export async function killProcess({ pid, group, mark, host, ...given }: HeldProcess): Promise<boolean> {
  const holder = { ...given, pid: pid ?? 0, ...parseWhere(host ?? whereText(thisProcess())) };
  const state = holderState(holder, thisProcess(), pid === undefined ? markedState : processState);
  if (state === 'elsewhere') return false;
  const roots = state === 'alive' ? [{ ...holder, leads: group === true }] : [];
  if (roots.length > 0 || mark !== undefined) await killTree({ roots, mark });
  return state !== 'unknown';
}

/** Of a process without a pid: it is found only by its mark, which /proc shows. */
function markedState(): ProcessState {
  return HAS_PROC ? 'dead' : 'unknown';
}

/** A process that was just started by this one as the leader of a group, even if it has ended since. */
export function startedProcess(pid: number): HeldProcess & { readonly pid: number } {
  const found = readProcess(pid);
  return { host: whereText(thisProcess()), pid, ...(found && { startedAt: found.startedAt }), group: true };
}

/** A process of this host that is about to be started with a mark. */
export function markedProcess(mark: string): HeldProcess {
  return { host: whereText(thisProcess()), mark };
}

/** What marks a process and its descendants, as long as they keep their environment. */
export function markVariable(mark: string): Readonly<Record<string, string>> {
  return { [MARK + mark]: '1' };
}

/**
 * The arguments for a shell that marks itself by a limit, and then becomes `program` with `args`. Descendants inherit limits,
 * also those that clear their environment. It is the limit of file locks, which Linux has not used since version 2.4.
 */
export function markedShell(
  program: 'bash' | 'sh',
  args: readonly string[],
  marks: { readonly run: string | undefined; readonly own: string },
): readonly string[] {
  if (!HAS_PROC) return args;
  const limit = LIMIT_TAG | (marks.run === undefined ? 0n : hashOf(marks.run) << HASH_BITS) | hashOf(marks.own);
  // The option of bash, and that of other shells.
  const script = `{ ulimit -S -x ${limit} || ulimit -S -w ${limit}; } 2>/dev/null; exec "$0" "$@"`;
  return [...(program === 'bash' ? ['--norc'] : []), '-c', script, program, ...args];
}

/** In every limit that is a mark. No other program sets such a limit. */
const LIMIT_TAG = 1n << 62n;
const HASH_BITS = 31n;

function hashOf(mark: string): bigint {
  return BigInt(createHash('sha256').update(mark).digest().readUInt32BE() >>> 1);
}

function hasLimit(pid: number, hash: bigint): boolean {
  const limit = lockLimit(pid);
  if (limit === undefined || limit >> 62n !== 1n) return false;
  const both = limit ^ LIMIT_TAG;
  return both >> HASH_BITS === hash || BigInt.asUintN(Number(HASH_BITS), both) === hash;
}

/** The processes of a group or session whose leader has ended. */
export function membersOf(leader: number): readonly Root[] {
  return allProcesses().filter((one) => !one.isEnded && isMember(one, leader));
}

export interface Tree {
  readonly roots: readonly Root[];
  readonly mark?: string | undefined;
  /** What /proc shows for its pipes. */
  readonly pipes?: ReadonlySet<string>;
  /** The start time of the first process. Older processes have no mark and no pipes of it. */
  readonly since?: string | undefined;
}

export interface Root {
  readonly pid: number;
  readonly startedAt?: string | undefined;
  /** It leads a group and perhaps a session. */
  readonly leads?: boolean;
}

/** Kills processes and all their descendants. Resolves when none of them runs any more. */
export async function killTree(tree: Tree): Promise<void> {
  const deadline = performance.now() + END_MS;
  const stopped = new Set<string>();
  let looks = 0;
  for (;;) {
    const { found, isKilled } = stopOrKill(tree, stopped);
    if (found.length === 0) {
      if (tree.mark === undefined || looks++ >= MAX_LOOKS || !allProcesses().some(isUnreadable)) return;
      await sleep(POLL_MS);
      continue;
    }
    if (performance.now() > deadline) {
      const pids = found.map(({ pid }) => pid).join(', ');
      throw new Error(`The processes ${pids} were killed, and still run after ${END_MS} ms.`);
    }
    if (isKilled) await sleep(POLL_MS);
  }
}

/** How often to look again for a marked process while another one shows no environment. */
const MAX_LOOKS = 50;

/** It may be the one that is looked for, which becomes another program and shows no mark for a moment. */
function isUnreadable({ pid, isEnded }: ProcessEntry): boolean {
  return !isEnded && hasNoEnvironment(pid);
}

/** The same for a process that is about to exit: does not wait until they have ended. */
export function killTreeAtExit(tree: Tree): void {
  const deadline = performance.now() + EXIT_MS;
  const stopped = new Set<string>();
  while (!stopOrKill(tree, stopped).isKilled && performance.now() < deadline);
}

/** Stops the processes that are not stopped yet. If there are none, kills all. */
function stopOrKill(tree: Tree, stopped: Set<string>): { found: readonly ProcessEntry[]; isKilled: boolean } {
  const found = findTree(tree);
  const fresh = found.filter((one) => !stopped.has(identity(one)));
  for (const one of fresh) {
    stopped.add(identity(one));
    sendSignal(one.pid, 'SIGSTOP');
  }
  if (fresh.length > 0) return { found, isKilled: false };
  for (const { pid } of found) sendSignal(pid, 'SIGKILL');
  return { found, isKilled: true };
}

function findTree({ roots, mark, pipes, since }: Tree): readonly ProcessEntry[] {
  const table = allProcesses();
  const spared = ancestors(table);
  const children = Map.groupBy(table, ({ parent }) => parent);
  const found = new Set<ProcessEntry>();
  const add = (entry: ProcessEntry): void => {
    if (found.has(entry) || spared.has(entry.pid)) return;
    found.add(entry);
    for (const child of children.get(entry.pid) ?? []) add(child);
  };
  const leaders = roots.filter(({ leads }) => leads);
  const first = ticks(since);
  const hash = mark === undefined ? 0n : hashOf(mark);
  for (const entry of table) {
    const isFound =
      roots.some(({ pid, startedAt = entry.startedAt }) => entry.pid === pid && entry.startedAt === startedAt) ||
      leaders.some(({ pid }) => isMember(entry, pid));
    if (isFound) add(entry);
  }
  for (const entry of table) {
    if (found.has(entry) || entry.isEnded || ticks(entry.startedAt) < first) continue;
    if (mark !== undefined && (hasVariable(entry.pid, MARK + mark) || hasLimit(entry.pid, hash))) add(entry);
    else if (pipes?.size && openFiles(entry.pid).some((file) => pipes.has(file))) add(entry);
  }
  return [...found].filter(({ isEnded }) => !isEnded);
}

function isMember({ group, session }: ProcessEntry, leader: number): boolean {
  return group === leader || session === leader;
}

/** This process, and those that have started it. */
function ancestors(table: readonly ProcessEntry[]): ReadonlySet<number> {
  const parents = new Map(table.map(({ pid, parent }) => [pid, parent]));
  const found = new Set<number>();
  for (let pid: number | undefined = process.pid; pid !== undefined && !found.has(pid); pid = parents.get(pid)) {
    found.add(pid);
  }
  return found;
}

/** Start times of /proc are ordered; those of `ps` are not compared. */
function ticks(startedAt: string | undefined): number {
  return Number(/^\S+ (\d+)$/.exec(startedAt ?? '')?.[1] ?? 0);
}

function identity({ pid, startedAt }: ProcessEntry): string {
  return `${pid} ${startedAt}`;
}

/** It may have ended by itself. One that may not be signalled still runs at the end, which is reported. */
function sendSignal(pid: number, signal: 'SIGSTOP' | 'SIGKILL'): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'ESRCH' && code !== 'EPERM') throw error;
  }
}
