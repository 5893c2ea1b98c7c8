import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { fakeTerminal, type FakeTerminal } from './fake-terminal.ts';
import { playground, type Playground } from './playground.ts';
import { scriptedOpenAi, type ScriptedOpenAi, type Step } from './scripted-openai.ts';

let play: Playground;
let server: ScriptedOpenAi;

beforeEach(async () => {
  play = await playground();
});
afterEach(async () => {
  await server.close();
  await play.remove();
});

async function open(steps: readonly Step[], ...args: string[]): Promise<FakeTerminal> {
  server = await scriptedOpenAi(steps);
  return fakeTerminal([...args, '--model', 'scripted', '--base-url', server.baseURL], play.folder);
}

const READ: Step = { calls: [{ name: 'read', arguments: '{"path":"notes.txt"}' }] };
const CTRL_C = '\u0003';
const CTRL_D = '\u0004';

describe('chat', () => {
  test('holds a conversation with a tool call until Ctrl-D', async () => {
    const { type, shows, exit, screen } = await open([READ, { text: ['I saw it.'] }, { text: ['Goodbye.'] }], 'chat');
    await shows('> ');
    type('look\r');
    await shows('#1 read {"path":"notes.txt"}');
    await shows(`#1 returned: 1 the word is ${play.nonce}`);
    await shows('I saw it.\n> ');
    type('bye\r');
    await shows('Goodbye.\n> ');
    type(CTRL_D);
    expect(await exit).toBe(0);
    expect(screen()).toMatch(/^Treadle \S+, model scripted, in /);
    expect(server.requests[2]!.messages.map(({ role }) => role)).toEqual(
      expect.arrayContaining(['user', 'assistant', 'tool', 'assistant', 'user']),
    );
  });

  test('--ask runs a call only after yes', async () => {
    const { type, shows, exit, screen } = await open(
      [READ, { text: ['Seen.'] }, READ, { text: ['Not seen.'] }],
      'chat',
      '--ask',
    );
    await shows('> ');
    type('look\r');
    await shows('read wants to run with {"path":"notes.txt"}\n  reads notes.txt\n');
    await shows('Allow it? [y/N/e] ');
    expect(screen()).not.toContain(play.nonce);
    type('y\r');
    await shows(`#1 returned: 1 the word is ${play.nonce}`);
    await shows('Seen.\n> ');
    type('again\r');
    await shows('Allow it? [y/N/e] ');
    type('n\r');
    await shows('#1 error: ');
    await shows('Not seen.\n> ');
    type('/exit\r');
    expect(await exit).toBe(0);
    expect(JSON.stringify(server.requests[3]!.messages.at(-1))).toContain('The user said no.');
  });

  test('sends text that is typed during a run to the model in that run', async () => {
    const { type, shows, exit, screen } = await open([{ hang: 'Working' }, { text: ['Both done.'] }], 'chat');
    await shows('> ');
    type('one\r');
    await shows('Working');
    type('and two\r');
    await shows('\nand two\n');
    server.resume();
    await shows('Both done.\n> ');
    expect(server.requests[1]!.messages.slice(-3)).toMatchObject([
      { role: 'user', content: 'one' },
      { role: 'assistant', content: 'Working' },
      { role: 'user', content: 'and two' },
    ]);
    expect(screen().match(/> /g)).toHaveLength(2);
    type(CTRL_D);
    expect(await exit).toBe(0);
  });

  test('Ctrl-C cancels the run, and the chat continues with a valid history', async () => {
    const { type, shows, exit } = await open([{ hang: 'I am think' }, { text: ['Yes?'] }], 'chat');
    await shows('> ');
    type('go\r');
    await shows('I am think');
    type(CTRL_C);
    await shows('\nCancelled while the model was replying, after 1 turn and 0 calls.\n> ');
    type('hello?\r');
    await shows('Yes?\n> ');
    type(CTRL_C);
    expect(await exit).toBe(0);
  });

  test('Ctrl-C at an approval cancels the run', async () => {
    const { type, shows, exit } = await open([READ, { text: ['Fine.'] }], 'chat', '--ask');
    await shows('> ');
    type('look\r');
    await shows('Allow it? [y/N/e] ');
    type(CTRL_C);
    await shows('Cancelled while waiting for approval');
    await shows('> ');
    type('never mind\r');
    await shows('Fine.\n> ');
    const roles = server.requests[1]!.messages.map(({ role }) => role).filter((role) => role !== 'system');
    expect(roles).toEqual(['user', 'assistant', 'tool', 'user']);
    type(CTRL_D);
    expect(await exit).toBe(0);
  });
});

describe('run', () => {
  test('shows text as it arrives, and nothing twice', async () => {
    const { shows, exit, screen } = await open([{ ...READ, text: ['I look.'] }, { hang: 'It sa' }], 'run', 'look');
    await shows('I look.\n#1 read {"path":"notes.txt"}\n');
    await shows('It sa');
    server.resume();
    expect(await exit).toBe(0);
    expect(screen()).toBe(`I look.\n#1 read {"path":"notes.txt"}\n#1 returned: 1 the word is ${play.nonce}\nIt sa\n`);
  });

  test('--ask asks on the terminal and continues', async () => {
    const { type, shows, exit } = await open([READ, { text: ['Seen.'] }], 'run', '--ask', 'look');
    await shows('Allow it? [y/N/e] ');
    type('y\r');
    await shows(`#1 returned: 1 the word is ${play.nonce}\nSeen.\n`);
    expect(await exit).toBe(0);
  });

  test('Ctrl-C at an approval leaves the run paused', async () => {
    const { type, shows, exit } = await open([READ], 'run', '--ask', 'look');
    await shows('Allow it? [y/N/e] ');
    type(CTRL_C);
    await shows('Paused: waits for approval of read {"path":"notes.txt"}.');
    await shows('Resume with: treadle runs resume run_');
    await shows('--approve t1.approval.0');
    expect(await exit).toBe(130);
  });

  test('reports a missing task on a terminal instead of waiting', async () => {
    const { exit, screen } = await open([], 'run');
    expect(await exit).toBe(2);
    expect(screen()).toContain('The task is missing.');
  });
});
