import { runLoop, type JournalEntry } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { beforeEach, describe, expect, test } from 'vitest';
import { fakeTerminal } from './fake-terminal.ts';
import { READ, runsFixture } from './runs-fixture.ts';

const fixture = runsFixture();
let original: string;

beforeEach(async () => {
  await fixture.script(READ, { text: ['It says hello.'] }, { text: ['It is empty.'] });
  await fixture.treadle('run', ...fixture.model(), 'What is in notes.txt?');
  original = (await fixture.runs())[0]!.runId;
});

/** Forks the run after the file was read, and returns the new id. */
async function fork(...args: readonly string[]): Promise<{ id: string; stdout: string; stderr: string }> {
  const { code, stdout, stderr } = await fixture.treadle(
    'runs',
    'fork',
    original,
    '--at',
    '3',
    ...fixture.model(),
    ...args,
  );
  expect(code).toBe(0);
  return { id: /run_\w{32}$/m.exec(stderr)![0], stdout, stderr };
}

describe('fork', () => {
  test('with another result gets another answer, and does not change the run', async () => {
    const before = await fixture.inStore((store) => store.read(original));
    const { id, stdout, stderr } = await fork('--result', 't1.tool.0=nothing at all');
    expect(stdout).toBe('It is empty.\n');
    expect(stderr).toBe(`Forked ${original.slice(0, 12)} after entry 3: ${id}\n`);
    expect(fixture.server.requests[2]!.messages.at(-1)).toMatchObject({ role: 'tool', content: 'nothing at all' });
    expect(await fixture.inStore((store) => store.read(original))).toEqual(before);
    const { stdout: shown } = await fixture.treadle('runs', 'show', id);
    expect(shown).toContain(`fork of    ${original.slice(0, 12)}, after entry 3`);
    expect((await fixture.treadle('runs', 'show', original)).stdout).toContain(
      `fork       ${id.slice(0, 12)}, completed`,
    );
  });

  test('copies up to the replaced result without --at', async () => {
    const { code, stderr } = await fixture.treadle(
      'runs',
      'fork',
      original,
      '--result',
      't1.tool.0=x',
      ...fixture.model(),
    );
    expect([code, stderr]).toEqual([0, expect.stringContaining('after entry 3: run_')]);
  });

  test.each([
    ['', 'entry 4. Calls that have one: t1.tool.0.'],
    ['--at 4', 'entry 4. Calls that have one: t1.tool.0.'],
    ['--at 1', 'entry 1. No call has one.'],
  ])('%s names a call of --result that has no result, and those that have one', async (at, end) => {
    const args = ['--result', 't9.tool.0=x', ...at.split(' ').filter(Boolean), ...fixture.model()];
    expect(await fixture.treadle('runs', 'fork', original, ...args)).toEqual({
      code: 2,
      stdout: '',
      stderr: `treadle: Run "${original}" cannot be forked: no call "t9.tool.0" has a result up to ${end}\n`,
    });
    expect(await fixture.runs()).toHaveLength(1);
  });

  test('says that --at is missing if no result is replaced', async () => {
    const { code, stderr } = await fixture.treadle('runs', 'fork', original, ...fixture.model());
    expect([code, stderr]).toEqual([2, expect.stringContaining('--at N is missing')]);
  });

  test('with another model, instructions and no tools', async () => {
    await fork('--model', 'other', '--instructions', 'Be rude.', '--no-tools');
    const { model, messages, tools } = fixture.server.requests[2]!;
    expect([model, tools ?? []]).toEqual(['other', []]);
    expect(messages[0]).toMatchObject({ content: 'Be rude.' });
    const { stdout } = await fixture.treadle('runs', 'show', (await fixture.runs())[0]!.runId);
    expect(stdout).toContain('forked: model other; no tools; instructions "Be rude."');
  });

  test('--no-run creates a fork that can be resumed later', async () => {
    const made = await fixture.treadle('runs', 'fork', original, '--at', '0', '--instructions', 'Anew.', '--no-run');
    expect(made).toMatchObject({ code: 0, stdout: expect.stringMatching(/^run_\w{32}\n$/), stderr: '' });
    expect(fixture.server.requests).toHaveLength(2);
    const resumed = await fixture.treadle('runs', 'resume', made.stdout.trim(), ...fixture.model());
    expect(resumed).toMatchObject({ code: 0, stdout: 'It is empty.\n' });
  });

  test('does not create a fork if the model cannot be chosen', async () => {
    const { code } = await fixture.treadle('runs', 'fork', original, '--at', '3', '--model', 'nowhere');
    expect(code).toBe(2);
    expect(await fixture.runs()).toHaveLength(1);
  });

  test('without changes copies the later results, and does not call the model', async () => {
    expect(await fixture.treadle('runs', 'fork', original, '--at', '3', ...fixture.model())).toMatchObject({
      code: 0,
      stdout: 'It says hello.\n',
    });
    expect(fixture.server.requests).toHaveLength(2);
  });
});

describe('replay', () => {
  test('succeeds for an unchanged run', async () => {
    expect(await fixture.treadle('runs', 'replay', original)).toEqual({
      code: 0,
      stdout: '5 entries replayed the same.\n',
      stderr: '',
    });
  });

  test('names the first entry that differs, and the run can still be shown', async () => {
    const entries = await fixture.inStore((store) => store.read(original));
    const other: JournalEntry = { ...entries[1]!, issued: ['t1.judge.0', 't1.tool.1'] };
    await fixture.inStore(async (store) => store.append('changed', [entries[0]!, other, ...entries.slice(2)]));
    const { code, stdout } = await fixture.treadle('runs', 'replay', 'changed');
    expect(code).toBe(1);
    expect(stdout).toBe(
      'Run changed differs at entry 1 of 0 to 4.\n' +
        '  event       model-replied\n' +
        '  effect      t1.tool.1\n' +
        '  difference  it issued t1.judge.0, t1.tool.1; now it issues t1.judge.0\n',
    );
    expect((await fixture.treadle('runs', 'resume', 'changed', ...fixture.model())).stderr).toContain(
      'Run changed does not replay with this version of Treadle: at entry 1',
    );
    expect((await fixture.treadle('runs', 'show', 'changed')).code).toBe(0);
  });

  test('a run with an entry that does not apply can still be shown', async () => {
    const entries = await fixture.inStore((store) => store.read(original));
    const reply = entries[1]!.event as Extract<JournalEntry['event'], { type: 'model-replied' }>;
    const foreign: JournalEntry = { ...entries[1]!, event: { ...reply, effect: 't7.model.0' } };
    await fixture.inStore(async (store) => store.append('odd', [entries[0]!, foreign, ...entries.slice(2)]));
    const { code, stdout } = await fixture.treadle('runs', 'show', 'odd');
    expect(code).toBe(0);
    expect(stdout).toContain('does not replay: this version cannot apply the entry');
    expect(stdout).toContain('It says hello.');
  });
});

describe('diff', () => {
  test('exits with 0 for equal runs', async () => {
    await fixture.inStore((store) =>
      Promise.all(
        ['a', 'b'].map((runId) => runLoop({ model: scriptedModel(['Hi.']), input: 'go', journal: store, runId })),
      ),
    );
    expect(await fixture.treadle('runs', 'diff', 'a', 'b')).toEqual({
      code: 0,
      stdout: 'All 2 entries are the same.\n',
      stderr: '',
    });
  });

  test('exits with 1 for different runs, and shows the difference and both runs', async () => {
    const { id } = await fork('--result', 't1.tool.0=the word is another');
    const { code, stdout } = await fixture.treadle('runs', 'diff', original, id);
    expect(code).toBe(1);
    const plain = stdout.replaceAll(/\d+(\.\d+)? m?s/g, 'TIME');
    expect(plain.split('\n')).toEqual([
      'The first 3 entries are the same.',
      'Entry 3, tool-settled, differs in result.content[0].text:',
      `  A  1 the word is ${fixture.play.nonce}`,
      '  B  the word is another',
      '',
      `     A ${original.slice(0, 12)}`,
      `  3    t1.tool.0 returned (TIME): 1 the word is ${fixture.play.nonce}`,
      '  4  model (TIME, 10 in, 5 out): It says hello.',
      '     completed',
      '',
      `     B ${id.slice(0, 12)}`,
      '  3    t1.tool.0 returned (TIME): the word is another',
      '  4  t2.model.0 left out: the fork does not take over its result',
      '       the model is called again',
      '  5  model (TIME, 10 in, 5 out): It is empty.',
      '     completed',
      '',
    ]);
  });

  test('shows the runs side by side on a wide terminal only', async () => {
    const { id } = await fork('--result', 't1.tool.0=the word is another');
    const wide = fakeTerminal(['runs', 'diff', original, id], fixture.play.folder, 140);
    expect(await wide.exit).toBe(1);
    expect(wide.screen()).toMatch(/^ +4 {2}model .*: It says hello\. +│ t2\.model\.0 left out: the fork .*$/m);
    expect(wide.screen()).toMatch(/^ +5 +│ model .*: It is empty\.$/m);
    for (const line of wide.screen().split('\n')) expect(line.length).toBeLessThanOrEqual(140);
    const narrow = fakeTerminal(['runs', 'diff', original, id], fixture.play.folder, 80);
    expect(await narrow.exit).toBe(1);
    expect(narrow.screen()).not.toContain('│');
    for (const line of narrow.screen().split('\n')) expect(line.length).toBeLessThanOrEqual(80);
  });

  test('reports that one run has no more entries', async () => {
    const made = await fixture.treadle('runs', 'fork', original, '--at', '1', '--no-run');
    const { code, stdout } = await fixture.treadle('runs', 'diff', original, made.stdout.trim());
    expect(code).toBe(1);
    expect(stdout).toMatch(/^The first 4 entries are the same\.\nEntry 4 is missing in B\./);
    expect(stdout).toContain('(no more entries)');
  });
});
