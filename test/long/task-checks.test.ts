import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { needs } from '../needs.ts';
import { prepareTask, problemsOf, putFiles, type Repository } from '../tasks/task.ts';
import { TASKS } from '../tasks/tasks.ts';

/** Each solution in `npm test` passes these checks. */

let base: string;

beforeAll(() => {
  base = mkdtempSync(join(tmpdir(), 'treadle-task-checks-'));
});
afterAll(() => rmSync(base, { recursive: true, force: true }));

const hasGit = needs('git', spawnSync('git', ['--version']).status === 0);

describe.runIf(hasGit).each(TASKS.map((task) => [task.name, task] as const))('%s: the check rejects', (name, task) => {
  let repository: Repository;

  beforeAll(() => {
    repository = prepareTask(task, join(base, name));
  });

  test('the untouched repository', () => {
    expect(problemsOf(task, repository, '').next().value).toBeTypeOf('string');
  });

  test('a wrong solution', () => {
    const { files = {}, git = [], answer = '' } = task.wrong;
    const folder = join(base, `${name}-wrong`);
    cpSync(repository.folder, folder, { recursive: true });
    putFiles(folder, files);
    for (const args of git) {
      const done = spawnSync('git', args, { cwd: folder, encoding: 'utf8' });
      expect(done.status, done.stderr).toBe(0);
    }
    expect(problemsOf(task, { ...repository, folder }, answer).next().value).toBeTypeOf('string');
  });
});
