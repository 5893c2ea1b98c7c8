import { execFileSync } from 'node:child_process';
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { registry, type ToolContext } from '@treadle/core';
import { createTwoFilesPatch } from 'diff';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { local } from '../local/local.ts';
import type { FileOps } from '../ops.ts';
import { applyPatchTool } from './apply-patch.ts';
import { parsePatch } from './patch-format.ts';
import { applyHunks, type Hunk } from './patch-hunks.ts';
import { readFiles, versionOf } from './read-files.ts';
import { workspace } from './workspace.ts';

let base: string;
let folder: string;
let number = 0;
const tools = registry();

beforeAll(async () => {
  base = await mkdtemp(join(tmpdir(), 'treadle-patch-'));
});
afterAll(() => rm(base, { recursive: true }));
beforeEach(async () => {
  folder = join(base, String(++number));
  await mkdir(folder);
  use(local(folder).files);
});

function use(files: FileOps): void {
  tools.unregister('apply_patch');
  tools.register(applyPatchTool({ files }), 'test');
}

async function put(content: Readonly<Record<string, string>>): Promise<void> {
  for (const [name, text] of Object.entries(content)) {
    await mkdir(dirname(join(folder, name)), { recursive: true });
    await writeFile(join(folder, name), text);
  }
}

/** All files by name. */
async function tree(): Promise<Readonly<Record<string, string>>> {
  const found = await readdir(folder, { recursive: true, withFileTypes: true });
  const names = found.filter((one) => one.isFile()).map((one) => join(one.parentPath, one.name));
  const entries = names.toSorted().map(async (name) => [name.slice(folder.length + 1), await readFile(name, 'utf8')]);
  return Object.fromEntries(await Promise.all(entries)) as Record<string, string>;
}

/** The text of the result, with the type of an error before it. */
async function apply(patch: unknown, signal?: AbortSignal): Promise<string> {
  const result = await tools.execute('apply_patch', { patch }, signal ? { signal } : {});
  if (result.type !== 'result') throw new Error(result.type);
  const shown = result.content.map((block) => ('text' in block ? block.text : block.type)).join('\n');
  if (!result.isError) return shown;
  return `${result.errorType ?? 'invalid_params'}: ${shown.replace('The tool "apply_patch" failed: ', '')}`;
}

const LINES = 'one\ntwo\nthree\nfour\nfive\nsix\nseven\n';
const begin = (text: string): string => `*** Begin Patch\n${text}\n*** End Patch\n`;

describe('the format with "*** Begin Patch"', () => {
  test('adds, updates, moves and deletes files', async () => {
    await put({ 'a.txt': LINES, 'b.txt': 'bee\n', 'c.txt': 'see\n' });
    const done = await apply(
      begin(
        '*** Update File: a.txt\n@@\n two\n-three\n+THREE\n four\n@@\n-seven\n+SEVEN\n*** End of File\n' +
          '*** Add File: new/d.txt\n+dee\n+\n+end\n*** Delete File: b.txt\n\n*** Update File: c.txt\n*** Move to: sub/c.txt\n@@\n-see\n+SEE',
      ),
    );
    expect(done).toBe('Applied the patch:\nM a.txt (+2 -2)\nA new/d.txt (+3)\nD b.txt\nR c.txt -> sub/c.txt (+1 -1)');
    expect(await tree()).toEqual({
      'a.txt': 'one\ntwo\nTHREE\nfour\nfive\nsix\nSEVEN\n',
      'new/d.txt': 'dee\n\nend\n',
      'sub/c.txt': 'SEE\n',
    });
  });

  test('finds a hunk below its anchors, and refuses one that is at several places', async () => {
    await put({ 'a.py': 'class A:\n  def f():\n    pass\nclass B:\n  def f():\n    pass\n' });
    const hunk = '-    pass\n+    return 1';
    expect(await apply(begin(`*** Update File: a.py\n@@\n${hunk}`))).toMatch(
      /^execution_failed: In "a.py", hunk 1 does not apply: its lines are at several places \(lines 3, 6\).*Nothing was changed/,
    );
    expect(await apply(begin(`*** Update File: a.py\n@@ class B:\n@@ def f():\n${hunk}`))).toContain('M a.py');
    expect((await tree())['a.py']).toBe('class A:\n  def f():\n    pass\nclass B:\n  def f():\n    return 1\n');
    expect(await apply(begin(`*** Update File: a.py\n@@ class C:\n${hunk}`))).toContain('there is no line "class C:"');
    await apply(begin('*** Update File: a.py\n@@ class A:\n+  x = 1'));
    expect((await tree())['a.py']).toMatch(/^class A:\n  x = 1\n  def/);
  });

  test.each([
    ['a bare "@@"', '*** Update File: a.txt\n@@\n+new', 'does not say where its lines belong'],
    ['a hunk without changes', '*** Update File: a.txt\n@@\n one', 'no lines with "+" or "-"'],
    ['no hunks', '*** Update File: a.txt', 'has no hunks'],
    ['a line that has no marker', '*** Update File: a.txt\n@@\none', 'Line 4 of the patch is in a hunk'],
    ['content without "+"', '*** Add File: b.txt\nnew', 'does not start with "+"'],
    ['a file without a name', '*** Add File: \n+new', 'names no file'],
    ['content after a deletion', '*** Delete File: a.txt\n-one', 'takes no content'],
    ['another line', 'hello', 'is not in a file section'],
    ['no files', '', 'changes no file'],
  ])('refuses %s', async (_, text, expected) => {
    await put({ 'a.txt': LINES });
    const refused = await apply(begin(text));
    expect(refused).toMatch(/^invalid_params: /);
    expect(refused).toContain(expected);
    expect(await tree()).toEqual({ 'a.txt': LINES });
  });

  test('refuses a patch that was cut off', async () => {
    expect(await apply('*** Begin Patch\n*** Add File: a\n+x')).toContain('no "*** End Patch" line');
  });
});

describe('unified diffs', () => {
  test('applies what git writes: renames, deletions, new files, modes and names with quotes', async () => {
    const git = (...args: string[]): string =>
      execFileSync('git', ['-c', 'user.name=a', '-c', 'user.email=a@b', '-c', 'core.quotePath=true', ...args], {
        cwd: folder,
        encoding: 'utf8',
      });
    await put({
      'a.txt': LINES,
      'old.txt': LINES.repeat(3),
      'gone.txt': 'x\ny\n',
      'run.sh': 'echo\n',
      'crlf.txt': 'a\r\nb\r\n',
    });
    git('init', '-q');
    git('add', '.');
    git('commit', '-qm', 'first');
    await put({
      'a.txt': LINES.replace('two', 'TWO').replace('seven\n', 'SEVEN'),
      'new ü\t"1".txt': 'new\n',
      'empty.txt': '',
      'moved/new.txt': LINES.repeat(3).replace('one', 'ONE'),
      'crlf.txt': 'a\r\nB\r\n',
    });
    await rm(join(folder, 'old.txt'));
    await rm(join(folder, 'gone.txt'));
    await chmod(join(folder, 'run.sh'), 0o755);
    git('add', '-A');
    const patch = git('diff', '--cached', '-M');
    expect(patch).toContain('rename from');
    git('commit', '-qm', 'second');
    await rm(join(folder, '.git', 'index'));
    const after = { ...(await tree()) };
    git('checkout', '-q', '-f', 'HEAD~1');
    for (const name of ['new ü\t"1".txt', 'empty.txt', 'moved/new.txt']) await rm(join(folder, name), { force: true });
    expect(await apply(patch)).toMatch(/^Applied the patch:\n/);
    const own = (files: object): object =>
      Object.fromEntries(Object.entries(files).filter(([name]) => !name.startsWith('.git')));
    expect(own(await tree())).toEqual(own(after));
    expect((await stat(join(folder, 'run.sh'))).mode & 0o111).not.toBe(0);
  });

  test('finds a hunk at another place, and reports it', async () => {
    await put({ 'a.txt': `zero\nzero\n${LINES}` });
    const patch =
      '--- a/a.txt\n+++ b/a.txt\n@@ -2,3 +2,3 @@\n two\n-three\n+THREE\n four\n@@ -6,2 +6,2 @@\n six\n-seven\n+SEVEN\n';
    expect(await apply(patch)).toBe(
      'Applied the patch:\nM a.txt (+2 -2)\nNote: in "a.txt", hunk 1 (@@ -2,3 +2,3 @@) was applied at line 4, not at 2.',
    );
    expect((await tree())['a.txt']).toBe('zero\nzero\none\ntwo\nTHREE\nfour\nfive\nsix\nSEVEN\n');
  });

  test('ignores wrong counts, blanks that are missing in empty lines, and text around the patch', async () => {
    await put({ 'a.txt': 'one\n\nthree\nfour\n', 'b.txt': 'bee\n' });
    const patch =
      'Here it is:\n```diff\n--- a.txt\n+++ a.txt\n@@ -1,9 +1,9 @@\n one\n\n-three\n+THREE\n\n--- b.txt\t2026-01-01\n+++ b.txt\t2026-01-02\n@@ @@\n-bee\n+BEE\n```\n';
    expect(await apply(patch)).toContain('M a.txt (+1 -1)\nM b.txt (+1 -1)');
    expect(await tree()).toEqual({ 'a.txt': 'one\n\nTHREE\nfour\n', 'b.txt': 'BEE\n' });
  });

  test('ignores whitespace if nothing else fits, and reports it', async () => {
    await put({ 'a.py': 'def f():\n\tif x:\n\t\treturn 1\n' });
    const patch = '--- a/a.py\n+++ b/a.py\n@@ -1,3 +1,3 @@\n def f():\n   if x:\n-    return 1\n+\t\treturn 2\n';
    expect(await apply(patch)).toContain('without comparing whitespace: check its indentation.');
    expect((await tree())['a.py']).toBe('def f():\n\tif x:\n\t\treturn 2\n');
  });

  test('ignores up to two outer lines of context that are not there, and reports it', async () => {
    const numbered = Array.from({ length: 20 }, (_, at) => `line ${at + 1}\n`).join('');
    await put({ 'a.txt': numbered });
    const hunk = ' stale\n line 11\n line 12\n-line 13\n+LINE 13\n line 14\n stale\n other\n';
    expect(await apply(`--- a/a.txt\n+++ b/a.txt\n@@ -8,7 +8,7 @@\n${hunk}`)).toMatch(
      /hunk 1 .* was applied at line 12, not at 10\.[^]*without comparing its first 2 and last 2 lines of context/,
    );
    expect((await tree())['a.txt']).toBe(numbered.replace('line 13', 'LINE 13'));
    // Lines that are removed are always compared, and so is most of the context of new lines.
    for (const refused of [
      ' line 11\n line 12\n-stale\n+x\n line 14\n',
      ' line 11\n stale\n+x\n',
      ' stale\n stale\n stale\n-line 15\n+x\n',
    ]) {
      expect(await apply(`--- a/a.txt\n+++ b/a.txt\n@@ -11,3 +11,3 @@\n${refused}`)).toContain('does not apply');
    }
    expect(await apply(`--- a/a.txt\n+++ b/a.txt\n@@ -10,7 +10,7 @@\n${hunk}`)).toContain('does not apply');
  });

  test('keeps line ends, a byte order mark and a missing final newline', async () => {
    await put({ 'a.txt': '\uFEFFone\r\ntwo\r\nthree' });
    const patch = '--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,4 @@\n one\n-two\n+TWO\n+2\n three\n';
    await apply(patch);
    expect((await tree())['a.txt']).toBe('\uFEFFone\r\nTWO\r\n2\r\nthree');
    await apply('--- a/a.txt\r\n+++ b/a.txt\r\n@@ -1,2 +1,2 @@\r\n one\r\n-TWO\r\n+zwei\r\n');
    expect((await tree())['a.txt']).toBe('\uFEFFone\r\nzwei\r\n2\r\nthree');
    await put({ 'b.txt': 'a\nb' });
    await apply('--- b.txt\n+++ b.txt\n@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b\n');
    expect((await tree())['b.txt']).toBe('a\nb\n');
    await apply('--- b.txt\n+++ b.txt\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n\\ No newline at end of file\n');
    expect((await tree())['b.txt']).toBe('a\nc');
    await put({ 'b.txt': 'a\r\nb\n' });
    await apply('--- b.txt\n+++ b.txt\n@@ -1,2 +1,3 @@\n a\n b\n+c\n');
    expect((await tree())['b.txt']).toBe('a\r\nb\nc\n');
  });

  test('names the hunk that fails and shows what is there, and changes no file', async () => {
    const files = { 'a.txt': LINES, 'b.txt': LINES };
    await put(files);
    const good = '--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+ONE\n';
    const bad = '--- a/b.txt\n+++ b/b.txt\n@@ -1 +1 @@\n-one\n+ONE\n@@ -3,3 +3,3 @@\n three\n-fuor\n+FOUR\n five\n';
    expect(await apply(good + bad)).toMatch(
      /^execution_failed: In "b.txt", hunk 2 \(@@ -3,3 \+3,3 @@\) does not apply: its lines are not in the file after line 1\. Nothing was changed\. The nearest text is at line 3\.[^]*\n three\n-fuor\n\+four\n five$/,
    );
    expect(await tree()).toEqual(files);
    expect(await apply(good)).toContain('M a.txt');
    expect(await apply(good)).toContain('it seems to be applied already');
  });

  test.each([
    [
      'where the hunk says it is',
      '@@ -4,2 +4,2 @@',
      LINES,
      '7 lines.*has:\\n2: two\\n3: three\\n4: four\\n5: five\\n6: six\\n7: seven',
    ],
    [
      'at the end, for a place behind it',
      '@@ -90,2 +90,2 @@',
      LINES,
      '7 lines.*has:\\n4: four\\n5: five\\n6: six\\n7: seven',
    ],
    ['at the beginning', '@@ -1,2 +1,2 @@', LINES, '7 lines.*has:\\n1: one\\n2: two\\n3: three\\n4: four'],
    ['of a file with one line', '@@ -1,2 +1,2 @@', 'x'.repeat(300), `1 line.*has:\\n1: ${'x'.repeat(200)}…`],
    ['of an empty file', '@@ -1,2 +1,2 @@', '', 'The file is empty\\.'],
  ])('shows what is there if nothing is like the hunk: %s', async (_, heading, text, end) => {
    await put({ 'a.txt': text });
    expect(await apply(`--- a/a.txt\n+++ b/a.txt\n${heading}\n quantum\n-zebra\n+ZEBRA\n`)).toMatch(
      new RegExp(`its lines are not in the file\\. Nothing was changed\\. No text in it is similar\\. .*${end}$`),
    );
  });

  test('shows what is below an "@@" line, and nothing if no place is named', async () => {
    await put({ 'a.txt': LINES });
    const patch = (at: string): string =>
      `*** Begin Patch\n*** Update File: a.txt\n${at}\n-zebra\n+ZEBRA\n*** End Patch`;
    expect(await apply(patch('@@ four'))).toMatch(/has:\n3: three\n4: four\n5: five\n6: six\n7: seven$/);
    expect(await apply(patch('@@'))).toMatch(/Nothing was changed\. Read the file, and make the patch again\.$/);
  });

  test.each([
    ['a binary patch', 'diff --git a/x.png b/x.png\nindex 1..2 100644\nGIT binary patch\nliteral 1\n', 'binary patch'],
    ['files that differ', 'diff --git a/x b/x\nBinary files a/x and b/x differ\n', 'binary patch'],
    [
      'a symbolic link',
      'diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc\n',
      'symbolic link',
    ],
    ['a bare "@@"', '--- a/a.txt\n+++ b/a.txt\n@@\n+new\n', 'does not say where'],
    ['no hunks', '--- a/a.txt\n+++ b/a.txt\n', 'has no hunks'],
    ['a hunk without a file', '@@ -1 +1 @@\n-a\n+b\n', 'a hunk without a file'],
    ['a copy', 'diff --git a/a b/b\ncopy from a\ncopy to b\n', 'is a copy'],
    ['two times nothing', '--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n', 'names no file'],
    [
      'a name of blanks',
      `*** Begin Patch\n*** Add File: ${' '.repeat(500_000)}x\u2028\n*** End`,
      'does not start with "+"',
    ],
    ['a name of tabs', `--- ${'\t'.repeat(500_000)}\u2028\n+++ \tx\n`, 'has no hunks'],
    ['any other text', 'please change a.txt', 'changes no file'],
    ['a NUL', 'a\0', 'NUL'],
    ['a number', 7, 'patch'],
    ['a patch that is too long', 'x'.repeat(1_000_001), 'patch'],
    [
      'too many files',
      Array.from({ length: 201 }, (_, at) => `--- a\n+++ b${at}\n@@ -1 +1 @@\n-a\n+b\n`).join(''),
      'Split it',
    ],
  ])('refuses %s', async (_, patch, expected) => {
    await put({ 'a.txt': LINES });
    const refused = await apply(patch);
    expect(refused).toMatch(/^invalid_params: /);
    expect(refused).toContain(expected);
  });
});

test('refuses files that exist, are missing, differ or are outside', async () => {
  await put({ 'a.txt': LINES, 'b.txt': 'x' });
  const before = await tree();
  expect(await apply(begin('*** Add File: a.txt\n+x'))).toContain('"a.txt" exists');
  expect(await apply(begin('*** Update File: a.txt\n*** Move to: b.txt'))).toContain('"b.txt" exists');
  expect(await apply(begin('*** Delete File: none'))).toMatch(/^not_found: There is no "none"/);
  expect(await apply(begin('*** Delete File: ../x'))).toMatch(/^permission_denied: /);
  expect(await apply(begin('*** Add File: /etc/x\n+x'))).toMatch(/^permission_denied: /);
  expect(await apply('--- a/b.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-y\n')).toContain('does not apply');
  expect(await apply('--- a/a.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-one\n')).toContain('has other lines');
  expect(await apply('diff --git a/a.txt b/a.txt\nold mode 100755\nnew mode 100644\n')).toContain('changes nothing');
  expect(await tree()).toEqual(before);
});

test('deletes and moves files that are not text, and refuses to patch them or to remove a link', async () => {
  await put({ 'a.txt': LINES, 'b.bin': '\0\u0001', 'c.bin': '\0\u0002', 'utf16.txt': '' });
  await writeFile(join(folder, 'utf16.txt'), Buffer.from('\uFEFFone\r\ntwo\r\n', 'utf16le'));
  await symlink('a.txt', join(folder, 'link'));
  expect(await apply(begin('*** Update File: b.bin\n@@\n-x\n+y'))).toContain('is not a text');
  expect(await apply(begin('*** Delete File: link'))).toContain('"link" is a symbolic link to "a.txt"');
  expect(await apply(begin('*** Update File: link\n*** Move to: d'))).toContain('is a symbolic link');
  expect(await apply(begin('*** Update File: link\n@@\n-one\n+ONE'))).toContain('M link');
  const git = 'diff --git a/c.bin b/d.bin\nsimilarity index 100%\nrename from c.bin\nrename to d.bin\n';
  await apply(git);
  await apply(begin('*** Delete File: b.bin\n*** Update File: utf16.txt\n@@\n-two\n+zwei'));
  const { 'utf16.txt': _, ...rest } = await tree();
  expect(rest).toEqual({ 'a.txt': LINES.replace('one', 'ONE'), 'd.bin': '\0\u0002' });
  expect(await readFile(join(folder, 'utf16.txt'), 'utf16le')).toBe('\uFEFFone\r\nzwei\r\n');
});

test.skipIf(process.platform === 'win32')('a file that is moved keeps its mode', async () => {
  await put({ 'key.txt': 'one\ntwo\n', 'run.sh': 'one\n' });
  await chmod(join(folder, 'key.txt'), 0o600);
  await chmod(join(folder, 'run.sh'), 0o750);
  await apply(
    begin(
      '*** Update File: key.txt\n*** Move to: new/key.txt\n@@\n-one\n+1\n*** Update File: run.sh\n*** Move to: new/run.sh',
    ),
  );
  expect(await tree()).toEqual({ 'new/key.txt': '1\ntwo\n', 'new/run.sh': 'one\n' });
  expect((await stat(join(folder, 'new/key.txt'))).mode & 0o777).toBe(0o600);
  expect((await stat(join(folder, 'new/run.sh'))).mode & 0o777).toBe(0o750);
});

test('puts files back if a write fails', async () => {
  await put({ 'a.txt': LINES, 'b.txt': 'bee\n', 'c.txt': 'see\n', 'd.txt': 'dee\n' });
  await chmod(join(folder, 'c.txt'), 0o755);
  const before = await tree();
  const { files } = local(folder);
  use({
    ...files,
    remove: (path) => (path.endsWith('d.txt') ? Promise.reject(new Error('the disk is full')) : files.remove(path)),
  });
  const patch = begin(
    '*** Update File: a.txt\n@@\n-one\n+ONE\n*** Add File: n.txt\n+new\n*** Update File: b.txt\n*** Move to: e.txt\n*** Delete File: c.txt\n*** Delete File: d.txt',
  );
  expect(await apply(patch)).toMatch(/^execution_failed: .*the disk is full Nothing was changed\.$/);
  expect(await tree()).toEqual(before);
  expect((await stat(join(folder, 'c.txt'))).mode & 0o777).toBe(0o755);
});

test('later parts of a patch see what earlier ones did', async () => {
  await put({ 'a.txt': LINES });
  await apply(
    begin(
      '*** Update File: a.txt\n*** Move to: b.txt\n*** Update File: ./b.txt\n@@\n-one\n+ONE\n*** Update File: b.txt\n@@\n-ONE\n+Eins\n*** Add File: a.txt\n+new',
    ),
  );
  expect(await tree()).toEqual({ 'a.txt': 'new\n', 'b.txt': LINES.replace('one', 'Eins') });
});

test('declares every path, and nothing for a patch that cannot be applied', () => {
  const { touches, resources } = tools.get('apply_patch')!;
  const patch = begin(
    '*** Update File: a\n*** Move to: b\n@@\n one\n-two\n+2\n+3\n*** Delete File: c\n*** Add File: d\n+new',
  );
  const lines = { a: 0, b: 2, c: 0, d: 1 };
  expect(touches!({ patch })).toEqual(
    Object.entries(lines).flatMap(([path, added]) => [
      { type: 'read', path },
      { type: 'write', path, lines: added },
    ]),
  );
  expect(resources!({ patch })).toEqual(['a', 'b', 'c', 'd'].map((path) => `memory files_read:${path}`));
  expect(touches!({ patch: 'nonsense' })).toEqual([]);
});

test('verify tells whether a patch was applied, and says if it cannot', async () => {
  const { verify, execute } = tools.get('apply_patch')!;
  const context = { signal: AbortSignal.any([]), report: () => {}, memory: {} } as unknown as ToolContext;
  const patch = begin(
    '*** Update File: a.txt\n@@\n one\n+and\n two\n*** Add File: n.txt\n+new\n*** Delete File: c.txt',
  );
  const state = async (): Promise<string> => ((await verify!({ patch }, context)) as { type: string }).type;
  await put({ 'a.txt': LINES, 'c.txt': 'see\n' });
  expect(await state()).toBe('not-done');
  await execute!({ patch }, context);
  expect(await state()).toBe('done');
  await put({ 'c.txt': 'see\n' });
  expect(await state()).toBe('unknown');
});

test.each([
  ['whitespace', '--- a.txt\n+++ a.txt\n@@ -1,2 +1,3 @@\n   one\n   two\n+new\n'],
  ['lines of context', '--- a.txt\n+++ a.txt\n@@ -1,3 +1,4 @@\n stale\n one\n two\n+new\n'],
])('a patch that was applied without comparing all %s is not applied again after a crash', async (_, patch) => {
  const { verify, execute } = tools.get('apply_patch')!;
  const context = { signal: AbortSignal.any([]), report: () => {}, memory: {} } as unknown as ToolContext;
  await put({ 'a.txt': LINES });
  expect(await verify!({ patch }, context)).toEqual({ type: 'not-done' });
  await execute!({ patch }, context);
  expect((await tree())['a.txt']).toBe(LINES.replace('two\n', 'two\nnew\n'));
  expect(await verify!({ patch }, context)).toEqual({ type: 'unknown' });
});

test('says if a file has changed since the run read it', async () => {
  await put({ 'a.txt': LINES });
  const memory: Record<string, unknown> = {};
  readFiles(workspace(local(folder).files), { memory }).note('a.txt', versionOf('other'));
  const context = { signal: AbortSignal.any([]), report: () => {}, memory } as unknown as ToolContext;
  const patch = begin('*** Update File: a.txt\n@@\n-one\n+ONE\n*** Add File: b.txt\n+new');
  expect(await tools.get('apply_patch')!.execute!({ patch }, context)).toContain(
    '"a.txt" had changed since you last read it',
  );
  expect(readFiles(workspace(local(folder).files), { memory }).compare('b.txt', versionOf('new\n'))).toBe('same');
});

test('a file that the run has not read is not known at its new place', async () => {
  await put({ 'a.txt': 'unread\n', 'b.txt': 'read\n' });
  const memory: Record<string, unknown> = {};
  readFiles(workspace(local(folder).files), { memory }).note('b.txt', versionOf('read\n'));
  const context = { signal: AbortSignal.any([]), report: () => {}, memory } as unknown as ToolContext;
  const patch = begin(
    '*** Update File: a.txt\n*** Move to: x.txt\n*** Update File: b.txt\n*** Move to: y.txt\n*** Update File: y.txt\n*** Move to: z.txt',
  );
  await tools.get('apply_patch')!.execute!({ patch }, context);
  expect(readFiles(workspace(local(folder).files), { memory }).compare('x.txt', versionOf('unread\n'))).toBe('unread');
  expect(readFiles(workspace(local(folder).files), { memory }).compare('z.txt', versionOf('read\n'))).toBe('same');
  expect(readFiles(workspace(local(folder).files), { memory }).compare('b.txt', versionOf('read\n'))).toBe('unread');
});

test('ends a search that would take very long when it is cancelled or its time is over', async () => {
  // Every line of the file matches the first lines of the hunk.
  await put({ 'a.txt': 'x\n'.repeat(200_000) });
  const patch = `--- a.txt\n+++ a.txt\n@@ -1,9 +1,9 @@\n${' x\n'.repeat(100_000)}-y\n+z\n`;
  const cancel = new AbortController();
  const stopped = apply(patch, cancel.signal);
  setTimeout(() => cancel.abort(), 20);
  expect(await stopped).toMatch(/stopped/);
  const result = await tools.execute('apply_patch', { patch, timeout_ms: 30 });
  expect(result).toMatchObject({ isError: true, errorType: 'timeout' });
});

test('a diff of random texts applies and turns one into the other', async () => {
  let seed = 7;
  const random = (below: number): number => (seed = (seed * 48_271) % 2_147_483_647) % below;
  const line = (): string => ['a', 'b', 'c', '', '}', 'return x;', '-- d', '++ e'][random(8)]!;
  for (let round = 0; round < 150; round++) {
    const before = Array.from({ length: random(30) }, line);
    const after = before.flatMap((one) => (random(6) === 0 ? [] : random(6) === 0 ? [one, line()] : [one]));
    const text = (lines: readonly string[]): string =>
      lines.join('\n') + (random(2) === 0 && lines.length > 0 ? '\n' : '');
    const [from, to] = [text(before), text(after)];
    if (from === to || from === '' || to === '') continue;
    const [file] = parsePatch(createTwoFilesPatch('a', 'a', from, to, '', '', { context: random(4) }));
    const { hunks } = file as { hunks: readonly Hunk[] };
    expect(await applyHunks({ text: from, hunks })).toMatchObject({ text: to, notes: [] });
  }
});
