import { existsSync, readFileSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { runLoop, type Principal } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { sqliteStore } from '@treadle/store';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { command, type Printed } from './in-process.ts';
import { playground, type Playground } from './playground.ts';
import { scriptedOpenAi, type ScriptedOpenAi, type Step } from './scripted-openai.ts';
import { stopLeftovers, treadle, type TreadleProcess } from './treadle-process.ts';

let play: Playground;
let server: ScriptedOpenAi | undefined;

beforeEach(async () => {
  play = await playground();
});
afterEach(async () => {
  stopLeftovers();
  await server?.close();
  server = undefined;
  await play.remove();
});

/** Runs `treadle chat` with pipes and a scripted model in this process. */
async function chat(steps: readonly Step[], stdin: string, args: readonly string[] = []): Promise<Printed> {
  server = await scriptedOpenAi(steps);
  return command(['chat', '--model', 'scripted', '--base-url', server.baseURL, ...args], play.folder, stdin);
}

/** The same in its own process: for signals and closed pipes. */
async function chatProcess(
  steps: readonly Step[],
  stdin: string | undefined,
  args: readonly string[] = [],
): Promise<TreadleProcess> {
  server = await scriptedOpenAi(steps);
  return treadle(['chat', '--model', 'scripted', '--base-url', server.baseURL, ...args], {
    cwd: play.folder,
    ...(stdin !== undefined && { stdin }),
  });
}

const READ: Step = { calls: [{ name: 'read', arguments: '{"path":"notes.txt"}' }] };
const afterGreeting = (stdout: string): string => stdout.slice(stdout.indexOf('\n') + 1);

test('greets and exits with 0 if there is no input', async () => {
  const { code, stdout } = await chat([], '');
  expect(code).toBe(0);
  expect(stdout).toMatch(/^Treadle \S+, model \S*scripted, in /);
});

test('treats each line as a message of one conversation', async () => {
  const { ended } = await chatProcess(
    [{ ...READ, text: ['Looking. '] }, { text: ['I saw it.'] }, { text: ['You said one.'] }],
    'one\n\ntwo\n',
  );
  const { code, stdout, stderr } = await ended;
  expect(code).toBe(0);
  expect(afterGreeting(stdout)).toBe('Looking. \nI saw it.\nYou said one.\n');
  expect(stderr).toBe(`#1 read {"path":"notes.txt"}\n#1 returned: 1 the word is ${play.nonce}\n`);
  const roles = server!.requests[2]!.messages.map(({ role }) => role).filter((role) => role !== 'system');
  expect(roles).toEqual(['user', 'assistant', 'tool', 'assistant', 'user']);
});

test('prints the reply while it streams', async () => {
  const { shows, child, ended } = await chatProcess([{ hang: 'the first words' }], undefined);
  child.stdin.write('hi\n');
  await shows('the first words');
  child.kill('SIGINT');
  expect(await ended).toMatchObject({
    code: 130,
    stderr: expect.stringContaining('Cancelled while the model was replying'),
  });
});

test('reports a failure and continues the chat', async () => {
  const steps = [{ status: 400, message: 'no such thing' }, { text: ['better'] }];
  const { code, stdout, stderr } = await chat(steps, 'one\ntwo\n');
  expect([code, afterGreeting(stdout)]).toEqual([0, 'better\n']);
  expect(stderr).toMatch(/Failed \(invalid-request\): .*no such thing/);
});

test('gets a last answer at the turn limit', async () => {
  const { stdout, stderr } = await chat([READ, { text: ['That is all I know.'] }], 'go\n', ['--max-turns', '1']);
  expect(afterGreeting(stdout)).toBe('That is all I know.\n');
  expect(stderr).toContain('Stopped at the turn limit');
});

test('exits as the last message does, and with 5 if a call was denied', async () => {
  const write: Step = { calls: [{ name: 'write', arguments: '{"path":"new.txt","content":"x"}' }] };
  const said: Step = { text: ['Ok.'] };
  expect(await chat([write, said, said], 'one\ntwo\n')).toMatchObject({
    code: 5,
    stderr: expect.stringMatching(/calls of write were denied, so the task may not be done\. See above for why\.\n$/),
  });
  await server!.close();
  expect(await chat([write, said], 'one\n', ['--yes'])).toMatchObject({ code: 0 });
  await server!.close();
  expect(await chat([said, { status: 400, message: 'no' }], 'one\ntwo\n')).toMatchObject({ code: 1 });
  await server!.close();
  expect(await chat([READ, said], 'one\n', ['--max-turns', '1'])).toMatchObject({ code: 3 });
});

test('--ask without a terminal denies the call, and sends the reason to the model', async () => {
  const { code, stdout } = await chat([READ, { text: ['I may not.'] }], 'go\n', ['--ask']);
  expect([code, afterGreeting(stdout)]).toEqual([0, 'I may not.\n']);
  const result = JSON.stringify(server!.requests[1]!.messages.at(-1));
  expect(result).toContain('no terminal');
  expect(result).not.toContain(play.nonce);
});

describe('slash commands', () => {
  test('supports /help and /exit, and rejects others', async () => {
    const { code, stderr } = await chat([], '/help\n/exti\n/exit\nnever sent\n');
    expect(code).toBe(0);
    expect(stderr).toMatch(/^ {2}\/exit +Leave/m);
    expect(stderr).toContain('There is no command /exti. Did you mean "/exit"?');
    expect(server!.requests).toHaveLength(0);
  });
  test('sends a path as a message', async () => {
    await chat([{ text: ['ok'] }], '/etc/hosts please\n');
    expect(server!.requests[0]!.messages.at(-1)).toMatchObject({ content: '/etc/hosts please' });
  });
});

test('exits without an error when standard output is closed', async () => {
  const { child, ended } = await chatProcess([{ text: ['x'.repeat(1_000_000)] }], 'hi\n');
  child.stdout.destroy();
  expect(await ended).toMatchObject({ signal: null, stderr: '' });
});

test('remembers between messages, also of an earlier chat, and forgets at /clear', async () => {
  const add: Step = { calls: [{ name: 'todowrite', arguments: '{"task":"Buy tea"}' }] };
  const list: Step = { calls: [{ name: 'todoread', arguments: '{}' }] };
  const said = { text: ['Ok.'] };
  const read: Step = { calls: [{ name: 'read', arguments: '{"path":"notes.txt"}' }] };
  const write: Step = { calls: [{ name: 'write', arguments: '{"path":"notes.txt","content":"new"}' }] };
  const first = await chat([add, said, list, said], 'one\ntwo\n');
  expect(first.stderr).toMatch(/Buy tea[^]*todoread[^]*Buy tea/);
  await server!.close();
  const next = await chat([list, said, read, said, write, said], 'three\nfour\nfive\n', ['--continue', '--yes']);
  expect(next.stderr).toMatch(/todoread[^]*Buy tea/);
  // A file that was read in one message may be written in the next one.
  expect(await readFile(path.join(play.folder, 'notes.txt'), 'utf8')).toBe('new');
  await server!.close();
  const cleared = await chat([list, said, list, said], 'six\n/clear\nseven\n', ['--continue']);
  expect(cleared.stderr.match(/Buy tea/g)).toHaveLength(1);
});

test('shows what narrows the conversation, and lifts it by its name', async () => {
  const said = { text: ['Ok.'] };
  await chat([said], 'one\n');
  await server!.close();
  const file = path.join(play.folder, '.treadle/treadle.db');
  const store = sqliteStore(file);
  const [before] = await store.list();
  const [start] = await store.read(before!.runId);
  const { principal } = start!.event as { readonly principal: Principal };
  const narrow = { source: 'plan', without: ['read'] };
  const model = { ...scriptedModel(['Planned.']), id: before!.model };
  await runLoop({ model, journal: store, input: 'Plan.', runId: 'run_narrowed', principal, narrow });
  await store.close();
  const lines = '/lift other\ntwo\n/lift plan\n/lift\nthree\n';
  const { stderr } = await chat([READ, said, READ, said], lines, ['--continue']);
  expect(stderr).toContain('The conversation is narrowed by plan.\n');
  expect(stderr).toContain('The narrowing of plan does not apply from the next message on.\n');
  expect(stderr).toContain('The conversation is narrowed by nothing that can be lifted.\n');
  const [refused = '', read = ''] = stderr.match(/returned.*|failed.*|not allowed.*/g) ?? [];
  expect(refused).not.toContain(play.nonce);
  expect(read).toContain(play.nonce);
});

test('tells the model what [chat] says, unless there is --system, and AGENTS.md', async () => {
  await writeFile(path.join(play.folder, 'treadle.toml'), '[chat]\ninstructions = "Speak French."\n');
  await writeFile(path.join(play.folder, 'AGENTS.md'), 'Use tabs.');
  const told = (): unknown => server!.requests[0]!.messages[0]!.content;
  await chat([{ text: ['Oui.'] }], 'hi\n');
  expect(told()).toMatch(/^Speak French\.[^]*Use tabs\./);
  await server!.close();
  await chat([{ text: ['Ja.'] }], 'hi\n', ['--system', 'Speak German.']);
  expect(told()).toMatch(/^Speak German\.[^]*Use tabs\./);
  await server!.close();
  server = await scriptedOpenAi([{ text: ['Yes.'] }]);
  await command(['run', '--model', 'scripted', '--base-url', server.baseURL, 'hi'], play.folder, '');
  expect(told()).not.toContain('French');
});

describe.runIf(process.platform === 'linux')('shells and jobs', () => {
  const bash = (args: object): Step => ({ calls: [{ name: 'bash', arguments: JSON.stringify(args) }] });
  const said: Step = { text: ['Ok.'] };
  const isAlive = (pid: number): boolean => {
    const stat = `/proc/${pid}/stat`;
    // A zombie has ended.
    return existsSync(stat) && !/\) Z/.test(readFileSync(stat, 'utf8'));
  };

  // Inside a sandbox, pids are others than here.
  beforeEach(() => play.write('treadle.toml', '[orchestrator.tools]\nenable_sandboxing = false\n'));

  test('pass from message to message, and end with the chat', async () => {
    const steps = [
      bash({ command: 'X=tea', session: 's' }),
      said,
      bash({ command: 'echo "X is $X in $$"', session: 's' }),
      said,
    ];
    const { stderr } = await chat(steps, 'one\ntwo\n', ['--yes']);
    const [, pid] = /returned: X is tea in (\d+)/.exec(stderr)!;
    expect(isAlive(Number(pid))).toBe(false);
  });

  test('of a chat that was killed are killed before the next one says that they are gone', async () => {
    const pidFile = path.join(play.folder, 'pid');
    const job = bash({ command: `echo $$ > ${pidFile}; exec sleep 1000`, background: true });
    const killed = await chatProcess([job, said], undefined, ['--yes']);
    killed.child.stdin.write('one\n');
    await killed.shows('Ok.');
    // The end of the run, and what it has left, are stored when the next message is asked for.
    await vi.waitUntil(async () => (await keptIn(play.folder)) === 1, { timeout: 20_000 });
    // The job may take longer than the run.
    const pid = Number(await vi.waitUntil(() => readFile(pidFile, 'utf8').catch(() => ''), { timeout: 20_000 }));
    killed.child.kill('SIGKILL');
    await killed.ended;
    expect(isAlive(pid)).toBe(true);
    await server!.close();
    const read: Step = { calls: [{ name: 'background_read', arguments: '{"handle":"bash-t1.0"}' }] };
    const { stderr } = await chat([read, said], 'two\n', ['--continue', '--yes']);
    expect(stderr).toContain('There is no job "bash-t1.0" in the background.');
    expect(isAlive(pid)).toBe(false);
    expect(await keptIn(play.folder)).toBe(0);
  });

  async function keptIn(folder: string): Promise<number> {
    const db = new DatabaseSync(path.join(folder, '.treadle/treadle.db'), { readOnly: true });
    try {
      return db.prepare('SELECT count(*) AS kept FROM kept_processes').get()!['kept'] as number;
    } finally {
      db.close();
    }
  }
});
