import { tool, type Tool, type ToolContext, type ToolOutput, type Touch } from '@treadle/core';
import { UnreachableError, workspaceOf, type Workspace } from '../files/workspace.ts';
import type { ExecOps, Execution, Ops } from '../ops.ts';
import { ToolError } from '../tool-error.ts';
import { MAX_COMMAND_LENGTH, TIMEOUTS, timeoutFor, timeoutParameter } from '../call-limits.ts';
import { jobOf } from './background.ts';
import { outputCollector } from './output.ts';
import { newMark, roomFor, startForCall, withShell } from './programs.ts';
import {
  KILL_MS,
  reporter,
  runProgram,
  startFailure,
  stoppedOutput,
  stopping,
  withBlocked,
  withEnding,
  type StoppedProgram,
} from './run-program.ts';
import { openSession, quoted, type SessionEnd } from './session.ts';

interface BashInput {
  readonly command: string;
  readonly workdir?: string;
  readonly timeout_ms?: number;
  readonly session?: string;
  readonly outside?: string;
}

/** Runs shell commands. `withBackground` adds the argument `background`. */
export function bashTool(ops: Ops): Tool {
  const limit = timeoutFor('execution');
  const { sandbox } = ops.exec;
  const made = tool({
    name: 'bash',
    description:
      'Run a command with bash in the working folder, and return what it printed (stdout and stderr) and its exit code. ' +
      'Use it to build, test, and run programs; use read, edit, glob and grep for files. There is no terminal and no input: ' +
      'give options such as -y or -m instead of answering questions. Folder and variables do not survive the call, unless ' +
      'you give a session. Long output is cut in the middle: filter it, or write it to a file.' +
      (sandbox ? ` ${SANDBOX_TEXT}` : ''),
    input: {
      type: 'object',
      properties: {
        command: { type: 'string', minLength: 1, maxLength: MAX_COMMAND_LENGTH, description: 'What bash runs' },
        workdir: { type: 'string', minLength: 1, description: 'Folder to run it in; default: the working folder' },
        timeout_ms: timeoutParameter('execution'),
        session: {
          type: 'string',
          pattern: '^[A-Za-z0-9_-]{1,32}$',
          description: 'Name of a shell that keeps folder, variables and functions for later calls with the same name',
        },
        ...(sandbox && { outside: OUTSIDE }),
      },
      required: ['command'],
      additionalProperties: false,
    },
    permissions: ['shell'],
    touches: (input) => touchesOf(input as unknown as BashInput),
    ...(sandbox && { needsApproval: ({ outside }: { readonly outside?: unknown }) => outside !== undefined }),
    resources: ({ session }) => (session === undefined ? [] : [`session ${String(session)}`]),
    timeoutMs: (input) => limit(input) + KILL_MS,
    execute(given, context) {
      const input = given as unknown as BashInput;
      const limitMs = jobOf(context) ? undefined : limit(input);
      if (input.command.includes('\0')) {
        throw new ToolError(
          'The command contains a NUL byte, which no program can receive. Remove it.',
          'invalid_params',
        );
      }
      if (input.outside !== undefined && input.session !== undefined) {
        throw new ToolError('A session runs inside the sandbox. Leave out session or outside.', 'invalid_params');
      }
      const space = workspaceOf(ops.files, context);
      const exec = input.outside === undefined ? ops.exec : (sandbox?.outside ?? ops.exec);
      return input.session === undefined
        ? runCommand({ exec, space, input, context, limitMs })
        : runInSession({ exec, space, input, context, limitMs });
    },
  });
  if (!sandbox) return made;
  const promises = ({ outside }: { readonly outside?: unknown }): readonly string[] =>
    outside === undefined ? sandbox.promises : [];
  return Object.assign(made, { sandbox: promises as (input: unknown) => readonly string[] });
}

const SANDBOX_TEXT =
  'It runs in a sandbox: no network, only the working folder and /tmp can be written, and processes end with the call unless they ' +
  'run in a session or in the background.';

const OUTSIDE = {
  type: 'string',
  minLength: 1,
  maxLength: 500,
  description: 'Only if the sandbox stopped the command before: why it has to run outside. A person is asked',
} as const;

/**
 * The command as the policy judges it. The folder of a session is not known, because an earlier command may have changed it:
 * that makes relative paths unclear.
 */
function touchesOf({ command, workdir, session }: BashInput): readonly Touch[] {
  const folder =
    workdir === undefined ? (session === undefined ? undefined : '"$FOLDER_OF_THE_SESSION"') : quoted(workdir);
  return [{ type: 'command', command: folder === undefined ? command : `cd ${folder} || exit\n${command}` }];
}

interface BashCall {
  readonly exec: ExecOps;
  readonly space: Workspace;
  readonly input: BashInput;
  readonly context: ToolContext;
  /** Undefined in the background. */
  readonly limitMs: number | undefined;
}

async function runCommand({ exec, space, input, context, limitMs }: BashCall): Promise<ToolOutput> {
  const start = (): Promise<Execution> => startCommand(exec, space, input, context);
  return runProgram({
    start,
    context,
    limitMs,
    advice: adviceFor(input.command, limitMs),
    blocked: exec.sandbox?.blocked,
  });
}

/** What a command that reached its time limit could do instead. */
function adviceFor(command: string, limitMs: number | undefined): string {
  const shown = command.length > 200 ? `${command.slice(0, 200)}…` : command;
  const { maxMs } = TIMEOUTS.execution;
  const remedy =
    limitMs === maxMs
      ? 'Run it with background: true if that is offered, or make it do less.'
      : `Give a larger timeout_ms (at most ${maxMs}), run it with background: true if that is offered, or make it do less.`;
  return `Command: ${shown}\n${remedy}`;
}

const START_TEXTS = {
  missing: 'There may be no shell on this machine.',
  tooLong: 'The command is too long for the system. Write it to a file, and run that.',
};

async function startCommand(
  exec: ExecOps,
  space: Workspace,
  { command, workdir }: BashInput,
  context: ToolContext,
): Promise<Execution> {
  const folder = workdir !== undefined && { workdir: await folderFor(space, workdir) };
  const writable = jobOf(context) !== undefined;
  try {
    return await withShell(exec, (shell) =>
      startForCall(exec, { argv: shellCommand(shell, command), ...folder, writable }, context),
    );
  } catch (error) {
    throw startFailure(error, START_TEXTS);
  }
}

/** Without `--norc`, bash reads ~/.bashrc when its input is a socket, as it is in the background, or when ssh has started us. */
function shellCommand(shell: 'bash' | 'sh', command: string): readonly [string, ...string[]] {
  return shell === 'bash' ? ['bash', '--norc', '-c', '--', command] : ['sh', '-c', '--', command];
}

async function runInSession({ exec, space, input, context, limitMs }: BashCall): Promise<ToolOutput> {
  const { command, session: name = '' } = input;
  if (jobOf(context)) {
    throw new ToolError('A session cannot run in the background. Leave out session or background.', 'invalid_params');
  }
  const folder = input.workdir === undefined ? undefined : await folderFor(space, input.workdir);
  const mark = newMark();
  const marked = exec.markedProcess?.(mark);
  const room = await roomFor(exec, context);
  const { narrowedBy } = context;
  // What a shell in a sandbox sees does not change, so a run that may read more, or less, gets another one.
  const seen = (narrowedBy && exec.sandbox?.readable?.(narrowedBy)) ?? [];
  const { resource: session } = await context
    .hold(
      ['bash session', name, ...seen].join(' '),
      () => openSession(exec, { mark, ...(room && { room }), ...(narrowedBy && { narrowedBy }) }),
      (open) => open.close(),
      { process: (open) => open.process, ...(marked && { marked }), passes: true },
    )
    .catch((error: unknown) => {
      throw startFailure(error, START_TEXTS);
    });
  const note = session.isNew ? `[session ${name}: a new shell in the working folder]\n` : '';
  const stop = stopping(context.signal, limitMs);
  const all = outputCollector();
  const report = reporter(context);
  try {
    const controller = new AbortController();
    const run = session.run({
      command: folder === undefined ? command : `cd ${quoted(folder)} && eval ${quoted(command)}`,
      traceparent: context.traceparent,
      onOutput(bytes) {
        const chunk = { stream: 'stdout', bytes } as const;
        all.add(chunk);
        report(chunk);
      },
      signal: controller.signal,
    });
    void stop.stopped.then(() => controller.abort());
    const end = await run;
    const text = all.text();
    const output = sessionOutput({
      note,
      name,
      end,
      text,
      why: stop.why(),
      limitMs,
      advice: adviceFor(command, limitMs),
    });
    return withBlocked(output, exec.sandbox?.blocked(text));
  } finally {
    stop.release();
  }
}

async function folderFor(space: Workspace, workdir: string): Promise<string> {
  const { real, kind } = await space.locate(workdir);
  if (kind === 'folder') return real;
  throw new UnreachableError(
    `${JSON.stringify(workdir)} is not a folder. Give a folder as workdir, or leave it out.`,
    'not_found',
  );
}

function sessionOutput({
  note,
  name,
  end,
  ...stopped
}: StoppedProgram & { readonly note: string; readonly name: string; readonly end: SessionEnd }): ToolOutput {
  const { text } = stopped;
  if (end.type === 'done') {
    const ending = end.exitCode === 0 && text !== '' ? '' : `[exit code ${end.exitCode}]`;
    const content = note + (ending === '' ? text : withEnding(text, ending));
    if (end.exitCode === 0) return { content };
    return { content, isError: true, errorType: 'execution_failed', exitCode: end.exitCode };
  }
  const gone = `The shell of session ${name} has ended: its folder and variables are gone. The next call starts a new one.`;
  if (end.type === 'stopped') {
    const output = stoppedOutput(stopped);
    return { ...output, content: `${note}${String(output.content)}\n[${gone}]` };
  }
  const { exitCode, signal } = end;
  const how = exitCode === undefined ? `was killed by ${signal}` : `ended with exit code ${exitCode}`;
  return {
    content: note + withEnding(text, `[The command ${how}. ${gone}]`),
    isError: true,
    errorType: 'execution_failed',
    ...(exitCode !== undefined && { exitCode }),
  };
}
