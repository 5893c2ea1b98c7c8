import { mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/*
 * A control group that limits the number of processes. The limit of a shell counts the processes of a user, and does not apply to
 * root, who can make such a group. Others have the limit of the shell.
 */

export interface Group {
  readonly folder: string;
  /**
   * By which a program joins, before it has a second thread. The kernel moves one thread at once; to move a process, which is all
   * that version 2 offers, it waits some milliseconds until no process of the machine is being forked.
   */
  readonly file: string;
}

/**
 * The groups of this process, in whose limits the new one stays: version 1 of control groups has a tree for the number of
 * processes, version 2 one for all.
 */
function ownGroups(): readonly Group[] {
  let groups: string;
  try {
    groups = readFileSync('/proc/self/cgroup', 'utf8');
  } catch {
    return [];
  }
  const pathOf = (pattern: RegExp): string | undefined => pattern.exec(groups)?.[1];
  const [counted, unified] = [pathOf(/^\d+:pids:(.*)$/m), pathOf(/^0::(.*)$/m)];
  return [
    ...(counted === undefined ? [] : [{ folder: join('/sys/fs/cgroup/pids', counted), file: 'tasks' }]),
    ...(unified === undefined ? [] : [{ folder: join('/sys/fs/cgroup', unified), file: 'cgroup.procs' }]),
  ];
}

/** A new group; undefined if none can be made. Its name is that of nothing else. */
export function openProcessGroup(name: string, limit: number): Group | undefined {
  if (process.getuid?.() !== 0) return undefined;
  for (const parent of ownGroups()) {
    const folder = join(parent.folder, name);
    try {
      mkdirSync(folder);
    } catch {
      continue;
    }
    try {
      writeFileSync(join(folder, 'pids.max'), String(limit), { flag: 'r+' });
      if (readFileSync(join(folder, 'pids.max'), 'utf8').trim() === String(limit)) {
        return { folder, file: join(folder, parent.file) };
      }
    } catch {
      // It does not count processes.
    }
    try {
      rmdirSync(folder);
    } catch {
      // It is empty, and removed with the machine.
    }
  }
  return undefined;
}
