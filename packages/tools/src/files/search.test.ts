import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { registry, type ToolContext } from '@treadle/core';
import { rgPath } from '@vscode/ripgrep';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { local, type LocalOptions } from '../local/local.ts';
import type { Ops } from '../ops.ts';
import { globTool } from './glob.ts';
import { grepTool } from './grep.ts';
import { visibleFiles } from './walk.ts';
import { workspace } from './workspace.ts';
import { rustPattern } from './ripgrep.ts';

let base: string;
let folder: string;

async function put(path: string, content: string | Uint8Array): Promise<void> {
  await mkdir(dirname(join(folder, path)), { recursive: true });
  await writeFile(join(folder, path), content);
}

beforeAll(async () => {
  base = await mkdtemp(join(tmpdir(), 'treadle-search-'));
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
  await put('data.bin', Buffer.from('needle\0'));
  // The last two match nothing in git.
  await put('.gitignore', 'built/\n*.log\n!keep.log\n./notes.txt\nsrc//main.ts\n');
  await put('built/out.ts', 'needle built\n');
  await put('a.log', 'needle log\n');
  await put('src/keep.log', 'needle kept\n');
  await symlink('../secret.txt', join(folder, 'outside.txt'));
  await symlink('..', join(folder, 'up'));
  await symlink('src', join(folder, 'linked-src'));
  await symlink('notes.txt', join(folder, 'linked-notes.txt'));
  await symlink('.', join(folder, 'loop'));
  if (process.platform !== 'win32') execFileSync('/usr/bin/env', ['mkfifo', join(folder, 'pipe')]);
});

afterAll(() => rm(base, { recursive: true }));

test('a folder that is private is searched if it is named, without files that are private for another reason', async () => {
  await put('.treadle/skills/own/guide.md', 'hidden needle\n');
  await put('.treadle/skills/own/server.key', 'hidden needle\n');
  const tools = registry();
  tools.register(grepTool(local(folder)), 'built-in');
  const search = (path: string) => tools.execute('grep', { pattern: 'hidden', path, output: 'files' });
  expect(await search('.treadle/skills/own')).toMatchObject({
    content: [{ text: '.treadle/skills/own/guide.md' }],
  });
  expect(await search('.treadle/skills/own/server.key')).toMatchObject({
    content: [{ text: '.treadle/skills/own/server.key' }],
  });
});

const LONG_GLOB = `{${'a,'.repeat(170_000)}b}`;
const WIDE_GLOB = '{a,b,c,d}'.repeat(100);

/** Both ways to find files. */
const WAYS = [
  ['ripgrep', rgPath],
  ['our own walker', undefined],
] as const;

function opsWith(ripgrep: string | undefined, options?: LocalOptions): Ops {
  const { files, exec } = local(folder, options);
  return { files, exec: { ...exec, ripgrep } };
}

function contextWith(signal: AbortSignal = new AbortController().signal, report: (text: unknown) => void = () => {}) {
  return { signal, report } as ToolContext;
}

async function glob(ops: Ops, input: object, context: ToolContext = contextWith()): Promise<string> {
  return String(await globTool(ops).execute!(input, context));
}

async function grep(ops: Ops, input: object, context: ToolContext = contextWith()): Promise<string> {
  return String(await grepTool(ops).execute!(input, context));
}

describe.each(WAYS)('with %s', (_, ripgrep) => {
  describe('glob', () => {
    test('lists plain files, sorted', async () => {
      const ops = opsWith(ripgrep);
      expect(await glob(ops, { pattern: '*' })).toBe(['.gitignore', 'data.bin', 'notes.txt'].join('\n'));
      expect(await glob(ops, { pattern: '**/*.{ts,js,yml,log}' })).toBe(
        ['.github/ci.yml', 'src/deep/er/x.ts', 'src/keep.log', 'src/main.ts'].join('\n'),
      );
    });

    test('enters folders that the pattern or the path names', async () => {
      const ops = opsWith(ripgrep);
      expect(await glob(ops, { pattern: 'node_modules/**/*.js' })).toBe('node_modules/dep/index.js');
      expect(await glob(ops, { pattern: '**/*.js', path: 'node_modules' })).toBe('node_modules/dep/index.js');
      expect(await glob(ops, { pattern: '**/node_modules/**' })).toBe('node_modules/dep/index.js');
      expect(await glob(ops, { pattern: 'built/*' })).toBe('built/out.ts');
      expect(await glob(ops, { pattern: '*.ts', path: 'built' })).toBe('built/out.ts');
      expect(await glob(ops, { pattern: '*.ts', path: 'linked-src' })).toBe('src/main.ts');
    });

    test('says that nothing matches, and what to write instead', async () => {
      const ops = opsWith(ripgrep);
      expect(await glob(ops, { pattern: '*.ts' })).toBe('[nothing matches *.ts; to search all folders, write **/*.ts]');
      expect(await glob(ops, { pattern: 'src/' })).toBe(
        '[nothing matches src/; only files are listed, use read for a folder]',
      );
      expect(await glob(ops, { pattern: 'missing/*.ts' })).toBe('[nothing matches missing/*.ts]');
    });

    test('returns max_results paths', async () => {
      expect(await glob(opsWith(ripgrep), { pattern: '**', max_results: 2 })).toBe(
        '.github/ci.yml\n.gitignore\n[only the first 2 are shown: narrow the pattern or give a path]',
      );
    });
  });

  describe('grep', () => {
    test('returns file, line and text', async () => {
      expect(await grep(opsWith(ripgrep), { pattern: 'needle' })).toBe(
        [
          '.github/ci.yml:1: needle: yes',
          'notes.txt:1: first needle',
          'src/keep.log:1: needle kept',
          'src/main.ts:1: const needle = 1;',
        ].join('\n'),
      );
    });

    test('restricts files by path, glob and type', async () => {
      const ops = opsWith(ripgrep);
      expect(await grep(ops, { pattern: 'needle', path: 'src', glob: '*.ts' })).toBe(
        'src/main.ts:1: const needle = 1;',
      );
      expect(await grep(ops, { pattern: 'export', glob: 'src/**/*.ts' })).toBe('src/deep/er/x.ts:1: export {};');
      expect(await grep(ops, { pattern: 'needle', type: 'yaml' })).toBe('.github/ci.yml:1: needle: yes');
      expect(await grep(ops, { pattern: 'needle', path: 'node_modules' })).toBe('node_modules/dep/index.js:1: needle');
      expect(await grep(ops, { pattern: 'needle', path: 'built' })).toBe('built/out.ts:1: needle built');
      expect(await grep(ops, { pattern: 'needle', path: 'a.log' })).toBe('a.log:1: needle log');
      expect(await grep(ops, { pattern: 'absent' })).toBe(
        '[no match; binary files, files over 32 MB and what .gitignore excludes were not searched]',
      );
    });

    test('returns files or counts', async () => {
      const ops = opsWith(ripgrep);
      expect(await grep(ops, { pattern: 'needle', output: 'files', ignore_case: true, glob: '*.t*' })).toBe(
        'notes.txt\nsrc/main.ts',
      );
      expect(await grep(ops, { pattern: 'NEEDLE', output: 'count', ignore_case: true, glob: '*.txt' })).toBe(
        'notes.txt: 2',
      );
      expect(await grep(ops, { pattern: 'needle', output: 'files', max_results: 1 })).toBe(
        '.github/ci.yml\n[only the first 1 files are shown: narrow the pattern, or give a path, glob or type]',
      );
    });

    test('shows context', async () => {
      await put('lines.txt', Array.from({ length: 12 }, (__, i) => `line ${i + 1}`).join('\n'));
      expect(await grep(opsWith(ripgrep), { pattern: '[26]$|12', path: 'lines.txt', context: 1 })).toBe(
        [
          'lines.txt-1- line 1',
          'lines.txt:2: line 2',
          'lines.txt-3- line 3',
          '--',
          'lines.txt-5- line 5',
          'lines.txt:6: line 6',
          'lines.txt-7- line 7',
          '--',
          'lines.txt-11- line 11',
          'lines.txt:12: line 12',
        ].join('\n'),
      );
      await rm(join(folder, 'lines.txt'));
    });

    test('limits matches and characters', async () => {
      const ops = opsWith(ripgrep);
      await put('hits.txt', 'hit\n'.repeat(300));
      const lines = (await grep(ops, { pattern: 'hit' })).split('\n');
      expect(lines.slice(199)).toEqual([
        'hits.txt:200: hit',
        '[only the first 200 matches are shown: narrow the pattern, or give a path, glob or type]',
      ]);
      await put('hits.txt', `${'x'.repeat(1000)}hit${'y'.repeat(1000)}\n`.repeat(300));
      const long = await grep(ops, { pattern: 'hit' });
      expect(long.length).toBeLessThan(13_000);
      expect(long.split('\n')[0]).toBe(`hits.txt:1: …${'x'.repeat(100)}hit${'y'.repeat(197)}…`);
      await rm(join(folder, 'hits.txt'));
    });
  });

  test('what may not be read is neither listed nor searched, and nothing tells what it contains', async () => {
    await put('secrets/key', 'needle of the key');
    await put('notes.secret', 'needle in the notes');
    const check: LocalOptions['check'] = ({ path, target = path }) =>
      /\/secrets(\/|$)|\.secret$/.test(target) ? 'The policy does not allow reads of it' : undefined;
    const ops = opsWith(ripgrep, { check });
    const answers = async (): Promise<string[]> => [
      await grep(ops, { pattern: 'needle' }),
      await grep(ops, { pattern: 'of the' }),
      await grep(ops, { pattern: 'needle', output: 'count' }),
      await glob(ops, { pattern: '**/key' }),
    ];
    const before = await answers();
    expect(before.join('\n')).not.toMatch(/secret|key:/);
    expect(before[1]).toMatch(/^\[no match;/);
    for (const path of ['secrets/key', 'secrets'])
      await expect(grep(ops, { pattern: 'needle', path })).rejects.toMatchObject({ errorType: 'permission_denied' });
    await expect(glob(ops, { pattern: 'secrets/*' })).rejects.toMatchObject({ errorType: 'permission_denied' });
    await rm(join(folder, 'secrets'), { recursive: true });
    await rm(join(folder, 'notes.secret'));
    expect(await answers()).toEqual(before);
  });

  test.each([
    ['glob', 'invalid_params', /leads out/, { pattern: '../*' }],
    ['glob', 'permission_denied', /is outside/, { pattern: '*', path: '..' }],
    ['glob', 'permission_denied', /is outside/, { pattern: '*', path: 'up' }],
    ['glob', 'permission_denied', /is outside/, { pattern: 'up/*' }],
    ['glob', 'invalid_params', /not a folder/, { pattern: '*', path: 'notes.txt' }],
    ['glob', 'not_found', /There is no "none"/, { pattern: '*', path: 'none' }],
    ['glob', 'invalid_params', /longer than 1000 characters/, { pattern: LONG_GLOB }],
    ['glob', 'invalid_params', /too many alternatives/, { pattern: WIDE_GLOB }],
    ['grep', 'permission_denied', /is outside/, { pattern: 'x', path: '../secret.txt' }],
    ['grep', 'permission_denied', /is outside/, { pattern: 'x', path: 'outside.txt' }],
    ['grep', 'invalid_params', /leads out/, { pattern: 'x', glob: '../*' }],
    ['grep', 'invalid_params', /The pattern is not valid: .*missing closing \).*put "\\" before/, { pattern: '(' }],
    ['grep', 'invalid_params', /no lookaround/, { pattern: 'a(?=b)' }],
    ['grep', 'invalid_params', /1 to 1000 characters/, { pattern: '' }],
    ['grep', 'invalid_params', /1 to 1000 characters/, { pattern: LONG_GLOB }],
    ['grep', 'invalid_params', /not valid/, { pattern: '((a{900}){900}){900}' }],
    ['grep', 'invalid_params', /no file type "typscript".*Known types: c, /, { pattern: 'x', type: 'typscript' }],
    ['grep', 'execution_failed', /is a binary file/, { pattern: 'x', path: 'data.bin' }],
  ] as const)('%s rejects what is %s', async (name, errorType, message, input) => {
    const ops = opsWith(ripgrep);
    const short = name === 'glob' ? glob(ops, input) : grep(ops, input);
    await expect(short).rejects.toMatchObject({ errorType, message: expect.stringMatching(message) });
  });

  test.skipIf(process.platform === 'win32')('does not block on a pipe', async () => {
    const searched = grep(opsWith(ripgrep), { pattern: 'x', path: 'pipe' });
    await expect(searched).rejects.toThrow('"pipe" is a pipe, a socket or a device');
  });

  test('an expression that backtracks elsewhere takes no time here, and lets other work run', async () => {
    await put('slow.txt', `${'a'.repeat(100_000)}b\n`);
    let hasTurned = false;
    setImmediate(() => (hasTurned = true));
    expect(await grep(opsWith(ripgrep), { pattern: '(a+)+$', path: 'slow.txt' })).toBe('[no match]');
    expect(hasTurned).toBe(true);
    await rm(join(folder, 'slow.txt'));
  });

  test('stops when it is aborted', async () => {
    const enough = contextWith(AbortSignal.abort(new Error('enough')));
    await expect(glob(opsWith(ripgrep), { pattern: '**' }, enough)).rejects.toThrow('enough');
    await expect(grep(opsWith(ripgrep), { pattern: 'x' }, enough)).rejects.toThrow('enough');
    const stopping = new AbortController();
    const running = grep(opsWith(ripgrep), { pattern: 'needle' }, contextWith(stopping.signal));
    stopping.abort(new Error('stop'));
    await expect(running).rejects.toThrow('stop');
  });

  test('reports progress', async () => {
    const reports: unknown[] = [];
    await grep(
      opsWith(ripgrep),
      { pattern: 'needle' },
      contextWith(undefined, (text) => reports.push(text)),
    );
    expect(reports.at(-1)).toMatch(/^searched \d+ files$/);
  });
});

test('rules that take long to compare let other work run', async () => {
  const names = Array.from({ length: 20 }, (_, at) => `${'a'.repeat(150)}${at}`);
  await put('heavy/.gitignore', `${'*a'.repeat(12)}b\n`.repeat(2_000));
  for (const name of names) await put(`heavy/${name}`, 'x');
  const space = workspace(local(folder).files);
  const { signal } = new AbortController();
  const visible = visibleFiles({ space, from: await space.locate('heavy'), signal });
  await visible.includes('.gitignore');
  let turns = 0;
  const count = (): void => void (turns++, (timer = setImmediate(count)));
  let timer = setImmediate(count);
  expect(await Promise.all(names.map((name) => visible.includes(name)))).toEqual(names.map(() => true));
  clearImmediate(timer);
  expect(turns).toBeGreaterThan(1);
  await rm(join(folder, 'heavy'), { recursive: true });
});

test('a job that takes too long ends at the time limit of the call', async () => {
  let seed = 1;
  const next = (): number => (seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31);
  await put(
    'wide.txt',
    Uint8Array.from({ length: 300_000 }, () => (next() & 65_536 ? 0x61 : 0x62)),
  );
  const tools = registry();
  tools.register(grepTool(opsWith(undefined)), 'test');
  // It has very many states, and takes several seconds.
  const input = { pattern: '(a|b)*a(a|b){300}[cd]', path: 'wide.txt', timeout_ms: 200 };
  const result = await tools.execute('grep', input);
  expect(result).toMatchObject({ isError: true, errorType: 'timeout' });
  await rm(join(folder, 'wide.txt'));
  expect(await tools.execute('grep', { pattern: 'first', timeout_ms: 30_000 })).toMatchObject({ isError: false });
});

test('arguments of a hostile model are errors that say what to do', async () => {
  const tools = registry();
  for (const made of [globTool(opsWith(rgPath)), grepTool(opsWith(rgPath))]) tools.register(made, 'test');
  const odd = ['\0', 'a\0b', '\n', '\ud800', '-rf', '--pre=touch x', '[', '{', '\\', '~/x', '*'.repeat(900), '(?', 'ä'];
  for (const text of odd) {
    for (const input of [
      { pattern: text, path: 'src' },
      { pattern: 'x', path: text },
    ]) {
      for (const name of ['glob', 'grep']) {
        const result = await tools.execute(name, input);
        if ('isError' in result && result.isError) expect(JSON.stringify(result.content)).toMatch(/[.:] \w/);
      }
    }
  }
});

/* Both ways give the same answers. */

describe('on a generated tree', () => {
  const NAMES = [
    'a',
    'b.ts',
    'c.log',
    '.hidden',
    'sp ace',
    '-dash',
    'new\nline',
    'quo\'te"',
    'ünï',
    'build',
    'node_modules',
  ];
  const RULES = [
    '*.log',
    '!c.log',
    'build/',
    '/a',
    'a/**',
    '!a/b.ts',
    '**/b.ts',
    'sp\\ ace',
    '.h*',
    '# a',
    '',
    '\\!x',
    '[ab]',
    'a/*/c.log',
    '*',
    '!*/',
    '-*',
    '{a,b.ts}',
  ];
  const TEXTS: readonly Uint8Array[] = [
    ...[
      '',
      'needle\n',
      'one\r\nneedle two\r\n',
      'no final newline',
      '\uFEFFneedle at the start\n',
      'NEEDLE é É K ſ\n',
      'a\rb\n\v\f x_1 2\n',
      '\uFFFD end',
    ].map((text) => Buffer.from(text)),
    Buffer.from('\uFEFFneedle wide ü\r\nsecond\n', 'utf16le'),
    Buffer.from('\uFEFFbig needle\n', 'utf16le').swap16(),
    Buffer.from([0x6e, 0xff, 0x65, 0x0a, 0xe2, 0x82, 0x61, 0x0a, 0x80]),
    Buffer.from('needle\0binary'),
    Buffer.concat([Buffer.from(`${'x'.repeat(9000)}\nneedle late\n`), Buffer.alloc(3), Buffer.from('\nneedle later')]),
  ];
  let tree: string;

  beforeAll(async () => {
    tree = join(folder, 'tree');
    const random = fc.sample(fc.infiniteStream(fc.nat({ max: 1_000_000 })), { numRuns: 1, seed: 19 })[0]!;
    const next = (count: number): number => Number(random.next().value) % count;
    const fill = async (at: string, depth: number): Promise<void> => {
      await mkdir(at, { recursive: true });
      if (next(2) === 0) {
        const rules = Array.from({ length: 1 + next(4) }, () => RULES[next(RULES.length)]);
        await writeFile(join(at, '.gitignore'), `${rules.join(next(3) === 0 ? '\r\n' : '\n')}\n`);
      }
      for (const name of NAMES) {
        const path = join(at, name);
        const choice = next(8);
        if (choice < 3) await writeFile(path, TEXTS[next(TEXTS.length)]!);
        else if (choice < 5 && depth > 0) await fill(path, depth - 1);
        else if (choice === 5) await symlink(['a', '..', 'nothing', 'b.ts'][next(4)]!, path);
      }
      if (next(8) === 0) await mkdir(join(at, '.git'), { recursive: true });
    };
    await fill(tree, 2);
    for (const [index, text] of TEXTS.entries()) await put(`texts/${index}`, text);
  });

  async function answers(use: (ops: Ops) => Promise<string>): Promise<readonly [string, string]> {
    const settle = (ops: Ops): Promise<string> => use(ops).catch((error: unknown) => `error: ${String(error)}`);
    return [await settle(opsWith(rgPath)), await settle(opsWith(undefined))];
  }

  test('glob gives the same answers both ways', async () => {
    let found = 0;
    for (const pattern of [
      '**',
      '**/*.ts',
      '*',
      '**/a/**',
      '**/build/**',
      '**/node_modules/*',
      '**/.*',
      '**/*{n,e}*',
      'a/**',
    ]) {
      for (const path of ['tree', 'tree/a', 'tree/build', 'tree/sp ace']) {
        const [first, second] = await answers((ops) => glob(ops, { pattern, path }));
        expect([pattern, path, first]).toEqual([pattern, path, second]);
        if (!/^(\[|error)/.test(first)) found++;
      }
    }
    expect(found).toBeGreaterThan(8);
  });

  test('grep gives the same answers both ways', async () => {
    const patterns = [
      'needle',
      'n.e(?:\\d|\\W)?',
      '^n',
      'e$',
      '\\w+',
      '\\W',
      '\\bn',
      '[^a-z ]',
      '\\s',
      '\\S\\d',
      '[\\w.]x',
      'É',
      'k',
      '(?i:NEE)',
      '^$',
      '[é-ü]',
      '\\x{e9}',
      's',
      '^.{2,5}$',
      'x_1|late',
      '\\.',
      '[[]',
      '[&&a]',
      '\\p{Lu}',
      '\\z',
      '.',
      '\\<',
    ];
    let found = 0;
    for (const [index, pattern] of patterns.entries()) {
      const input = {
        pattern,
        path: index % 9 === 0 ? 'tree' : 'texts',
        ignore_case: index % 3 === 0,
        max_results: 1000,
      };
      const [first, second] = await answers((ops) => grep(ops, input));
      expect([input, first]).toEqual([input, second]);
      if (!/^(\[|error)/.test(first)) found++;
    }
    expect(found).toBeGreaterThan(10);
  });
});

test.each([
  ['\\p{Lu}', undefined],
  ['\\Qa\\E', undefined],
  ['(?s).', undefined],
  ['[[:alpha:]]', undefined],
  ['\\B', undefined],
  ['a\\<b', 'a\\x3cb'],
  ['[\\w-]+', '[0-9A-Za-z_-]+'],
  ['(?P<n>x)\\b', '(?P<n>x)(?-u:\\b)'],
  ['(?i)x', '(?i)x'],
])('translates %s for ripgrep', (pattern, translated) => {
  expect(rustPattern(pattern)).toBe(translated);
});
