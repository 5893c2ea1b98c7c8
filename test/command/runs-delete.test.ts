import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { runLoop, startLoop, tool, type Clock, type JournalEntry } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { heldProcess } from '@treadle/store';
import { describe, expect, test } from 'vitest';
import { fakeTerminal } from './fake-terminal.ts';
import { runsFixture } from './runs-fixture.ts';

const fixture = runsFixture();
const DAY = 86_400_000;

/** Adds runs that ended the given number of days ago. */
const ended = (ages: Readonly<Record<string, number>>): Promise<void> =>
  fixture.inStore(async (store) => {
    for (const [runId, days] of Object.entries(ages)) {
      const clock: Clock = { now: () => Date.now() - days * DAY, timer: () => () => {} };
      await runLoop({ model: scriptedModel(['Done.']), input: `task of ${runId}`, journal: store, runId, clock });
    }
  });
const ids = async (): Promise<readonly string[]> => (await fixture.runs()).map(({ runId }) => runId);

describe('delete', () => {
  test('--yes deletes the runs by their short ids, with their child runs', async () => {
    await ended({ abc: 1, abd: 1, other: 1 });
    await fixture.inStore((store) =>
      runLoop({
        model: scriptedModel(['x']),
        input: 'x',
        journal: store,
        runId: 'abc.t1.tool.0',
        parent: { runId: 'abc', effect: 't1.tool.0' },
      }),
    );
    expect(await fixture.treadle('runs', 'delete', 'abc', 'oth', 'other', '--yes')).toEqual({
      code: 0,
      stdout: '',
      stderr: 'Deleted 3 runs.\n',
    });
    expect(await ids()).toEqual(['abd']);
  });

  test.runIf(process.platform === 'linux')('kills what an interrupted run has left behind', async () => {
    const left = spawn('sleep', ['1000'], { stdio: 'ignore' });
    const gone = once(left, 'exit');
    await fixture.inStore(async (store) => {
      const opened = Promise.withResolvers<void>();
      const hold = tool({
        name: 'hold',
        description: 'Holds a process',
        async execute(_, context) {
          await context.hold(
            'p',
            () => left,
            () => {},
            { process: ({ pid }) => heldProcess(pid) },
          );
          opened.resolve();
          return new Promise(() => {});
        },
      });
      const run = startLoop({
        model: scriptedModel([{ calls: [{ name: 'hold' }] }]),
        tools: [hold],
        input: 'x',
        journal: store,
        runId: 'a',
      });
      await opened.promise;
      // As a process that dies: nothing is closed.
      const entries = await store.read('a');
      await run.cancel();
      await run.result;
      await store.delete('a');
      await store.append('a', entries);
    });
    expect(await fixture.treadle('runs', 'delete', 'a', '--yes')).toMatchObject({ code: 0 });
    expect(await gone).toEqual([null, 'SIGKILL']);
  });

  test('deletes nothing if one id is wrong', async () => {
    await ended({ a: 1 });
    expect(await fixture.treadle('runs', 'delete', '--yes', 'a', 'b')).toMatchObject({ code: 2 });
    expect(await ids()).toEqual(['a']);
  });

  test('requires --yes without a terminal', async () => {
    await ended({ a: 1 });
    const { code, stderr } = await fixture.treadle('runs', 'delete', 'a');
    expect([code, stderr]).toEqual([2, expect.stringContaining('Add --yes')]);
    expect(await ids()).toEqual(['a']);
  });

  test.each([
    ['y\r', 0, []],
    ['n\r', 1, ['a']],
    ['\u0003', 1, ['a']],
  ] as const)('asks on a terminal: %j', async (keys, code, left) => {
    await ended({ a: 1 });
    const { type, shows, exit } = fakeTerminal(['runs', 'delete', 'a'], fixture.play.folder);
    await shows('a  completed  task of a\n');
    await shows('Delete it? [y/N] ');
    type(keys);
    expect(await exit).toBe(code);
    expect(await ids()).toEqual(left);
  });
});

describe('prune', () => {
  test('deletes runs that ended long ago, but no unfinished runs', async () => {
    await ended({ old: 40, new: 1 });
    await fixture.inStore(async (store) => {
      const first = (await store.read('old'))[0]!;
      await store.append('open', [{ ...first, event: { ...first.event, runId: 'open' } as JournalEntry['event'] }]);
    });
    const dry = await fixture.treadle('runs', 'prune', '--older-than', '30d', '--dry-run');
    expect(dry).toEqual({
      code: 0,
      stdout: 'old  completed  40 d    task of old\n',
      stderr: '1 run would be deleted.\n',
    });
    expect(await ids()).toHaveLength(3);
    expect(await fixture.treadle('runs', 'prune', '--older-than', '30d')).toMatchObject({
      code: 0,
      stderr: 'Deleted 1 run.\n',
    });
    expect((await ids()).toSorted()).toEqual(['new', 'open']);
    expect((await fixture.treadle('runs', 'prune', '--older-than', '1h')).stderr).toBe('Deleted 1 run.\n');
  });

  test('keeps a run whose child run is unfinished or newer, and child runs of unfinished runs', async () => {
    await ended({ old: 40, busy: 40, 'busy.t1.tool.0': 40, part: 40 });
    await fixture.inStore(async (store) => {
      const add = async (runId: string, parent: object | undefined, count: number): Promise<void> => {
        const [first, ...others] = await store.read('old');
        const event = { ...first!.event, runId, ...(parent && { parent }) } as JournalEntry['event'];
        await store.append(runId, [{ ...first!, event }, ...others].slice(0, count));
      };
      await add('part.t1.tool.0', { runId: 'part', effect: 't1.tool.0' }, 2);
      await add('part.t1.tool.1', { runId: 'part', effect: 't1.tool.1' }, 1);
      await add('open', undefined, 1);
      await add('open.t1.tool.0', { runId: 'open', effect: 't1.tool.0' }, 2);
      await add('old.t1.tool.0', { runId: 'old', effect: 't1.tool.0' }, 2);
    });
    const listed = (await fixture.treadle('runs', 'prune', '--older-than', '30d', '--dry-run')).stdout;
    const names = listed.split('\n').flatMap((line) => line.split(' ')[0] || []);
    expect(names.toSorted()).toEqual(['busy', 'busy.t1.tool.0', 'old', 'old.t1.tool.0', 'part.t1.tool.0']);
    expect((await fixture.treadle('runs', 'prune', '--older-than', '30d')).stderr).toBe('Deleted 5 runs.\n');
    expect((await ids()).toSorted()).toEqual(['open', 'open.t1.tool.0', 'part', 'part.t1.tool.1']);
  });

  test('keeps the run of a response', async () => {
    await ended({ resp: 40, old: 40 });
    const record = {
      kind: 'response',
      tenant: 't',
      status: 'completed',
      createdAt: 1,
      updatedAt: 1,
      request: {},
      response: {},
    };
    await fixture.inStore((store) => store.requests.create({ ...record, id: 'resp', runId: 'resp' }));
    const dry = await fixture.treadle('runs', 'prune', '--older-than', '30d', '--dry-run');
    expect(dry).toMatchObject({ stdout: expect.stringMatching(/^old [^\n]*\n$/), stderr: '1 run would be deleted.\n' });
    expect((await fixture.treadle('runs', 'prune', '--older-than', '30d')).stderr).toBe('Deleted 1 run.\n');
    expect(await ids()).toEqual(['resp']);
    expect((await fixture.treadle('runs', 'delete', 'resp', '--yes')).stderr).toBe('Deleted 1 run.\n');
    expect(await fixture.inStore((store) => store.requests.get('t', 'resp'))).toBeUndefined();
  });

  test.each([
    [[], '--older-than is missing. It takes a number with s, m, h, d or w, such as 30d.'],
    [['--older-than', 'long'], '--older-than cannot be "long". It takes a number with s, m, h, d or w, such as 30d.'],
    [['--older-than', '30'], '--older-than cannot be "30".'],
  ])('rejects %j', async (args, message) => {
    await ended({ a: 99 });
    expect(await fixture.treadle('runs', 'prune', ...args)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining(message),
    });
    expect(await ids()).toEqual(['a']);
  });
});
