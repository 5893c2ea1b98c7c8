import { createHash } from 'node:crypto';
import {
  stableJson,
  tool,
  type Tool,
  type ToolContext,
  type ToolOutput,
  type Touch,
  type Verification,
} from '@treadle/core';
import { TIMEOUTS } from '../call-limits.ts';
import type { Execution, Ops } from '../ops.ts';
import { startForCall } from '../shell/programs.ts';
import { KILL_MS, runProgram, startFailure } from '../shell/run-program.ts';
import { quoted } from '../shell/session.ts';
import { ToolError } from '../tool-error.ts';
import { toArguments } from './arguments.ts';
import type { PackagedTool } from './packaged-tool.ts';
import { checkUnchanged, checkUnmoved } from './program-file.ts';
import { touchesFrom } from './touches.ts';

/*
 * A tool that is a program of a package.
 *
 * 1. The program is started without a shell, in the working folder, by the same machine as other programs: sandboxes and marks
 *    apply. It gets the key of the call as TREADLE_CALL_KEY.
 * 2. When it ends, and at its time limit, all processes that it started are killed.
 * 3. What it touches is what its file declares. Without that the policy gets `unknown`, or, inside a sandbox, the command: what
 *    that may do is decided by the promises of the sandbox.
 */

type Input = Readonly<Record<string, unknown>>;

/** A program that finds out what became of a call says with this exit code that the call did not take effect. */
const NOT_DONE = 75;

/** `ops`: where its program runs. */
export function packageTool(definition: PackagedTool, ops: Ops): Tool {
  const { name, description, parameters, effect, permissions, program, verify } = definition;
  const { sandbox } = ops.exec;
  const limit = limitOf(definition);
  const call = (file: string, input: Input, context: ToolContext): Promise<ToolOutput> =>
    runPackaged({ definition, ops, file, input, context, limitMs: limit(input) });
  const made = tool({
    name,
    description,
    input: parameters,
    effect,
    permissions,
    fingerprint: packageFingerprint(definition),
    timeoutMs: (input) => limit(input) + KILL_MS,
    touches: (input) => touchesOf(definition, input, sandbox !== undefined),
    ...(verify !== undefined && {
      verify: async (input, context) => verificationOf(await call(verify, input, context)),
    }),
    execute: (input, context) => call(program, input, context),
  });
  if (!sandbox) return made;
  return { ...made, sandbox: () => sandbox.promises };
}

/** A parameter `timeout_ms` sets the time limit of a call, as for the built-in tools. */
function limitOf({ timeoutMs, parameters }: PackagedTool): (input: Input) => number {
  const isGiven = Object.hasOwn((parameters['properties'] as object | undefined) ?? {}, 'timeout_ms');
  return ({ timeout_ms: asked }) =>
    isGiven && typeof asked === 'number' ? Math.min(asked, TIMEOUTS.execution.maxMs) : timeoutMs;
}

/** Of what the file says. The same in every folder, and under every name that a version gets. */
export function packageFingerprint(definition: PackagedTool): string {
  const { name: _, program: __, verify, package: own, ...rest } = definition;
  const whole = { ...rest, verify: verify !== undefined, package: { name: own.name, version: own.version } };
  return createHash('sha256').update(stableJson(whole)).digest('hex');
}

function touchesOf(definition: PackagedTool, input: Input, isSandboxed: boolean): readonly Touch[] {
  const { touches, program } = definition;
  if (touches) return touchesFrom(touches, input);
  if (!isSandboxed) return [{ type: 'unknown' }];
  return [{ type: 'command', command: [program, ...wordsOf(definition, input)].map(quoted).join(' ') }];
}

function wordsOf({ input: form, parameters }: PackagedTool, input: Input): readonly string[] {
  return form === 'json' ? [] : toArguments(input, parameters);
}

interface PackagedCall {
  readonly definition: PackagedTool;
  readonly ops: Ops;
  readonly file: string;
  readonly input: Input;
  readonly context: ToolContext;
  readonly limitMs: number;
}

async function runPackaged({ definition, ops, file, input, context, limitMs }: PackagedCall): Promise<ToolOutput> {
  const words = wordsOf(definition, input);
  const isJson = definition.input === 'json';
  let started: Execution | undefined;
  const start = async (): Promise<Execution> => {
    try {
      await checkUnmoved(file);
      await checkUnchanged(definition.package);
      const env = { TREADLE_CALL_KEY: context.key };
      const reads = [definition.package.folder];
      started = await startForCall(ops.exec, { argv: [file, ...words], env, writable: isJson, reads }, context);
    } catch (error) {
      throw startProblem(definition, error);
    }
    // It may end before it has read everything.
    if (isJson) void started.write(JSON.stringify(input)).then(started.endInput, ignore);
    return started;
  };
  try {
    return await runProgram({
      start,
      context,
      limitMs,
      advice: 'Ask for less, or tell the user.',
      ...(ops.exec.sandbox && { blocked: () => IN_SANDBOX }),
    });
  } finally {
    // What it has left behind. If that fails, the run kills it at its end.
    await started?.kill().catch(ignore);
  }
}

const IN_SANDBOX = 'It ran in a sandbox, which may have stopped it. If the task needs it, tell the user.';

function startProblem({ name, package: { name: skill } }: PackagedTool, error: unknown): unknown {
  const whose = `It is the program of ${name}, from the package "${skill}".`;
  if ((error as NodeJS.ErrnoException).code === 'ENOEXEC') {
    return new ToolError(
      `The command could not be started: this machine cannot execute it. ${whose}`,
      'execution_failed',
      {
        cause: error,
      },
    );
  }
  const missing = `${whose} Tell the user to install the package again.`;
  return startFailure(error, { missing, tooLong: `The arguments of ${name} are too long for the system. Give less.` });
}

function verificationOf({ content, isError, exitCode }: ToolOutput): Verification {
  if (!isError) return { type: 'done', result: { content } };
  return { type: exitCode === NOT_DONE ? 'not-done' : 'unknown' };
}

function ignore(): void {}
