import { afterEach, beforeEach, describe, expect, test } from 'vitest';
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
async function chatProcess(steps: readonly Step[], stdin: string | undefined): Promise<TreadleProcess> {
  server = await scriptedOpenAi(steps);
  return treadle(['chat', '--model', 'scripted', '--base-url', server.baseURL], {
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
