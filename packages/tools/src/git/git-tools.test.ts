import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import {
  appendFile,
  chmod,
  chown,
  cp,
  mkdir,
  mkdtemp,
  readdir,
  rename,
  rm,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { registry, type ToolContext } from '@treadle/core';
import { policy } from '@treadle/core/policy';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { local } from '../local/local.ts';
import type { Ops } from '../ops.ts';
import { pathFacts } from '../paths/path-facts.ts';
import { policyCheck } from '../paths/policy-check.ts';
import { gitBranchTool, gitCommitTool } from './commit-branch.ts';
import { gitDiffTool, gitLogTool, gitStatusTool } from './inspect.ts';

let base: string;
let folder: string;
let marker: string;
let number = 0;
const tools = registry();

/** The environment of the user. */
function userEnvironment(): Record<string, string> {
  return { PATH: process.env['PATH']!, HOME: join(base, 'home') };
}

function git(...args: string[]): string {
  return execFileSync('git', ['-C', folder, ...args], { env: userEnvironment(), encoding: 'utf8', stdio: 'pipe' });
}

/** Git may fail. */
function tryGit(...args: string[]): void {
  try {
    git(...args);
  } catch {
    // What it started is of interest.
  }
}

async function put(files: Readonly<Record<string, string>>): Promise<void> {
  for (const [name, text] of Object.entries(files)) {
    await mkdir(dirname(join(folder, name)), { recursive: true });
    await writeFile(join(folder, name), text);
  }
}

function use(ops: Ops): void {
  for (const make of [gitStatusTool, gitDiffTool, gitLogTool, gitCommitTool, gitBranchTool]) {
    const made = make(ops);
    tools.unregister(made.name);
    tools.register(made, 'test');
  }
}

/** The text of the result, with the type of an error before it. */
async function call(name: string, input: object = {}, signal?: AbortSignal): Promise<string> {
  const result = await tools.execute(name, input, signal ? { signal } : {});
  if (result.type !== 'result') throw new Error(result.type);
  const shown = result.content.map((block) => ('text' in block ? block.text : block.type)).join('\n');
  if (!result.isError) return shown;
  return `${result.errorType ?? 'invalid_params'}: ${shown.replace(`The tool "${name}" failed: `, '')}`;
}

beforeAll(async () => {
  base = await mkdtemp(join(tmpdir(), 'treadle-git-'));
  folder = join(base, 'template');
  await mkdir(join(base, 'home'));
  await mkdir(folder);
  await writeFile(
    join(base, 'home', '.gitconfig'),
    '[user]\nname = Ann\nemail = ann@example.com\n[init]\ndefaultBranch = main\n',
  );
  git('init', '-q');
  await put({ 'a.txt': 'one\ntwo\n', 'src/b.txt': 'bee\n' });
  git('add', '.');
  git('commit', '-qm', 'First commit\n\nWith details.');
});
afterAll(() => rm(base, { recursive: true, force: true }));
beforeEach(async () => {
  folder = join(base, String(++number));
  marker = join(base, `marker-${number}`);
  await cp(join(base, 'template'), folder, { recursive: true });
  use(local(folder, { env: userEnvironment() }));
});

describe('git_status', () => {
  test('shows the branch and what has changed', async () => {
    expect(await call('git_status')).toBe('On branch main.\nNothing has changed.');
    await put({ 'a.txt': 'changed\n', 'new file.txt': 'new\n', 'odd\n"name".txt': 'x', 'staged.txt': 's\n' });
    git('add', 'staged.txt');
    git('mv', 'src/b.txt', 'src/c.txt');
    expect(await call('git_status')).toBe(
      'On branch main.\nStaged:\n  R src/b.txt -> src/c.txt\n  A staged.txt\nNot staged:\n  M a.txt\nUntracked:\n  new file.txt\n' +
        '  "odd\\n\\"name\\".txt"',
    );
  });

  test('shows conflicts, a detached head and a repository without commits', async () => {
    git('switch', '-qc', 'other');
    await put({ 'a.txt': 'other\n' });
    git('commit', '-qam', 'other');
    git('switch', '-q', 'main');
    await put({ 'a.txt': 'main\n' });
    git('commit', '-qam', 'main');
    expect(() => git('merge', 'other')).toThrow('Command failed');
    expect(await call('git_status')).toMatch(/^On branch main\.\nIn conflict .*:\n  a\.txt$/);
    expect(await call('git_commit', { message: 'Merge' })).toMatch(/^execution_failed: git commit failed: /);
    await put({ 'a.txt': 'both\n' });
    expect(await call('git_commit', { message: 'Merge', paths: ['a.txt'] })).toContain('] Merge');
    expect(git('log', '--merges', '--format=%s')).toBe('Merge\n');
    git('switch', '-q', '--detach');
    expect(await call('git_status')).toMatch(/^On commit [0-9a-f]{12} \(no branch\)\./);
    await rm(join(folder, '.git'), { recursive: true });
    git('init', '-q');
    expect(await call('git_status')).toMatch(/^On branch main, no commits yet\.\nUntracked:/);
    expect(await call('git_log')).toBe('There are no commits yet.');
    expect(await call('git_branch')).toContain('no branches yet');
    expect(await call('git_commit', { message: 'First', paths: ['.'] })).toContain('First');
  });

  test('says if there is no repository, and does not use one above the folder', async () => {
    use(local(join(folder, 'src'), { env: userEnvironment() }));
    expect(await call('git_status')).toMatch(/^not_found: The working folder .* is not a git repository/);
    use(local(folder, { env: { ...userEnvironment(), PATH: base } }));
    expect(await call('git_status')).toMatch(/^not_found: There is no program "git"/);
  });
});

describe('git_diff', () => {
  test('shows what is not staged, what is staged, and what differs from a commit', async () => {
    expect(await call('git_diff')).toBe('There are no such changes.');
    await put({ 'a.txt': 'one\n2\n', 'src/b.txt': 'BEE\n' });
    git('add', 'src');
    expect(await call('git_diff')).toMatch(/^diff --git a\/a.txt b\/a.txt\n[^]*-two\n\+2\n$/);
    expect(await call('git_diff', { staged: true })).toMatch(/^diff --git a\/src\/b.txt[^]*-bee\n\+BEE\n$/);
    const all = await call('git_diff', { commit: 'HEAD' });
    expect([all.includes('+2'), all.includes('+BEE')]).toEqual([true, true]);
    expect(await call('git_diff', { commit: 'HEAD', path: 'src' })).not.toContain('a.txt');
    git('commit', '-qam', 'second');
    expect(await call('git_diff', { commit: 'HEAD~1..HEAD', path: join(folder, 'a.txt') })).toContain('+2');
    expect(await call('git_diff', { commit: 'HEAD~1..' })).toContain('+BEE');
    await put({ '~/x': '~\n' });
    git('add', '.');
    git('commit', '-qm', 'third');
    git('branch', '-q', 'side', 'HEAD~1');
    expect(await call('git_diff', { commit: 'HEAD..side' })).toContain('-~');
    expect(await call('git_diff', { commit: 'HEAD...side' })).toBe('There are no such changes.');
  });

  test('cuts a long diff, and names its files', async () => {
    await put({ 'a.txt': 'long line\n'.repeat(5_000), 'src/b.txt': 'x\n' });
    const long = await call('git_diff');
    expect(long.length).toBeLessThan(12_000);
    expect(long).toContain('It has these files: a.txt, src/b.txt. Give a path to see one.');
  });

  test('answers odd arguments clearly', async () => {
    await put({ 'a.txt': 'changed\n' });
    for (const [input, expected] of [
      [{ commit: '--output=x' }, 'invalid_params: There is no commit "--output=x"'],
      [{ commit: 'none' }, 'There is no commit "none"'],
      [{ commit: 'HEAD:a.txt' }, 'There is no commit'],
      [{ commit: 'a..b..c' }, 'Give one commit'],
      [{ commit: 'HEAD..HEAD', staged: true }, 'Give one commit'],
      [{ commit: 'a\0b' }, 'There is no commit'],
      [{ commit: 'x'.repeat(501) }, 'commit'],
      [{ commit: 7 }, 'commit'],
      [{ path: '../x' }, 'permission_denied: "../x" is outside'],
      [{ path: '/etc' }, 'permission_denied: "/etc" is outside'],
      [{ path: 'a\0b' }, 'permission_denied: '],
      [{ path: '--output=x' }, 'There are no such changes.'],
      [{ path: ':(top)a.txt' }, 'There are no such changes.'],
      [{ path: '*.txt' }, 'There are no such changes.'],
      [{ path: 'x'.repeat(200_000) }, 'invalid_params: A path has 200000 characters'],
      [{ other: 1 }, 'other'],
    ] as const) {
      expect(await call('git_diff', input)).toContain(expected);
    }
    expect(existsSync(join(folder, 'x'))).toBe(false);
  });
});

test('git_log lists commits', async () => {
  await put({ 'src/b.txt': 'BEE\n' });
  git('commit', '-qam', 'Second \u001B[31mcommit');
  expect(await call('git_log')).toMatch(
    /^[0-9a-f]{7} \d{4}-\S+ Ann: Second \[31mcommit\n[0-9a-f]{7} \S+ Ann: First commit\n    With details\.$/,
  );
  expect((await call('git_log', { max_count: 1 })).split('\n')).toHaveLength(1);
  expect(await call('git_log', { path: 'a.txt' })).not.toContain('Second');
  expect(await call('git_log', { path: '--all' })).toBe('No commit changed "--all".');
  expect(await call('git_log', { max_count: 0 })).toMatch(/^invalid_params: /);
});

describe('git_commit', () => {
  test('commits the given paths and nothing else', async () => {
    await put({
      'a.txt': 'changed\n',
      'src/b.txt': 'BEE\n',
      '-new.txt': 'new\n',
      '*.md': 'x\n',
      'y.md': 'y\n',
      '.gitignore': 'z\n',
      z: '',
    });
    git('add', 'src/b.txt');
    await rm(join(folder, 'a.txt'));
    expect(await call('git_commit', { message: '# Title\n\n-F x', paths: ['a.txt', '-new.txt', '*.md'] })).toMatch(
      /^\[main [0-9a-f]{7}\] # Title\n 3 files changed/,
    );
    expect(git('show', '--name-status', '--format=%an <%ae>%n%B')).toBe(
      'Ann <ann@example.com>\n# Title\n\n-F x\n\n\nA\t*.md\nA\t-new.txt\nD\ta.txt\n',
    );
    expect(await call('git_commit', { message: 'Staged' })).toContain('Staged');
    expect(git('show', '--name-only', '--format=')).toBe('src/b.txt\n');
    expect(await call('git_commit', { message: 'x', paths: ['z'] })).toContain('nothing to commit at "z"');
    expect(await call('git_commit', { message: 'x', paths: ['y.md', 'none'] })).toContain(
      'nothing to commit at "none"',
    );
    expect(await call('git_commit', { message: 'x' })).toMatch(
      /^execution_failed: Nothing is staged[^]*Untracked:\n  \.gitignore\n  y\.md$/,
    );
    expect(await call('git_commit', { message: 'Rest', paths: ['.'] })).toContain('2 files changed');
    expect(await call('git_commit', { message: 'x', paths: ['.'] })).toContain('nothing to commit at "."');
    expect(await call('git_status')).toContain('Nothing has changed');
  });

  test('commits files that are staged as removed, moved or added and removed again', async () => {
    await put({ 'gone.txt': 'x\n' });
    git('add', 'gone.txt');
    await rm(join(folder, 'gone.txt'));
    git('rm', '-q', 'a.txt');
    git('mv', 'src/b.txt', 'src/c.txt');
    expect(await call('git_commit', { message: 'Move', paths: ['.'] })).toContain('2 files changed');
    expect(git('show', '--name-status', '--format=')).toBe('D\ta.txt\nR100\tsrc/b.txt\tsrc/c.txt\n');
    expect(await call('git_status')).toContain('Nothing has changed');
  });

  test('refuses arguments that make no sense', async () => {
    await put({ 'a.txt': 'changed\n' });
    for (const [input, expected] of [
      [{ message: '' }, 'invalid_params: '],
      [{ message: ' \n' }, 'invalid_params: The message is empty'],
      [{ message: 'a\0b' }, 'invalid_params: '],
      [{ message: 'x'.repeat(20_001) }, 'invalid_params: '],
      [{ message: 'x', paths: [] }, 'invalid_params: '],
      [{ message: 'x', paths: 'a.txt' }, 'invalid_params: '],
      [{ message: 'x', paths: ['../a'] }, 'permission_denied: '],
      [{ message: 'x', paths: ['a\0'] }, 'permission_denied: '],
      [{ message: 'x', paths: Array.from({ length: 1_000 }, () => 'a'.repeat(4_000)) }, 'The arguments are too long'],
    ] as const) {
      expect(await call('git_commit', input)).toContain(expected);
    }
  });

  test('says if git does not know the user', async () => {
    await put({ 'a.txt': 'changed\n' });
    use(local(folder, { env: { ...userEnvironment(), HOME: join(base, 'nobody') } }));
    expect(await call('git_commit', { message: 'x', paths: ['.'] })).toContain('Git does not know who commits');
    git('config', 'user.name', 'Bob');
    git('config', 'user.email', 'bob@example.com');
    expect(await call('git_commit', { message: 'x', paths: ['.'] })).toContain('1 file changed');
    expect(git('log', '-1', '--format=%an')).toBe('Bob\n');
  });

  test('verify tells whether the commit was made', async () => {
    const { verify } = tools.get('git_commit')!;
    const context = { signal: AbortSignal.any([]) } as unknown as ToolContext;
    const state = async (input: object): Promise<string> => ((await verify!(input, context)) as { type: string }).type;
    const input = { message: 'Second  \n\n\n\nwith details ', paths: ['a.txt'] };
    await put({ 'a.txt': 'changed\n' });
    expect(await state(input)).toBe('not-done');
    await call('git_commit', input);
    expect(await state(input)).toBe('done');
    await put({ 'a.txt': 'again\n' });
    expect(await state(input)).toBe('unknown');
    expect(await state({ message: 'Second' })).toBe('unknown');
  });
});

test('git_branch lists, creates and switches', async () => {
  expect(await call('git_branch')).toMatch(/^\* main [0-9a-f]{7} \d{4}-\d\d-\d\d First commit$/);
  await put({ 'a.txt': 'changed\n' });
  expect(await call('git_branch', { operation: 'create', name: 'feature/x' })).toContain(
    'Created the branch feature/x',
  );
  expect(await call('git_status')).toBe('On branch feature/x.\nNot staged:\n  M a.txt');
  await call('git_commit', { message: 'x', paths: ['.'] });
  await put({ 'a.txt': 'again\n' });
  expect(await call('git_branch', { operation: 'switch', name: 'main' })).toMatch(
    /^execution_failed: .*would be overwritten/s,
  );
  git('checkout', '-q', '.');
  expect(await call('git_branch', { operation: 'switch', name: 'main' })).toBe('Switched to the branch main.');
  for (const [input, expected] of [
    [{ name: 'x' }, 'invalid_params: Set operation'],
    [{ operation: 'create' }, 'invalid_params: Give the name'],
    [{ operation: 'create', name: 'main' }, 'There is a branch "main" already'],
    [{ operation: 'create', name: '-f' }, 'is not a name'],
    [{ operation: 'create', name: 'a b' }, 'is not a name'],
    [{ operation: 'create', name: '@{-1}' }, 'is not a name'],
    [{ operation: 'create', name: 'a\0b' }, ': '],
    [{ operation: 'switch', name: 'none' }, 'not_found: There is no branch "none"'],
    [{ operation: 'delete', name: 'main' }, 'operation'],
  ] as const) {
    expect(await call('git_branch', input)).toContain(expected);
  }
  const { verify } = tools.get('git_branch')!;
  const context = { signal: AbortSignal.any([]) } as unknown as ToolContext;
  expect(await verify!({ operation: 'switch', name: 'main' }, context)).toMatchObject({ type: 'done' });
  expect(await verify!({ operation: 'switch', name: 'feature/x' }, context)).toEqual({ type: 'not-done' });
  expect(await verify!({ operation: 'create', name: 'feature/x' }, context)).toEqual({ type: 'unknown' });
  expect(await verify!({ operation: 'create', name: 'y' }, context)).toEqual({ type: 'not-done' });
});

describe('under a policy', () => {
  function usePolicy(rules: object): ReturnType<typeof policy> {
    const made = policy(rules, { folder, analysers: { path: (path) => pathFacts(path, { folder }) } });
    use(local(folder, { env: userEnvironment(), check: policyCheck(made, folder) }));
    return made;
  }

  async function verdict(made: ReturnType<typeof policy>, name: string, input: object): Promise<string> {
    const { touches, permissions = [] } = tools.get(name)!;
    return (await made.explain({ name, touches: touches!(input), permissions })).verdict.type;
  }

  test('reading runs at every level, and writing is asked about as other writes are', async () => {
    const levels = [0, 1, 2, 3].map((autonomy) => usePolicy({ autonomy, paths: { write: ['**'] } }));
    const all = (name: string, input: object): Promise<readonly string[]> =>
      Promise.all(levels.map((made) => verdict(made, name, input)));
    for (const name of ['git_status', 'git_diff', 'git_log', 'git_branch']) {
      expect(await all(name, {})).toEqual(['allow', 'allow', 'allow', 'allow']);
    }
    expect(await all('git_commit', { message: 'x', paths: ['a.txt'] })).toEqual(['deny', 'ask', 'allow', 'allow']);
    expect(await all('git_branch', { operation: 'create', name: 'x' })).toEqual(['deny', 'ask', 'allow', 'allow']);
    expect(await verdict(usePolicy({ permissions: { git: false } }), 'git_status', {})).toBe('deny');
    expect(
      await verdict(usePolicy({ autonomy: 2, paths: { write: ['src/**'] } }), 'git_commit', { message: 'x' }),
    ).toBe('ask');
  });

  test('files that may not be read are neither shown nor committed', async () => {
    await put({ '.env': 'SECRET=1\n' });
    git('add', '.');
    git('commit', '-qm', 'env');
    await put({ '.env': 'SECRET=2\n', 'a.txt': 'changed\n', 'src/.env.local': 'SECRET=3\n' });
    usePolicy({ autonomy: 2 });
    const shown = await call('git_diff');
    expect(shown).toContain('+changed');
    expect(shown).not.toContain('SECRET');
    expect(shown).toContain('Left out, because the policy does not allow them to be read: .env.');
    expect(await call('git_diff', { path: '.env' })).not.toContain('SECRET');
    expect(await call('git_diff', { commit: 'HEAD~1..HEAD' })).not.toContain('SECRET');
    expect(await call('git_commit', { message: 'x', paths: ['.env'] })).toMatch(/^permission_denied: /);
    expect(await call('git_commit', { message: 'x', paths: ['.'] })).toContain(
      'Left out, because the policy does not allow',
    );
    expect(git('show', '--name-only', '--format=')).toBe('a.txt\n');
    git('checkout', '-q', '.');
    git('branch', '-q', 'before', 'HEAD~2');
    expect(await call('git_branch', { operation: 'switch', name: 'before' })).toContain(
      'Switching would change ".env"',
    );
  });
});

describe('a hostile repository', () => {
  /** Uses every tool. */
  async function useAll(): Promise<string> {
    await put({ 'a.txt': `${number}\n`, 'new.txt': 'new\n', 'src/b.txt': 'changed\n' });
    const results = [
      await call('git_status'),
      await call('git_diff'),
      await call('git_diff', { commit: 'HEAD', staged: true }),
      await call('git_log', { path: 'a.txt' }),
      await call('git_branch'),
      await call('git_branch', { operation: 'create', name: 'x' }),
      await call('git_commit', { message: 'Two', paths: ['a.txt', 'new.txt', 'src'] }),
      await call('git_branch', { operation: 'switch', name: 'main' }),
    ];
    return results.join('\n');
  }

  test('starts none of the programs that its settings name', async () => {
    await mkdir(marker);
    const settings = new Map<string, string>();
    /** The program leaves a file. */
    const name = (key: string, before = '', rest = '; false'): unknown =>
      settings.set(key, `${before}touch '${marker}/${key}'${rest}`);
    for (const key of ['pager', 'editor', 'askPass', 'alternateRefsCommand', 'gitProxy', 'sshCommand', 'fsmonitor'])
      name(`core.${key}`);
    for (const key of ['status', 'diff', 'log']) name(`pager.${key}`);
    for (const key of ['status', 'diff', 'log', 'commit']) name(`alias.${key}`, '!');
    for (const key of ['sequence.editor', 'diff.external', 'diff.evil.command', 'diff.evil.textconv']) name(key);
    for (const key of ['merge.evil.driver', 'trailer.evil.command', 'hook.evil.command', 'uploadpack.packObjectsHook'])
      name(key);
    name('credential.helper', '!');
    for (const key of ['commit.gpgSign', 'tag.gpgSign', 'log.showSignature']) settings.set(key, 'true');
    settings.set('gpg.program', join(folder, 'hooks/gpg.program'));
    settings.set('format.pretty', '%G?');
    settings.set('hook.evil.event', 'pre-commit');
    settings.set('gc.auto', '1');
    settings.set('core.hooksPath', 'hooks');
    const lines = [...settings].map(([key, value]) => {
      const [section = '', ...rest] = key.split('.');
      const heading = rest.length > 1 ? `${section} "${rest[0]}"` : section;
      return `[${heading}]\n${rest.at(-1)} = "${value}"\n`;
    });
    // Settings of included files count too.
    await writeFile(join(folder, '.git/more'), lines.join(''));
    await appendFile(join(folder, '.git/config'), '[include]\npath = more\n');
    await writeFile(join(folder, '.git/info/attributes'), '* diff=evil merge=evil\n');
    for (const hook of [
      'pre-commit',
      'commit-msg',
      'prepare-commit-msg',
      'post-commit',
      'post-checkout',
      'post-index-change',
      'reference-transaction',
      'gpg.program',
    ]) {
      await put({ [`hooks/${hook}`]: `#!/bin/sh\ntouch '${marker}/${hook}'\n` });
      await chmod(join(folder, 'hooks', hook), 0o755);
    }
    const results = await useAll();
    expect(results).not.toContain('failed');
    expect(results).toContain('Switched to the branch main.');
    expect(await readdir(marker)).toEqual([]);

    // Git alone starts them.
    await put({ 'a.txt': 'again\n' });
    for (const args of [['status'], ['diff'], ['commit', '-qam', 'x']]) tryGit(...args);
    expect(await readdir(marker)).toEqual(
      expect.arrayContaining(['core.fsmonitor', 'diff.evil.command', 'gpg.program', 'post-index-change', 'pre-commit']),
    );
  });

  test('starts no filters, and commits no file that needs one', async () => {
    const program = `touch ${marker}; cat`;
    for (const name of ['evil', 'e=v.i l']) {
      git('config', `filter.${name}.clean`, program);
      git('config', `filter.${name}.required`, 'true');
    }
    git('config', 'filter.long.process', program);
    await put({
      '.gitattributes': '*.txt filter=evil\nsrc/* filter=long\n',
      'c.md': 'x\n',
      'a.txt': 'x\n',
      'src/b.txt': 'x\n',
    });
    expect(await call('git_status')).toContain('a.txt');
    expect(await call('git_diff')).toContain('a.txt');
    expect(await call('git_commit', { message: 'x', paths: ['.'] })).toContain(
      '"a.txt" is converted by the filter "evil"',
    );
    expect(await call('git_commit', { message: 'x', paths: ['c.md'] })).toContain('1 file changed');
    expect(existsSync(marker)).toBe(false);
    git('diff');
    expect(existsSync(marker)).toBe(true);
  });

  test('switches to no branch that changes a file that needs a filter', async () => {
    git('switch', '-qc', 'other');
    await put({ 'a.txt': 'of the other branch\n' });
    git('commit', '-qam', 'Change a.txt');
    git('switch', '-q', '-');
    await put({ '.gitattributes': '*.txt filter=evil\n' });
    expect(await call('git_branch', { operation: 'switch', name: 'other' })).toContain(
      '"a.txt" is converted by the filter',
    );
    expect(git('branch', '--show-current').trim()).not.toBe('other');
  });

  test('fetches nothing', async () => {
    git('config', 'core.repositoryFormatVersion', '1');
    git('config', 'extensions.partialClone', 'evil');
    git('config', 'remote.evil.promisor', 'true');
    git('config', 'remote.evil.url', `ext::sh -c touch% ${marker}`);
    git('config', 'protocol.ext.allow', 'always');
    git('config', 'protocol.allow', 'always');
    const blob = git('rev-parse', 'HEAD:a.txt').trim();
    await rm(join(folder, '.git/objects', blob.slice(0, 2), blob.slice(2)));
    await put({ 'a.txt': 'changed\n' });
    await call('git_diff');
    await call('git_commit', { message: 'x', paths: ['a.txt'] });
    git('config', 'remote.evil.url', join(base, 'template'));
    git('config', 'remote.evil.uploadpack', `touch ${marker}; git-upload-pack`);
    await call('git_diff', { commit: 'HEAD~1' });
    expect(existsSync(marker)).toBe(false);
    tryGit('cat-file', '-p', blob);
    expect(existsSync(marker)).toBe(true);
  });

  test('does not enter submodules', async () => {
    await cp(join(base, 'template'), join(folder, 'sub'), { recursive: true });
    git('-c', 'advice.addEmbeddedRepo=false', 'add', 'sub');
    git('commit', '-qm', 'sub');
    for (const [name, value] of [
      ['core.fsmonitor', `touch ${marker}; false`],
      ['core.hooksPath', `${folder}/sub`],
    ] as const) {
      execFileSync('git', ['-C', join(folder, 'sub'), 'config', name, value]);
    }
    git('config', 'submodule.recurse', 'true');
    git('config', 'status.submoduleSummary', 'true');
    git('config', 'diff.submodule', 'diff');
    git('config', 'submodule.sub.ignore', 'none');
    await put({
      '.gitmodules': '[submodule "sub"]\npath = sub\nurl = ./sub\nignore = none\n',
      'sub/a.txt': 'dirty\n',
      'sub/n.txt': '',
    });
    expect(await call('git_status')).toContain('.gitmodules');
    await call('git_diff');
    expect(await call('git_commit', { message: 'x', paths: ['.'] })).toContain('1 file changed');
    expect(existsSync(marker)).toBe(false);
    tryGit('status');
    expect(existsSync(marker)).toBe(true);
    await cp(join(base, 'template'), join(folder, 'nested'), { recursive: true });
    expect(await call('git_commit', { message: 'x', paths: ['nested'] })).toContain(
      'Only repositories inside this one',
    );
  });

  test('is not used if it leads elsewhere', async () => {
    const elsewhere = join(base, `elsewhere-${number}`);
    await cp(folder, elsewhere, { recursive: true });
    const isRefused = async (why: string): Promise<void> => {
      const refused = await call('git_commit', { message: 'x', paths: ['.'] });
      expect(refused).toMatch(/^(permission_denied|not_found): /);
      expect(refused).toContain(why);
    };
    git('config', 'core.worktree', elsewhere);
    await isRefused('core.worktree');
    await rm(join(folder, '.git'), { recursive: true });
    await writeFile(join(folder, '.git'), `gitdir: ${elsewhere}/.git\n`);
    await isRefused('does not list it as a worktree');
    await rm(join(folder, '.git'));
    await symlink(join(elsewhere, '.git'), join(folder, '.git'));
    await isRefused('does not list it as a worktree');
    await rm(join(folder, '.git'));
    await cp(join(elsewhere, '.git'), join(folder, '.git'), { recursive: true });
    await writeFile(join(folder, '.git/commondir'), `${elsewhere}/.git\n`);
    await isRefused('does not list it as a worktree');
    await rm(join(folder, '.git/commondir'));
    await rm(join(folder, '.git/refs'), { recursive: true });
    await symlink(join(elsewhere, '.git/refs'), join(folder, '.git/refs'));
    await isRefused('"refs" in ".git" of the working folder is a symbolic link');
    await rm(join(folder, '.git/refs'));
    await cp(join(elsewhere, '.git/refs'), join(folder, '.git/refs'), { recursive: true });
    for (const inner of ['refs/heads/main', 'refs/heads', 'objects/pack', 'objects']) {
      await rm(join(folder, '.git', inner), { recursive: true });
      await symlink(join(elsewhere, '.git', inner), join(folder, '.git', inner));
      await isRefused(`"${inner}" in ".git" of the working folder is a symbolic link`);
      await rm(join(folder, '.git', inner));
      await cp(join(elsewhere, '.git', inner), join(folder, '.git', inner), { recursive: true });
    }
    // Git finds the objects of the other repository by this file.
    await writeFile(join(folder, '.git/objects/info/alternates'), `${elsewhere}/.git/objects\n`);
    await isRefused('borrows objects of another repository');
    await rename(join(folder, '.git/objects/info'), join(folder, '.git/moved'));
    await symlink('../moved', join(folder, '.git/objects/info'));
    await isRefused('"objects/info" in ".git" of the working folder is a symbolic link');
    await rm(join(folder, '.git/objects/info'));
    await rename(join(folder, '.git/moved'), join(folder, '.git/objects/info'));
    await mkdir(join(folder, '.other'));
    await rename(join(folder, '.git/objects'), join(folder, '.other/objects'));
    await rename(join(folder, '.git/refs'), join(folder, '.other/refs'));
    await writeFile(join(folder, '.git/commondir'), '../.other\n');
    await isRefused('borrows objects of another repository');
    await rm(join(folder, '.git'), { recursive: true });
    await cp(join(elsewhere, '.git'), folder, { recursive: true });
    await isRefused('is not a git repository');
  });

  test('can be a worktree of a repository elsewhere', async () => {
    const worktree = join(base, `worktree-${number}`);
    git('worktree', 'add', '-q', worktree, '-b', 'work');
    use(local(worktree, { env: userEnvironment() }));
    await appendFile(join(worktree, 'a.txt'), 'three\n');
    expect(await call('git_status')).toBe('On branch work.\nNot staged:\n  M a.txt');
    expect(await call('git_commit', { message: 'In a worktree', paths: ['.'] })).toContain('1 file changed');
  });

  test.skipIf(process.getuid?.() !== 0)(
    'is not used if it belongs to somebody else, unless the user trusts it',
    async () => {
      await chown(join(folder, '.git'), 12_345, 12_345);
      await chown(folder, 12_345, 12_345);
      expect(await call('git_status')).toMatch(/^permission_denied: .* belongs to another user.* safe\.directory /);
      const home = join(base, `home-${number}`);
      await mkdir(home);
      await writeFile(join(home, '.gitconfig'), `[safe]\ndirectory = ${folder}\n`);
      use(local(folder, { env: { ...userEnvironment(), HOME: home } }));
      expect(await call('git_status')).toContain('On branch main.');
    },
  );

  test('variables of the environment have no effect', async () => {
    const elsewhere = join(base, `elsewhere-${number}`);
    await cp(folder, elsewhere, { recursive: true });
    const env = {
      ...userEnvironment(),
      GIT_DIR: join(elsewhere, '.git'),
      GIT_WORK_TREE: elsewhere,
      GIT_INDEX_FILE: join(elsewhere, 'index'),
      GIT_CONFIG_PARAMETERS: `'core.fsmonitor=touch ${marker}'`,
      GIT_CONFIG_COUNT: '1',
      GIT_CONFIG_KEY_0: 'core.fsmonitor',
      GIT_CONFIG_VALUE_0: `touch ${marker}`,
      GIT_EXTERNAL_DIFF: `touch ${marker}`,
      GIT_PAGER: `touch ${marker}`,
      GIT_EDITOR: `touch ${marker}`,
      GIT_TRACE: marker,
      GIT_TRACE2: marker,
      GIT_EXEC_PATH: elsewhere,
    };
    use(local(folder, { env }));
    await put({ 'a.txt': 'changed\n' });
    expect(await call('git_diff')).toContain('+changed');
    expect(await call('git_commit', { message: 'Here', paths: ['a.txt'] })).toContain('Here');
    expect(existsSync(marker)).toBe(false);
    expect(git('log', '-1', '--format=%s')).toBe('Here\n');
  });
});

test('a call that is cancelled or takes too long kills git', async () => {
  const bin = join(base, `bin-${number}`);
  await mkdir(bin);
  await writeFile(join(bin, 'git'), '#!/bin/sh\nexec sleep 1000\n');
  await chmod(join(bin, 'git'), 0o755);
  const { files, exec } = local(folder, { env: { PATH: `${bin}:${process.env['PATH']}` } });
  const pids: number[] = [];
  let cancel = new AbortController();
  use({
    files,
    exec: {
      ...exec,
      start: async (request) => {
        const started = await exec.start(request);
        pids.push(started.process.pid);
        setImmediate(() => cancel.abort());
        return started;
      },
    },
  });
  expect(await call('git_status', {}, cancel.signal)).toContain('stopped');
  cancel = new AbortController();
  expect(await call('git_commit', { message: 'x', timeout_ms: 50 })).toMatch(/^timeout: .*timed out after 50 ms/);
  expect(pids.length).toBeGreaterThan(1);
  await expect.poll(() => pids.filter(isRunning)).toEqual([]);
});

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}
