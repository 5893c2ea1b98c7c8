import { execFile } from 'node:child_process';
import { mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { registry, type Tool, type Touch } from '@treadle/core';
import { codingTools, local } from '@treadle/tools';
import { loadSkillDefinitions, packageTool, runDesktopTool } from '@treadle/tools/packages';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { PROCESS_ENV } from './process-env.ts';

const PACKAGE = path.join(import.meta.dirname, '..', 'skills', 'desktop-tools');
const ENV = { ...PROCESS_ENV, NODE_OPTIONS: '--conditions=treadle-source --disable-warning=ExperimentalWarning' };

let folder: string;
beforeAll(() => {
  folder = realpathSync(mkdtempSync(path.join(tmpdir(), 'treadle-desktop-')));
  writeFileSync(path.join(folder, 'notes.txt'), 'first\n');
});
afterAll(() => rmSync(folder, { recursive: true }));

describe('the package desktop-tools', () => {
  it('has a program for each tool, and declares what the built-in tool declares', async () => {
    const { tools, problems } = await loadSkillDefinitions(PACKAGE);
    expect(problems).toEqual([]);
    const built = new Map(codingTools(local(folder)).map((one) => [one.name, one]));
    const facts = ({ name, effect, permissions }: Pick<Tool, 'name' | 'effect' | 'permissions'>): unknown => [
      name,
      effect,
      permissions,
    ];
    expect(tools.map(facts)).toEqual(tools.map(({ name }) => facts(built.get(name)!)));
    expect(tools.map(({ name }) => name).toSorted()).toEqual(
      [...built.keys()].filter((name) => !/^(todo|background_)/.test(name)).toSorted(),
    );
    const input = { path: 'a', content: '', command: 'ls', pattern: 'x', message: 'm', new_text: '', old_text: 'b' };
    for (const one of tools.filter(({ name }) => !UNDECLARED.includes(name))) {
      const own = packageTool(one, local(folder)).touches!(input);
      const expected = built.get(one.name)!.touches!(input).map(withoutLines);
      expect([one.name, own]).toEqual([one.name, expect.arrayContaining(expected)]);
    }
  });

  it('runs a program as a command and as a tool', async () => {
    const program = path.join(PACKAGE, 'bin', 'dt-read');
    const { stdout } = await promisify(execFile)(program, ['--path', '/etc/hostname'], { env: ENV, cwd: folder });
    expect(stdout).toMatch(/^1\t\S+\n$/);
    const { tools } = await loadSkillDefinitions(PACKAGE);
    const all = registry();
    all.register(
      packageTool(
        tools.find(({ name }) => name === 'read')!,
        local(folder, { env: ENV }),
      ),
      'desktop-tools',
    );
    expect(await all.execute('read', { path: 'notes.txt' })).toEqual({
      type: 'result',
      content: [{ type: 'text', text: '1\tfirst\n' }],
      isError: false,
    });
  });
});

/** The built-in tool finds out what it touches from its arguments. */
const UNDECLARED = ['apply_patch'];

/** How many lines are written cannot be declared. */
function withoutLines(touch: Touch): unknown {
  const { lines: _, ...rest } = touch as { readonly lines?: number };
  return rest;
}

/** Runs a program of the package in this process. */
async function desktop(
  name: string,
  ...words: readonly string[]
): Promise<readonly [code: number, out: string, err: string]> {
  const [out, err]: [string[], string[]] = [[], []];
  const to = (lines: string[]) => ({ write: (text: string) => lines.push(text) });
  const code = await runDesktopTool(name, words, { stdout: to(out), stderr: to(err) });
  return [code, out.join(''), err.join('')];
}

describe('a program of the package', () => {
  it('prints its result, and reports failures by its exit code', async () => {
    const file = path.join(folder, 'made.txt');
    expect(await desktop('write', '--path', file, '--content', 'one\n')).toEqual([
      0,
      expect.stringContaining('Created'),
      '',
    ]);
    expect(await desktop('grep', '--pattern', 'o.e', '--path', folder)).toEqual([
      0,
      expect.stringContaining('one'),
      '',
    ]);
    expect(await desktop('read', '--path', path.join(folder, 'none'))).toEqual([
      1,
      '',
      expect.stringContaining('none'),
    ]);
    expect(await desktop('bash', '--command', 'echo hi; exit 3')).toEqual([3, '', 'hi\n[exit code 3]\n']);
  });

  it('rejects wrong arguments', async () => {
    expect(await desktop('read', '--pth', 'x')).toEqual([2, '', expect.stringContaining('"--pth" is not an option.')]);
    expect(await desktop('read')).toEqual([2, '', expect.stringContaining('missing "path"')]);
    expect(await desktop('read', '--path', 'x', '--limit', 'all')).toEqual([2, '', expect.stringContaining('--limit')]);
  });
});
