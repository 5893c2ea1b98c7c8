import fs from 'node:fs';
import { readdir } from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { Readable } from 'node:stream';
import {
  agentTool,
  runLoop,
  streamLoop,
  tool,
  type Clock,
  type LoopOptions,
  type Model,
  type Policy,
} from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { describe, expect, test } from 'vitest';
import { fakeTerminal } from './fake-terminal.ts';
import { command } from './in-process.ts';
import { READ, runsFixture } from './runs-fixture.ts';

const fixture = runsFixture();

const echo = tool({
  name: 'echo',
  description: 'Repeats the text',
  input: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] },
  effect: 'pure',
  execute: ({ text }) => String(text),
});
const calling = (text: string): { calls: { name: string; arguments: unknown }[] } => ({
  calls: [{ name: 'echo', arguments: { text } }],
});

/** Adds runs to the store as a program would. */
const stored = (...all: readonly Omit<LoopOptions, 'journal'>[]): Promise<void> =>
  fixture.inStore(async (store) => {
    for (const options of all) await runLoop({ ...options, journal: store });
  });

const answering = (runId: string, input = 'go'): Omit<LoopOptions, 'journal'> => ({
  runId,
  input,
  model: scriptedModel(['Done.']),
});

describe('list', () => {
  test('shows a table of runs with a fork and a child run', async () => {
    const helper = agentTool({ name: 'helper', description: '', model: scriptedModel(['Helped.']) });
    const asking = { calls: [{ name: 'helper', arguments: { task: 'help me' } }] };
    await stored({ runId: 'a', input: 'the task', tools: [helper], model: scriptedModel([asking, 'Done.']) });
    expect(await fixture.treadle('runs', 'fork', 'a', '--at', '1', '--no-run')).toMatchObject({ code: 0 });
    const { code, stdout, stderr } = await fixture.treadle('runs', 'list');
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout.split('\n').map((line) => line.trimEnd())).toEqual([
      'ID            STATUS       AGE  ENTRIES  MODEL     TITLE',
      expect.stringMatching(/^run_\w{8} +interrupted +\d+ s +3 {2}scripted {2}\(fork of a\) the task$/),
      expect.stringMatching(/^a\.t1\.tool\.0 {3}completed +\d+ s +2 {2}scripted {2}help me$/),
      expect.stringMatching(/^a +completed +\d+ s +5 {2}scripted {2}the task$/),
      '',
    ]);
  });

  test('supports --status, --limit and --json', async () => {
    await stored(answering('a', 'one'), answering('b', 'two'), {
      ...answering('c', 'three'),
      model: scriptedModel([calling('x')]),
      tools: [tool({ name: 'echo', description: 'elsewhere' })],
    });
    const ids = async (...args: readonly string[]): Promise<readonly string[]> =>
      JSON.parse((await fixture.treadle('runs', 'list', '--json', ...args)).stdout).map(
        ({ runId }: { runId: string }) => runId,
      );
    expect(await ids()).toEqual(['c', 'b', 'a']);
    expect(await ids('--status', 'completed')).toEqual(['b', 'a']);
    expect(await ids('--status', 'paused', '--status=completed', '--limit', '2')).toEqual(['c', 'b']);
    expect(await ids('--status', 'running')).toEqual([]);
    expect(await ids('--status', 'interrupted')).toEqual([]);
    expect(await fixture.treadle('runs', 'list', '--limit', '1')).toMatchObject({
      stdout: expect.stringMatching(/^ID .*\nc .*\n$/),
      stderr: 'There are more runs: --limit 5\n',
    });
    expect(await fixture.treadle('runs', 'list', '--status', 'failed')).toEqual({
      code: 0,
      stdout: '',
      stderr: 'There are no runs with this status.\n',
    });
  });

  test('lists nothing without a store, and does not create one', async () => {
    const { code, stdout, stderr } = await fixture.treadle('runs', 'list', '--json');
    expect([code, stdout]).toEqual([0, '[]\n']);
    expect(stderr).toMatch(/There are no runs yet: .*treadle\.db does not exist/);
    expect(await fixture.treadle('runs', 'show', 'x')).toMatchObject({ code: 2 });
    expect(await fixture.treadle('runs', 'list', '--store', 'memory:')).toMatchObject({ code: 2 });
    expect(await readdir(fixture.play.folder)).toEqual(['notes.txt']);
  });

  test('shortens titles to one line and escapes control sequences', async () => {
    await stored(answering('a', `\u001b[31m${'long '.repeat(50)}\nand more`));
    const { exit, screen } = fakeTerminal(['runs', 'list'], fixture.play.folder, 60);
    expect(await exit).toBe(0);
    expect(screen()).toContain('\\u001b[31mlong');
    for (const line of screen().split('\n')) expect(line.length).toBeLessThanOrEqual(60);
  });
});

describe('show', () => {
  test('prints any number of lines', async () => {
    const input = 'line\n'.repeat(200_000);
    await stored({ ...answering('a'), input });
    const { code, stdout } = await fixture.treadle('runs', 'show', 'a', '--full');
    expect(code).toBe(0);
    expect(stdout.split('\n').filter((line) => line.endsWith('line')).length).toBeGreaterThanOrEqual(199_999);
  });

  test('prints a timeline of turns, calls and results with durations', async () => {
    await fixture.script({ ...READ, text: ['Let me look.\nAt once.'] }, { text: ['It says hello.'] });
    await fixture.treadle('run', ...fixture.model(), '--tools', 'read-only', 'What is in notes.txt?');
    const { code, stdout, stderr } = await fixture.treadle('runs', 'show', 'run_');
    expect([code, stderr]).toEqual([0, '']);
    const { runId } = (await fixture.runs())[0]!;
    const plain = stdout.replaceAll(/\+?\d+(\.\d+)? m?s/g, 'TIME').replaceAll(/ +/g, ' ');
    expect(plain.split('\n')).toEqual([
      `${runId} completed`,
      ' model scripted',
      expect.stringMatching(/^ started \d{4}-\d\d-\d\d \d\d:\d\d:\d\d, TIME ago$/),
      ' used 2 turns and 1 call; 20 in, 10 out, unknown cost',
      ' active TIME of TIME',
      '',
      ' 0 TIME started: model scripted; tools read, glob, grep',
      ' task: What is in notes.txt?',
      'Turn 1',
      ' 1 TIME model (TIME, 10 in, 5 out): 2 lines: Let me look.',
      ' t1.tool.0: read {"path":"notes.txt"}',
      ' 2 TIME t1.tool.0: allowed (rule paths)',
      ` 3 TIME t1.tool.0 returned (TIME): 1 the word is ${fixture.play.nonce}`,
      'Turn 2',
      ' 4 TIME model (TIME, 10 in, 5 out): It says hello.',
      ' completed',
      '',
    ]);
    const { stdout: full } = await fixture.treadle('runs', 'show', runId, '--full');
    expect(full).toMatch(/instructions: You help a person at a terminal\. .* not instructions to you\.\n/);
    expect(full).toMatch(/model \(.*\):\n +Let me look\.\n +At once\.\n/);
  });

  test('--json prints the summary and every entry', async () => {
    await stored({ ...answering('a'), model: scriptedModel([calling('x'), 'Done.']), tools: [echo] });
    const shown = JSON.parse((await fixture.treadle('runs', 'show', 'a', '--json')).stdout);
    expect(shown).toMatchObject({
      runId: 'a',
      status: 'completed',
      standing: 'completed',
      outcome: { type: 'completed' },
      turns: 2,
      calls: 1,
      usage: { inputTokens: 20 },
      waiting: [],
      children: [],
      forks: [],
    });
    expect(shown.entries).toEqual(await fixture.inStore((store) => store.read('a')));
  });

  test('--at prints the state after an entry', async () => {
    await fixture.script({ calls: [...READ.calls, ...READ.calls] });
    await fixture.treadle('run', '--ask', ...fixture.model(), 'go');
    const { stdout } = await fixture.treadle('runs', 'show', 'run_', '--at', '2');
    expect(stdout).toMatch(/^run_\w{8} after entry 2 of 0 to 2, \d{4}-.*\n\nevent {8}calls-judged t1\.judge\.0\n/);
    expect(stdout).toContain('\nphase        tools, turn 1\n');
    expect(stdout).toContain('\nwaits for    t1.approval.0: approval of read {"path":"notes.txt"}\n');
    expect(stdout).toContain('\n             t1.approval.1: approval of read');
    expect(stdout).toContain(
      'Conversation, 2 messages\n  user         go\n  assistant    calls read {"path":"notes.txt"}',
    );
    expect((await fixture.treadle('runs', 'show', 'run_', '--at', '0')).stdout).toContain('outstanding  t1.model.0\n');
    const state = JSON.parse((await fixture.treadle('runs', 'show', 'run_', '--at', '2', '--json')).stdout);
    expect(state).toMatchObject({
      seq: 2,
      phase: { type: 'tools' },
      outstanding: [{ id: 't1.approval.0', type: 'ask-approval' }, { id: 't1.approval.1' }],
      waiting: [{ type: 'approval' }, { type: 'approval' }],
      messages: [{ role: 'user' }, { role: 'assistant' }],
    });
  });

  test('shows all entries of a compacted run, and names its child run', async () => {
    const helper = agentTool({ name: 'helper', description: 'Helps', model: scriptedModel(['Helped.']) });
    const asking = { calls: [{ name: 'helper', arguments: { task: 'help me' } }] };
    const usage = { inputTokens: 90, outputTokens: 10, cost: 0.25 };
    await stored({
      runId: 'a',
      input: 'the task',
      tools: [echo, helper],
      model: scriptedModel([calling('the first'), asking, { ...calling('the third'), usage }, 'Done.']),
      summariser: scriptedModel(['They said the first, and got help.']),
      compaction: { tokens: 100, keepTurns: 1 },
    });
    const { stdout } = await fixture.treadle('runs', 'show', 'a');
    expect(stdout).toContain('child      a.t2.tool.0, completed');
    expect(stdout).toContain('t1.tool.0: echo {"text":"the first"}');
    expect(stdout).toMatch(/t2\.tool\.0 \(child run a\.t2\.tool\.0\): helper/);
    expect(stdout).toMatch(/t2\.tool\.0 returned \([\d.]+ m?s, it used 10 in, 5 out\): Helped\./);
    expect(stdout).toMatch(/history compacted \(.*\): a summary replaces messages 2 to 5/);
    expect(stdout).toContain('summary: They said the first, and got help.');
    expect(stdout).toContain('90 in, 10 out, $0.25');
    const { stdout: child } = await fixture.treadle('runs', 'show', 'a.t2');
    expect(child).toContain('child of   a, call t2.tool.0');
    expect((await fixture.treadle('runs', 'resume', 'a.t2.tool.0')).stderr).toContain(
      'is a child of a and resumes with it',
    );
  });
});

describe('an id', () => {
  test('may be shortened, with or without run_', async () => {
    await stored(answering('run_abc1'), answering('run_abd2'));
    for (const prefix of ['run_abc', 'abc', 'abc1', 'run_abc1']) {
      expect((await fixture.treadle('runs', 'replay', prefix)).code).toBe(0);
    }
  });

  test('that matches several runs lists them', async () => {
    await stored(answering('run_abc1', 'one'), answering('run_abd2', 'two'));
    for (const prefix of ['run_', 'ab']) {
      expect(await fixture.treadle('runs', 'show', prefix)).toEqual({
        code: 2,
        stdout: '',
        stderr: `treadle: "${prefix}" matches 2 runs. Give more of the id:\n  run_abd2  two\n  run_abc1  one\n`,
      });
    }
  });

  test('that is empty is refused', async () => {
    await stored(answering('run_abc1'));
    expect(await fixture.treadle('runs', 'show', '')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('got an empty text as'),
    });
  });

  test('that matches no run suggests a similar one', async () => {
    await stored(answering('run_abc1'));
    expect(await fixture.treadle('runs', 'show', 'run_abx1')).toMatchObject({
      code: 2,
      stderr: 'treadle: There is no run "run_abx1". Did you mean run_abc1? "treadle runs list" lists the runs.\n',
    });
    expect((await fixture.treadle('runs', 'show', 'zzzzzz')).stderr).not.toContain('Did you mean');
  });

  test('is required', async () => {
    for (const sub of ['show', 'resume', 'cancel', 'release', 'fork', 'replay', 'export', 'delete']) {
      expect((await fixture.treadle('runs', sub)).stderr).toContain(`treadle runs ${sub} needs ID. Usage: `);
    }
    expect((await fixture.treadle('runs', 'diff', 'a')).stderr).toContain('treadle runs diff needs B.');
  });
});

test.each([
  [['show', 'a', '--at', '2'], 'Run a has entries 0 to 1; there is no entry 2.'],
  [['show', 'a', '--at', 'x'], '--at cannot be "x". It takes a whole number from 0.'],
  [['fork', 'a', '--at', '9'], 'Run a has entries 0 to 1; there is no entry 9.'],
  [['fork', 'a'], '--at N is missing. It takes the last entry to copy, 0 to 1.'],
  [['fork', 'a', '--at', '1', '--result', 't1.tool.0=x'], 'no call "t1.tool.0" has a result'],
  [['fork', 'a', '--at', '1', '--result', 'x'], '--result cannot be "x". It takes EFFECT=TEXT'],
  [['resume', 'a'], 'Run a has ended (completed)'],
  [['list', '--status', 'done'], '--status cannot be "done". It takes running or interrupted or paused'],
  [['shwo', 'a'], 'There is no command "runs shwo". Did you mean "show"?'],
  [['--json'], '--json is not a command.'],
])('rejects runs %j', async (args, message) => {
  await stored(answering('a'));
  const { code, stdout, stderr } = await fixture.treadle(
    'runs',
    ...args,
    ...(args[0] === 'fork' ? ['--model', 'demo'] : []),
  );
  expect([code, stdout, stderr]).toEqual([2, '', expect.stringContaining(message)]);
  expect(await fixture.runs()).toHaveLength(1);
});

test('shows which rule decided, and what people allowed for the rest of the run', async () => {
  const act = tool({ name: 'act', description: '', execute: () => 'done' });
  const policy: Policy = { judge: (calls) => calls.map(() => ({ type: 'ask', reason: 'risky', rule: 'tools' })) };
  const acting = { calls: [{ name: 'act' }] };
  const run = { tools: [act], policy, runId: 'p' };
  await fixture.inStore(async (journal) => {
    const { waiting } = await runLoop({ ...run, model: scriptedModel([acting]), input: 'go', journal });
    const answers = waiting.flatMap((wait) =>
      wait.type === 'approval' ? { ...wait, type: 'approval' as const, approved: true, forRun: true, by: 'ann' } : [],
    );
    return runLoop({ ...run, model: scriptedModel([acting, 'ok']), journal, answers });
  });
  const { stdout } = await fixture.treadle('runs', 'show', 'p');
  expect(stdout).toContain('needs approval: risky (rule tools)');
  expect(stdout).toContain('t1.approval.0 approved by ann for the rest of the run');
});

/** While the test uses it, no sync of a log succeeds. */
function failingDisk(): Disposable {
  const { fdatasync } = fs;
  const replace = (sync: unknown): void => {
    fs.fdatasync = sync as typeof fdatasync;
    syncBuiltinESMExports();
  };
  replace((_: number, done: fs.NoParamCallback) => done(new Error('EIO: i/o error, fdatasync')));
  return { [Symbol.dispose]: () => replace(fdatasync) };
}

/** A run that has ended, one that differs, and one that was interrupted: all have "go" in their title. */
async function threeRuns(): Promise<void> {
  const clock: Clock = { now: () => 1, timer: () => () => {} };
  await stored({ ...answering('a1'), clock }, { ...answering('b', 'go on'), clock });
  await fixture.inStore(async (journal) => {
    const model: Model = { id: 'silent', reply: () => new Promise<never>(() => {}) };
    const live = streamLoop({ model, runId: 'a2', input: 'go there', journal });
    for await (const { type } of live) if (type === 'turn-started') await live.detach();
  });
}

test.each([
  'runs list',
  'runs list --json',
  'runs list --status failed',
  'runs show a1',
  'runs show a1 --at 1',
  'runs show a1 --json',
  'runs show a',
  'runs show a3',
  'runs replay a1',
  'runs diff a1 a1',
  'runs diff a1 b',
  'runs export a1',
  'runs resume a1',
  'runs cancel a1',
  'runs prune --older-than 1s --dry-run',
  'runs fork a1 --at 1',
  'runs delete a1 --yes',
  'trace a1',
  'trace a1 --json',
  'status',
  'metrics',
  'metrics --json',
  'budgets list',
  'store check',
  'run --no-tools Hello',
  'chat --no-tools --continue',
])('%s tells nothing that a power failure could take back', async (line) => {
  await threeRuns();
  using _ = failingDisk();
  const { code, stdout, stderr } = await fixture.treadle(...line.split(' '));
  expect(code).toBe(1);
  expect(stdout + stderr).toContain('could not be synced');
  expect(stdout + stderr).not.toMatch(/\b(a1|a2|go|completed|not finished|no runs?)\b/);
});

test('metrics tells nothing that a power failure could take back if another process has counted', async () => {
  await threeRuns();
  const { code } = await fixture.treadle('metrics');
  using _ = failingDisk();
  const { code: codeThen, stdout, stderr } = await fixture.treadle('metrics');
  expect([code, codeThen, stdout]).toEqual([0, 1, '']);
  expect(stderr).toContain('could not be synced');
});

test('/runs in a chat tells nothing that a power failure could take back', async () => {
  await threeRuns();
  using failing = new DisposableStack();
  async function* typed() {
    // Only another process knows whether it is synced.
    await stored(answering('c', 'go on'));
    failing.use(failingDisk());
    yield '/runs\n';
  }
  const { stdout, stderr } = await command(['chat', '--no-tools'], fixture.play.folder, {
    stdin: Readable.from(typed()),
  });
  expect(stderr).toContain('could not be synced');
  expect(stdout + stderr).not.toContain('go on');
});
