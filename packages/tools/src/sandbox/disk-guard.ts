import { stat, statfs } from 'node:fs/promises';
import type { Execution, OutputChunk } from '../ops.ts';

/*
 * Ends programs before a disk is full. No engine limits what a program writes in all, and the working folder is a folder of the
 * host, so this looks at what is left, whoever has written. A program that writes more than the reserve in one interval is not stopped.
 */

export interface DiskReserve {
  /** What has to stay free on each disk that a program can write to. If less is free at its start, half of that. */
  readonly reserveBytes: number;
  /** The same for files: inodes. */
  readonly reserveFiles: number;
}

const INTERVAL_MS = 100;

interface Free {
  readonly bytes: number;
  /** Absent: the file system has no fixed number of files. */
  readonly files?: number;
}

/** The same program, which is killed when the disk of one of the folders gets full. Its output says so. */
export function guardDisk(execution: Execution, folders: readonly string[], reserve: DiskReserve): Execution {
  let full: string | undefined;
  const checks = oneOfEachDisk(folders).then((each) => Promise.all(each.map((folder) => checkOf(folder, reserve))));
  checks.catch(() => {});
  const look = async (): Promise<void> => {
    for (const check of await checks) full ??= await check();
    if (full !== undefined) await execution.kill();
  };
  let looking: Promise<void> | undefined;
  const timer = setInterval(() => {
    // A folder that does not exist any more cannot be filled.
    looking ??= look()
      .catch(() => {})
      .finally(() => (looking = undefined));
  }, INTERVAL_MS).unref();
  void execution.exit.then(() => clearInterval(timer));
  async function* output(): AsyncGenerator<OutputChunk> {
    yield* execution.output;
    if (full === undefined) return;
    yield { stream: 'stderr', bytes: Buffer.from(`[sandbox: the program was ended, because ${full}]\n`) };
  }
  return { ...execution, process: execution.process, output: output() };
}

/** The first folder of each disk, so that what is said about a disk does not depend on which of them is looked at in time. */
async function oneOfEachDisk(folders: readonly string[]): Promise<readonly string[]> {
  const byDisk = new Map<number, string>();
  for (const folder of folders) {
    const { dev } = await stat(folder);
    if (!byDisk.has(dev)) byDisk.set(dev, folder);
  }
  return [...byDisk.values()];
}

/** Says what is used up; undefined while there is enough. */
type Check = () => Promise<string | undefined>;

async function checkOf(folder: string, { reserveBytes, reserveFiles }: DiskReserve): Promise<Check> {
  const atStart = await freeOf(folder);
  const bytes = reserveBytes < atStart.bytes ? reserveBytes : atStart.bytes / 2;
  const { files: filesAtStart = 0 } = atStart;
  const files = reserveFiles < filesAtStart ? reserveFiles : filesAtStart / 2;
  return async () => {
    const now = await freeOf(folder);
    if (now.bytes < bytes) return `the disk of ${folder} is nearly full`;
    if (now.files !== undefined && now.files < files) return `the disk of ${folder} can hold nearly no more files`;
    return undefined;
  };
}

async function freeOf(folder: string): Promise<Free> {
  const { bavail, bsize, files, ffree } = await statfs(folder);
  return { bytes: bavail * bsize, ...(files > 0 && { files: ffree }) };
}
