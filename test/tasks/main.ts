/** Runs the tasks with a model, and prints a score: `npm run tasks -- --help`. */
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { RefusedError, runTask, type TaskOptions, type TaskReport } from './run-task.ts';
import { prepareTask, type Task } from './task.ts';
import { TASKS } from './tasks.ts';

const HELP = `Usage: npm run tasks -- --model MODEL [options]

Runs small jobs in generated repositories as "treadle run --yes" does, checks the results, and prints a score. The model can
run any command that the policy does not deny, with your rights: use a machine or a container that holds nothing of value.
The exit code is 0 if the tasks ran, whatever the score.

  --model MODEL     As for "treadle run": PROVIDER/MODEL, or a name in the configuration. "scripted" uses the scripts of the tests.
  --base-url URL    Server with an OpenAI Chat Completions API.
  --config FILE     Configuration with [models]. Default: none.
  --only NAME,…     Only these tasks.
  --keep FOLDER     Make the repositories and the store of the runs in this new folder, and keep them.
  --help            Print this text.

Tasks: ${TASKS.map(({ name }) => name).join(', ')}
`;

class UsageError extends Error {}

const NAME_WIDTH = Math.max(...TASKS.map(({ name }) => name.length));

try {
  await runTasks();
} catch (error) {
  if (!(error instanceof UsageError || error instanceof RefusedError)) throw error;
  process.stderr.write(`${error.message}\n`);
  process.exitCode = 2;
}

async function runTasks(): Promise<void> {
  const values = parsedArguments();
  if (values.help) return void process.stdout.write(HELP);
  const tasks = chosenTasks(values.only);
  const kept = values.keep === undefined ? undefined : resolve(values.keep);
  if (kept !== undefined && existsSync(kept)) throw new UsageError(`${kept} exists. Give --keep a new folder.`);
  const folder = kept ?? mkdtempSync(join(tmpdir(), 'treadle-tasks-'));
  const reports: TaskReport[] = [];
  try {
    const started = performance.now();
    for (const task of tasks) {
      const options = {
        ...modelOptions(values),
        ...(kept !== undefined && { store: `sqlite:${join(kept, 'runs.db')}` }),
      };
      const report = await runTask(task, prepareTask(task, join(folder, task.name)), options);
      reports.push(report);
      process.stdout.write(`${line(task, report)}\n`);
    }
    const passed = reports.filter(({ problems }) => problems.length === 0).length;
    process.stdout.write(
      `Score: ${passed} of ${tasks.length} (${Math.round((100 * passed) / tasks.length)} %), ` +
        `${figures({
          turns: sum(reports.map(({ turns }) => turns)),
          tokens: sum(reports.map(({ tokens }) => tokens)),
          ms: performance.now() - started,
        })}\n`,
    );
    if (kept !== undefined) process.stdout.write(`The repositories and runs.db are in ${kept}\n`);
  } finally {
    if (kept === undefined || reports.length === 0) rmSync(folder, { recursive: true, force: true });
  }
}

interface Arguments {
  readonly model?: string | undefined;
  readonly 'base-url'?: string | undefined;
  readonly config?: string | undefined;
  readonly only?: string | undefined;
  readonly keep?: string | undefined;
  readonly help?: boolean | undefined;
}

function parsedArguments(): Arguments {
  const text = { type: 'string' } as const;
  try {
    return parseArgs({
      options: { model: text, 'base-url': text, config: text, only: text, keep: text, help: { type: 'boolean' } },
    }).values;
  } catch (error) {
    throw new UsageError(`${(error as Error).message}\nSee "npm run tasks -- --help".`);
  }
}

function chosenTasks(only: string | undefined): readonly Task[] {
  if (only === undefined) return TASKS;
  const names = only.split(',');
  const unknown = names.filter((name) => !TASKS.some((task) => task.name === name));
  if (unknown.length > 0) {
    throw new UsageError(
      `There is no task ${unknown.join(', ')}. The tasks are ${TASKS.map(({ name }) => name).join(', ')}.`,
    );
  }
  return TASKS.filter(({ name }) => names.includes(name));
}

/** What the command needs to find the model. The scripts need nothing. */
function modelOptions({ model, config, 'base-url': baseUrl }: Arguments): TaskOptions {
  if (model === undefined) throw new UsageError('Name a model: --model PROVIDER/MODEL, or --model scripted.');
  if (model === 'scripted' && baseUrl === undefined) return {};
  const flags = ['--model', model];
  if (baseUrl !== undefined) flags.push('--base-url', baseUrl);
  if (config !== undefined) flags.push('--config', resolve(config));
  return { modelFlags: flags, env: process.env };
}

function line({ name }: Task, { problems, ...measured }: TaskReport): string {
  const head = `${problems.length === 0 ? 'passed' : 'failed'}  ${name.padEnd(NAME_WIDTH)}  ${figures(measured)}`;
  return [head, ...problems.map((problem) => `        ${problem}`)].join('\n');
}

function figures({ turns, tokens, ms }: Pick<TaskReport, 'turns' | 'tokens' | 'ms'>): string {
  return `${turns} turns, ${tokens.toLocaleString('en')} tokens, ${(ms / 1000).toFixed(1)} s`;
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}
