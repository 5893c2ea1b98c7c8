import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { needs } from '../needs.ts';
import { PROCESS_ENV } from '../process-env.ts';
import { runTask, scriptServer } from './run-task.ts';
import { prepareTask } from './task.ts';
import { TASKS } from './tasks.ts';

let base: string;

beforeAll(() => {
  base = mkdtempSync(join(tmpdir(), 'treadle-tasks-'));
});
afterAll(() => rmSync(base, { recursive: true, force: true }));

const hasGit = needs('git', spawnSync('git', ['--version']).status === 0);

test.runIf(hasGit).each(TASKS.map((task) => [task.name, task] as const))(
  '%s: the tools of the command solve it',
  async (name, task) => {
    const { problems, log, exposure } = await runTask(task, prepareTask(task, join(base, name)));
    expect(problems, log).toEqual([]);
    // Otherwise people would be asked about each command from there on.
    expect(exposure).toBeUndefined();
  },
);

test('there are 25 tasks with different names', () => {
  expect(new Set(TASKS.map(({ name }) => name)).size).toBe(25);
});

test.runIf(hasGit)('a missing key is not a failed task', async () => {
  const [task] = TASKS;
  const running = runTask(task!, prepareTask(task!, join(base, 'no-key')), { modelFlags: ['--model', 'openai/any'] });
  await expect(running).rejects.toThrow('There is no key for any: set the environment variable OPENAI_API_KEY.');
});

test.runIf(hasGit)('npm run tasks runs the chosen tasks with a model, and prints a score', async () => {
  const question = TASKS.find(({ name }) => name === 'answer-question')!;
  const server = await scriptServer([...question.script, 'I cannot do it.']);
  try {
    const main = ['--conditions=treadle-source', '--no-warnings', join(import.meta.dirname, 'main.ts')];
    const flags = ['--model', 'openai/any', '--base-url', server.baseURL, '--only', 'answer-question,merge-json'];
    const child = spawn(process.execPath, [...main, ...flags], { env: PROCESS_ENV });
    const [stdout, stderr, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')]);
    expect(stdout.split('\n').map((line) => line.replace(/[\d.]+ s$/, 'TIME'))).toEqual([
      'passed  answer-question       3 turns, 45 tokens, TIME',
      'failed  merge-json            1 turns, 15 tokens, TIME',
      '        merged.json is missing, or wrong',
      'Score: 1 of 2 (50 %), 4 turns, 60 tokens, TIME',
      '',
    ]);
    expect([code, stderr]).toEqual([0, '']);
    expect(server.requests[0]!.tools!.map((tool) => tool.function.name)).toContain('bash');
  } finally {
    await server.close();
  }
});
