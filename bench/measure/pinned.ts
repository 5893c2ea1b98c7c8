import { spawnSync } from 'node:child_process';
import { availableParallelism } from 'node:os';

const canPin = availableParallelism() > 1 && spawnSync('taskset', ['-c', '1', 'true']).status === 0;

export const PINNING: string = canPin
  ? 'the server on core 0, the measured process on core 1'
  : 'processes are not pinned';

/** The command that runs Node, on that core if pinning is possible. */
export function node(core: 0 | 1, args: readonly string[]): [string, string[]] {
  return canPin ? ['taskset', ['-c', String(core), process.execPath, ...args]] : [process.execPath, [...args]];
}
