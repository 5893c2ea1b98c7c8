import type { Exposure, LoopResult } from '@treadle/core';
import { command } from '../command/in-process.ts';
import { scriptedOpenAi, type ChatRequest, type ScriptedOpenAi, type Step } from '../command/scripted-openai.ts';
import { problemsOf, type Repository, type ScriptStep, type Task } from './task.ts';

export interface TaskReport {
  readonly problems: readonly string[];
  readonly answer: string;
  readonly turns: number;
  readonly tokens: number;
  readonly ms: number;
  /** What the run has seen that is private, or from outside. */
  readonly exposure?: Exposure;
  /** What the command wrote to standard error: the calls and their results, shortened. */
  readonly log: string;
}

export interface TaskOptions {
  /** Which model to use, as flags of `treadle run`; default: the script of the task. */
  readonly modelFlags?: readonly string[];
  /** Default: `memory:`. */
  readonly store?: string;
  /** The environment of the command, with the keys of models; default: empty. */
  readonly env?: Readonly<Record<string, string | undefined>>;
}

/** The command refused to run the task: its flags or its configuration are wrong. */
export class RefusedError extends Error {}

/** For models that never finish. */
const MAX_TURNS = 40;
const USAGE = 2;

/** Runs a task as `treadle run --yes` does, with the coding tools and the policy of the command. */
export async function runTask(
  task: Task,
  repository: Repository,
  { modelFlags, store = 'memory:', env = {} }: TaskOptions = {},
): Promise<TaskReport> {
  const server = modelFlags ? undefined : await scriptServer(task.script);
  const model = modelFlags ?? ['--model', 'scripted', '--base-url', server!.baseURL];
  const rules = ['--yes', '--tools', 'coding', '--max-turns', String(MAX_TURNS), '--store', store, '--json'];
  const started = performance.now();
  try {
    const {
      code,
      stdout,
      stderr: log,
    } = await command(['run', ...rules, ...model, task.prompt], repository.folder, {
      env,
    });
    if (code === USAGE) throw new RefusedError(log.trim());
    const ms = performance.now() - started;
    if (stdout === '') {
      const problems = [`the command ended with exit code ${code} and without a result: ${log.trim()}`];
      return { problems, answer: '', turns: 0, tokens: 0, ms, log };
    }
    const { outcome, text, turns, usage, carried } = JSON.parse(stdout) as LoopResult;
    const left = server ? task.script.length - server.requests.length : 0;
    return {
      problems: [
        ...(outcome?.type === 'completed' ? [] : [`the run ended with ${JSON.stringify(outcome)}`]),
        ...(left === 0 ? [] : [`${left} steps of the script were not used`]),
        ...problemsOf(task, repository, text),
      ],
      answer: text,
      turns,
      tokens: usage.inputTokens + usage.outputTokens,
      ms,
      log,
      ...(carried?.exposure && { exposure: carried.exposure }),
    };
  } finally {
    await server?.close();
  }
}

/** A model server that follows a script. */
export function scriptServer(script: readonly ScriptStep[]): Promise<ScriptedOpenAi> {
  return scriptedOpenAi(script.map(serverStep));
}

function serverStep(step: ScriptStep): (request: ChatRequest) => Step {
  return ({ messages }) => {
    const results = messages.flatMap(({ role, content }) => (role === 'tool' ? String(content) : []));
    let made = step;
    try {
      while (typeof made === 'function') made = made(results);
    } catch (error) {
      return { status: 400, message: `the script cannot use these results: ${String(error)}` };
    }
    if (typeof made === 'string') return { text: [made] };
    return { calls: made.map(([name, input]) => ({ name, arguments: JSON.stringify(input) })) };
  };
}
