import { setTimeout as sleep } from 'node:timers/promises';
import type { HeldProcess } from '@treadle/core';
import { holderOf, processState, thisProcess } from './holder.ts';

/** The time in which a killed process has to end. It can take longer if it waits for a device. */
const END_MS = 5_000;

/**
 * A running process of this host, for `process` of a resource that a tool holds. `group`: it leads a group of processes
 * (started with `detached: true`), and the whole group is killed. Throws if the process does not run.
 */
export function heldProcess(pid: number | undefined, options: { readonly group?: boolean } = {}): HeldProcess {
  const holder = pid === undefined ? undefined : holderOf(pid);
  if (!holder) throw new Error(`There is no process with the pid ${pid}.`);
  return { ...holder, ...(options.group && { group: true }) };
}

/**
 * Kills a process that a run has left behind, and waits until it has ended. Does not kill another process that has its pid
 * by now. False: it belongs to another host, or it is not known whether it is the same process. Rejects if it cannot be
 * killed.
 */
export async function killProcess({ group, ...given }: HeldProcess): Promise<boolean> {
  const { host } = thisProcess();
  const holder = { host, ...given };
  if (holder.host !== host) return false;
  const state = processState(holder);
  if (state !== 'alive') return state === 'dead';
  signalKill(group ? -holder.pid : holder.pid);
  for (let waited = 0; processState(holder) === 'alive'; waited += 10) {
    if (waited >= END_MS) throw new Error(`The process ${holder.pid} was killed, and still runs after ${END_MS} ms.`);
    await sleep(10);
  }
  return true;
}

/** It may have ended by itself. */
function signalKill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}
