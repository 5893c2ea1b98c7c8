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

// Starting processes takes a long time on a busy machine.
vi.setConfig({ testTimeout: 30_000 });

const stage = runsStage();

const messagesOf = (request: ChatRequest | undefined): unknown => request?.messages;

/** A run that has read the file, and whose model hangs in the next reply. */
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

describe('a killed run', () => {
  test('is listed, shown, announced at the next start, and resumed to its end', async () => {
    const { child } = await halfway();
    child.kill('SIGKILL');
    await once(child, 'close');

    const id = await onlyRun();
    const short = id.slice(0, 12);
    const { stdout: list } = await stage.treadle('runs', 'list');
    expect(list).toMatch(new RegExp(`^${short}  interrupted  .*  scripted  What is in notes\\.txt\\?$`, 'm'));
    const { stdout: shown } = await stage.treadle('runs', 'show', short);
    expect(shown).toContain(`t1.tool.0 returned (`);
    expect(shown).toContain(`the word is ${stage.play.nonce}`);
    expect(shown).toContain(`Resume with: treadle runs resume ${short}`);
    const { stderr: notice } = await stage.treadle('chat');
    expect(notice).toMatch(
      new RegExp(
        `There is an unfinished run:\\n  ${short}  \\d+ s ago  What is in notes\\.txt\\?\\n` +
          `Resume with: treadle runs resume ${short}\\nCancel with: treadle runs cancel ${short}\\n`,
      ),
    );

    const resumed = await stage.treadle('runs', 'resume', short.slice(0, 9), ...stage.model());
    expect(resumed).toEqual({ code: 0, stdout: 'It says hello.\n', stderr: '' });
    // The file was not read again, and the model got the same messages.
    expect(messagesOf(stage.server.requests[2])).toEqual(messagesOf(stage.server.requests[1]));
    expect(stage.server.requests).toHaveLength(3);
    expect(await stage.runs()).toMatchObject([{ runId: id, status: 'completed' }]);
    expect((await stage.treadle('chat')).stderr).not.toContain('unfinished');
  });

  test('runs a read-only tool again that was running', async () => {
    await stage.inStore(async (store) => {
      const { started, tools } = endlessTools();
      const model = scriptedModel([{ calls: [{ name: 'read', arguments: { path: 'notes.txt' } }] }]);
      const live = streamLoop({ model, tools, input: 'go', journal: store, runId: 'run_interrupted' });
      await started;
      await live.detach();
    });
    await stage.script({ text: ['Done.'] });
    const { code, stdout, stderr } = await stage.treadle('runs', 'resume', 'run_interrupted', ...stage.model());
    expect([code, stdout]).toEqual([0, 'Done.\n']);
    expect(stderr).toContain(`returned: the word is ${stage.play.nonce}`);
    const { stdout: shown } = await stage.treadle('runs', 'show', 'run_interrupted');
    expect(shown).toContain('t1.tool.0 lost: the process stopped before it finished');
    expect(shown).toContain('t1.tool.0 runs again');
  });
});

/** The tools of the command, with a `read` that never returns. */
function endlessTools(): { readonly started: Promise<void>; readonly tools: readonly Tool[] } {
  const { promise: started, resolve } = Promise.withResolvers<void>();
  const execute = (): Promise<never> => {
    resolve();
    return new Promise(() => {});
  };
  const tools = fileTools(stage.play.folder).map((one) => (one.name === 'read' ? { ...one, execute } : one));
  return { started, tools };
}

describe('Ctrl-C', () => {
  test('detaches the run, which can be resumed', async () => {
    const { child, ended } = await halfway();
    child.kill('SIGINT');
    const { code, stderr } = await ended;
    expect(code).toBe(130);
    const command = /^Resume with: treadle (.*)$/m.exec(stderr)![1]!.split(' ');
    const { stdout: shown } = await stage.treadle('runs', 'show', await onlyRun(), '--json');
    expect(JSON.parse(shown)).toMatchObject({ status: 'running', standing: 'interrupted', turns: 2, calls: 1 });
    expect(await stage.treadle(...command)).toMatchObject({ code: 0, stdout: 'It says hello.\n' });
    expect(messagesOf(stage.server.requests[2])).toEqual(messagesOf(stage.server.requests[1]));
  });

  test('twice quits immediately, and the run can be resumed', async () => {
    const { child, ended } = await halfway();
    child.kill('SIGINT');
    child.kill('SIGINT');
    expect((await ended).code).toBe(130);
    expect(await stage.treadle('runs', 'resume', 'run_', ...stage.model())).toMatchObject({
      code: 0,
      stdout: 'It says hello.\n',
    });
  });

  test('detaches a resumed run again', async () => {
    const { child, ended } = await halfway();
    child.kill('SIGINT');
    await ended;
    await stage.script({ hang: 'Once mo' }, { text: ['At last.'] });
    const again = stage.start('runs', 'resume', 'run_', ...stage.model());
    await stage.server.answered(1);
    again.child.kill('SIGINT');
    expect(await again.ended).toMatchObject({
      code: 130,
      stderr: expect.stringContaining('Resume with: treadle runs'),
    });
    expect(await stage.treadle('runs', 'resume', 'run_', ...stage.model())).toMatchObject({ stdout: 'At last.\n' });
  });
});

describe('cancel', () => {
  test('ends an interrupted run, which cannot be resumed any more', async () => {
    const { child, ended } = await halfway();
    child.kill('SIGINT');
    await ended;
    const id = (await onlyRun()).slice(0, 12);
    expect(await stage.treadle('runs', 'cancel', id)).toEqual({ code: 0, stdout: '', stderr: `Cancelled ${id}.\n` });
    expect(await stage.runs()).toMatchObject([{ status: 'cancelled' }]);
    expect(await stage.treadle('runs', 'cancel', id)).toMatchObject({
      code: 2,
      stderr: `treadle: Run ${id} has already ended (cancelled).\n`,
    });
    const resumed = await stage.treadle('runs', 'resume', id, ...stage.model());
    expect(resumed.code).toBe(2);
    expect(resumed.stderr).toContain(`Run ${id} has ended (cancelled), so it cannot be resumed.`);
    expect(resumed.stderr).toContain(`treadle runs fork ${id} --at N`);
    expect(await stage.treadle('runs', 'replay', id)).toMatchObject({ code: 0 });
  });

  test('also cancels child runs, and answers waiting calls', async () => {
    const ask = { judge: () => [{ type: 'ask' as const }] };
    const act = tool({ name: 'act', description: '', execute: () => 'acted' });
    await stage.inStore(async (store) => {
      const calling = { calls: [{ name: 'act' }] };
      const options = { tools: [act], policy: ask, input: 'go', journal: store };
      await runLoop({ ...options, model: scriptedModel([calling]), runId: 'p' });
      const parent = { runId: 'p', effect: 't1.tool.0' };
      await runLoop({ ...options, model: scriptedModel([calling]), runId: 'p.t1.tool.0', parent });
    });
    expect((await stage.treadle('runs', 'cancel', 'p')).stderr).toBe('Cancelled p and 1 child run.\n');
    expect(await stage.runs()).toMatchObject([{ status: 'cancelled' }, { status: 'cancelled' }]);
    const { stdout } = await stage.treadle('runs', 'show', 'p');
    expect(stdout).toContain('t1.tool.0 error: Not finished: the run was cancelled.');
    expect(stdout).toContain('cancelled: while waiting for approval');
  });
});

describe('approvals', () => {
  async function paused(): Promise<string> {
    await stage.script(READ, { text: ['Done.'] });
    const { code, stderr } = await stage.treadle('run', '--ask', ...stage.model(), 'go');
    const id = await onlyRun();
    expect(code).toBe(4);
    expect(stderr).toContain(`Resume with: treadle runs resume ${id.slice(0, 12)} --approve t1.approval.0 --model`);
    return id;
  }
  const resume = (...args: readonly string[]): ReturnType<RunsStage['treadle']> =>
    stage.treadle('runs', 'resume', 'run_', ...stage.model(), ...args);
  const lastMessage = (): string => JSON.stringify(stage.server.requests.at(-1)!.messages.at(-1));

  test.each(['t1.approval.0', 'all'])('--approve %s resumes the run', async (effect) => {
    await paused();
    expect(await resume('--approve', effect)).toMatchObject({ code: 0, stdout: 'Done.\n' });
    expect(lastMessage()).toContain(stage.play.nonce);
  });

  test('--deny is sent to the model', async () => {
    await paused();
    expect(await resume('--deny', 't1.approval.0')).toMatchObject({ code: 0, stdout: 'Done.\n' });
    expect(lastMessage()).toContain('was not approved');
    expect(lastMessage()).not.toContain(stage.play.nonce);
  });

  test('pauses again without an answer and without a terminal', async () => {
    await paused();
    const { code, stderr } = await resume();
    expect(code).toBe(4);
    expect(stderr).toContain('Paused: waits for approval of read {"path":"notes.txt"}.');
    expect(stage.server.requests).toHaveLength(1);
  });

  test('asks on a terminal', async () => {
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
      'does not wait for approval "t9.approval.0". It waits for:\n  t1.approval.0: approval of',
    ],
    [['--answer', 't1.approval.0'], '--answer cannot be "t1.approval.0". It takes EFFECT=TEXT'],
    [['--answer', 't1.approval.0=yes'], '"t1.approval.0" waits for approval "t1.approval.0" (read)'],
    [['--approve', 'all', '--deny', 'all'], 'is answered twice'],
  ])('rejects %j, and names what the run waits for', async (args, message) => {
    await paused();
    const { code, stderr } = await resume(...args);
    expect([code, stderr]).toEqual([2, expect.stringContaining(message)]);
    expect(await stage.runs()).toMatchObject([{ status: 'paused', entries: 3 }]);
  });
});

test('resumes with a client result and changed tools', async () => {
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

test('rejects a run that only its program can resume', async () => {
  const act = tool({ name: 'act', description: '' });
  const model = scriptedModel([{ calls: [{ name: 'act' }] }]);
  await stage.inStore((store) =>
    runLoop({ model, tools: [act], prepareTurn: () => ({}), input: 'go', journal: store, runId: 'p' }),
  );
  for (const args of [['resume'], ['fork', '--at', '2']]) {
    const { code, stderr } = await stage.treadle('runs', ...args, 'p', '--model', 'demo');
    expect([code, stderr]).toEqual([
      2,
      expect.stringContaining('Run p was started by a program that prepares each turn'),
    ]);
  }
  expect((await stage.treadle('runs', 'show', 'p')).stdout).toContain('Resume it from that program.');
  expect(await stage.runs()).toMatchObject([{ runId: 'p', status: 'paused' }]);
  expect(await stage.treadle('runs', 'cancel', 'p')).toMatchObject({ code: 0 });
});

test('shows and replays a run of a typed agent, but does not resume it', async () => {
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
  expect(stdout).toContain('This run belongs to the agent "adder" of another program. Resume it from that program.');
  const { code, stderr } = await stage.treadle('runs', 'resume', 'a', '--model', 'demo');
  expect([code, stderr]).toEqual([2, expect.stringContaining('Run a belongs to the agent "adder"')]);
  expect(await stage.treadle('runs', 'replay', 'a')).toMatchObject({ code: 0 });
});

test('retries a run that failed because of its model', async () => {
  await stage.script({ status: 401, message: 'wrong key' }, { text: ['Now it works.'] });
  const { code, stderr } = await stage.treadle('run', ...stage.model(), 'go');
  expect(code).toBe(1);
  const command = /^Retry with: treadle (.*)$/m.exec(stderr)![1]!.split(' ');
  expect(await stage.treadle(...command)).toMatchObject({ code: 0, stdout: 'Now it works.\n' });
});

test('rejects a second process, and names the one that drives the run', async () => {
  const { child, ended } = await halfway();
  child.kill('SIGINT');
  await ended;
  await stage.script({ hang: 'Mine' }, { text: ['never asked'] });
  const first = stage.start('runs', 'resume', 'run_', ...stage.model());
  await stage.server.answered(1);
  expect((await stage.treadle('runs', 'list')).stdout).toMatch(/^run_\w{8} {2}running {2}/m);
  expect((await stage.treadle('chat')).stderr).not.toContain('unfinished');

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
  async function interrupt(): Promise<void> {
    const { child, ended } = await halfway();
    child.kill('SIGINT');
    await ended;
  }

  test('is the model of the run, if the configuration has it', async () => {
    await interrupt();
    await stage.play.write(
      'treadle.toml',
      `[models.other]\nmodel = "another"\n[models.mine]\nmodel = "scripted"\nbase_url = "${stage.server.baseURL}"\n`,
    );
    expect(await stage.treadle('runs', 'resume', 'run_')).toMatchObject({ code: 0, stdout: 'It says hello.\n' });
    expect(stage.server.requests[2]!.model).toBe('scripted');
  });

  test('can be changed with --model', async () => {
    await interrupt();
    const named = ['--model', 'changed', '--base-url', stage.server.baseURL];
    expect(await stage.treadle('runs', 'resume', 'run_', ...named)).toMatchObject({ code: 0 });
    expect(stage.server.requests[2]!.model).toBe('changed');
  });

  test('is not guessed if its server is not configured', async () => {
    await interrupt();
    const { code, stderr } = await stage.treadle('runs', 'resume', 'run_');
    expect(code).toBe(2);
    expect(stderr).toContain('uses the model scripted, but its server is not configured');
    expect(await stage.runs()).toMatchObject([{ status: 'running', entries: 3 }]);
  });
});

test('reports that the working folder has changed', async () => {
  const { child, ended } = await halfway();
  child.kill('SIGINT');
  await ended;
  await stage.play.write('elsewhere/x.txt', '');
  const store = `sqlite:${join(stage.play.folder, '.treadle/treadle.db')}`;
  const args = ['runs', 'resume', 'run_', '--store', store, '--cwd', 'elsewhere', ...stage.model()];
  const { code, stderr } = await stage.treadle(...args);
  expect([code, stderr]).toEqual([0, expect.stringContaining('started in another working folder')]);
});
