import { afterEach, beforeEach, expect, test } from 'vitest';
import { playground, type Playground } from '../command/playground.ts';
import { scriptedOpenAi, type ScriptedOpenAi } from '../command/scripted-openai.ts';
import { inPty, stopPtys, type CommandInPty } from './emulated-screen.ts';

let play: Playground;
let server: ScriptedOpenAi;

beforeEach(async () => {
  play = await playground();
});
afterEach(async () => {
  stopPtys();
  await server.close();
  await play.remove();
});

test('a chat on a real terminal: a call, a resize while it works, two Ctrl-C', async () => {
  server = await scriptedOpenAi([
    { calls: [{ name: 'read', arguments: '{"path":"notes.txt"}' }] },
    { hang: 'The **word** follows.' },
    { text: ['Again.'] },
  ]);
  const shown = inPty(['chat', '--model', 'scripted', '--base-url', server.baseURL], play.folder);
  await shown.shows(/^> *$/m);
  shown.type('what is the word?\r');
  await shown.shows('The word follows.');
  shown.resize({ columns: 50, rows: 15 });
  server.resume();
  await shown.shows('2 turns and 1 call');
  expect(shown.all().match(/The word follows\./g)).toHaveLength(1);
  expect(shown.all()).toMatch(/✓ #1 read notes\.txt/);
  shown.type('and now?\r');
  await shown.shows('Again.');
  await shown.shows('1 turn and 0 calls');
  shown.type('\u0003');
  await shown.shows('Press Ctrl-C again');
  shown.type('\u0003');
  expect(await shown.exit).toBe(0);
});

test('what is typed before the prompt is sent when it is there', async () => {
  server = await scriptedOpenAi([{ text: ['Early.'] }]);
  const shown = inPty(['chat', '--model', 'scripted', '--base-url', server.baseURL], play.folder);
  shown.type('hello\r');
  await shown.shows('Early.');
  expect(server.requests[0]!.messages.at(-1)!.content).toBe('hello');
  shown.type('\u0004');
  expect(await shown.exit).toBe(0);
});

test.each([
  ['a killed process', (shown: CommandInPty): void => shown.kill('SIGKILL')],
  ['Ctrl-C twice', (shown: CommandInPty): void => shown.type('\u0003\u0003')],
])('%s loses nothing: --continue goes on', async (_, stop) => {
  server = await scriptedOpenAi([
    { calls: [{ name: 'read', arguments: '{"path":"notes.txt"}' }] },
    { hang: 'Half a' },
    { text: ['Whole.'] },
    { text: ['More.'] },
  ]);
  const args = ['chat', '--model', 'scripted', '--base-url', server.baseURL];
  const first = inPty(args, play.folder);
  await first.shows(/^> *$/m);
  first.type('what is the word?\r');
  await first.shows('Half a');
  stop(first);
  await first.exit;
  const second = inPty([...args, '--continue'], play.folder);
  await second.shows(/(Resumes|Continues) run_/);
  if (second.all().includes('Resumes')) {
    await second.shows('Whole.');
    // The call has its result, and is not made again.
    expect(server.requests[2]!.messages.slice(-2).map(({ role }) => role)).toEqual(['assistant', 'tool']);
  }
  await second.shows(/^> *$/m);
  second.type('and now?\r');
  await second.shows(/Whole\.|More\./);
  const roles = server.requests.at(-1)!.messages.map(({ role }) => role);
  expect(roles.slice(0, 4)).toEqual(['system', 'user', 'assistant', 'tool']);
  second.type('\u0004');
  await second.exit;
});

test('what a killed chat has left in the background does not keep the next one from its start', async () => {
  server = await scriptedOpenAi([
    { calls: [{ name: 'bash', arguments: '{"command":"echo begun; sleep 100","background":true}' }] },
    { text: ['It runs.'] },
  ]);
  const args = ['chat', '--model', 'scripted', '--base-url', server.baseURL, '--yes'];
  const first = inPty(args, play.folder);
  await first.shows(/^> *$/m);
  first.type('go\r');
  await first.shows('2 turns and 1 call');
  first.kill('SIGKILL');
  await first.exit;
  const second = inPty([...args, '--continue'], play.folder);
  await second.shows(/^> *$/m);
  second.type('/jobs\r');
  await second.shows('Nothing runs in the background.');
  second.type('\u0004');
  expect(await second.exit).toBe(0);
});
