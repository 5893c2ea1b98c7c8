import { spawn, type ChildProcess, type SpawnOptions } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { closeSync, constants, existsSync, openSync } from 'node:fs';
import { createRequire } from 'node:module';
import { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import type * as Ripgrep from '@vscode/ripgrep';
import {
  killTree,
  killTreeAtExit,
  markedProcess,
  markedShell,
  markVariable,
  membersOf,
  startedProcess,
  type Root,
} from '@treadle/store/processes';
import type { ExecOps, ExecRequest, Execution, Exit, FileOps, OutputChunk } from '../ops.ts';
import { programEnvironment } from './environment.ts';
import { closePipe, takePipes, type Pipe } from './pipes.ts';

/*
 * Programs of this machine.
 *
 * 1. A program is started without a shell, as the leader of a process group and of a session: it has no terminal.
 * 2. Its output goes to pipes, and it waits while nobody reads them. At most two buffers of 64 kB are in memory.
 * 3. Its output ends when all writers have closed it. A process that keeps it open after the program has exited does not
 *    delay the end for long.
 * 4. `kill` ends every descendant that `killTree` can find: by its parent, the group, the session, the mark in the
 *    environment, the pipes, and the mark in a limit that shells set.
 * 5. When this process exits, all programs that it has started are killed. A signal that ends it at once prevents that.
 */

export interface ExecOptions {
  /** The environment of programs. Default: that of this process without what looks like a secret. */
  readonly env?: Readonly<Record<string, string>>;
}

/** After the exit, the output ends when nothing has been written for this time. */
const QUIET_MS = 100;
/** Processes that write without end after the exit are not waited for. The buffers of the system hold less than this. */
const MAX_AFTER_EXIT = 1024 * 1024;

const IS_WINDOWS = process.platform === 'win32';

export function localExec(files: FileOps, { env }: ExecOptions): ExecOps {
  let base: Readonly<Record<string, string>> | undefined = env;
  return {
    async start(request) {
      const cwd = await folderFor(files, request);
      if (!request.baseEnv) base ??= programEnvironment(process.env);
      return startProgram(request, cwd, request.baseEnv ?? base!);
    },
    killMarked: (mark) => killTree({ roots: [], mark }),
    markedProcess,
    get ripgrep() {
      return findRipgrep();
    },
  };
}

/** The folder that a program runs in. */
export async function folderFor(files: FileOps, { workdir, narrowedBy }: ExecRequest): Promise<string> {
  if (workdir === undefined) return files.folder;
  const usable = narrowedBy ? (files.narrowed?.({ narrowedBy }) ?? files) : files;
  const { path, type } = await usable.stat(workdir);
  if (type === 'folder') return path;
  throw Object.assign(new Error(`${JSON.stringify(workdir)} is not a folder`), { code: 'ENOTDIR' });
}

export async function startProgram(
  {
    argv: [program, ...args],
    env,
    mark,
    writable = false,
    endedInput = false,
    inputs = [],
    outputs = [],
    gate,
  }: ExecRequest,
  cwd: string,
  base: Readonly<Record<string, string>>,
): Promise<Execution> {
  const ownMark = randomBytes(16).toString('hex');
  processMark ??= killAtExit();
  const pipes = takePipes();
  const isShell = program === 'bash' || program === 'sh';
  const given = isShell ? markedShell(program, args, { run: mark, own: ownMark }) : args;
  const child = spawnOrClose({ pipes, inputs, outputs, hasGate: gate !== undefined }, program, given, {
    cwd,
    env: {
      ...base,
      ...env,
      ...(mark !== undefined && markVariable(mark)),
      ...markVariable(ownMark),
      ...markVariable(processMark),
    },
    detached: !IS_WINDOWS,
    windowsHide: true,
    stdio: [writable || endedInput ? 'pipe' : 'ignore', pipes?.[0].writer ?? 'pipe', pipes?.[1].writer ?? 'pipe'],
  });
  const { pid } = child;
  if (pid === undefined) {
    pipes?.forEach(closePipe);
    throw await startError(child, cwd);
  }
  // Read at once, because the program may end at any time.
  const started = process.platform === 'linux' ? startedProcess(pid) : undefined;
  const refusal = gate ? openGate(child, gate) : undefined;
  const streams = pipes
    ? ([readerOf(pipes[0]), readerOf(pipes[1])] as const)
    : ([child.stdout!, child.stderr!] as const);
  const shownPipes = new Set((pipes ?? []).flatMap(({ shownAs }) => shownAs ?? []));
  /** Processes of its group when it exited. Another process may get its pid after that. */
  let left: readonly Root[] = [];
  let hasExited = false;
  const exit = new Promise<Exit>((done) => {
    child.once('exit', (code, signal) => {
      hasExited = true;
      if (groupExists(pid)) left = membersOf(pid);
      done({ exitCode: code ?? undefined, signal: signal ?? undefined });
    });
  });
  let isRead = false;
  async function* output(): AsyncGenerator<OutputChunk> {
    isRead = true;
    yield* outputOf(streams, exit);
    const reason = await refusal;
    if (reason !== undefined) yield { stream: 'stderr', bytes: Buffer.from(`${reason}\n`) };
  }
  child.on('error', ignore);
  child.stdin?.on('error', ignore);
  if (!writable) child.stdin?.end();
  return {
    get process() {
      return { ...(started ?? startedProcess(pid)), mark: ownMark };
    },
    output: output(),
    exit,
    async write(text) {
      const { stdin } = child;
      if (!stdin?.writable) throw new Error('The program does not read its input any more.');
      await new Promise<void>((done, fail) => stdin.write(text, (error) => (error ? fail(error) : done())));
    },
    endInput: () => void child.stdin?.end(),
    async kill() {
      const roots = hasExited ? left : [{ pid, startedAt: started?.startedAt, leads: true }, ...left];
      if (IS_WINDOWS) child.kill('SIGKILL');
      else await killTree({ roots, mark: ownMark, pipes: shownPipes, since: started?.startedAt });
      await exit;
      if (!isRead) for (const stream of streams) stream.destroy();
    },
  };
}

/** All programs of this process have it. */
let processMark: string | undefined;

function killAtExit(): string {
  const mark = randomBytes(16).toString('hex');
  process.once('exit', () => {
    if (!IS_WINDOWS) killTreeAtExit({ roots: [], mark });
  });
  return mark;
}

function spawnOrClose(
  {
    pipes,
    inputs,
    outputs,
    hasGate,
  }: {
    readonly pipes: readonly Pipe[] | undefined;
    readonly inputs: readonly string[];
    readonly outputs: readonly string[];
    readonly hasGate: boolean;
  },
  program: string,
  args: readonly string[],
  options: SpawnOptions & { readonly stdio: readonly (string | number)[] },
): ChildProcess {
  const opened: number[] = [];
  try {
    for (const path of inputs) opened.push(openSync(path, 'r'));
    for (const path of outputs) opened.push(openSync(path, constants.O_WRONLY));
    const stdio = [...options.stdio, ...opened, ...(hasGate ? ['pipe'] : [])] as SpawnOptions['stdio'];
    return spawn(program, args, { ...options, stdio });
  } catch (error) {
    pipes?.forEach(closePipe);
    throw error;
  } finally {
    opened.forEach((one) => closeSync(one));
  }
}

/** Resolves with why the program was refused, or undefined when it goes on or has ended. */
function openGate(child: ChildProcess, gate: NonNullable<ExecRequest['gate']>): Promise<string | undefined> {
  const pipe = child.stdio.at(-1) as Socket;
  const check = gate();
  return new Promise((done) => {
    pipe.on('error', ignore).once('close', () => done(undefined));
    pipe.once('data', () => {
      const reason = check({ pid: child.pid! });
      if (reason === undefined) pipe.end('\n');
      else child.kill('SIGKILL');
      done(reason);
    });
  });
}

/** Reads a pipe whose other end the program has now. */
function readerOf({ reader, writer }: Pipe): Readable {
  closeSync(writer);
  return new Socket({ fd: reader, readable: true, writable: false });
}

/** The system reports a missing folder as a missing program. */
async function startError(child: ChildProcess, cwd: string): Promise<Error> {
  const error = await new Promise<NodeJS.ErrnoException>((done) => child.once('error', done));
  if (error.code !== 'ENOENT' || existsSync(cwd)) return error;
  return Object.assign(new Error(`There is no folder ${JSON.stringify(cwd)}.`), { code: 'ENOENT', path: cwd });
}

function groupExists(leader: number): boolean {
  if (IS_WINDOWS) return false;
  try {
    return process.kill(-leader, 0);
  } catch {
    return false;
  }
}

/** What both streams contain, as it arrives. */
async function* outputOf(
  [stdout, stderr]: readonly [Readable, Readable],
  exit: Promise<Exit>,
): AsyncGenerator<OutputChunk> {
  const streams: readonly (readonly [OutputChunk['stream'], Readable])[] = [
    ['stdout', stdout],
    ['stderr', stderr],
  ];
  let wake: () => void = ignore;
  let hasExited = false;
  let afterExit = 0;
  void exit.then(() => {
    hasExited = true;
    wake();
  });
  for (const [, stream] of streams) {
    for (const event of ['readable', 'end', 'close', 'error']) stream.on(event, () => wake());
  }
  try {
    for (;;) {
      const changed = new Promise<void>((done) => (wake = done));
      let isEmpty = true;
      for (const [stream, source] of streams) {
        const bytes = source.read() as Uint8Array | null;
        if (bytes === null) continue;
        isEmpty = false;
        if (hasExited) afterExit += bytes.length;
        yield { stream, bytes };
      }
      if (streams.every(([, { readableEnded, destroyed }]) => readableEnded || destroyed)) return;
      if (afterExit > MAX_AFTER_EXIT) return;
      if (!isEmpty) continue;
      if (!hasExited) await changed;
      else if ((await Promise.race([changed, quiet()])) === 'quiet') return;
    }
  } finally {
    for (const [, stream] of streams) stream.destroy();
  }
}

function quiet(): Promise<'quiet'> {
  return new Promise((done) => void setTimeout(done, QUIET_MS, 'quiet'));
}

let ripgrep: { readonly path: string | undefined } | undefined;

/** The package has no binary for some platforms, and throws then. */
function findRipgrep(): string | undefined {
  if (!ripgrep) {
    try {
      const { rgPath } = createRequire(import.meta.url)('@vscode/ripgrep') as typeof Ripgrep;
      ripgrep = { path: existsSync(rgPath) ? rgPath : undefined };
    } catch {
      ripgrep = { path: undefined };
    }
  }
  return ripgrep.path;
}

function ignore(): void {}
