import { afterEach, beforeEach, expect, test } from 'vitest';
import { playground, type Playground } from '../command/playground.ts';
import { scriptedOpenAi, type ScriptedOpenAi } from '../command/scripted-openai.ts';
import { inPty, stopPtys } from './emulated-screen.ts';

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
  await shown.shows(/> *$/);
  shown.type('\u0003');
  await shown.shows('Press Ctrl-C again');
  shown.type('\u0003');
  expect(await shown.exit).toBe(0);
});
