import { readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import { agentTool, forkRun, runLoop, tool, type JournalEntry, type LoopResult, type Tool } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { sqliteStore, type SqliteStore } from '@treadle/store';
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

  test('copy bytes with their media type, in a version of its own', async () => {
    const content = { bytes: Uint8Array.from([0, 255, 10, 128]), mediaType: 'image/png' };
    await fixture.inStore(async (store) => void (await store.blobs.put('a', content)));
    await fixture.treadle('runs', 'export', 'a', 'a.jsonl');
    const [header] = (await readFile(join(fixture.play.folder, 'a.jsonl'), 'utf8')).split('\n');
    const runs = [{ runId: 'a', entries: 5, blobs: 2 }];
    expect(JSON.parse(header!)).toEqual({ format: 'treadle-run', version: 3, runs });
    const other = ['--store', 'sqlite:other/runs.db'];
    expect(await fixture.treadle('runs', 'import', 'a.jsonl', ...other)).toMatchObject({ code: 0 });
    const store = sqliteStore(join(fixture.play.folder, 'other/runs.db'));
    const ids = await store.blobs.list('a');
    const copied = await Promise.all(ids.map((id) => store.blobs.read('a', id, 0, Infinity)));
    expect(copied).toContainEqual({ ...content, length: 4 });
    expect(copied).toContainEqual({ text: LONG, length: LONG.length });
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
    expect((await fixture.treadle('runs', 'import', 'missing.jsonl')).stderr).toContain(
      'missing.jsonl cannot be read: there is no such file.',
    );
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
      (text) => text.replace('"version":1', '"version":4'),
      'line 1: this Treadle cannot read version 4. Update Treadle.',
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

describe('a run with child runs', () => {
  const payments: string[] = [];
  const pay = tool({ name: 'pay', description: '', execute: (_, { key }) => (payments.push(key), LONG) });
  const ask = tool({ name: 'ask', description: 'Asks the client' });
  const call = (name: string): object => ({ calls: [{ name, arguments: { task: 'help' } }] });
  const agents = (...replies: readonly unknown[]): Tool => {
    const inner = agentTool({
      name: 'inner',
      description: '',
      model: scriptedModel(replies as never),
      tools: [pay, ask],
    });
    const model = scriptedModel([call('inner'), 'Middle.'] as never);
    return agentTool({ name: 'middle', description: '', model, tools: [inner] });
  };
  const FAMILY = ['p', 'p.t1.tool.0', 'p.t1.tool.0.t1.tool.0'];
  const other = ['--store', 'sqlite:other/runs.db'];
  const inOther = async <T>(use: (store: SqliteStore) => Promise<T>): Promise<T> => {
    const store = sqliteStore(join(fixture.play.folder, 'other/runs.db'));
    try {
      return await use(store);
    } finally {
      await store.close();
    }
  };
  const idsOf = async (store: SqliteStore): Promise<readonly string[]> =>
    (await store.list()).map(({ runId }) => runId).toSorted();

  /** A run whose grandchild has paid, and waits for a client. The names of two forks begin like those of its children. */
  beforeEach(() =>
    fixture.inStore(async (store) => {
      payments.length = 0;
      const middle = agents(call('pay'), call('ask'));
      await runLoop({
        model: scriptedModel([call('middle')] as never),
        tools: [middle],
        input: 'go',
        journal: store,
        runId: 'p',
      });
      await forkRun({ journal: store, runId: 'a', at: 0, newRunId: 'p.fork' });
      await forkRun({ journal: store, runId: 'p', at: 0, newRunId: 'p.what-if' });
    }),
  );

  /** Resumes the run with the answer of the client. */
  const resumed = (store: SqliteStore, runId: string): Promise<LoopResult> =>
    runLoop({
      model: scriptedModel(['Done.']),
      tools: [agents('Inner.')],
      journal: store,
      runId,
      answers: [{ type: 'result', effect: 't1.tool.0/t1.tool.0/t2.client.0', content: 'yes' }],
    });

  test('is exported and imported with them, and resumed without repeating anything', async () => {
    expect(await fixture.treadle('runs', 'export', 'p', 'p.jsonl')).toEqual({
      code: 0,
      stdout: '',
      stderr: 'Wrote 13 entries and 1 long result of p and 2 child runs to p.jsonl\n',
    });
    const [header] = (await readFile(join(fixture.play.folder, 'p.jsonl'), 'utf8')).split('\n');
    expect(JSON.parse(header!)).toEqual({
      format: 'treadle-run',
      version: 2,
      runs: [
        { runId: 'p', entries: 4, blobs: 0 },
        { runId: 'p.t1.tool.0', entries: 4, blobs: 0 },
        { runId: 'p.t1.tool.0.t1.tool.0', entries: 5, blobs: 1 },
      ],
    });
    expect(await fixture.treadle('runs', 'import', 'p.jsonl', ...other)).toEqual({
      code: 0,
      stdout: 'p\n',
      stderr: 'Imported 13 entries of p and 2 child runs.\n',
    });
    await inOther(async (store) => {
      expect(await idsOf(store)).toEqual(FAMILY);
      expect(await resumed(store, 'p')).toMatchObject({ outcome: { type: 'completed' }, text: 'Done.' });
    });
    expect(payments).toEqual(['p.t1.tool.0.t1.tool.0/t1.tool.0']);
  });

  test('is imported under another id with all of them', async () => {
    const { stdout } = await fixture.treadle('runs', 'export', 'p');
    expect((await command(['runs', 'import', '-', '--as', 'q'], fixture.play.folder, stdout)).code).toBe(0);
    await fixture.inStore(async (store) => {
      const ids = FAMILY.map((id) => id.replace('p', 'q'));
      expect(await idsOf(store)).toEqual(expect.arrayContaining([...ids, ...FAMILY]));
      expect(JSON.stringify(await Promise.all(ids.map((id) => store.read(id))))).not.toMatch(/"p[."]/);
      expect(await resumed(store, 'q')).toMatchObject({ outcome: { type: 'completed' }, text: 'Done.' });
      expect(await store.list({ parent: 'p.t1.tool.0' })).toMatchObject([{ status: 'paused' }]);
    });
    expect(payments).toHaveLength(1);
  });

  test('is not imported if the store has one of them, or if one is damaged', async () => {
    const { stdout } = await fixture.treadle('runs', 'export', 'p');
    await writeFile(join(fixture.play.folder, 'p.jsonl'), stdout);
    await writeFile(
      join(fixture.play.folder, 'child.jsonl'),
      (await fixture.treadle('runs', 'export', FAMILY[2]!)).stdout,
    );
    expect((await fixture.treadle('runs', 'import', 'child.jsonl', ...other)).code).toBe(0);
    expect(await fixture.treadle('runs', 'import', 'p.jsonl', ...other)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('The store already has a run p.t1.tool.0.t1.tool.0.'),
    });
    expect(await inOther(idsOf)).toEqual([FAMILY[2]]);

    const blob = { id: 'f00', text: 'x' };
    const foreign = `${JSON.stringify({ blob, sum: crc32(JSON.stringify(blob)) })}\n`;
    const lines = stdout.trimEnd().split('\n');
    await writeFile(join(fixture.play.folder, 'bad.jsonl'), `${lines.slice(0, -1).join('\n')}\n${foreign}`);
    expect((await fixture.treadle('runs', 'import', 'bad.jsonl', '--as', 'q', ...other)).stderr).toContain(
      'The long result f00 does not match its id.',
    );
    expect(await inOther(idsOf)).toEqual([FAMILY[2]]);
  });

  test('is not imported from a file that contains another run', async () => {
    const { stdout } = await fixture.treadle('runs', 'export', 'p');
    const [header, ...lines] = stdout.trimEnd().split('\n');
    const { runs, ...rest } = JSON.parse(header!) as { runs: { entries: number }[] };
    const parent = lines.slice(0, runs[0]!.entries);
    const changed = [JSON.stringify({ ...rest, runs: [runs[0], runs[2]] }), ...parent];
    changed.push(...lines.slice(runs[0]!.entries + runs[1]!.entries));
    await writeFile(join(fixture.play.folder, 'x.jsonl'), changed.join('\n'));
    expect((await fixture.treadle('runs', 'import', 'x.jsonl', ...other)).stderr).toContain(
      `line ${runs[0]!.entries + 2}: p.t1.tool.0.t1.tool.0 is not a child run of a run in the file`,
    );
  });

  test('is exported without calls that started after it was read', async () => {
    await fixture.inStore(async (store) => {
      const [first] = await store.read('p.t1.tool.0');
      const parent = { runId: 'p', effect: 't7.tool.0' };
      const event = { ...first!.event, runId: 'p.t7.tool.0', parent } as JournalEntry['event'];
      await store.append('p.t7.tool.0', [{ ...first!, event }]);
    });
    const { stdout } = await fixture.treadle('runs', 'export', 'p');
    const { runs } = JSON.parse(stdout.split('\n')[0]!) as { runs: { runId: string }[] };
    expect(runs.map(({ runId }) => runId)).toEqual(FAMILY);
  });

  test('is deleted with them, and without its forks', async () => {
    expect((await fixture.treadle('runs', 'delete', 'p', '--yes')).stderr).toBe('Deleted 3 runs.\n');
    expect((await fixture.runs()).map(({ runId }) => runId).toSorted()).toEqual(['a', 'p.fork', 'p.what-if']);
  });
});
