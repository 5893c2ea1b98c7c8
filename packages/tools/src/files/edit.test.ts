import { chmod, mkdir, mkdtemp, readFile, rm, stat, symlink, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { registry, runLoop, type ToolContext } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { local } from '../local/local.ts';
import { applyPatchTool } from './apply-patch.ts';
import { editTool } from './edit.ts';
import { readFiles, versionOf } from './read-files.ts';
import { workspace } from './workspace.ts';
import { readTool } from './read.ts';
import { writeTool } from './write.ts';

let base: string;
let folder: string;
let number = 0;
const tools = registry();

beforeAll(async () => {
  base = await mkdtemp(join(tmpdir(), 'treadle-edit-'));
});
afterAll(() => rm(base, { recursive: true }));
beforeEach(async () => {
  folder = join(base, String(++number));
  await mkdir(folder);
  tools.unregister('edit');
  tools.register(editTool(local(folder)), 'test');
});

async function put(content: string | Uint8Array, name = 'a.txt'): Promise<void> {
  await writeFile(join(folder, name), content);
}
const text = (name = 'a.txt'): Promise<string> => readFile(join(folder, name), 'utf8');

/** The text of the result, with the type of an error before it. */
async function edit(input: object, signal?: AbortSignal): Promise<string> {
  const result = await tools.execute('edit', { path: 'a.txt', ...input }, signal ? { signal } : {});
  if (result.type !== 'result') throw new Error(result.type);
  const shown = result.content.map((block) => ('text' in block ? block.text : block.type)).join('\n');
  if (!result.isError) return shown;
  return `${result.errorType ?? 'invalid_params'}: ${shown.replace('The tool "edit" failed: ', '')}`;
}

test('replaces a text that occurs once, and returns a diff', async () => {
  await put('one\ntwo\nthree\nfour\nfive\nsix\n');
  expect(await edit({ old_text: 'three', new_text: 'drei\nvier' })).toBe(
    'Edited "a.txt": 1 replacement.\n@@ -1,5 +1,6 @@\n one\n two\n-three\n+drei\n+vier\n four\n five',
  );
  expect(await text()).toBe('one\ntwo\ndrei\nvier\nfour\nfive\nsix\n');
  expect(await edit({ old_text: 'drei\nvier\n', new_text: '' })).toContain('-drei\n-vier\n four');
  expect(await text()).toBe('one\ntwo\nfour\nfive\nsix\n');
});

test('refuses a text that occurs several times, and shows where', async () => {
  await put('x = 1\ny = 2\nx = 1\n');
  const refused = await edit({ old_text: 'x = 1', new_text: 'x = 3' });
  expect(refused).toMatch(/^execution_failed: old_text occurs 2 times in "a.txt".*replace_all.*\n1\tx = 1\n3\tx = 1$/);
  expect(await text()).toBe('x = 1\ny = 2\nx = 1\n');
  expect(await edit({ old_text: 'x = 1', new_text: 'x = 3', replace_all: true })).toContain('2 replacements');
  expect(await text()).toBe('x = 3\ny = 2\nx = 3\n');
  await put('a'.repeat(100_000));
  expect(await edit({ old_text: 'a', new_text: 'b' })).toContain('more than 10 times');
});

test('shows what is there if a text differs in whitespace or quotes, and changes nothing', async () => {
  const content = 'function f() {\n\tif (ready) {\n\t\treturn \u201Cyes\u201D;\n\t}\n}\n';
  await put(content);
  const indented = await edit({ old_text: '    if (ready) {\n', new_text: '' });
  expect(indented).toMatch(
    /nearest text is at line 2; it differs only in whitespace[^]*\n-    if \(ready\) \{\n\+\tif \(ready\) \{$/,
  );
  expect(await edit({ old_text: 'return "yes";', new_text: '' })).toMatch(
    /line 3; it differs only in quotes[^]*\n-return "yes";\n\+\t\treturn \u201Cyes\u201D;$/,
  );
  expect(await text()).toBe(content);
});

test('shows the nearest block, or says that nothing is similar', async () => {
  await put('start\nalpha\nbeta\ngamma\nend\n');
  expect(await edit({ old_text: 'alpha\nbita\ngamma\n', new_text: '' })).toMatch(
    /nearest text is at line 2\. [^]*\n alpha\n-bita\n\+beta\n gamma$/,
  );
  expect(await edit({ old_text: 'const elephant = 1', new_text: '' })).toContain('nothing there is similar');
  expect(await edit({ old_text: '2\talpha\n3\tbeta', new_text: '' })).toContain('contain line numbers');
});

test('applies several edits or none, each to the file as it was', async () => {
  await put('a\nb\nc\nd\ne\nf\ng\nh\ni\n');
  const done = await edit({
    edits: [
      { old_text: 'h', new_text: 'a' },
      { old_text: 'a', new_text: 'h' },
    ],
  });
  expect(done).toContain('@@ -1,3 +1,3 @@\n-a\n+h\n b\n c\n@@ -6,4 +6,4 @@\n f\n g\n-h\n+a\n i');
  expect(await text()).toBe('h\nb\nc\nd\ne\nf\ng\na\ni\n');
  const edits = [
    { old_text: 'b', new_text: 'B' },
    { old_text: 'zzz', new_text: 'y' },
  ];
  expect(await edit({ edits })).toContain('old_text of edits[1] does not occur');
  expect(
    await edit({
      edits: [
        { old_text: 'c\nd', new_text: '' },
        { old_text: 'd\ne', new_text: '' },
      ],
    }),
  ).toMatch(/^invalid_params: old_text of edits\[1\] overlaps another edit at line 4/);
  expect(await text()).toBe('h\nb\nc\nd\ne\nf\ng\na\ni\n');
});

test('keeps line ends, byte order mark, mode and a missing final newline', async () => {
  await put('\uFEFFone\r\ntwo\r\nthree');
  await chmod(join(folder, 'a.txt'), 0o751);
  expect(await edit({ old_text: 'one\ntwo\n', new_text: 'eins\nzwei\n' })).not.toContain('\r');
  expect(await text()).toBe('\uFEFFeins\r\nzwei\r\nthree');
  expect((await stat(join(folder, 'a.txt'))).mode & 0o777).toBe(0o751);
  await put(Buffer.from('\uFEFFone\r\ntwo\r\n', 'utf16le'));
  expect(await edit({ old_text: 'one\n', new_text: '1\n' })).toContain('-one\n+1\n');
  expect(await readFile(join(folder, 'a.txt'), 'utf16le')).toBe('\uFEFF1\r\ntwo\r\n');
  await put('one\r\ntwo\nthree\r\n');
  await edit({ old_text: 'two\r\nthree', new_text: '2\n3' });
  expect(await text()).toBe('one\r\n2\r\n3\r\n');
  await put('one\r\ntwo\n');
  await edit({ old_text: 'two', new_text: '2\n3' });
  expect(await text()).toBe('one\r\n2\n3\n');
});

test('follows a link inside the folder and leaves the link', async () => {
  await put('old');
  await symlink('a.txt', join(folder, 'link'));
  expect(await edit({ path: 'link', old_text: 'old', new_text: 'new' })).toContain('Edited "a.txt"');
  expect([await text(), await text('link')]).toEqual(['new', 'new']);
});

test('of changes that several runs make at the same time, none is lost', async () => {
  const lines = Array.from({ length: 6 }, (_, at) => `line ${at}\n`);
  await put(lines.join(''));
  const ops = local(folder);
  const change = [
    (at: number) =>
      editTool(ops).execute!({ path: 'a.txt', old_text: `line ${at}\n`, new_text: `edited ${at}\n` }, contextWith()),
    (at: number) => {
      const patch = `*** Begin Patch\n*** Update File: a.txt\n@@\n-line ${at}\n+edited ${at}\n*** End Patch`;
      return applyPatchTool(ops).execute!({ patch }, contextWith());
    },
    async (at: number) => {
      const context = contextWith();
      await readTool(ops).execute!({ path: 'a.txt' }, context);
      return writeTool(ops).execute!({ path: 'a.txt', content: lines.with(at, `edited ${at}\n`).join('') }, context);
    },
  ];
  const results = await Promise.allSettled(lines.map((_, at) => change[at % 3]!(at)));
  const done = results.flatMap(({ status }, at) => (status === 'fulfilled' ? at : []));
  expect(done.length).toBeGreaterThan(0);
  const now = await text();
  for (const at of done) expect(now).toContain(`edited ${at}\n`);
  for (const result of results) {
    if (result.status === 'rejected') expect(String(result.reason)).toMatch(/changed .*[Rr]ead it/);
  }

  function contextWith(): ToolContext {
    return { signal: AbortSignal.any([]), report: () => {}, memory: {} } as unknown as ToolContext;
  }
});

test('says if the file has changed since the run read it', async () => {
  await put('one\n');
  const memory: Record<string, unknown> = {};
  const known = readFiles(workspace(local(folder).files), { memory });
  known.note('a.txt', versionOf('one\n'));
  const context = { signal: AbortSignal.any([]), memory } as unknown as ToolContext;
  const used = tools.get('edit')!;
  expect(await used.execute!({ path: 'a.txt', old_text: 'one', new_text: 'two' }, context)).not.toContain(
    'changed since',
  );
  await put('two\nand more\n');
  expect(await used.execute!({ path: 'a.txt', old_text: 'two', new_text: 'three' }, context)).toContain(
    'The file has changed since you last read it.',
  );
  expect(readFiles(workspace(local(folder).files), { memory }).compare('a.txt', versionOf('three\nand more\n'))).toBe(
    'changed',
  );
});

test('verify tells an applied edit from one that was not, and says if it cannot', async () => {
  const used = tools.get('edit')!;
  const verify = async (content: string, input: object, read?: string): Promise<string> => {
    await put(content);
    const memory: Record<string, unknown> = {};
    if (read !== undefined) readFiles(workspace(local(folder).files), { memory }).note('a.txt', versionOf(read));
    const context = { signal: AbortSignal.any([]), memory } as unknown as ToolContext;
    return ((await used.verify!({ path: 'a.txt', ...input }, context)) as { type: string }).type;
  };
  const change = { old_text: 'one', new_text: 'two' };
  expect(await verify('one\n', change)).toBe('not-done');
  expect(await verify('two\n', change)).toBe('done');
  expect(await verify('three\n', change)).toBe('unknown');
  // After this edit the old text is still there.
  const insertion = { old_text: 'one\n', new_text: 'one\nand\n' };
  expect(await verify('one\n', insertion)).toBe('not-done');
  expect(await verify('one\nand\n', insertion)).toBe('unknown');
  expect(await verify('one\nand\n', insertion, 'one\n')).toBe('done');
  expect(await verify('one\nand\n', insertion, 'one\nand\n')).toBe('not-done');
  expect(await verify('', { old_text: 'one', new_text: '' })).toBe('unknown');
});

test('refuses arguments that make no sense', async () => {
  await put('one\n');
  for (const [input, expected] of [
    [{}, 'old_text is empty'],
    [{ old_text: '', new_text: 'x' }, 'old_text is empty'],
    [{ old_text: 'one', new_text: 'one' }, 'nothing would change'],
    [{ old_text: 'one', new_text: 'two', edits: [{ old_text: 'one', new_text: 'two' }] }, 'not both'],
    [{ edits: [] }, 'edits'],
    [{ edits: 'all' }, 'edits'],
    [{ old_text: 1, new_text: 'x' }, 'old_text'],
    [{ old_text: 'one', new_text: 'a\0b' }, 'NUL'],
    [{ old_text: 'one', new_text: '\uD800' }, 'surrogate'],
    [{ old_text: 'one', new_text: 'x', mode: 'fast' }, 'mode'],
    [{ old_text: 'one', new_text: 'x', timeout_ms: 1e9 }, 'timeout_ms'],
  ] as const) {
    const refused = await edit(input);
    expect(refused).toMatch(/^invalid_params: /);
    expect(refused).toContain(expected);
  }
  expect(await text()).toBe('one\n');
});

test('refuses files that it could damage or that are not there', async () => {
  const change = { old_text: 'one', new_text: 'two' };
  await put(Uint8Array.of(0xff, 0xfe, 0x6f, 0, 0x6e), 'utf16');
  await put(Uint8Array.of(0x6f, 0x6e, 0x65, 0xe4), 'latin1');
  await put('one\0', 'binary');
  await put('', 'empty');
  await put('', 'large');
  await truncate(join(folder, 'large'), 1e9);
  await put('one', 'name with\n"quotes" -x');
  expect(await edit({ path: 'utf16', ...change })).toContain('is not a text in UTF-8 or UTF-16');
  expect(await edit({ path: 'latin1', ...change })).toContain('is not a text in UTF-8 or UTF-16');
  expect(await edit({ path: 'binary', ...change })).toContain('is not a text in UTF-8 or UTF-16');
  expect(await edit({ path: 'empty', ...change })).toContain('nothing there is similar');
  expect(await edit({ path: 'large', ...change })).toContain('has 1000000000 bytes');
  expect(await edit({ path: '.', ...change })).toContain('is a folder');
  expect(await edit({ path: 'name with\n"quotes" -x', ...change })).toContain('1 replacement');
  expect(await edit({ path: 'none', ...change })).toMatch(/^not_found: /);
  expect(await edit({ path: '../x', ...change })).toMatch(/^permission_denied: /);
  expect(await edit({ path: 'a\0b', ...change })).toMatch(/^permission_denied: /);
  expect(await edit({ path: 'x'.repeat(100_000), ...change })).toMatch(/^(permission_denied|execution_failed): /);
});

test('survives large texts, and ends when it is cancelled', async () => {
  await put(`${'x'.repeat(1_000_000)}\n`);
  const far = await edit({ old_text: 'y'.repeat(500_000), new_text: '' });
  expect(far.length).toBeLessThan(8_000);
  const long = await edit({ old_text: 'xx\n', new_text: `${'z'.repeat(100_000)}\n` });
  expect(long.length).toBeLessThan(8_000);
  const stopped = new AbortController();
  stopped.abort();
  expect(await edit({ old_text: 'z\n', new_text: 'x' }, stopped.signal)).toMatch(/stopped|abort/);
  const lines = 'a\n'.repeat(300_000);
  await put(lines);
  const all = { old_text: 'a', new_text: 'b', replace_all: true };
  expect(await edit(all, AbortSignal.timeout(10))).toMatch(/stopped|abort|timeout/);
  // It does not go on after that.
  expect(await edit({ old_text: 'none', new_text: '' })).toContain('nothing there is similar');
  expect((await text()) === lines).toBe(true);
});

test('a run can edit', async () => {
  await put('one\n');
  const input = { path: 'a.txt', old_text: 'one', new_text: 'two' };
  const result = await runLoop({
    model: scriptedModel([{ calls: [{ name: 'edit', arguments: input }] }, 'Done.']),
    tools: [tools.get('edit')!],
    input: 'Edit it.',
  });
  expect([result.text, await text()]).toEqual(['Done.', 'two\n']);
});
