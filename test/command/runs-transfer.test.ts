import { readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { agentTool, forkRun, runLoop, tool } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { sqliteStore } from '@treadle/store';
import { beforeEach, describe, expect, test } from 'vitest';
import { command } from './in-process.ts';
import { runsFixture } from './runs-fixture.ts';

const fixture = runsFixture();
const LONG = 'a long result, '.repeat(2_000);

beforeEach(() =>
  fixture.inStore(async (store) => {
    const long = tool({ name: 'long', description: '', execute: () => LONG });
    const model = scriptedModel([{ calls: [{ name: 'long' }] }, 'Done.']);
    await runLoop({ model, tools: [long], input: 'go \ud83d', journal: store, runId: 'a' });
  }),
);

const exported = async (): Promise<string> => (await fixture.treadle('runs', 'export', 'a')).stdout;

describe('export and import', () => {
  test('copy a run with its long results to another store', async () => {
    expect(await fixture.treadle('runs', 'export', 'a', 'a.jsonl')).toEqual({
      code: 0,
      stdout: '',
      stderr: 'Wrote 5 entries and 1 long result of a to a.jsonl\n',
    });
    const file = join(fixture.play.folder, 'a.jsonl');
    expect((await stat(file)).mode & 0o077).toBe(0);
    const [header] = (await readFile(file, 'utf8')).split('\n');
    expect(JSON.parse(header!)).toEqual({ format: 'treadle-run', version: 1, runId: 'a', entries: 5, blobs: 1 });

    const other = ['--store', 'sqlite:other/runs.db'];
    expect(await fixture.treadle('runs', 'import', 'a.jsonl', ...other)).toEqual({
      code: 0,
      stdout: 'a\n',
      stderr: 'Imported 5 entries.\n',
    });
    for (const args of [
      ['show', 'a'],
      ['show', 'a', '--json'],
      ['show', 'a', '--at', '3', '--full'],
      ['replay', 'a'],
    ]) {
      const here = await fixture.treadle('runs', ...args);
      const there = await fixture.treadle('runs', ...args, ...other);
      const withoutAge = ({ stdout }: { stdout: string }): string => stdout.replace(/, \d+ s ago/, '');
      expect(withoutAge(there)).toBe(withoutAge(here));
      expect(here.code).toBe(0);
    }
    const store = sqliteStore(join(fixture.play.folder, 'other/runs.db'));
    const [id] = await store.blobs.list('a');
    expect(await store.blobs.read('a', id!, 0, Infinity)).toEqual({ text: LONG, length: LONG.length });
    await store.close();
  });

  test('work through a pipe, and under another id', async () => {
    const text = await exported();
    expect(text.endsWith('\n')).toBe(true);
    expect(await command(['runs', 'import', '-'], fixture.play.folder, text)).toMatchObject({
      code: 2,
      stderr: 'treadle: The store already has a run a. Import it under another id: --as ID.\n',
    });
    expect(await command(['runs', 'import', '-', '--as', 'b'], fixture.play.folder, text)).toMatchObject({
      code: 0,
      stdout: 'b\n',
    });
    expect((await fixture.treadle('runs', 'diff', 'a', 'b')).code).toBe(0);
    expect(await fixture.inStore((store) => store.read('b'))).toMatchObject([
      { event: { runId: 'b' } },
      {},
      {},
      {},
      {},
    ]);
    expect((await command(['runs', 'import', '-', '--as', 'a/b'], fixture.play.folder, text)).stderr).toContain(
      '--as cannot be "a/b"',
    );
  });

  test('reject an existing and a missing file', async () => {
    expect(await fixture.treadle('runs', 'export', 'a', 'notes.txt')).toMatchObject({
      code: 2,
      stderr: 'treadle: notes.txt already exists. Name another file, or delete it.\n',
    });
    expect((await fixture.treadle('runs', 'export', 'a', 'no/such/file')).stderr).toContain(
      'no/such/file cannot be written',
    );
    expect((await fixture.treadle('runs', 'import', 'missing.jsonl')).stderr).toContain('missing.jsonl cannot be read');
  });
});

describe('import rejects, and names the line', () => {
  const line = (text: string, number: number): string => text.split('\n')[number - 1]!;

  test.each<[string, (text: string) => string, string]>([
    ['an empty file', () => '', 'x.jsonl is empty.'],
    ['something else', () => 'hello\n', 'x.jsonl has another format: line 1'],
    ['another format', () => '{"format":"x","version":1}', 'line 1 is not the header of a run'],
    [
      'a newer version',
      (text) => text.replace('"version":1', '"version":2'),
      'line 1: this Treadle cannot read version 2. Update Treadle.',
    ],
    ['an incomplete header', (text) => text.replace('"entries":5,', ''), 'line 1: the header is incomplete'],
    ['a missing end', (text) => text.split('\n').slice(0, 4).join('\n'), 'x.jsonl has 4 lines instead of 7'],
    ['a line cut in the middle', (text) => text.slice(0, text.indexOf(line(text, 3)) + 50), 'line 3: it is not JSON'],
    ['a changed letter', (text) => text.replace('"Done."', '"Dune."'), 'line 6: its checksum does not match'],
    ['a missing line', (text) => text.replace(`${line(text, 4)}\n`, ''), 'line 4: entry 3 follows 1'],
    ['an additional line', (text) => `${text}${line(text, 7)}\n`, 'x.jsonl has 8 lines instead of 7'],
    [
      'another start',
      (text) => text.replace('"runId":"a","entries"', '"runId":"z","entries"'),
      'line 2: it is not the start of z',
    ],
    ['another long result', (text) => text.replace(line(text, 7), line(text, 6)), 'line 7: it has no blob'],
  ])('%s', async (_, damage, message) => {
    await writeFile(join(fixture.play.folder, 'x.jsonl'), damage(await exported()));
    const { code, stdout, stderr } = await fixture.treadle('runs', 'import', 'x.jsonl', '--as', 'b');
    expect([code, stdout, stderr]).toEqual([2, '', expect.stringContaining(message)]);
    expect(await fixture.runs()).toHaveLength(1);
  });
});

test('export names the child runs that are not included, but not the forks', async () => {
  await fixture.inStore(async (store) => {
    const kid = agentTool({ name: 'kid', description: '', model: scriptedModel(['Helped.']) });
    const model = scriptedModel([{ calls: [{ name: 'kid', arguments: { task: 'help' } }] }, 'Done.']);
    await runLoop({ model, tools: [kid], input: 'go', journal: store, runId: 'p' });
    await forkRun({ journal: store, runId: 'p', at: 0, newRunId: 'fork' });
    await forkRun({ journal: store, runId: 'a', at: 0, newRunId: 'other-fork' });
  });
  const { code, stderr } = await fixture.treadle('runs', 'export', 'p', 'p.jsonl');
  expect(code).toBe(0);
  expect(stderr).toContain('The child runs p.t1.tool.0 are not included.');
  expect((await fixture.treadle('runs', 'export', 'a')).stderr).toBe('');
});
