import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { ToolContext } from '@treadle/core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { local } from '../local/local.ts';
import { readOnlyTools } from '../tool-sets.ts';

let base: string;
let folder: string;

async function put(path: string, content: string | Uint8Array): Promise<void> {
  await mkdir(dirname(join(folder, path)), { recursive: true });
  await writeFile(join(folder, path), content);
}

beforeAll(async () => {
  base = await mkdtemp(join(tmpdir(), 'treadle-tools-'));
  folder = join(base, 'work');
  await mkdir(folder);
  await writeFile(join(base, 'secret.txt'), 'needle outside\n');
  await put('notes.txt', 'first needle\nsecond\r\nthird Needle\n');
  await put('src/main.ts', 'const needle = 1;\n');
  await put('src/deep/er/x.ts', 'export {};\n');
  await put('.github/ci.yml', 'needle: yes\n');
  await put('node_modules/dep/index.js', 'needle\n');
  await put('.git/config', 'needle\n');
  await put('.treadle/runs.yml', 'needle\n');
  await put('empty.txt', '');
  await put('picture.png', Uint8Array.of(0x89, 0x50, 0, 0, 1, 2));
  await symlink('../secret.txt', join(folder, 'outside.txt'));
  await symlink('..', join(folder, 'up'));
  await symlink('src', join(folder, 'linked-src'));
  await symlink('notes.txt', join(folder, 'linked-notes.txt'));
});

afterAll(() => rm(base, { recursive: true }));

const CONTEXT: ToolContext = {
  signal: new AbortController().signal,
  key: 'run/t1.tool.0',
  report: () => {},
  context: undefined,
  principal: undefined,
  ask: () => Promise.reject<never>(new Error('nobody is there')),
  hold: () => Promise.reject<never>(new Error('there is no run')),
};

function call(name: string, input: unknown, signal: AbortSignal = CONTEXT.signal): Promise<string> {
  const used = readOnlyTools(local(folder)).find((tool) => tool.name === name)!;
  return used.execute!(input, { ...CONTEXT, signal }) as Promise<string>;
}

test('all tools are pure, and describe their input and what they read', () => {
  const tools = readOnlyTools(local(folder));
  expect(tools.map(({ name, effect }) => [name, effect])).toEqual([
    ['read', 'pure'],
    ['glob', 'pure'],
    ['grep', 'pure'],
  ]);
  expect(tools.map(({ touches }) => touches!({ path: 'src', pattern: '*' }))).toEqual(
    tools.map(() => [{ type: 'read', path: 'src' }]),
  );
  expect(tools.slice(1).map(({ touches }) => touches!({ pattern: '*' }))).toEqual([
    [{ type: 'read', path: '.' }],
    [{ type: 'read', path: '.' }],
  ]);
  for (const { permissions } of tools) expect(permissions).toEqual(['file_read']);
  for (const { parameters } of tools) expect(parameters).toMatchObject({ type: 'object', additionalProperties: false });
});

describe('glob', () => {
  test('lists one folder sorted, marks folders, and leaves out links that lead out', async () => {
    const listed = (await call('glob', { pattern: '*.txt' })).split('\n');
    expect(listed.filter((line) => !line.startsWith('['))).toEqual(['empty.txt', 'linked-notes.txt', 'notes.txt']);
    expect(listed.at(-1)).toBe('[2 symbolic links left out that are broken or lead out of the working folder]');
    expect((await call('glob', { pattern: '*' })).split('\n')).toEqual(
      expect.arrayContaining(['src/', 'linked-src/', '.git/']),
    );
  });

  test('searches all folders except generated and linked ones', async () => {
    const found = (await call('glob', { pattern: '**/*.{ts,js,yml}' })).split('\n');
    expect(found.filter((line) => !line.startsWith('['))).toEqual([
      '.github/ci.yml',
      'src/deep/er/x.ts',
      'src/main.ts',
    ]);
  });

  test('enters node_modules if it is named', async () => {
    expect(await call('glob', { pattern: 'node_modules/**/*.js' })).toContain('node_modules/dep/index.js');
    expect(await call('glob', { pattern: '**/*.js', path: 'node_modules' })).toBe('node_modules/dep/index.js');
  });

  test('returns paths relative to the working folder, and matches patterns in the given folder', async () => {
    expect(await call('glob', { pattern: '*.ts', path: 'src' })).toBe('src/main.ts');
    expect(await call('glob', { pattern: '*.ts', path: 'linked-src' })).toBe('src/main.ts');
  });

  test('reports no matches and too many matches', async () => {
    expect(await call('glob', { pattern: '*.ts' })).toMatch(
      /nothing matches \*\.ts; to search all folders, write \*\*\/\*\.ts/,
    );
    for (let i = 0; i < 600; i++) await put(`many/${String(i).padStart(3, '0')}`, '');
    const lines = (await call('glob', { pattern: 'many/*' })).split('\n');
    expect(lines[499]).toBe('many/499');
    expect(lines[500]).toMatch(/only the first 500 are shown/);
    await rm(join(folder, 'many'), { recursive: true });
  });

  test('does not leave the folder', async () => {
    await expect(call('glob', { pattern: '../*' })).rejects.toThrow(/leads out/);
    await expect(call('glob', { pattern: '*', path: '..' })).rejects.toThrow(/is outside/);
    await expect(call('glob', { pattern: '*', path: 'up' })).rejects.toThrow(/is outside/);
    expect(await call('glob', { pattern: '**/secret*' })).not.toContain('secret.txt');
    await expect(call('glob', { pattern: '*', path: 'notes.txt' })).rejects.toThrow(/not a folder/);
  });
});

describe('grep', () => {
  test('returns file, line and text', async () => {
    const found = (await call('grep', { pattern: 'needle' })).split('\n');
    expect(found.filter((line) => !line.startsWith('['))).toEqual([
      '.github/ci.yml:1: needle: yes',
      'notes.txt:1: first needle',
      'src/main.ts:1: const needle = 1;',
    ]);
    expect(found).toContain('[1 binary file not searched]');
  });

  test('supports ignoreCase, path and glob', async () => {
    expect(await call('grep', { pattern: 'needle', path: 'notes.txt', ignoreCase: true })).toBe(
      'notes.txt:1: first needle\nnotes.txt:3: third Needle',
    );
    expect(await call('grep', { pattern: '^second$', path: 'notes.txt' })).toBe('notes.txt:2: second');
    expect(await call('grep', { pattern: 'needle', glob: '*.ts', path: 'src' })).toBe(
      'src/main.ts:1: const needle = 1;',
    );
    expect(await call('grep', { pattern: 'export', glob: 'src/**/*.ts' })).toContain('src/deep/er/x.ts:1:');
    expect(await call('grep', { pattern: 'needle', path: 'node_modules' })).toBe('node_modules/dep/index.js:1: needle');
  });

  test('supports escapes of both dialects', async () => {
    expect(await call('grep', { pattern: '\\p{Lu}eedle', path: 'notes.txt' })).toBe('notes.txt:3: third Needle');
    expect(await call('grep', { pattern: 'first\\ needle', path: 'notes.txt' })).toBe('notes.txt:1: first needle');
  });

  test('rejects an invalid pattern', async () => {
    await expect(call('grep', { pattern: '(' })).rejects.toThrow(/Invalid regular expression.*put "\\" before/);
    await expect(call('grep', { pattern: '(?i)x' })).rejects.toThrow(/ignoreCase instead of \(\?i\)/);
  });

  test('reports no matches and too many matches', async () => {
    expect(await call('grep', { pattern: 'absent', path: 'notes.txt' })).toBe('[no match in 1 file]');
    await put('hits.txt', 'hit\n'.repeat(300));
    const lines = (await call('grep', { pattern: 'hit', path: 'hits.txt' })).split('\n');
    expect(lines[199]).toBe('hits.txt:200: hit');
    expect(lines[200]).toMatch(/only the first 200 matches/);
    await put('hits.txt', `${'x'.repeat(1000)}hit\n`.repeat(300));
    expect((await call('grep', { pattern: 'hit', path: 'hits.txt' })).length).toBeLessThan(13_000);
    await rm(join(folder, 'hits.txt'));
  });

  test('stops a pattern that takes too long', async () => {
    await put('slow.txt', `${'a'.repeat(60)}b\n`);
    const before = performance.now();
    await expect(call('grep', { pattern: '(a+)+$', path: 'slow.txt' })).rejects.toThrow(/took more than 1000 ms/);
    expect(performance.now() - before).toBeLessThan(10_000);
    await rm(join(folder, 'slow.txt'));
  });

  test('skips large files', async () => {
    await put('large.log', 'needle\n'.repeat(700_000));
    expect(await call('grep', { pattern: 'needle', path: 'large.log' })).toContain('[1 file over 4 MB not searched]');
    await rm(join(folder, 'large.log'));
  });

  test('does not leave the folder', async () => {
    expect(await call('grep', { pattern: 'outside' })).not.toContain('needle outside');
    await expect(call('grep', { pattern: 'x', path: '../secret.txt' })).rejects.toThrow(/is outside/);
    await expect(call('grep', { pattern: 'x', path: 'outside.txt' })).rejects.toThrow(/is outside/);
    await expect(call('grep', { pattern: 'x', glob: '../*' })).rejects.toThrow(/leads out/);
  });
});

test('what may not be read is not read by another name, listed or searched', async () => {
  await put('secrets/key', 'needle of the key');
  await symlink('secrets/key', join(folder, 'harmless.txt'));
  const asked = new Set<string>();
  const guarded = readOnlyTools(
    local(folder, {
      check({ path, target = path }) {
        asked.add(path);
        return target.includes('/secrets') ? 'The policy does not allow reads of it' : undefined;
      },
    }),
  );
  const use = async (name: string, input: Record<string, unknown>): Promise<string> => {
    const tool = guarded.find((one) => one.name === name)!;
    return String(await tool.execute!(input, CONTEXT));
  };
  for (const path of ['secrets/key', 'harmless.txt']) {
    await expect(use('read', { path })).rejects.toThrow(/The policy does not allow reads of/);
    await expect(use('grep', { pattern: 'needle', path })).rejects.toThrow(/The policy does not allow reads of/);
  }
  expect(await use('glob', { pattern: 'secrets/*' })).toContain('1 folder could not be listed');
  expect(await use('grep', { pattern: 'needle' })).not.toContain('key');
  expect(await use('read', { path: 'notes.txt' })).toContain('first needle');
  expect(asked).toContain(join(folder, 'notes.txt'));
  await rm(join(folder, 'harmless.txt'));
  await rm(join(folder, 'secrets'), { recursive: true });
});

test.each([
  ['glob', { pattern: '**' }],
  ['grep', { pattern: 'x' }],
])('%s stops when it is aborted', async (name, input) => {
  await expect(call(name, input, AbortSignal.abort(new Error('enough')))).rejects.toThrow('enough');
});
