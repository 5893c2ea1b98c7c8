import { once } from 'node:events';
import { join } from 'node:path';
import { defineAgent, executeAgent, runLoop, streamLoop, tool, type Tool } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { fileTools } from 'treadle';
import { describe, expect, test, vi } from 'vitest';
import { fakeTerminal } from './fake-terminal.ts';
import { READ, runsStage, type RunsStage } from './runs-stage.ts';
import type { ChatRequest } from './scripted-openai.ts';
import type { TreadleProcess } from './treadle-process.ts';

// Starting processes takes a while on a busy machine.
vi.setConfig({ testTimeout: 30_000 });

const stage = runsStage();

/** What the model was told, without what depends on where the test runs. */
const told = (request: ChatRequest | undefined): unknown => request?.messages;

/** A run that has read the file, and whose model then says half a sentence and nothing more. */
async function halfway(on: RunsStage = stage): Promise<TreadleProcess> {
  await on.script(READ, { hang: 'It sa' }, { text: ['It says hello.'] });
  const running = on.start('run', ...on.model(), 'What is in notes.txt?');
  await on.server.answered(2);
  return running;
}

async function onlyRun(): Promise<string> {
  const [run, ...others] = await stage.runs();
  expect(others).toEqual([]);
  return run!.runId;
}

describe('a run killed in the middle', () => {
  test('is listed, shown, told of at the next start, and resumed to its end with the same answer', async () => {
    const { child } = await halfway();
    child.kill('SIGKILL');
    await once(child, 'close');

    const id = await onlyRun();
    const short = id.slice(0, 12);
    const { stdout: list } = await stage.treadle('runs', 'list');
    expect(list).toMatch(new RegExp(`^${short}  interrupted  .*  scripted  What is in notes\\.txt\\?$`, 'm'));
    const { stdout: shown } = await stage.treadle('runs', 'show', short);
    expect(shown).toContain(`t1.tool.0 gave (`);
    expect(shown).toContain(`the word is ${stage.play.nonce}`);
    expect(shown).toContain(`Go on with: treadle runs resume ${short}`);
    const { stderr: told1 } = await stage.treadle('chat');
    expect(told1).toMatch(
      new RegExp(
        `A run was not finished:\\n  ${short}  \\d+ s ago  What is in notes\\.txt\\?\\n` +
          `Go on with treadle runs resume ${short}, or end it with treadle runs cancel ${short}\\.`,
      ),
    );

    const resumed = await stage.treadle('runs', 'resume', short.slice(0, 9), ...stage.model());
    expect(resumed).toEqual({ code: 0, stdout: 'It says hello.\n', stderr: '' });
    // The file was not read again, and the model was told exactly what it was told before.
    expect(told(stage.server.requests[2])).toEqual(told(stage.server.requests[1]));
    expect(stage.server.requests).toHaveLength(3);
    expect(await stage.runs()).toMatchObject([{ runId: id, status: 'completed' }]);
    expect((await stage.treadle('chat')).stderr).not.toContain('not finished');
  });

  test('while a tool was running: the tool runs again, as it only reads', async () => {
    await stage.inStore(async (store) => {
      const { begun, tools } = endlessTools();
      const model = scriptedModel([{ calls: [{ name: 'read', arguments: { path: 'notes.txt' } }] }]);
      const live = streamLoop({ model, tools, input: 'go', journal: store, runId: 'run_left' });
      await begun;
      await live.detach();
    });
    await stage.script({ text: ['Done.'] });
    const { code, stdout, stderr } = await stage.treadle('runs', 'resume', 'run_left', ...stage.model());
    expect([code, stdout]).toEqual([0, 'Done.\n']);
    expect(stderr).toContain(`gave: the word is ${stage.play.nonce}`);
    const { stdout: shown } = await stage.treadle('runs', 'show', 'run_left');
    expect(shown).toContain('t1.tool.0 lost: it was under way when the run was left');
    expect(shown).toContain('t1.tool.0 runs again');
  });
});

/** The tools of the command, of which `read` never comes back. */
function endlessTools(): { readonly begun: Promise<void>; readonly tools: readonly Tool[] } {
  const { promise: begun, resolve } = Promise.withResolvers<void>();
  const execute = (): Promise<never> => {
    resolve();
    return new Promise(() => {});
  };
  const tools = fileTools(stage.play.folder).map((one) => (one.name === 'read' ? { ...one, execute } : one));
  return { begun, tools };
}

describe('Ctrl-C', () => {
  test('leaves the run as it is, and it goes on later', async () => {
    const { child, ended } = await halfway();
    child.kill('SIGINT');
    const { code, stderr } = await ended;
    expect(code).toBe(130);
    const command = /^Go on with: treadle (.*)$/m.exec(stderr)![1]!.split(' ');
    const { stdout: shown } = await stage.treadle('runs', 'show', await onlyRun(), '--json');
    expect(JSON.parse(shown)).toMatchObject({ status: 'running', standing: 'interrupted', turns: 2, calls: 1 });
    expect(await stage.treadle(...command)).toMatchObject({ code: 0, stdout: 'It says hello.\n' });
    expect(told(stage.server.requests[2])).toEqual(told(stage.server.requests[1]));
  });

  test('twice quits at once, and it goes on later all the same', async () => {
    const { child, ended } = await halfway();
    child.kill('SIGINT');
    child.kill('SIGINT');
    expect((await ended).code).toBe(130);
    expect(await stage.treadle('runs', 'resume', 'run_', ...stage.model())).toMatchObject({
      code: 0,
      stdout: 'It says hello.\n',
    });
  });

  test('in a resumed run leaves it again', async () => {
    const { child, ended } = await halfway();
    child.kill('SIGINT');
    await ended;
    await stage.script({ hang: 'Once mo' }, { text: ['At last.'] });
    const again = stage.start('runs', 'resume', 'run_', ...stage.model());
    await stage.server.answered(1);
    again.child.kill('SIGINT');
    expect(await again.ended).toMatchObject({ code: 130, stderr: expect.stringContaining('Go on with: treadle runs') });
    expect(await stage.treadle('runs', 'resume', 'run_', ...stage.model())).toMatchObject({ stdout: 'At last.\n' });
  });
});

describe('cancel', () => {
  test('ends a run that was left, and then there is nothing to resume', async () => {
    const { child, ended } = await halfway();
    child.kill('SIGINT');
    await ended;
    const id = (await onlyRun()).slice(0, 12);
    expect(await stage.treadle('runs', 'cancel', id)).toEqual({ code: 0, stdout: '', stderr: `Cancelled ${id}.\n` });
    expect(await stage.runs()).toMatchObject([{ status: 'cancelled' }]);
    expect(await stage.treadle('runs', 'cancel', id)).toMatchObject({
      code: 2,
      stderr: `treadle: Run ${id} has ended already (cancelled).\n`,
    });
    const resumed = await stage.treadle('runs', 'resume', id, ...stage.model());
    expect(resumed.code).toBe(2);
    expect(resumed.stderr).toContain(`Run ${id} has ended (cancelled), so there is nothing to go on with.`);
    expect(resumed.stderr).toContain(`treadle runs fork ${id} --at N`);
    expect(await stage.treadle('runs', 'replay', id)).toMatchObject({ code: 0 });
  });

  test('ends the runs that work for it too, and what waits gets a result', async () => {
    const ask = { judge: () => [{ type: 'ask' as const }] };
    const act = tool({ name: 'act', description: '', execute: () => 'acted' });
    await stage.inStore(async (store) => {
      const calling = { calls: [{ name: 'act' }] };
      const options = { tools: [act], policy: ask, input: 'go', journal: store };
      await runLoop({ ...options, model: scriptedModel([calling]), runId: 'p' });
      const parent = { runId: 'p', effect: 't1.tool.0' };
      await runLoop({ ...options, model: scriptedModel([calling]), runId: 'p.t1.tool.0', parent });
    });
    expect((await stage.treadle('runs', 'cancel', 'p')).stderr).toBe('Cancelled p, and 1 run that worked for it.\n');
    expect(await stage.runs()).toMatchObject([{ status: 'cancelled' }, { status: 'cancelled' }]);
    const { stdout } = await stage.treadle('runs', 'show', 'p');
    expect(stdout).toContain('t1.tool.0 error: Not finished: the run was cancelled.');
    expect(stdout).toContain('cancelled: while an approval was awaited');
  });
});

describe('approvals', () => {
  async function paused(): Promise<string> {
    await stage.script(READ, { text: ['Done.'] });
    const { code, stderr } = await stage.treadle('run', '--ask', ...stage.model(), 'go');
    const id = await onlyRun();
    expect(code).toBe(4);
    expect(stderr).toContain(`Go on with: treadle runs resume ${id.slice(0, 12)} --approve t1.approval.0 --model`);
    return id;
  }
  const resume = (...args: readonly string[]): ReturnType<RunsStage['treadle']> =>
    stage.treadle('runs', 'resume', 'run_', ...stage.model(), ...args);
  const lastTold = (): string => JSON.stringify(stage.server.requests.at(-1)!.messages.at(-1));

  test.each(['t1.approval.0', 'all'])('--approve %s goes on', async (effect) => {
    await paused();
    expect(await resume('--approve', effect)).toMatchObject({ code: 0, stdout: 'Done.\n' });
    expect(lastTold()).toContain(stage.play.nonce);
  });

  test('--deny is told to the model', async () => {
    await paused();
    expect(await resume('--deny', 't1.approval.0')).toMatchObject({ code: 0, stdout: 'Done.\n' });
    expect(lastTold()).toContain('was not approved');
    expect(lastTold()).not.toContain(stage.play.nonce);
  });

  test('without a word and without a terminal it is paused again', async () => {
    await paused();
    const { code, stderr } = await resume();
    expect(code).toBe(4);
    expect(stderr).toContain('Paused: it waits for approval of read {"path":"notes.txt"}.');
    expect(stage.server.requests).toHaveLength(1);
  });

  test('on a terminal it asks', async () => {
    await paused();
    const { type, shows, exit } = fakeTerminal(['runs', 'resume', 'run_', ...stage.model()], stage.play.folder);
    await shows('read wants to run with {"path":"notes.txt"}\nAllow it? [y/N] ');
    type('y\r');
    await shows('Done.\n');
    expect(await exit).toBe(0);
  });

  test.each([
    [
      ['--approve', 't9.approval.0'],
      'waits for no approval "t9.approval.0". It waits for:\n  t1.approval.0: approval of',
    ],
    [['--answer', 't1.approval.0'], '--answer cannot be "t1.approval.0". It takes EFFECT=TEXT'],
    [['--answer', 't1.approval.0=yes'], '"t1.approval.0" waits for approval "t1.approval.0" (read)'],
    [['--approve', 'all', '--deny', 'all'], 'is answered twice'],
  ])('%j is told what it waits for', async (args, message) => {
    await paused();
    const { code, stderr } = await resume(...args);
    expect([code, stderr]).toEqual([2, expect.stringContaining(message)]);
    expect(await stage.runs()).toMatchObject([{ status: 'paused', entries: 3 }]);
  });
});

test('a result from outside, and tools that are not those of the run', async () => {
  const pick = tool({ name: 'pick', description: 'The client picks a colour' });
  await stage.inStore((store) =>
    runLoop({
      model: scriptedModel([{ calls: [{ name: 'pick' }] }]),
      tools: [pick],
      input: 'go',
      journal: store,
      runId: 'c',
    }),
  );
  await stage.script({ text: ['Blue it is.'] });
  const resume = (...args: readonly string[]): ReturnType<RunsStage['treadle']> =>
    stage.treadle('runs', 'resume', 'c', ...stage.model(), '--answer', 't1.client.0=blue=ish', ...args);
  const refused = await resume();
  expect(refused.code).toBe(2);
  expect(refused.stderr).toMatch(/Run "c" had other tools: "pick" is gone\..*\n.*--accept-changed-tools/s);
  expect(await resume('--accept-changed-tools')).toMatchObject({ code: 0, stdout: 'Blue it is.\n' });
  expect(JSON.stringify(stage.server.requests[0]!.messages.at(-1))).toContain('blue=ish');
});

test('a run that only its program can go on with is left alone', async () => {
  const act = tool({ name: 'act', description: '' });
  const model = scriptedModel([{ calls: [{ name: 'act' }] }]);
  await stage.inStore((store) =>
    runLoop({ model, tools: [act], prepareTurn: () => ({}), input: 'go', journal: store, runId: 'p' }),
  );
  for (const args of [['resume'], ['fork', '--at', '2']]) {
    const { code, stderr } = await stage.treadle('runs', ...args, 'p', '--model', 'demo');
    expect([code, stderr]).toEqual([2, expect.stringContaining('Run p was started by a program that prepares each')]);
  }
  expect((await stage.treadle('runs', 'show', 'p')).stdout).toContain('Go on with it in that program.');
  expect(await stage.runs()).toMatchObject([{ runId: 'p', status: 'paused' }]);
  expect(await stage.treadle('runs', 'cancel', 'p')).toMatchObject({ code: 0 });
});

test('a run of a typed agent is shown and replayed, and otherwise left alone', async () => {
  const error = { code: 'overloaded', message: 'down', retryable: true } as const;
  const agent = defineAgent({
    name: 'adder',
    description: 'Adds up',
    model: scriptedModel([{ calls: [{ name: 'nothing' }] }, { type: 'failure', error }]),
    prompts: { user: 'Add up' },
    tools: { output: { name: 'answer', description: 'The total' } },
    validation: { outputSchema: { type: 'number' }, maxAttempts: 1 },
  });
  await stage.inStore((journal) => executeAgent(agent, { input: 0, journal, runId: 'a' }));
  const { stdout } = await stage.treadle('runs', 'show', 'a');
  expect(stdout).toContain('It is one of the agent "adder" of a program. Go on with it in that program.');
  const { code, stderr } = await stage.treadle('runs', 'resume', 'a', '--model', 'demo');
  expect([code, stderr]).toEqual([2, expect.stringContaining('Run a is one of the agent "adder"')]);
  expect(await stage.treadle('runs', 'replay', 'a')).toMatchObject({ code: 0 });
});

test('a run that failed with its model is tried again', async () => {
  await stage.script({ status: 401, message: 'wrong key' }, { text: ['Now it works.'] });
  const { code, stderr } = await stage.treadle('run', ...stage.model(), 'go');
  expect(code).toBe(1);
  const command = /^Try again with: treadle (.*)$/m.exec(stderr)![1]!.split(' ');
  expect(await stage.treadle(...command)).toMatchObject({ code: 0, stdout: 'Now it works.\n' });
});

test('two processes with one run: the second is told who drives it', async () => {
  const { child, ended } = await halfway();
  child.kill('SIGINT');
  await ended;
  await stage.script({ hang: 'Mine' }, { text: ['never asked'] });
  const first = stage.start('runs', 'resume', 'run_', ...stage.model());
  await stage.server.answered(1);
  expect((await stage.treadle('runs', 'list')).stdout).toMatch(/^run_\w{8} {2}running {2}/m);
  expect((await stage.treadle('chat')).stderr).not.toContain('not finished');

  const driven = `is driven by process ${first.child.pid} on host`;
  const second = await stage.start('runs', 'resume', 'run_', ...stage.model()).ended;
  expect([second.code, second.stdout]).toEqual([2, '']);
  expect(second.stderr).toContain(driven);
  for (const args of [['cancel'], ['delete', '--yes']]) {
    const refused = await stage.treadle('runs', ...args, 'run_');
    expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining(driven)]);
  }
  stage.server.resume();
  expect(await first.ended).toMatchObject({ code: 0, stdout: 'Mine\n' });
  expect(stage.server.requests).toHaveLength(1);
});

describe('the model', () => {
  async function left(): Promise<void> {
    const { child, ended } = await halfway();
    child.kill('SIGINT');
    await ended;
  }

  test('is the one that the run names, where the configuration has it', async () => {
    await left();
    await stage.play.write(
      'treadle.toml',
      `[models.other]\nmodel = "another"\n[models.mine]\nmodel = "scripted"\nbase_url = "${stage.server.baseURL}"\n`,
    );
    expect(await stage.treadle('runs', 'resume', 'run_')).toMatchObject({ code: 0, stdout: 'It says hello.\n' });
    expect(stage.server.requests[2]!.model).toBe('scripted');
  });

  test('or another one that is named', async () => {
    await left();
    const named = ['--model', 'changed', '--base-url', stage.server.baseURL];
    expect(await stage.treadle('runs', 'resume', 'run_', ...named)).toMatchObject({ code: 0 });
    expect(stage.server.requests[2]!.model).toBe('changed');
  });

  test('is not guessed where it is not known, and nothing is lost', async () => {
    await left();
    const { code, stderr } = await stage.treadle('runs', 'resume', 'run_');
    expect(code).toBe(2);
    expect(stderr).toContain('started with the model scripted, and it is not known where that is');
    expect(await stage.runs()).toMatchObject([{ status: 'running', entries: 3 }]);
  });
});

test('another working folder than the run was told of is pointed out', async () => {
  const { child, ended } = await halfway();
  child.kill('SIGINT');
  await ended;
  await stage.play.write('elsewhere/x.txt', '');
  const store = `sqlite:${join(stage.play.folder, '.treadle/treadle.db')}`;
  const args = ['runs', 'resume', 'run_', '--store', store, '--cwd', 'elsewhere', ...stage.model()];
  const { code, stderr } = await stage.treadle(...args);
  expect([code, stderr]).toEqual([0, expect.stringContaining('told of another working folder')]);
});
