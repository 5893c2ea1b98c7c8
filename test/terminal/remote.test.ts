import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { command } from '../command/in-process.ts';
import { useServeFixture, type ServeCommand } from '../serve/serve-command.ts';
import { KEYS, READ } from './chats.ts';
import { onScreen, type CommandOnScreen } from './emulated-screen.ts';

const fixture = useServeFixture();
const TOOLS = '[server]\ntools = ["coding"]\ndefault_tools = ["read", "write", "question"]';

async function chat(serve: ServeCommand, ...args: readonly string[]): Promise<CommandOnScreen> {
  const shown = onScreen(['chat', '--url', serve.url, ...args], fixture.play.folder);
  await shown.shows(/^> *$/m);
  return shown;
}

async function leave(shown: CommandOnScreen): Promise<void> {
  shown.type(KEYS.ctrlD);
  expect(await shown.exit).toBe(0);
}

test('the terminal shows a conversation of a server as a chat of its own, and says whose rules apply', async () => {
  await fixture.configure(
    TOOLS,
    READ,
    { text: ['The **word** is there.'] },
    { text: ['A title'] },
    { text: ['More.'] },
  );
  const serve = await fixture.serve();
  const shown = await chat(serve);
  expect(shown.all()).toContain('the limits, the policy and the sandbox of the server apply');
  expect(shown.all()).toContain('model    main (/model NAME)');
  shown.type('what is the word?\r');
  await shown.shows('The word is there.');
  expect(shown.all()).toMatch(/✓ #1 read notes\.txt · 1 the word is/);
  expect(shown.styleOf('word is there')).toEqual(['bold']);
  await shown.shows('30 tokens');
  // The same conversation is what the server has, and its page shows.
  const { data } = (await serve.get('/v1/chat')).body;
  const stored = JSON.parse((await serve.get(`/v1/chat/${data[0]!.id}`)).text) as { messages: { parts?: unknown[] }[] };
  expect(stored.messages[1]!.parts).toMatchObject([{ type: 'tool_call', name: 'read' }, { type: 'text' }]);
  shown.type('/rename The word\r');
  await shown.shows('is called "The word" now');
  shown.type('/export talk.md\r');
  await shown.shows('Wrote talk.md');
  expect(await readFile(join(fixture.play.folder, 'talk.md'), 'utf8')).toContain('The **word** is there.');
  await leave(shown);

  const again = await chat(serve, '--resume', 'word');
  await again.shows('Continues "The word"');
  expect(again.all()).toContain('> what is the word?\n\nThe word is there.');
  again.type('and now?\r');
  await again.shows('More.');
  const last = fixture.provider.requests.at(-1)!.messages.filter(({ role }) => role === 'user');
  expect(last.map(({ content }) => content)).toEqual(['what is the word?', 'and now?']);
  await leave(again);
});

test('a call is decided with one key, and the policy of the server decides what is asked', async () => {
  const write = { calls: [{ name: 'write', arguments: '{"path":"a.txt","content":"new"}' }] };
  await fixture.configure(`${TOOLS}\nchat_titles = false`, write, { text: ['Done.'] }, write, { text: ['Left.'] });
  const serve = await fixture.serve();
  const shown = await chat(serve);
  shown.type('go\r');
  await shown.shows('Allow it?');
  expect(shown.all()).toContain('write wants to run\n  a.txt (the whole file)\n  1 + new\n');
  // Rules are saved where the server is.
  expect(shown.screen()).not.toContain('save a rule');
  expect(existsSync(join(fixture.play.folder, 'a.txt'))).toBe(false);
  shown.type('y');
  await shown.shows('Done.');
  expect(shown.all()).toMatch(/✓ #1 write a\.txt .*\n {2}a\.txt \(the whole file\)\n {2}1 \+ new/);
  expect(await readFile(join(fixture.play.folder, 'a.txt'), 'utf8')).toBe('new');
  shown.type('again\r');
  await shown.shows(/Done\.[^]*Allow it\?/);
  shown.type('n');
  await shown.shows('Why not?');
  shown.type('not now\r');
  await shown.shows('Left.');
  expect(JSON.stringify(fixture.provider.requests.at(-1)!.messages.at(-1))).toContain('not now');
  await leave(shown);
});

test('a question is answered, a message steers, and Esc stops the answer on the server', async () => {
  const ask = { calls: [{ name: 'question', arguments: '{"prompt":"Which?","choices":["red","blue"]}' }] };
  await fixture.configure(
    `${TOOLS}\nchat_titles = false`,
    ask,
    { hang: 'You said' },
    { text: ['Steered.'] },
    { hang: 'Slow' },
  );
  const serve = await fixture.serve();
  const shown = await chat(serve);
  shown.type('go\r');
  await shown.shows('2 blue');
  shown.type(KEYS.down + KEYS.enter);
  await shown.shows('You said');
  shown.type('faster\r');
  await shown.shows('> faster');
  await expect.poll(async () => (await serve.get('/v1/chat')).status).toBe(200);
  fixture.provider.resume();
  await shown.shows('Steered.');
  shown.type('once more\r');
  await shown.shows('Slow');
  shown.type(KEYS.escape);
  await shown.shows('The answer was cancelled');
  await leave(shown);
});

test('leaving does not stop the answer: --continue shows it', async () => {
  await fixture.configure(`${TOOLS}\nchat_titles = false`, { hang: 'Half' });
  const serve = await fixture.serve();
  const left = await chat(serve);
  left.type('go\r');
  await left.shows('Half');
  await leave(left);
  const again = await chat(serve, '--continue');
  await again.shows('The answer is in progress.');
  await again.shows('Esc stops');
  fixture.provider.resume();
  await again.hides('Esc stops');
  expect(again.all()).toMatch(/Half\n/);
  await leave(again);
});

test('neither does a terminal that is closed', async () => {
  await fixture.configure(`${TOOLS}\nchat_titles = false`, { hang: 'Half' });
  const serve = await fixture.serve();
  let close: () => void = () => {};
  const closed = onScreen(['chat', '--url', serve.url], fixture.play.folder, {
    io: {
      onTerminate(listener) {
        close = listener;
        return () => {};
      },
    },
  });
  await closed.shows(/^> *$/m);
  closed.type('go\r');
  await closed.shows('Half');
  close();
  expect(await closed.exit).toBe(130);
  fixture.provider.resume();
  const again = await chat(serve, '--continue');
  await again.shows('Half');
  await again.hides('Esc stops');
  expect(again.all()).not.toContain('cancelled');
  await leave(again);
});

test('commands that are entered while it works are not for the model', async () => {
  await fixture.configure(`${TOOLS}\nchat_titles = false`, { hang: 'Slow' }, { text: ['More.'] });
  const serve = await fixture.serve();
  const shown = await chat(serve);
  shown.type('go\r');
  await shown.shows('Slow');
  shown.type('/cost\r');
  await shown.shows('The command follows when the answer is done.');
  fixture.provider.resume();
  await shown.shows(/Slow[^]*> *$/);
  await shown.hides('Esc stops');
  shown.type('next\r');
  await shown.shows('More.');
  expect(fixture.provider.requests.map(({ messages }) => messages.at(-1)!.content)).toEqual(['go', 'next']);
  await leave(shown);
});

test('the model has the tools of a device of the server, and their output is shown', async () => {
  await fixture.configure(
    '[server]\nchat_titles = false',
    { calls: [{ name: 'temperature', arguments: '{}' }] },
    { text: ['It is warm.'] },
    { calls: [{ name: 'read', arguments: '{"path":"/etc/passwd"}' }] },
    { text: ['It is refused.'] },
  );
  const serve = await fixture.serve('--demo-device');
  const shown = await chat(serve, '--device', 'demo-device');
  expect(shown.all()).toContain('those of the device demo-device');
  shown.type('take the temperature of the demo device\r');
  await shown.shows(/on the device demo-device/);
  shown.type('y');
  await shown.shows('It is warm.');
  expect(shown.all()).toMatch(/✓ #1 temperature[^]*temp=/);
  // Its own policy keeps it to its folder.
  shown.type('show the users\r');
  await shown.shows('/etc/passwd');
  shown.type('y');
  await shown.shows('It is refused.');
  expect(JSON.stringify(fixture.provider.requests[3]!.messages.at(-1))).toContain('This agent refused it:');
  await leave(shown);
});

test('a server that is away, a wrong model and flags of a local chat are errors that say what to do', async () => {
  await fixture.configure(TOOLS);
  const serve = await fixture.serve();
  const run = (...args: readonly string[]): Promise<{ readonly code: number; readonly stderr: string }> =>
    command(['chat', ...args], fixture.play.folder);
  expect(await run('--url', serve.url, '--model', 'other')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('The server has no model other. It has main'),
  });
  expect(await run('--url', serve.url, '--max-turns', '3')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('--max-turns cannot be used with --url'),
  });
  expect(await run('--url', serve.url, '--continue')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('no conversation to continue'),
  });
  await serve.stop();
  expect(await run('--url', serve.url)).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('cannot be reached'),
  });
});
