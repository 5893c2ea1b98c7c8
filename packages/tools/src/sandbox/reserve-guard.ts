import { readFileSync } from 'node:fs';
import { readFile, stat, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import type { Execution, OutputChunk } from '../ops.ts';

/*
 * Ends programs before a disk or the memory of the machine is full. No engine limits what a program writes in all, and memory that
 * processes share, or that belongs to an open file, is counted for none of them. So this looks at what is left, whoever has taken it. A
 * program that takes more than the reserve in one interval is not stopped.
 */

/** What has to stay free. If less is free at the start of a program, half of that. */
export interface Reserve {
  /** On each disk that a program can write to. */
  readonly reserveBytes: number;
  /** The same for files: inodes. */
  readonly reserveFiles: number;
  readonly reserveMemoryBytes: number;
}

const INTERVAL_MS = 100;

interface Free {
  readonly bytes: number;
  /** Absent: the file system has no fixed number of files. */
  readonly files?: number;
}

/** The same program, which is killed when the memory or the disk of one of the folders gets full. Its output says so. */
export function guardReserve(execution: Execution, folders: readonly string[], reserve: Reserve): Execution {
  let full: string | undefined;
  const checks = oneOfEachDisk(folders).then((each) =>
    Promise.all([...each.map((folder) => diskCheck(folder, reserve)), memoryCheck(reserve)]),
  );
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

async function diskCheck(folder: string, { reserveBytes, reserveFiles }: Reserve): Promise<Check> {
  const atStart = await freeOf(folder);
  const bytes = atMostHalf(reserveBytes, atStart.bytes);
  const files = atMostHalf(reserveFiles, atStart.files ?? 0);
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

function atMostHalf(reserve: number, free: number): number {
  return reserve < free ? reserve : free / 2;
}

async function memoryCheck({ reserveMemoryBytes }: Reserve): Promise<Check> {
  const groups = memoryGroups();
  const bytes = atMostHalf(reserveMemoryBytes, (await freeMemory(groups)) ?? 0);
  return async () => {
    const now = (await freeMemory(groups)) ?? Infinity;
    return now < bytes ? 'the memory of the machine is nearly full' : undefined;
  };
}

/** The files of a control group that say how much memory it may have, has, and can get back from its files. */
interface MemoryGroup {
  readonly limit: string;
  readonly used: string;
  readonly statistics: string;
  readonly reclaimable: RegExp;
}

/** Those of this process in both versions of control groups. */
function memoryGroups(): readonly MemoryGroup[] {
  let listed: string;
  try {
    listed = readFileSync('/proc/self/cgroup', 'utf8');
  } catch {
    return [];
  }
  return [...listed.matchAll(/^\d+:(|.*,memory|memory|memory,.*):(.*)$/gm)].map(([, controllers, path = '']) => {
    const [top, limit, used, name] =
      controllers === ''
        ? ['/sys/fs/cgroup', 'memory.max', 'memory.current', 'inactive_file']
        : ['/sys/fs/cgroup/memory', 'memory.limit_in_bytes', 'memory.usage_in_bytes', 'total_inactive_file'];
    const [folder, reclaimable] = [join(top, path), new RegExp(`^${name} (\\d+)$`, 'm')];
    return {
      limit: join(folder, limit),
      used: join(folder, used),
      statistics: join(folder, 'memory.stat'),
      reclaimable,
    };
  });
}

/** Undefined if the system does not say it. */
async function freeMemory(groups: readonly MemoryGroup[]): Promise<number | undefined> {
  const [machine, ...others] = await Promise.all([freeOfMachine(), ...groups.map(freeOfGroup)]);
  const known = [machine, ...others].filter((one) => one !== undefined);
  return known.length === 0 ? undefined : Math.min(...known);
}

async function freeOfMachine(): Promise<number | undefined> {
  const text = await readFile('/proc/meminfo', 'utf8').catch(() => '');
  const kilobytes = (name: string): number => Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(text)?.[1]);
  const free = (kilobytes('MemAvailable') + kilobytes('SwapFree')) * 1024;
  return Number.isNaN(free) ? undefined : free;
}

/** Undefined for the top group, and for one without a limit. */
async function freeOfGroup({ limit, used, statistics, reclaimable }: MemoryGroup): Promise<number | undefined> {
  try {
    const texts = await Promise.all([limit, used, statistics].map((path) => readFile(path, 'utf8')));
    const [most, now] = texts.map(Number) as [number, number];
    const free = most - now + Number(reclaimable.exec(texts[2]!)?.[1] ?? 0);
    return Number.isNaN(free) ? undefined : free;
  } catch {
    return undefined;
  }
}
