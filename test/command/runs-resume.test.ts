import { once } from 'node:events';
import { join } from 'node:path';
import {
  defineAgent,
  executeAgent,
  handoff,
  runLoop,
  streamLoop,
  tool,
  type JournalEntry,
  type LoopOptions,
  type Policy,
  type Tool,
} from '@treadle/core';
import { memoryBudgets } from '@treadle/core/budgets';
import { call, programModel } from '@treadle/core/program';
import { scriptedModel } from '@treadle/core/testing';
import { local, readOnlyTools } from '@treadle/tools';
import { describe, expect, test, vi } from 'vitest';
import type { Io } from 'treadle';
import { fakeTerminal } from './fake-terminal.ts';
import { command } from './in-process.ts';
import { READ, runsFixture, type RunsFixture } from './runs-fixture.ts';
import type { ChatRequest } from './scripted-openai.ts';
import type { TreadleProcess } from './treadle-process.ts';

// Starting processes takes a long time on a busy machine.
vi.setConfig({ testTimeout: 30_000 });

const fixture = runsFixture();

const messagesOf = (request: ChatRequest | undefined): unknown => request?.messages;

/** A run that has read the file, and whose model hangs in the next reply. */
async function halfway(on: RunsFixture = fixture): Promise<TreadleProcess> {
  await on.script(READ, { hang: 'It sa' }, { text: ['It says hello.'] });
  const running = on.start('run', ...on.model(), 'What is in notes.txt?');
  await on.server.answered(2);
  return running;
}

/** The same in this process, after Ctrl-C. */
async function interrupted(): Promise<void> {
  await fixture.script(READ, { hang: 'It sa' }, { text: ['It says hello.'] });
  let interrupt = (): void => {};
  const onInterrupt: Io['onInterrupt'] = (listener) => {
    interrupt = listener;
    return () => {};
  };
  const args = ['run', ...fixture.model(), 'What is in notes.txt?'];
  const running = command(args, fixture.play.folder, { onInterrupt });
  await fixture.server.answered(2);
  interrupt();
  expect(await running).toMatchObject({ code: 130 });
}

async function onlyRun(): Promise<string> {
  const [run, ...others] = await fixture.runs();
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
    const { stdout: list } = await fixture.treadle('runs', 'list');
    expect(list).toMatch(new RegExp(`^${short}  interrupted  .*  scripted  What is in notes\\.txt\\?$`, 'm'));
    const { stdout: shown } = await fixture.treadle('runs', 'show', short);
    expect(shown).toContain(`t1.tool.0 returned (`);
    expect(shown).toContain(`the word is ${fixture.play.nonce}`);
    expect(shown).toContain(`Resume with: treadle runs resume ${short}`);
    const { stderr: notice } = await fixture.treadle('chat');
    expect(notice).toMatch(
      new RegExp(
        `There is an unfinished run:\\n  ${short}  \\d+ s ago  What is in notes\\.txt\\?\\n` +
          `Resume with: treadle runs resume ${short}\\nCancel with: treadle runs cancel ${short}\\n`,
      ),
    );

    const resumed = await fixture.treadle('runs', 'resume', short.slice(0, 9), ...fixture.model());
    expect(resumed).toEqual({ code: 0, stdout: 'It says hello.\n', stderr: '' });
    // The file was not read again, and the model got the same messages.
    expect(messagesOf(fixture.server.requests[2])).toEqual(messagesOf(fixture.server.requests[1]));
    expect(fixture.server.requests).toHaveLength(3);
    expect(await fixture.runs()).toMatchObject([{ runId: id, status: 'completed' }]);
    expect((await fixture.treadle('chat')).stderr).not.toContain('unfinished');

    expect((await fixture.treadle('runs', 'list', '--recovered')).stdout).toMatch(
      new RegExp(`^${short}  completed  .*  scripted  \\(recovered\\) What is in notes\\.txt\\?$`, 'm'),
    );
    const { stdout: json } = await fixture.treadle('runs', 'list', '--recovered', '--json');
    expect(JSON.parse(json)).toMatchObject([{ runId: id, recovered: { times: 1, at: expect.any(Number) } }]);
    expect((await fixture.treadle('runs', 'show', short)).stdout).toMatch(
      /^ {2}recovered {2}once at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d, because its process had died$/m,
    );
    const { stdout: shownJson } = await fixture.treadle('runs', 'show', short, '--json');
    expect(JSON.parse(shownJson)).toMatchObject({ recovered: { times: 1 } });
  });

  test('that nobody has taken over yet is not listed as recovered', async () => {
    const { child } = await halfway();
    child.kill('SIGKILL');
    await once(child, 'close');
    expect(await fixture.treadle('runs', 'list', '--recovered')).toEqual({
      code: 0,
      stdout: '',
      stderr: 'There are no recovered runs.\n',
    });
  });

  test('runs a read-only tool again that was running', async () => {
    await fixture.inStore(async (store) => {
      const { started, tools } = endlessTools();
      const model = scriptedModel([{ calls: [{ name: 'read', arguments: { path: 'notes.txt' } }] }]);
      const live = streamLoop({ model, tools, input: 'go', journal: store, runId: 'run_interrupted' });
      await started;
      await live.detach();
    });
    await fixture.script({ text: ['Done.'] });
    const { code, stdout, stderr } = await fixture.treadle('runs', 'resume', 'run_interrupted', ...fixture.model());
    expect([code, stdout]).toEqual([0, 'Done.\n']);
    expect(stderr).toContain(`returned: 1 the word is ${fixture.play.nonce}`);
    const { stdout: shown } = await fixture.treadle('runs', 'show', 'run_interrupted');
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
  const tools = readOnlyTools(local(fixture.play.folder)).map((one) =>
    one.name === 'read' ? { ...one, execute } : one,
  );
  return { started, tools };
}

describe('Ctrl-C', () => {
  test('detaches the run, which can be resumed', async () => {
    const { child, ended } = await halfway();
    child.kill('SIGINT');
    const { code, stderr } = await ended;
    expect(code).toBe(130);
    const command = /^Resume with: treadle (.*)$/m.exec(stderr)![1]!.split(' ');
    const { stdout: shown } = await fixture.treadle('runs', 'show', await onlyRun(), '--json');
    expect(JSON.parse(shown)).toMatchObject({ status: 'running', standing: 'interrupted', turns: 2, calls: 1 });
    expect(await fixture.treadle(...command)).toMatchObject({ code: 0, stdout: 'It says hello.\n' });
    expect(messagesOf(fixture.server.requests[2])).toEqual(messagesOf(fixture.server.requests[1]));
  });

  test('twice quits immediately, and the run can be resumed', async () => {
    const { child, ended } = await halfway();
    child.kill('SIGINT');
    child.kill('SIGINT');
    const { code, signal } = await ended;
    // The second one may find the command at its end, where Ctrl-C has its default again.
    expect(code ?? signal).toBeOneOf([130, 'SIGINT']);
    expect(await fixture.treadle('runs', 'resume', 'run_', ...fixture.model())).toMatchObject({
      code: 0,
      stdout: 'It says hello.\n',
    });
  });

  test('detaches a resumed run again', async () => {
    await interrupted();
    await fixture.script({ hang: 'Once mo' }, { text: ['At last.'] });
    const again = fixture.start('runs', 'resume', 'run_', ...fixture.model());
    await fixture.server.answered(1);
    again.child.kill('SIGINT');
    expect(await again.ended).toMatchObject({
      code: 130,
      stderr: expect.stringContaining('Resume with: treadle runs'),
    });
    expect(await fixture.treadle('runs', 'resume', 'run_', ...fixture.model())).toMatchObject({ stdout: 'At last.\n' });
  });
});

describe('cancel', () => {
  test('ends an interrupted run, which cannot be resumed any more', async () => {
    await interrupted();
    const id = (await onlyRun()).slice(0, 12);
    expect(await fixture.treadle('runs', 'cancel', id)).toEqual({ code: 0, stdout: '', stderr: `Cancelled ${id}.\n` });
    expect(await fixture.runs()).toMatchObject([{ status: 'cancelled' }]);
    expect(await fixture.treadle('runs', 'cancel', id)).toMatchObject({
      code: 2,
      stderr: `treadle: Run ${id} has already ended (cancelled).\n`,
    });
    const resumed = await fixture.treadle('runs', 'resume', id, ...fixture.model());
    expect(resumed.code).toBe(2);
    expect(resumed.stderr).toContain(`Run ${id} has ended (cancelled), so it cannot be resumed.`);
    expect(resumed.stderr).toContain(`treadle runs fork ${id} --at N`);
    expect(await fixture.treadle('runs', 'replay', id)).toMatchObject({ code: 0 });
  });

  test('also cancels child runs, and answers waiting calls', async () => {
    const ask = { judge: () => [{ type: 'ask' as const }] };
    const act = tool({ name: 'act', description: '', execute: () => 'acted' });
    await fixture.inStore(async (store) => {
      const calling = { calls: [{ name: 'act' }] };
      const options = { tools: [act], policy: ask, input: 'go', journal: store };
      await runLoop({ ...options, model: scriptedModel([calling]), runId: 'p' });
      const parent = { runId: 'p', effect: 't1.tool.0' };
      await runLoop({ ...options, model: scriptedModel([calling]), runId: 'p.t1.tool.0', parent });
    });
    expect((await fixture.treadle('runs', 'cancel', 'p')).stderr).toBe('Cancelled p and 1 child run.\n');
    expect(await fixture.runs()).toMatchObject([{ status: 'cancelled' }, { status: 'cancelled' }]);
    const { stdout } = await fixture.treadle('runs', 'show', 'p');
    expect(stdout).toContain('t1.tool.0 error: Not finished: the run was cancelled.');
    expect(stdout).toContain('cancelled: while waiting for approval');
  });

  test('cancels child runs that a cancelled run has left open', async () => {
    await fixture.inStore(async (store) => {
      const signal = AbortSignal.abort();
      await runLoop({ model: scriptedModel([]), input: 'go', journal: store, runId: 'p', signal });
      const [first] = await store.read('p');
      for (const index of [0, 1]) {
        const runId = `p.t1.tool.${index}`;
        const parent = { runId: 'p', effect: `t1.tool.${index}` };
        await store.append(runId, [{ ...first!, event: { ...first!.event, runId, parent } as JournalEntry['event'] }]);
      }
    });
    const { stderr } = await fixture.treadle('runs', 'cancel', 'p');
    expect(stderr).toBe('Run p had already ended (cancelled). Cancelled 2 child runs.\n');
    expect((await fixture.runs()).map(({ status }) => status)).toEqual(['cancelled', 'cancelled', 'cancelled']);
  });
});

describe('approvals', () => {
  async function paused(): Promise<string> {
    await fixture.script(READ, { text: ['Done.'] });
    const { code, stderr } = await fixture.treadle('run', '--ask', ...fixture.model(), 'go');
    const id = await onlyRun();
    expect(code).toBe(4);
    expect(stderr).toContain(`Resume with: treadle runs resume ${id.slice(0, 12)} --approve t1.approval.0 --model`);
    return id;
  }
  const resume = (...args: readonly string[]): ReturnType<RunsFixture['treadle']> =>
    fixture.treadle('runs', 'resume', 'run_', ...fixture.model(), ...args);
  const lastMessage = (): string => JSON.stringify(fixture.server.requests.at(-1)!.messages.at(-1));

  test.each(['t1.approval.0', 'all'])('--approve %s resumes the run', async (effect) => {
    await paused();
    expect(await resume('--approve', effect)).toMatchObject({ code: 0, stdout: 'Done.\n' });
    expect(lastMessage()).toContain(fixture.play.nonce);
  });

  test('--deny is sent to the model', async () => {
    await paused();
    expect(await resume('--deny', 't1.approval.0')).toMatchObject({ code: 0, stdout: 'Done.\n' });
    expect(lastMessage()).toContain('was not approved');
    expect(lastMessage()).not.toContain(fixture.play.nonce);
  });

  test('pauses again without an answer and without a terminal', async () => {
    await paused();
    const { code, stderr } = await resume();
    expect(code).toBe(4);
    expect(stderr).toContain('Paused: waits for approval of read {"path":"notes.txt"}.');
    expect(fixture.server.requests).toHaveLength(1);
  });

  test('asks on a terminal', async () => {
    await paused();
    const { type, shows, exit } = fakeTerminal(['runs', 'resume', 'run_', ...fixture.model()], fixture.play.folder);
    await shows('read wants to run with {"path":"notes.txt"}\n  reads notes.txt\n');
    await shows('Allow it? [y/N/e] ');
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
    expect(await fixture.runs()).toMatchObject([{ status: 'paused', entries: 3 }]);
  });
});

test('answers the question of a tool on a terminal, or says how to answer it', async () => {
  const read = readOnlyTools(local(fixture.play.folder)).find(({ name }) => name === 'read');
  const asking: Tool = { ...read!, execute: (_, { ask }) => ask({ prompt: 'Which file?', choices: ['a', 'b'] }) };
  await fixture.inStore((store) =>
    runLoop({
      model: scriptedModel([{ calls: [{ name: 'read', arguments: { path: 'notes.txt' } }] }]),
      tools: [asking],
      input: 'go',
      journal: store,
      runId: 'q',
    }),
  );
  await fixture.script({ text: ['Read.'] });
  const args = ['runs', 'resume', 'q', ...fixture.model(), '--accept-changed-tools'];
  const { code, stderr } = await fixture.treadle(...args);
  expect(code).toBe(4);
  expect(stderr).toContain('Paused: waits for the answer to "Which file?" of read {"path":"notes.txt"}.');
  expect(stderr).toContain('The answer to t1.question.0.0 is one of "a", "b".\nResume with: treadle runs resume q');
  expect(stderr).toContain('--answer t1.question.0.0=TEXT');
  const { type, shows, exit } = fakeTerminal(args, fixture.play.folder);
  await shows('read asks: Which file?\n  1 a\n  2 b\nYour choice [1-2]: ');
  type('b\r');
  await shows('Read.\n');
  expect(await exit).toBe(0);
});

test('resumes with a client result and changed tools', async () => {
  const pick = tool({ name: 'pick', description: 'The client picks a colour' });
  await fixture.inStore((store) =>
    runLoop({
      model: scriptedModel([{ calls: [{ name: 'pick' }] }]),
      tools: [pick],
      input: 'go',
      journal: store,
      runId: 'c',
    }),
  );
  await fixture.script({ text: ['Blue it is.'] });
  const resume = (...args: readonly string[]): ReturnType<RunsFixture['treadle']> =>
    fixture.treadle('runs', 'resume', 'c', ...fixture.model(), '--answer', 't1.client.0=blue=ish', ...args);
  const refused = await resume();
  expect(refused.code).toBe(2);
  expect(refused.stderr).toMatch(/The tools of run "c" changed: "pick" is missing\..*\n.*--accept-changed-tools/s);
  expect(await resume('--accept-changed-tools')).toMatchObject({ code: 0, stdout: 'Blue it is.\n' });
  expect(JSON.stringify(fixture.server.requests[0]!.messages.at(-1))).toContain('blue=ish');
});

test('rejects a run that only its program can resume', async () => {
  const act = tool({ name: 'act', description: '' });
  const model = scriptedModel([{ calls: [{ name: 'act' }] }]);
  await fixture.inStore((store) =>
    runLoop({ model, tools: [act], prepareTurn: () => ({}), input: 'go', journal: store, runId: 'p' }),
  );
  for (const args of [['resume'], ['fork', '--at', '2']]) {
    const { code, stderr } = await fixture.treadle('runs', ...args, 'p', '--model', 'demo');
    expect([code, stderr]).toEqual([
      2,
      expect.stringContaining('Run p was started by a program that prepares each turn'),
    ]);
  }
  expect((await fixture.treadle('runs', 'show', 'p')).stdout).toContain('Resume it from that program.');
  expect(await fixture.runs()).toMatchObject([{ runId: 'p', status: 'paused' }]);
  expect(await fixture.treadle('runs', 'cancel', 'p')).toMatchObject({ code: 0 });
});

describe('rejects a run that needs other code of its program:', () => {
  const act = tool({ name: 'act', description: '' });
  const calling = { calls: [{ name: 'act' }] };
  const handing = { calls: [{ name: 'hand_off_to_billing' }] };
  const agents = [{ name: 'billing', tools: [act] }];
  const waiting = { name: 'waiting', version: 1, run: () => call('act') };
  const pass = () => ({ type: 'pass' }) as const;
  const judge: Policy['judge'] = (calls) => calls.map(() => ({ type: 'allow' }));
  test.each<[string, Partial<LoopOptions>, string]>([
    ['a ledger', { ledger: memoryBudgets({ all: {} }).ledger(['all']) }, 'was started with budgets'],
    ['guardrails', { guardrails: { output: [pass] } }, 'was started with guardrails'],
    ['a program as its model', { model: programModel(waiting) }, 'has code of another program as its model'],
    ['rules of a policy', { policy: { rules: { level: 1 }, judge } }, 'has a policy with rules'],
    [
      'an agent',
      { agents, tools: [handoff({ name: 'billing' })], model: scriptedModel([handing, calling]) },
      'is with the agent "billing"',
    ],
  ])('%s', async (_, options, reason) => {
    const model = scriptedModel([calling]);
    await fixture.inStore((journal) => runLoop({ model, tools: [act], input: 'go', journal, runId: 'p', ...options }));
    const { code, stderr } = await fixture.treadle('runs', 'resume', 'p', '--model', 'demo');
    expect([code, stderr]).toEqual([2, expect.stringContaining(`Run p ${reason}`)]);
    expect((await fixture.treadle('runs', 'show', 'p')).stdout).toContain('Resume it from that program.');
    expect(await fixture.treadle('runs', 'cancel', 'p')).toMatchObject({ code: 0 });
  });
});

test('cancels a run whose tools change with its next turn', async () => {
  const act = tool({ name: 'act', description: '' });
  const other = tool({ name: 'other', description: '' });
  const model = scriptedModel([{ calls: [{ name: 'act' }, { name: 'change' }] }]);
  await fixture.inStore(async (journal) => {
    const change = tool({ name: 'change', description: '', execute: () => String(live.changeTools([act, other])) });
    const live = streamLoop({ model, tools: [act, change], input: 'go', journal, runId: 'p' });
    return live.result;
  });
  expect(await fixture.treadle('runs', 'cancel', 'p')).toMatchObject({ code: 0 });
  expect(await fixture.runs()).toMatchObject([{ runId: 'p', status: 'cancelled' }]);
});

test('every call of a run that was resumed with a policy needs approval', async () => {
  const act = tool({ name: 'act', description: '' });
  const options = { tools: [act], runId: 'p' };
  const judge: Policy['judge'] = (calls) => calls.map(() => ({ type: 'allow' }));
  await fixture.inStore(async (journal) => {
    await runLoop({ ...options, model: scriptedModel([{ calls: [{ name: 'act' }] }]), input: 'go', journal });
    return runLoop({ ...options, model: scriptedModel([]), policy: { judge }, journal });
  });
  await fixture.script(READ);
  const answer = ['--answer', 't1.client.0=ok'];
  const resumed = await fixture.treadle('runs', 'resume', 'p', ...fixture.model(), ...answer, '--accept-changed-tools');
  expect(resumed.stderr).toContain('approv');
  expect(await fixture.runs()).toMatchObject([{ runId: 'p', status: 'paused' }]);
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
  await fixture.inStore((journal) => executeAgent(agent, { input: 0, journal, runId: 'a' }));
  const { stdout } = await fixture.treadle('runs', 'show', 'a');
  expect(stdout).toContain('This run belongs to the agent "adder" of another program. Resume it from that program.');
  const { code, stderr } = await fixture.treadle('runs', 'resume', 'a', '--model', 'demo');
  expect([code, stderr]).toEqual([2, expect.stringContaining('Run a belongs to the agent "adder"')]);
  expect(await fixture.treadle('runs', 'replay', 'a')).toMatchObject({ code: 0 });
});

test('retries a run that failed because of its model', async () => {
  await fixture.script({ status: 401, message: 'wrong key' }, { text: ['Now it works.'] });
  const { code, stderr } = await fixture.treadle('run', ...fixture.model(), 'go');
  expect(code).toBe(1);
  const command = /^Retry with: treadle (.*)$/m.exec(stderr)![1]!.split(' ');
  expect(await fixture.treadle(...command)).toMatchObject({ code: 0, stdout: 'Now it works.\n' });
});

test('rejects a second process, and names the one that drives the run', async () => {
  await interrupted();
  await fixture.script({ hang: 'Mine' }, { text: ['never asked'] });
  const first = fixture.start('runs', 'resume', 'run_', ...fixture.model());
  await fixture.server.answered(1);
  expect((await fixture.treadle('runs', 'list')).stdout).toMatch(/^run_\w{8} {2}running {2}/m);
  expect((await fixture.treadle('chat')).stderr).not.toContain('unfinished');

  const driven = `is driven by process ${first.child.pid} on host`;
  const second = await fixture.start('runs', 'resume', 'run_', ...fixture.model()).ended;
  expect([second.code, second.stdout]).toEqual([2, '']);
  expect(second.stderr).toContain(driven);
  for (const args of [['cancel'], ['delete', '--yes']]) {
    const refused = await fixture.treadle('runs', ...args, 'run_');
    expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining(driven)]);
  }
  fixture.server.resume();
  expect(await first.ended).toMatchObject({ code: 0, stdout: 'Mine\n' });
  expect(fixture.server.requests).toHaveLength(1);
});

describe('release', () => {
  test('frees the run of a suspended process only with --force, and its process stops when it continues', async () => {
    const first = await halfway();
    first.child.kill('SIGSTOP');
    const id = (await onlyRun()).slice(0, 12);
    const refused = await fixture.treadle('runs', 'release', id);
    expect(refused).toMatchObject({
      code: 2,
      stderr: expect.stringContaining(`driven by process ${first.child.pid} on`),
    });
    expect(refused.stderr).toContain('treadle runs release --help');
    expect(await fixture.treadle('runs', 'release', id, '--force')).toEqual({
      code: 0,
      stdout: '',
      stderr: `Released ${id}.\nResume with: treadle runs resume ${id}\n`,
    });
    expect(await fixture.treadle('runs', 'resume', id, ...fixture.model())).toMatchObject({
      stdout: 'It says hello.\n',
    });
    fixture.server.resume();
    first.child.kill('SIGCONT');
    expect(await first.ended).toMatchObject({ code: 1, stderr: expect.stringContaining('is lost') });
    expect(await fixture.runs()).toMatchObject([{ status: 'completed' }]);
  });

  test('has nothing to do for a run that no process drives', async () => {
    await fixture.script({ text: ['Hello.'] });
    await fixture.treadle('run', ...fixture.model(), 'go');
    const released = await fixture.treadle('runs', 'release', 'run_');
    expect(released).toEqual({
      code: 0,
      stdout: '',
      stderr: expect.stringMatching(/^No process drives run_\w{8}\.\n$/),
    });
  });
});

describe('the model', () => {
  test('is the model of the run, if the configuration has it', async () => {
    await interrupted();
    await fixture.play.write(
      'treadle.toml',
      `[models.other]\nmodel = "another"\n[models.mine]\nmodel = "scripted"\nbase_url = "${fixture.server.baseURL}"\n`,
    );
    expect(await fixture.treadle('runs', 'resume', 'run_')).toMatchObject({ code: 0, stdout: 'It says hello.\n' });
    expect(fixture.server.requests[2]!.model).toBe('scripted');
  });

  test('can be changed with --model', async () => {
    await interrupted();
    const named = ['--model', 'changed', '--base-url', fixture.server.baseURL];
    expect(await fixture.treadle('runs', 'resume', 'run_', ...named)).toMatchObject({ code: 0 });
    expect(fixture.server.requests[2]!.model).toBe('changed');
  });

  test('is not guessed if its server is not configured', async () => {
    await interrupted();
    const { code, stderr } = await fixture.treadle('runs', 'resume', 'run_');
    expect(code).toBe(2);
    expect(stderr).toContain('uses the model scripted, but its server is not configured');
    expect(await fixture.runs()).toMatchObject([{ status: 'running', entries: 4 }]);
  });
});

test('reports that the working folder has changed', async () => {
  await interrupted();
  await fixture.play.write('elsewhere/x.txt', '');
  const store = `sqlite:${join(fixture.play.folder, '.treadle/treadle.db')}`;
  const args = ['runs', 'resume', 'run_', '--store', store, '--cwd', 'elsewhere', ...fixture.model()];
  const { code, stderr } = await fixture.treadle(...args);
  expect([code, stderr]).toEqual([0, expect.stringContaining('started in another working folder')]);
});
