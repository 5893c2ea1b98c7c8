import { mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/*
 * A control group that limits the number of processes. The limit of a shell counts the processes of a user, and does not apply to
 * root, who can make such a group. Others have the limit of the shell.
 */

/** Where groups with a count of processes can be made: version 1 of control groups has a tree for it, version 2 one for all. */
const TREES = ['/sys/fs/cgroup/pids', '/sys/fs/cgroup'];

/** The folder of a new group; undefined if none can be made. Its name is that of nothing else. */
export function openProcessGroup(name: string, limit: number): string | undefined {
  if (process.getuid?.() !== 0) return undefined;
  for (const tree of TREES) {
    const folder = join(tree, name);
    try {
      mkdirSync(folder);
    } catch {
      continue;
    }
    try {
      writeFileSync(join(folder, 'pids.max'), String(limit), { flag: 'r+' });
      if (readFileSync(join(folder, 'pids.max'), 'utf8').trim() === String(limit)) return folder;
    } catch {
      // This tree does not count processes.
    }
    try {
      rmdirSync(folder);
    } catch {
      // It is empty, and removed with the machine.
    }
  }
  return undefined;
}
