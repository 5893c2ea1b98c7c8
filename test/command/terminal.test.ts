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

describe('chat --plain', () => {
  test('holds a conversation with a tool call until Ctrl-D', async () => {
    const { type, shows, exit, screen } = await open(
      [READ, { text: ['I saw it.'] }, { text: ['Goodbye.'] }],
      'chat',
      '--plain',
    );
    await shows('> ');
    type('look\r');
    await shows('#1 read {"path":"notes.txt"}');
    await shows(`#1 returned: 1 the word is ${play.nonce}`);
    await shows('I saw it.\n');
    await shows('\n> ');
    type('bye\r');
    await shows('Goodbye.\n');
    await shows('\n> ');
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
      '--plain',
      '--ask',
    );
    await shows('> ');
    type('look\r');
    await shows('read wants to run\n  reads notes.txt\n');
    await shows('Allow it? [y/N/e] ');
    expect(screen()).not.toContain(play.nonce);
    type('y\r');
    await shows(`#1 returned: 1 the word is ${play.nonce}`);
    await shows('Seen.\n');
    await shows('\n> ');
    type('again\r');
    await shows('Allow it? [y/N/e] ');
    type('n\r');
    await shows('#1 error: ');
    await shows('Not seen.\n');
    await shows('\n> ');
    type('/exit\r');
    expect(await exit).toBe(0);
    expect(JSON.stringify(server.requests[3]!.messages.at(-1))).toContain('The user said no.');
  });

  test('--plain shows a change as a diff in its decision', async () => {
    const edit = { path: 'notes.txt', old_text: 'the word', new_text: 'a word' };
    const { type, shows, exit, screen } = await open(
      [READ, { calls: [{ name: 'edit', arguments: JSON.stringify(edit) }] }, { text: ['Left.'] }],
      'chat',
      '--plain',
    );
    await shows('> ');
    type('go\r');
    await shows('Allow it? [y/N/a/e] ');
    expect(screen()).toContain(
      `edit wants to run\n  notes.txt +1 -1\n  1 - the word is ${play.nonce}\n  1 + a word is ${play.nonce}\n  reads notes.txt\n`,
    );
    type('n\r');
    await shows('Left.');
    await shows('\n> ');
    type('/exit\r');
    expect(await exit).toBe(0);
  });

  test('sends text that is typed during a run to the model in that run', async () => {
    const { type, shows, exit, screen } = await open(
      [{ hang: 'Working' }, { text: ['Both done.'] }],
      'chat',
      '--plain',
    );
    await shows('> ');
    type('one\r');
    await shows('Working');
    type('and two\r');
    await shows('\nand two\n');
    server.resume();
    await shows('Both done.\n');
    await shows('\n> ');
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
    const { type, shows, exit } = await open([{ hang: 'I am think' }, { text: ['Yes?'] }], 'chat', '--plain');
    await shows('> ');
    type('go\r');
    await shows('I am think');
    type(CTRL_C);
    await shows('\nCancelled while the model was replying, after 1 turn and 0 calls.\n');
    await shows('\n> ');
    type('hello?\r');
    await shows('Yes?\n');
    await shows('\n> ');
    type(CTRL_C);
    expect(await exit).toBe(0);
  });

  test('Ctrl-C at an approval cancels the run', async () => {
    const { type, shows, exit } = await open([READ, { text: ['Fine.'] }], 'chat', '--plain', '--ask');
    await shows('> ');
    type('look\r');
    await shows('Allow it? [y/N/e] ');
    type(CTRL_C);
    await shows('Cancelled while waiting for approval');
    await shows('> ');
    type('never mind\r');
    await shows('Fine.\n');
    await shows('\n> ');
    const roles = server.requests[1]!.messages.map(({ role }) => role).filter((role) => role !== 'system');
    expect(roles).toEqual(['user', 'assistant', 'tool', 'user']);
    type(CTRL_D);
    expect(await exit).toBe(0);
  });
});

describe('commands of a chat with --plain', () => {
  test('change the model, forget the conversation, and show runs and usage', async () => {
    server = await scriptedOpenAi([{ text: ['One.'] }, { text: ['Two.'] }, { text: ['Three.'] }]);
    const price = 'price = { input = 1000, output = 1000 }';
    const entry = (name: string): string =>
      `[models.${name}]\nmodel = "m-${name}"\nbase_url = "${server.baseURL}"\n${price}\n`;
    await play.write('treadle.toml', `[models]\ndefault = "a"\n${entry('a')}${entry('b')}`);
    const { type, shows, exit } = fakeTerminal(['chat', '--plain', '--tools', 'none'], play.folder);
    await shows('> ');
    type('/cost\r');
    await shows('Nothing has been used yet.\n> ');
    type('first\r');
    await shows('One.\n');
    await shows('1 turn and 0 calls, 10 in, 5 out, $0.015\n> ');
    type('/model\r');
    await shows('The model is m-a. Models of treadle.toml: a, b. ');
    type('/model c/d\r');
    await shows('there is no provider "c"');
    type('/model b\r');
    await shows('The model is now m-b.\n> ');
    type('second\r');
    await shows('Two.\n');
    await shows('\n> ');
    type('/cost\r');
    await shows('2 messages, 2 turns and 0 calls: 20 in, 10 out, $0.03\n> ');
    type('/clear now\r');
    await shows('/clear takes no argument.');
    type('/clear\r');
    await shows('The conversation is empty.');
    type('third\r');
    await shows('Three.\n');
    await shows('\n> ');
    type('/runs\r');
    await shows('m-b    third');
    await shows('m-a    first\n> ');
    type('/exit\r');
    expect(await exit).toBe(0);
    expect(server.requests.map(({ model, messages }) => [model, messages.length])).toEqual([
      ['m-a', 2],
      ['m-b', 4],
      ['m-b', 2],
    ]);
  });

  test('--continue sends the last conversation, and the up key recalls its messages', async () => {
    const first = await open([READ, { text: ['Seen.'] }, { text: ['Again.'] }], 'chat', '--plain');
    await first.shows('> ');
    first.type('look at it\r');
    await first.shows('Seen.\n');
    await first.shows('\n> ');
    first.type(CTRL_D);
    expect(await first.exit).toBe(0);
    const args = ['chat', '--plain', '--model', 'scripted', '--base-url', server.baseURL, '--continue'];
    const second = fakeTerminal(args, play.folder);
    await second.shows('Continues run_');
    await second.shows('with 4 messages');
    await second.shows('> ');
    second.type('\u001b[A\r');
    await second.shows('Again.\n');
    await second.shows('\n> ');
    second.type(CTRL_D);
    expect(await second.exit).toBe(0);
    const roles = server.requests[2]!.messages.map(({ role }) => role);
    expect(roles).toEqual(['system', 'user', 'assistant', 'tool', 'assistant', 'user']);
    expect(server.requests[2]!.messages.at(-1)).toMatchObject({ content: 'look at it' });
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

  test('asks at the turn limit whether to go on', async () => {
    const { type, shows, exit } = await open([READ, { text: ['Finished.'] }], 'run', '--max-turns', '1', 'look');
    await shows('It has taken 1 turn and is not done.\nContinue? [y/N] ');
    type('y\r');
    await shows('Finished.\n');
    expect(await exit).toBe(0);
    expect(server.requests[1]!.messages.at(-1)).toMatchObject({ role: 'user', content: 'Continue.' });
  });

  test('reports a missing task on a terminal instead of waiting', async () => {
    const { exit, screen } = await open([], 'run');
    expect(await exit).toBe(2);
    expect(screen()).toContain('The task is missing.');
  });
});
