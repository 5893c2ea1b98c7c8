import { spawnSync, type SpawnSyncReturns } from 'node:child_process';
import { existsSync, globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { snippetsOf, type Snippet } from './snippets.ts';

const root = path.resolve(import.meta.dirname, '..');
/** Inside the repository, so that packages can be resolved; not in node_modules, where Node does not strip types. */
const folder = path.join(root, '.cache', 'snippets');
const snippets = ['README.md', ...globSync('docs/**/*.md', { cwd: root }).toSorted()]
  .filter((file) => existsSync(path.join(root, file)))
  .flatMap((file) => snippetsOf(file, readFileSync(path.join(root, file), 'utf8')));

describe('snippets of the pages', () => {
  beforeAll(() => write(snippets));

  test('README.md has a snippet that runs', () => {
    expect(snippets.filter(({ at, runs }) => runs && at.startsWith('README.md:'))).not.toEqual([]);
  });

  test('all snippets compile', () => {
    const { status, stdout } = compile();
    expect(status, stdout).toBe(0);
  });

  test.for(snippets.filter(({ runs }) => runs))('$at runs', (snippet) => {
    const { status, stdout, stderr } = run(snippet);
    expect(status, stderr).toBe(0);
    if (snippet.prints.length > 0) expect(stdout.trimEnd().split('\n')).toEqual(snippet.prints);
  });
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

function fileOf({ at, language }: Snippet): string {
  return `${at.replaceAll(/[/:]/g, '-')}.${language}`;
}

function write(all: readonly Snippet[]): void {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const compilerOptions = {
    customConditions: ['treadle-source'],
    types: ['node'],
    jsx: 'react-jsx',
    moduleDetection: 'force',
    noEmit: true,
    composite: false,
    declaration: false,
    emitDeclarationOnly: false,
    declarationMap: false,
    isolatedDeclarations: false,
    noUnusedLocals: false,
  };
  const config = { extends: '../../tsconfig.base.json', compilerOptions, include: ['*.ts', '*.tsx'], files: [] };
  writeFileSync(path.join(folder, 'tsconfig.json'), JSON.stringify(config));
  for (const snippet of all) writeFileSync(path.join(folder, fileOf(snippet)), snippet.code);
}

function compile(): SpawnSyncReturns<string> {
  return node([path.join(root, 'node_modules/typescript/bin/tsc'), '-p', '.']);
}

function run(snippet: Snippet): SpawnSyncReturns<string> {
  return node(['--conditions=treadle-source', fileOf(snippet)]);
}

function node(args: readonly string[]): SpawnSyncReturns<string> {
  return spawnSync(process.execPath, args, { cwd: folder, encoding: 'utf8', input: '', timeout: 30_000 });
}
