import { spawnSync } from 'node:child_process';
import { availableParallelism } from 'node:os';

const canPin = availableParallelism() > 1 && spawnSync('taskset', ['-c', '1', 'true']).status === 0;

export const PINNING: string = canPin ? 'the server on core 0, what is measured on core 1' : 'nothing is pinned';

/** A command that runs Node on that core where it can. */
export function node(core: 0 | 1, args: readonly string[]): [string, string[]] {
  return canPin ? ['taskset', ['-c', String(core), process.execPath, ...args]] : [process.execPath, [...args]];
}
