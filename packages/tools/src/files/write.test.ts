import { chmod, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { memoryJournal, registry, runLoop, tool, type ToolContext } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { local } from '../local/local.ts';
import { readTool } from './read.ts';
import { writeTool } from './write.ts';

let folder: string;
let memory: Record<string, unknown>;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'treadle-write-'));
  memory = {};
});

afterEach(() => rm(folder, { recursive: true }));

const put = (path: string, content: string | Uint8Array): Promise<void> => writeFile(join(folder, path), content);
const bytesOf = (path: string): Promise<Buffer> => readFile(join(folder, path));
const textOf = async (path: string): Promise<string> => (await bytesOf(path)).toString();

function contextWith(signal: AbortSignal = new AbortController().signal): ToolContext {
  return { signal, memory, report: () => {} } as unknown as ToolContext;
}

async function write(path: string, content: string, options: { overwrite?: boolean } = {}): Promise<string> {
  return String(await writeTool(local(folder)).execute!({ path, content, ...options }, contextWith()));
}

async function read(path: string): Promise<unknown> {
  return readTool(local(folder)).execute!({ path }, contextWith());
}

test('creates a file and the folders above it', async () => {
  expect(await write('a/b/c.txt', 'one\ntwo\n')).toBe('Created a/b/c.txt: 2 lines, 8 bytes.');
  expect(await textOf('a/b/c.txt')).toBe('one\ntwo\n');
  expect(await write('-rf', '')).toBe('Created -rf: 0 lines, 0 bytes.');
  expect(await write('new\nline "x"', 'ü')).toBe('Created "new\\nline \\"x\\"": 1 line, 2 bytes.');
  expect(await readdir(folder)).toEqual(['-rf', 'a', 'new\nline "x"']);
});

test('replaces only files that the run has read and nobody has changed since', async () => {
  await put('a.txt', 'old');
  await expect(write('a.txt', 'new')).rejects.toThrow(
    '"a.txt" exists (3 bytes), and this run has not read it. Read it first',
  );
  await read('a.txt');
  await put('a.txt', 'other');
  await expect(write('a.txt', 'new')).rejects.toMatchObject({
    message: expect.stringMatching(/has changed since this run read it\. Read it again/),
    errorType: 'execution_failed',
  });
  expect(await textOf('a.txt')).toBe('other');
  await read('./a.txt');
  expect(await write('a.txt', 'new')).toBe('Replaced a.txt: 1 line, 3 bytes.');
  expect(await write('a.txt', 'newer')).toBe('Replaced a.txt: 1 line, 5 bytes.');
});

test('knows a file by its path, however it is written', async () => {
  await put('a.txt', 'old');
  await read(join(folder, 'x/../a.txt'));
  expect(await write('./a.txt', 'new')).toBe('Replaced a.txt: 1 line, 3 bytes.');
});

test('reads of other files do not wait for a write that awaits approval, and run at the same time', async () => {
  await Promise.all(['a.txt', 'b.txt', 'c.txt'].map((path) => put(path, path)));
  const ops = local(folder);
  let open = 0;
  const both = Promise.withResolvers<void>();
  const files = {
    ...ops.files,
    async open(path: string) {
      if (++open === 2) both.resolve();
      await both.promise;
      return ops.files.open(path);
    },
  };
  const tools = [readTool({ files }), tool({ ...writeTool(ops), needsApproval: true })];
  const calls = [
    { name: 'write', arguments: { path: 'a.txt', content: 'new' } },
    ...['b.txt', 'c.txt', './a.txt'].map((path) => ({ name: 'read', arguments: { path } })),
  ];
  const result = await runLoop({ model: scriptedModel([{ calls }]), tools, input: 'go', journal: memoryJournal() });
  expect(result.waiting).toMatchObject([{ type: 'approval', call: { name: 'write' } }]);
  expect(Object.keys(result.memory!).sort()).toEqual(['files_read:b.txt', 'files_read:c.txt']);
});

test('replaces a file that cannot be decoded only if it is told to', async () => {
  await put('a.txt', Buffer.from('caf\xe9\n', 'latin1'));
  expect(await read('a.txt')).toContain('not valid UTF-8');
  await expect(write('a.txt', 'caf\u00e9\n')).rejects.toThrow('Set overwrite to true to replace it by a text in UTF-8');
  expect(await write('a.txt', 'caf\u00e9\n', { overwrite: true })).toBe('Replaced a.txt: 1 line, 6 bytes.');
});

test('replaces any file if it is told to', async () => {
  await put('a.txt', 'old');
  expect(await write('a.txt', 'new', { overwrite: true })).toBe('Replaced a.txt: 1 line, 3 bytes.');
  await put('data.bin', Uint8Array.of(0, 1, 2));
  expect(await write('data.bin', 'text\n', { overwrite: true })).toBe('Replaced data.bin: 1 line, 5 bytes.');
});

test('the calls of a run know what the run has read', async () => {
  await put('a.txt', 'old');
  const calls = (...given: { name: string; arguments: object }[]) => ({ calls: given });
  const result = await runLoop({
    model: scriptedModel([
      calls({ name: 'write', arguments: { path: 'a.txt', content: 'new' } }),
      calls(
        { name: 'read', arguments: { path: 'a.txt' } },
        { name: 'write', arguments: { path: 'a.txt', content: 'new' } },
      ),
      'done',
    ]),
    tools: [readTool(local(folder)), writeTool(local(folder))],
    input: 'go',
  });
  const results = result.messages.flatMap(({ role, content }) => (role === 'tool' ? content : []));
  expect(results.map(({ isError }) => isError)).toEqual([true, false, false]);
  expect(await textOf('a.txt')).toBe('new');
});

describe('keeps the form of the file that it replaces', () => {
  test.each([
    ['a byte order mark', '\uFEFFa\n', 'utf8', 'b\n', '\uFEFFb\n'],
    ['CRLF', 'a\r\nb\r\n', 'utf8', 'c\nd\n', 'c\r\nd\r\n'],
    ['CRLF, unless the content has them', 'a\r\nb\r\n', 'utf8', 'c\r\nd\n', 'c\r\nd\n'],
    ['LF of most lines', 'a\r\nb\nc\n', 'utf8', 'd\n', 'd\n'],
    ['LF, if there are as many CRLF', 'a\r\nb\n', 'utf8', 'd\n', 'd\n'],
    ['no final newline as given', 'a\n', 'utf8', 'b', 'b'],
    ['UTF-16', '\uFEFFa\r\n', 'utf16le', 'ü\n', '\uFEFFü\r\n'],
  ] as const)('%s', async (_, before, encoding, content, after) => {
    await put('a.txt', Buffer.from(before, encoding));
    await write('a.txt', content, { overwrite: true });
    expect((await bytesOf('a.txt')).toString(encoding)).toBe(after);
  });

  test('UTF-16 with the high byte first', async () => {
    await put('a.txt', Buffer.from('\uFEFFa', 'utf16le').swap16());
    await write('a.txt', 'ü', { overwrite: true });
    expect((await bytesOf('a.txt')).swap16().toString('utf16le')).toBe('\uFEFFü');
  });

  test.skipIf(process.platform === 'win32')('its mode, also through a link', async () => {
    await put('run.sh', 'old');
    await chmod(join(folder, 'run.sh'), 0o755);
    await symlink('run.sh', join(folder, 'link'));
    expect(await write('link', 'new', { overwrite: true })).toBe('Replaced run.sh: 1 line, 3 bytes.');
    expect((await stat(join(folder, 'run.sh'))).mode & 0o777).toBe(0o755);
    expect(await textOf('run.sh')).toBe('new');
  });
});

test('an interrupted call is done if its content is there, and may run otherwise', async () => {
  const { verify } = writeTool(local(folder));
  const input = { path: 'a.txt', content: 'a\nb\n' };
  expect(await verify!(input, contextWith())).toEqual({ type: 'not-done' });
  await put('a.txt', '\uFEFFa\r\nb\r\n');
  expect(await verify!(input, contextWith())).toEqual({ type: 'done', result: 'Wrote a.txt: 2 lines, 9 bytes.' });
  expect(await write('a.txt', 'c')).toContain('Replaced');
  expect(await verify!(input, contextWith())).toEqual({ type: 'not-done' });
});

test.each([
  ['../x', 'permission_denied', /outside the working folder/],
  ['.', 'execution_failed', /is a folder/],
  ['sub/', 'invalid_params', /does not end in the name of a file/],
  ['a.txt/b', 'execution_failed', /lies below a file/],
  ['a\0b', 'permission_denied', /NUL/],
  ['', 'permission_denied', /empty/],
  ['dangling', 'execution_failed', /link to a file that does not exist/],
  ['x'.repeat(300), 'execution_failed', /longer than the file system allows/],
])('rejects the path %j', async (path, errorType, message) => {
  await put('a.txt', 'a');
  await symlink('nothing', join(folder, 'dangling'));
  const before = await readdir(folder);
  await expect(write(path, 'x')).rejects.toMatchObject({ errorType, message: expect.stringMatching(message) });
  expect(await readdir(folder)).toEqual(before);
});

test('rejects content that cannot be stored', async () => {
  for (const content of ['a\ud800', 'a\0'])
    await expect(write('a.txt', content)).rejects.toMatchObject({ errorType: 'invalid_params' });
});

test('writes nothing when it is aborted', async () => {
  const aborted = contextWith(AbortSignal.abort(new Error('enough')));
  await expect(writeTool(local(folder)).execute!({ path: 'a.txt', content: 'a' }, aborted)).rejects.toThrow('enough');
  expect(await readdir(folder)).toEqual([]);
});

test('arguments of a hostile model are errors that say what to do', async () => {
  const tools = registry();
  for (const made of [readTool(local(folder)), writeTool(local(folder))]) tools.register(made, 'test');
  const paths = [
    '',
    '\0',
    '..',
    '/',
    '~',
    '\ud800',
    '/proc/self/mem',
    '/dev/zero',
    'a/'.repeat(3000),
    7,
    null,
    ['a'],
    {},
  ];
  for (const path of paths) {
    for (const [name, input] of [
      ['read', { path }],
      ['write', { path, content: 'x' }],
    ] as const) {
      const result = await tools.execute(name, input);
      expect(result).toMatchObject({
        isError: true,
        // The schema does not accept anything else than a text.
        ...(typeof path === 'string' && {
          errorType: expect.stringMatching(/invalid_params|permission_denied|execution_failed/),
        }),
      });
      expect(JSON.stringify(result)).toMatch(/[.:] \w/);
    }
  }
  for (const input of [{}, { path: 'a', offset: 0 }, { path: 'a', limit: 1e99 }, { path: 'a', timeout_ms: 30_001 }]) {
    expect(await tools.execute('read', input)).toMatchObject({ isError: true });
  }
  expect(await tools.execute('write', { path: 'a', content: 'x', more: 1 })).toMatchObject({ isError: true });
  expect(await readdir(folder)).toEqual([]);
});
