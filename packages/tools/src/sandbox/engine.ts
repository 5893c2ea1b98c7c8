import { REQUIRED_PROMISES } from '@treadle/core/policy';
import type { ExecRequest } from '../ops.ts';
import type { Reserve } from './reserve-guard.ts';

/*
 * A sandbox engine is a program that starts another one behind walls.
 *
 * 1. An engine is data and one function: `wrap` turns a request into the request that starts the engine around it. Marks,
 *    pipes, killing and everything else about programs stays in one place, `local/exec.ts`.
 * 2. What an engine promises is a list of names. A name counts only if the probe has seen it kept on this machine.
 */

/** What a sandbox can keep a program from doing, or guarantee about it. Tests, the policy and people use these names. */
export const PROMISES = {
  network: 'no network: no other host, no port of this host',
  hosts: 'network only to the hosts that the policy allows, through a proxy',
  root: 'nothing outside the working folder can be written',
  protected:
    'the hooks and settings of git, AGENTS.md, skills and the files of Treadle in the working folder are read-only',
  private: 'private files of the working folder cannot be read',
  home: 'no home folder, keys, store, or other projects',
  processes: 'other processes cannot be seen, signalled or read',
  devices: 'no devices besides null, zero, full, random, urandom and tty',
  setuid: 'no privileges through setuid programs or capabilities',
  'setuid-files': 'no file gets the setuid or setgid bit, which would give rights to other users of the host',
  ptrace: 'no tracing of processes',
  namespaces: 'no new namespaces and mounts',
  sockets: 'no sockets of programs outside, by path or abstract name',
  keyring: 'no kernel keyrings',
  terminal: 'no terminal, so no input can be faked',
  tmp: 'its own /tmp',
  memory: 'a limit on the own memory of each process; programs are ended before the memory of the machine is full',
  count: 'a limit on the number of processes',
  'file-size': 'a limit on the size of each file',
  cpu: 'a limit on the CPU time of each process',
  disk: 'programs are ended before the disk is full',
  environment: 'only listed environment variables',
  tree: 'all its processes end with the call, and with this process',
  loopback: 'programs of one run reach each other on 127.0.0.1',
} as const;

export type PromiseName = keyof typeof PROMISES;
export const PROMISE_NAMES: readonly PromiseName[] = Object.keys(PROMISES) as PromiseName[];

/** What a policy requires by default before it lets a command run unasked at level 2. */
export const DEFAULT_REQUIRED: readonly PromiseName[] = PROMISE_NAMES.filter((name) =>
  REQUIRED_PROMISES.includes(name),
);

export type EngineName = 'bubblewrap' | 'firejail' | 'podman' | 'seatbelt';
export const ENGINE_NAMES: readonly EngineName[] = ['bubblewrap', 'firejail', 'podman', 'seatbelt'];

export interface Engine {
  readonly name: EngineName;
  /** The absolute path of its program, and its version as it prints it. */
  readonly program: string;
  readonly version: string;
  /** What it is made to keep. The probe tests each on this machine. */
  readonly promises: readonly PromiseName[];
  /** The request that runs another one inside. */
  wrap(request: ExecRequest, box: Box): ExecRequest;
  /** Nothing that other programs replace while it starts makes it show more. Absent: files that they could replace are refused. */
  readonly checksMounts?: true;
  /** Starts what the programs of a room share, such as their loopback, for the first of them. Absent: they share files only. */
  readonly keeper?: (box: Box) => ExecRequest;
}

/** The process that keeps what the programs of a room share, and the box that it was started for. */
export interface Keeper {
  readonly pid: number;
  readonly box: Box;
}

/** What a program in the sandbox sees. All paths are absolute. */
export interface Box {
  /** The working folder. It can be written. */
  readonly folder: string;
  /** Where the program starts. */
  readonly workdir: string;
  /** Files and folders of the host that can be read, at the same place. Links at the top are kept as they are. */
  readonly readable: readonly string[];
  /** Folders besides the working folder that can be written: the repository that a worktree belongs to. */
  readonly writable: readonly string[];
  /** In the order in which they are mounted: each folder keeps its place, so that nothing can replace it. */
  readonly pinned: readonly string[];
  /** Read-only inside what can be written. */
  readonly protected: readonly string[];
  /** Files and folders whose content cannot be read. */
  readonly masked: readonly Mask[];
  /** The home folder of the user, which is replaced. */
  readonly home: string;
  /** Folders on the host that become /tmp and the home folder, and one for files of the engine, new for each program. */
  readonly room: { readonly tmp: string; readonly home: string; readonly scratch: string };
  /** A file without content that nobody can read, and an empty folder, to mask others with. */
  readonly blank: { readonly file: string; readonly folder: string };
  /** Mounted read-only at `to`. An engine that cannot do that names its place in the variable. */
  readonly files: readonly { readonly from: string; readonly to: string; readonly variable: string }[];
  /** Whose network the program joins. Absent: it has a network of its own. */
  readonly joins?: Keeper | undefined;
  /** The socket of the filtering proxy. Absent: no network at all. */
  readonly proxy?: string | undefined;
  readonly limits: BoxLimits;
  /** The file by which a process joins a group that limits their number. Absent: the limit of the user is all there is. */
  readonly group?: string | undefined;
  /** Descriptors that programs would inherit from this process. */
  readonly inherited?: readonly number[] | undefined;
  /** The file with the system call filter. Absent: this machine has none. */
  readonly filter?: string | undefined;
}

export interface Mask {
  readonly path: string;
  readonly type: 'file' | 'folder';
}

export interface BoxLimits extends Reserve {
  readonly cpuSeconds: number;
  readonly memoryBytes: number;
  readonly fileBytes: number;
  readonly processes: number;
}

/** Where the proxy listens inside. */
export const PROXY_PORT = 3128;

export interface ScriptDescriptors {
  /** The file of a group that it joins. */
  readonly groupFd?: number | undefined;
  readonly gateFd?: number | undefined;
  /** It has `endedInput`, and reads /dev/null of the sandbox instead. */
  readonly hasNoInput?: boolean;
  /** What the program must not have. Only bash can close numbers of two digits. */
  readonly closes?: readonly number[];
}

/** The kernel ends programs with it before others when memory is short. */
export const END_FIRST = '500';
/** Does nothing where /proc is read-only. */
export const END_FIRST_SCRIPT: string = `{ echo ${END_FIRST} >/proc/self/oom_score_adj; } 2>/dev/null`;

/**
 * A shell script that sets the limits, and becomes the program. It is the first program inside, because limits of processes
 * count there. A limit that is stricter already stays.
 */
export function limitScript(
  { cpuSeconds, memoryBytes, fileBytes, processes }: Omit<BoxLimits, keyof Reserve>,
  { groupFd, gateFd, hasNoInput = false, closes = [] }: ScriptDescriptors = {},
): string {
  const set = [
    ...(hasNoInput ? ['exec </dev/null'] : []),
    ...closes.map((fd) => `exec ${fd}>&-`),
    // What is looked at meanwhile is done when the mounts are.
    ...(gateFd === undefined ? [] : [`echo >&${gateFd}`]),
    ...(groupFd === undefined ? [] : [`echo 0 >&${groupFd} && exec ${groupFd}>&-`]),
    `lower -t ${cpuSeconds}`,
    `lower -f ${Math.floor(fileBytes / 512)}`,
    `lower -d ${Math.floor(memoryBytes / 1024)}`,
    // The option of dash, and that of bash.
    `{ ulimit -p ${processes} 2>/dev/null || lower -u ${processes}; }`,
    'ulimit -c 0',
    ...(gateFd === undefined ? [] : [`read -r go <&${gateFd} && exec ${gateFd}>&-`]),
  ].join(' && ');
  const lower = 'lower() { ulimit "$1" "$2" 2>/dev/null || [ "$(ulimit "$1")" -le "$2" ]; }';
  return `${lower}; ${set} || { echo "sandbox: the limits could not be set" >&2; exit 125; }; ${END_FIRST_SCRIPT}; exec "$@"`;
}
