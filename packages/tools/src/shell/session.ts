import type { HeldProcess } from '@treadle/core';
import { DeniedError } from '../denied.ts';
import type { ExecOps, ExecRequest, Execution, Exit } from '../ops.ts';
import { newMark, withShell } from './programs.ts';

/*
 * A shell that runs one command after the other, and keeps its folder, variables and functions.
 *
 * 1. The shell reads commands from its standard input. The commands themselves have an empty one.
 * 2. After each command the shell prints a text that nobody else knows, with the exit code, to a copy of its output.
 * 3. Its output is always read, so that a process in the background does not block. What arrives between two commands
 *    belongs to the next one.
 * 4. A command that is stopped, or that ends the shell, ends the session. The next command gets a new shell.
 */

/** Starts and ends the text after a command. */
const BRACKET = '\u001e';
/** Output that is kept between two commands. */
const MAX_BETWEEN = 64 * 1024;

export interface Session {
  readonly process: HeldProcess;
  /** The next command gets a new shell. */
  readonly isNew: boolean;
  run(command: SessionCommand): Promise<SessionEnd>;
  close(): Promise<void>;
}

export interface SessionCommand {
  readonly command: string;
  /** For the environment of the command. */
  readonly traceparent?: string | undefined;
  readonly onOutput: (bytes: Uint8Array) => void;
  /** The session is killed when it aborts. */
  readonly signal: AbortSignal;
}

/** What the shells of a session are started with. */
type SessionPlace = Pick<ExecRequest, 'room' | 'narrowedBy'> & { readonly mark: string };

/** `stopped`: by the signal. `ended`: the command has ended the shell. */
export type SessionEnd =
  | { readonly type: 'done'; readonly exitCode: number; readonly folder: string }
  | ({ readonly type: 'ended' } & Exit)
  | { readonly type: 'stopped' };

interface Shell {
  readonly execution: Execution;
  readonly id: string;
  readonly ended: Promise<Exit>;
  hasEnded: boolean;
  /** Gets the output of the running command, and its end. */
  listener: { onOutput(bytes: Uint8Array): void; onDone(exitCode: number, folder: string): void } | undefined;
}

/** All its shells have the mark. */
export async function openSession(exec: ExecOps, place: SessionPlace): Promise<Session> {
  const { mark } = place;
  const first = await startShell(exec, place);
  let shell: Shell | undefined = first;
  let isNew = true;

  async function end(): Promise<void> {
    const ended = shell;
    shell = undefined;
    isNew = true;
    await ended?.execution.kill();
  }

  return {
    // A shell that replaces the first one is found by the mark.
    process: { ...first.execution.process, mark },
    get isNew() {
      return isNew || shell === undefined || shell.hasEnded;
    },
    async run({ command, traceparent, onOutput, signal }) {
      if (shell?.hasEnded) await end();
      const current = (shell ??= await startShell(exec, place));
      isNew = false;
      const done = Promise.withResolvers<SessionEnd>();
      current.listener = { onOutput, onDone: (exitCode, folder) => done.resolve({ type: 'done', exitCode, folder }) };
      void current.ended.then((exit) => done.resolve({ type: 'ended', ...exit }));
      const stop = (): void => done.resolve({ type: 'stopped' });
      signal.addEventListener('abort', stop);
      try {
        if (signal.aborted) stop();
        else await current.execution.write(scriptFor(command, current.id, traceparent)).catch(unlessDenied);
        const result = await done.promise;
        if (result.type !== 'done') await end();
        return result;
      } finally {
        signal.removeEventListener('abort', stop);
        current.listener = undefined;
      }
    },
    async close() {
      await end();
      await exec.killMarked(mark);
    },
  };
}

/** If the shell has ended, `ended` says so. The place of the shell may refuse a command. */
function unlessDenied(error: unknown): void {
  if (error instanceof DeniedError) throw error;
}

/** `command` keeps a shell other than bash alive after a syntax error. */
function scriptFor(command: string, id: string, traceparent: string | undefined): string {
  const variable = traceparent === undefined ? '' : `TRACEPARENT=${quoted(traceparent)} `;
  return `${variable}command eval ${quoted(command)} </dev/null\nprintf '${BRACKET}%s %d %s${BRACKET}' ${id} "$?" "$PWD" >&9\n`;
}

/** A text as one word of a shell. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

async function startShell(exec: ExecOps, place: SessionPlace): Promise<Shell> {
  const execution = await withShell(exec, (shell) =>
    exec.start({
      argv: shell === 'bash' ? ['bash', '--noprofile', '--norc'] : [shell],
      writable: true,
      ...place,
    }),
  );
  await execution.write('exec 2>&1 9>&1\n').catch(() => {});
  const id = newMark();
  const ended = Promise.withResolvers<Exit>();
  const shell: Shell = { execution, id, ended: ended.promise, hasEnded: false, listener: undefined };
  void readShell(shell).then(() => {
    shell.hasEnded = true;
    ended.resolve(execution.exit);
  });
  return shell;
}

async function readShell(shell: Shell): Promise<void> {
  const needle = Buffer.from(`${BRACKET}${shell.id} `);
  /** What may be the beginning of the text after a command. */
  let pending: Buffer = Buffer.alloc(0);
  /** Arrived between two commands. */
  let between: Buffer = Buffer.alloc(0);
  const pass = (bytes: Buffer): void => {
    const all = between.length === 0 ? bytes : Buffer.concat([between, bytes]);
    between = shell.listener ? Buffer.alloc(0) : Buffer.from(all.subarray(-MAX_BETWEEN));
    if (all.length > 0) shell.listener?.onOutput(all);
  };
  for await (const { bytes } of shell.execution.output) {
    let rest: Buffer = pending.length === 0 ? Buffer.from(bytes) : Buffer.concat([pending, bytes]);
    pending = Buffer.alloc(0);
    while (rest.length > 0) {
      const at = rest.indexOf(needle);
      const close = at < 0 ? -1 : rest.indexOf(BRACKET, at + needle.length);
      if (close >= 0) {
        const [exitCode, ...folder] = rest.toString('utf8', at + needle.length, close).split(' ');
        pass(rest.subarray(0, at));
        shell.listener?.onDone(Number(exitCode), folder.join(' '));
        rest = rest.subarray(close + 1);
        continue;
      }
      const start = at >= 0 ? at : beginningAt(rest, needle);
      pass(rest.subarray(0, start));
      pending = rest.subarray(start);
      break;
    }
  }
  pass(pending);
}

/** Where the bytes end with the beginning of the needle; their length if they do not. */
function beginningAt(bytes: Buffer, needle: Buffer): number {
  const at = bytes.lastIndexOf(needle[0]!);
  return at >= 0 && needle.subarray(0, bytes.length - at).equals(bytes.subarray(at)) ? at : bytes.length;
}
