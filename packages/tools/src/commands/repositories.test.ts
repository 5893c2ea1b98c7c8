import { execFileSync } from 'node:child_process';
import { appendFileSync, mkdtempSync, readFileSync, realpathSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { commandFacts } from './command-facts.ts';

let folder: string;
beforeEach(() => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), 'treadle-index-')));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function git(...args: string[]): void {
  const env = { PATH: process.env.PATH ?? '', HOME: folder, GIT_CONFIG_NOSYSTEM: '1' };
  execFileSync('git', ['-c', 'user.name=a', '-c', 'user.email=a@example.com', ...args], {
    cwd: folder,
    env,
    stdio: 'pipe',
  });
}

function commit(names: readonly string[], ...options: string[]): void {
  git('init', '--quiet', ...options);
  for (const name of names) writeFileSync(join(folder, name), `${name}\n`);
  git('add', '.');
  git('commit', '--quiet', '-m', 'one');
}

const unclear = (command: string): string | undefined => commandFacts(command, { folder }).unclear;
const PRIVATE = 'it would print .npmrc, which is private';

describe('git that prints what it tracks', () => {
  it.each([
    ['version 2', []],
    ['version 4', ['-c', 'index.version=4']],
  ])('asks about private files in an index of %s', (_, settings) => {
    commit(['.npmrc', 'a.txt', 'a.txt.long-name-that-shares-a-start', 'z.txt']);
    git(...settings, 'update-index', '--force-write-index');
    if (settings.length > 0) git('update-index', '--index-version', '4');
    for (const command of ['git show', 'git log -p', 'git diff HEAD', 'git diff --cached', 'git show --stat -p'])
      expect(unclear(command), command).toBe(PRIVATE);
    for (const command of ['git diff', 'git log', 'git show --stat', 'git show HEAD:a.txt', 'git log -p -- a.txt'])
      expect(unclear(command), command).toBeUndefined();
  });

  it('asks about private files of repositories with longer hashes', () => {
    commit(['.npmrc', 'a.txt'], '--object-format=sha256');
    expect(unclear('git show')).toBe(PRIVATE);
    expect(unclear('git diff')).toBeUndefined();
  });

  it('asks about differences of a private file once it has changed, or may change before', () => {
    commit(['.npmrc', 'a.txt']);
    expect(unclear('git diff')).toBeUndefined();
    expect(unclear('echo x >> a.txt; git diff')).toBe(PRIVATE);
    expect(unclear('(sleep 1; git diff) | tee a.txt')).toBe(PRIVATE);
    appendFileSync(join(folder, '.npmrc'), 'changed\n');
    expect(unclear('git diff')).toBe(PRIVATE);
    expect(unclear('git diff -- a.txt')).toBeUndefined();
    rmSync(join(folder, '.npmrc'));
    expect(unclear('git diff')).toBe(PRIVATE);
  });

  it('does not ask if nothing private is tracked', () => {
    commit(['a.txt', 'b.txt']);
    writeFileSync(join(folder, '.npmrc'), 'private\n');
    for (const command of ['git show', 'git log -p', 'git diff HEAD'])
      expect(unclear(command), command).toBeUndefined();
  });

  it('asks if the index is not understood', () => {
    commit(['a.txt', 'b.txt']);
    const index = join(folder, '.git/index');
    const bytes = readFileSync(index);
    const names = bytes.indexOf('a.txt');
    for (const length of [11, 13, 60, names, names + 3, names + 20]) {
      writeFileSync(index, bytes);
      truncateSync(index, length);
      expect(unclear('git status'), String(length)).toBe('the index of git is not understood');
    }
    writeFileSync(index, bytes);
    git('update-index', '--split-index');
    expect(unclear('git status')).toBe('the index of git is not understood');
  });
});
