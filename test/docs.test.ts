import { spawnSync, type SpawnSyncReturns } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import type { SnippetRun } from './run-snippets.ts';
import { fileOf, snippets, snippetsOf, writeSnippets } from './snippets.ts';

const root = path.resolve(import.meta.dirname, '..');
const RUNNER = path.join(import.meta.dirname, 'run-snippets.ts');

describe('snippets of the pages', () => {
  const running = snippets.filter(({ runs }) => runs);
  let folder: string;
  let runs: ReadonlyMap<string, SnippetRun>;
  beforeAll(() => {
    folder = writeSnippets('snippets');
    runs = runAll(running.map(fileOf), folder);
  }, 300_000);

  test('README.md has a snippet that runs', () => {
    expect(snippets.filter(({ at, runs }) => runs && at.startsWith('README.md:'))).not.toEqual([]);
  });

  test.for(running)('$at runs', (snippet) => {
    const { status, stdout, stderr } = runs.get(fileOf(snippet))!;
    expect(status, stderr).toBe(0);
    if (snippet.prints.length > 0) expect(stdout.trimEnd().split('\n')).toEqual(snippet.prints);
  });
});

test('a program that fails is reported as if it had its own process, and does not change those after it', () => {
  const programs = {
    'throws.ts': "console.log('first'); throw new Error('bad');",
    'throws-later.ts': "setTimeout(() => { throw new Error('late'); });",
    'rejects.ts': "void Promise.reject(new Error('rejected'));",
    'waits.ts': 'await new Promise(() => {});',
    'exits.ts': 'process.exit(3);',
    'sets.ts': "process.exitCode = 4; process.env['SNIPPET'] = 'set';",
    'prints.ts': "setTimeout(() => console.log(process.env['SNIPPET'] ?? 'unset'));",
  };
  const place = path.join(root, '.cache', 'failing-snippets');
  mkdirSync(place, { recursive: true });
  for (const [file, code] of Object.entries(programs)) writeFileSync(path.join(place, file), code);
  const runs = runAll(Object.keys(programs), place);
  expect(Array.from(runs.values(), ({ file, status, stdout }) => [file, status, stdout])).toEqual([
    ['throws.ts', 1, 'first\n'],
    ['throws-later.ts', 1, ''],
    ['rejects.ts', 1, ''],
    ['waits.ts', 13, ''],
    ['exits.ts', 3, ''],
    ['sets.ts', 4, ''],
    ['prints.ts', 0, 'unset\n'],
  ]);
  expect(runs.get('throws.ts')!.stderr).toContain('Error: bad');
});

test('snippetsOf returns position, code, mark and expected output', () => {
  const page = [
    '# Page',
    '```ts',
    "console.log('a\\nb'); // prints: a",
    '// prints: b',
    '```',
    '1. In a list',
    '   ```ts no-run',
    '   if (true) {',
    '     f();',
    '   }',
    '   ```',
    '```tsx',
    '<br />;',
    '```',
    '```sh',
    'ls',
    '```',
  ];
  expect(snippetsOf('page.md', page.join('\n'))).toEqual([
    {
      language: 'ts',
      at: 'page.md:2',
      code: "console.log('a\\nb'); // prints: a\n// prints: b\n",
      runs: true,
      prints: ['a', 'b'],
    },
    { language: 'ts', at: 'page.md:7', code: 'if (true) {\n  f();\n}\n', runs: false, prints: [] },
    { language: 'tsx', at: 'page.md:12', code: '<br />;\n', runs: false, prints: [] },
  ]);
});

/** Runs files in one process, and if it ends before all of them have run, the others in further ones. */
function runAll(files: readonly string[], cwd: string): ReadonlyMap<string, SnippetRun> {
  const runs = new Map<string, SnippetRun>();
  for (let left = files; left.length > 0; left = left.filter((file) => !runs.has(file))) {
    const { stdout, stderr, signal } = node(['--conditions=treadle-source', RUNNER, ...left], cwd);
    const lines = stdout.split('\n').filter((line) => line !== '');
    for (const run of lines.map((line) => JSON.parse(line) as SnippetRun)) runs.set(run.file, run);
    const next = left.find((file) => !runs.has(file));
    if (next === undefined || (signal === null && lines.length > 0)) continue;
    // It was killed in this one, which does not end, or could not start.
    runs.set(next, { file: next, status: 1, stdout: '', stderr: `${stderr}\nIt did not end (${signal}).` });
  }
  return runs;
}

function node(args: readonly string[], cwd: string): SpawnSyncReturns<string> {
  return spawnSync(process.execPath, args, { cwd, encoding: 'utf8', input: '', timeout: 60_000 });
}
