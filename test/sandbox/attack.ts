import { existsSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { PromiseName } from '@treadle/tools/sandbox';
import type { World } from './world.ts';

/*
 * What attacks have in common: how each shows that it has worked.
 *
 * A script sees the variables of `World.variables`. It prints WORKED, or leaves a mark that `worked` finds on the host.
 */
export interface Attack {
  readonly name: string;
  /** What it would break. */
  readonly promise: PromiseName;
  readonly sh?: string;
  readonly py?: string;
  /** Whether it has worked, as the host sees it. Default: it has printed WORKED. */
  readonly worked?: (world: World) => boolean;
}

/** Matches the secret of the world, and not itself in the list of processes. */
export const SECRET = 'sk-attack-secre[t]';

/** Reads a secret with a command. */
export function reads(name: string, promise: PromiseName, command: string): Attack {
  return { name, promise, sh: `case "$(${command})" in *${SECRET}*) echo WORKED;; esac` };
}

/** Leaves a file on the host with the name of the attack, below a folder of the world. */
export function leaves(name: string, promise: PromiseName, sh: string, at: (world: World) => string): Attack {
  return { name, promise, sh, worked: (world) => existsSync(at(world)) };
}

/** Changes a file of the host. */
export function changes(name: string, promise: PromiseName, sh: string, file: (world: World) => string): Attack {
  return { name, promise, sh, worked: (world) => readFileSync(file(world), 'utf8').includes('ATTACK') };
}

/** Does something with an exit code. */
export function succeeds(name: string, promise: PromiseName, sh: string): Attack {
  return { name, promise, sh: `${sh} && echo WORKED` };
}

/** Leaves a process behind: `sleep "$SLEEP"` and a digit of its own, so that processes of other runs are not taken for it. */
export function survives(name: string, digit: number, sh: string): Attack {
  return { name, promise: 'tree', sh, worked: ({ isRunning }) => isRunning(digit) };
}

/** Gives a file of the working folder the setuid or setgid bit. The file has a number of its own. */
export function marks(name: string, file: string, code: Pick<Attack, 'sh' | 'py'>): Attack {
  return { name, promise: 'setuid-files', ...code, worked: ({ folder }) => hasSetuidBits(join(folder, file)) };
}

function hasSetuidBits(path: string): boolean {
  return ((statSync(path, { throwIfNoEntry: false })?.mode ?? 0) & 0o6000) !== 0;
}

/** A system call whose error says whether it was let through. `numbers`: on x86-64 and arm64. */
export function calls(name: string, promise: PromiseName, numbers: readonly [number, number], args: string): Attack {
  return {
    name,
    promise,
    py: `
number = ${numbers[0]} if platform.machine() == 'x86_64' else ${numbers[1]}
ctypes.set_errno(0)
result = libc.syscall(number, ${args})
if result >= 0 or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS, errno.EACCES): print('WORKED')
`,
  };
}

export const inFolder =
  (...names: string[]) =>
  ({ folder }: World): string =>
    join(folder, ...names);
export const outside =
  (...names: string[]) =>
  ({ outside: top }: World): string =>
    join(top, ...names);
export const inHome =
  (...names: string[]) =>
  ({ home }: World): string =>
    join(home, ...names);
