import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

/** Replaces the syncs of the C library by ones that take 4 ms longer. */
const SHIM = `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
static void wait_longer(void) {
  struct timespec delay = { 0, 4000000 };
  nanosleep(&delay, 0);
}
int fsync(int fd) {
  static int (*real)(int);
  if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  wait_longer();
  return real(fd);
}
int fdatasync(int fd) {
  static int (*real)(int);
  if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
  wait_longer();
  return real(fd);
}
`;

let library: string | undefined | false;

/** The environment of a process whose syncs are slow; undefined without a C compiler, and on other systems than Linux. */
export function slowDiskEnvironment(): NodeJS.ProcessEnv | undefined {
  library ??= compiled() ?? false;
  return library === false ? undefined : { LD_PRELOAD: library };
}

function compiled(): string | undefined {
  if (process.platform !== 'linux') return undefined;
  const folder = mkdtempSync(path.join(tmpdir(), 'treadle-slow-disk-'));
  process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
  const [source, out] = [path.join(folder, 'slow-disk.c'), path.join(folder, 'slow-disk.so')];
  writeFileSync(source, SHIM);
  return spawnSync('cc', ['-shared', '-fPIC', '-O1', '-o', out, source, '-ldl']).status === 0 ? out : undefined;
}
