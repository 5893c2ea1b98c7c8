import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { chats, KEYS, READ, type Chats } from './chats.ts';

let all: Chats;

beforeEach(async () => {
  all = await chats();
});
afterEach(() => all.close());

const CODE = ['```js\nconst x = "text";\n```\n'];
const XTERM = { TERM: 'xterm-256color' };

describe('the background of the terminal', () => {
  const answer = (colour: string): string => `\u001b]11;${colour}\u0007`;

  test.each([
    ['light', 'rgb:ffff/ffff/ffff', XTERM, ['28']],
    ['dark', 'rgb:0000/0000/0000', XTERM, ['2']],
    ['light by COLORFGBG', undefined, { ...XTERM, COLORFGBG: '0;15' }, ['28']],
    ['unknown', undefined, XTERM, ['2']],
    ['light, without 256 colours', undefined, { TERM: 'xterm', COLORFGBG: '0;15' }, ['2']],
  ])('that is %s gets colours that can be read on it', async (_, colour, env, styles) => {
    const shown = await all.open([READ, { text: ['ok'] }], { env });
    if (colour !== undefined) shown.type(answer(colour));
    shown.say('go');
    await shown.shows('2 turns and 1 call');
    expect(shown.styleOf('✓')).toEqual(styles);
    await shown.leave();
  });

  test('is never text, also if the answer arrives in pieces', async () => {
    const shown = await all.open([{ text: ['ok'] }], { env: XTERM });
    shown.type('a\u001b]11;rgb:ff');
    await shown.shows('> a');
    shown.type('ff/ffff/ffff\u001b\\b\r');
    await shown.shows('> ab');
    await shown.shows('1 turn');
    await shown.leave();
  });
});

test('NO_COLOR has neither colours nor styles, and asks for none', async () => {
  const shown = await all.open([{ text: [...CODE, '**bold**'] }], { env: { ...XTERM, NO_COLOR: '1' } });
  shown.say('go');
  await shown.shows('bold');
  expect([shown.styleOf('const'), shown.styleOf('bold'), shown.styleOf('> go')]).toEqual([[], [], []]);
  await shown.leave();
});

test('wide characters and emoji keep their places, in the reply and in the prompt', async () => {
  const text = '日本語のテキスト 👩‍👩‍👧 flag 🇩🇪 é done';
  const shown = await all.open([{ text: [`| a | b |\n|---|---|\n| 日本 | x |\n| c | y |\n\n${text}`] }]);
  shown.say('go 日本');
  await shown.shows('done');
  await shown.shows('1 turn');
  const lines = shown.all().split('\n');
  // The columns of a table line up: 日本 takes four.
  const rows = lines.filter((line) => line.includes(' │ '));
  expect(rows.map((line) => line.trimEnd())).toEqual(['a    │ b', '日本 │ x', 'c    │ y']);
  shown.type('日本👩‍👩‍👧x');
  await shown.shows('👩‍👩‍👧x');
  shown.type('\u001b[D\u007f');
  await shown.shows(/> 日本x$/m);
  shown.type('\u0003');
  await shown.leave();
});

test('an image is a line', async () => {
  const png = Buffer.from(
    'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
    'base64',
  );
  await all.play.write('dot.png', '');
  const { writeFile } = await import('node:fs/promises');
  await writeFile(`${all.play.folder}/dot.png`, png);
  const shown = await all.open([
    { calls: [{ name: 'read', arguments: '{"path":"dot.png"}' }] },
    { text: ['![a dot](dot.png)\n\nA dot.'] },
  ]);
  shown.say('look at @dot.png');
  await shown.shows('A dot.');
  await shown.shows('2 turns');
  expect(shown.all()).toMatch(/✓ #1 read dot\.png · \[image image\/png\]/);
  expect(shown.all()).toMatch(/a dot/);
  await shown.leave();
});

test('Ctrl+O shows what was folded: reasoning, and calls with all of their arguments and results', async () => {
  await all.play.write('long.txt', Array.from({ length: 60 }, (_, index) => `row ${index}`).join('\n'));
  const shown = await all.open([
    { reasoning: 'First I look. '.repeat(10), calls: [{ name: 'read', arguments: '{"path":"long.txt"}' }] },
    { text: ['ok'] },
  ]);
  shown.say('go');
  await shown.shows('2 turns and 1 call');
  expect(shown.all()).toMatch(/Thought for .*Ctrl\+O shows it/);
  expect(shown.all()).not.toContain('First I look.');
  expect(shown.all()).toMatch(/read long\.txt · 60 lines: 1 row 0/);
  shown.type(KEYS.ctrlO);
  await shown.shows('row 59');
  shown.type('g');
  await shown.shows('First I look.');
  expect(shown.screen()).toContain('path: long.txt');
  // Between words.
  expect(shown.screen()).toMatch(/^ {2}First I look\. .*(First|I|look\.)\n {2}(First|I|look\.) /m);
  shown.type('q');
  await shown.hides('First I look.');
  expect(shown.all()).toContain('> go');
  await shown.leave();
});

describe.runIf(process.platform === 'linux')('calls that run', () => {
  const bash = (command: string): { readonly name: string; readonly arguments: string } => ({
    name: 'bash',
    arguments: JSON.stringify({ command }),
  });

  test('are parallel lines with their time and their last line of output, and Ctrl+O shows all of it so far', async () => {
    // Inside a sandbox, the test could not end the commands.
    await all.play.write('treadle.toml', '[orchestrator.tools]\nenable_sandboxing = false\n');
    const waits = (name: string): string =>
      `echo ${name} begins; printf '1%%\\r50%%'; until [ -e go ]; do sleep 0.1; done; echo; echo ${name} ends`;
    const shown = await all.open([{ calls: [bash(waits('one')), bash(waits('two'))] }, { text: ['ok'] }], {
      args: ['--yes'],
      size: { columns: 100, rows: 24 },
    });
    shown.say('go');
    await shown.shows(/#1 bash echo one .* · \d+ s │ 50%\n.*#2 bash echo two .* · \d+ s │ 50%$/m);
    expect(shown.screen()).toContain('2 calls · ');
    shown.type(KEYS.ctrlO);
    await shown.shows(/Output so far:\n {2}one begins\n/);
    shown.type('q');
    await all.play.write('go', '');
    await shown.shows('2 turns and 2 calls');
    expect(shown.all()).toMatch(/✓ #1 bash .* · one ends .*\n✓ #2 bash .* · two ends /);
    await shown.leave();
  });
});

test('over a slow line nothing piles up, and the screen is right in the end', async () => {
  const words = Array.from({ length: 3_000 }, (_, index) => `word${index}`);
  const shown = await all.open([{ hang: '' }, { text: words.map((word) => `${word} `) }]);
  shown.say('go');
  await shown.shows('Esc stops');
  await all.server.answered(1);
  const resume = shown.stall();
  const before = shown.written();
  shown.say('more');
  all.server.resume();
  await all.server.answered(2);
  resume();
  await shown.shows('word2999');
  await shown.shows('2 turns');
  const seen = shown.all().match(/word\d+/g);
  expect(seen).toEqual(words);
  // The text has 26 kB. A frame for each delta would be many times that.
  expect(shown.written() - before).toBeLessThan(400_000);
  await shown.leave();
});

test('what is drawn from the top of the screen on is not moved into the history of tmux', async () => {
  const shown = await all.open([{ hang: 'Half' }]);
  shown.type(`${KEYS.ctrlL}x`);
  await shown.shows(/> x$/);
  shown.type('\u0015go\r');
  await shown.shows('Half');
  all.server.resume();
  await shown.shows('1 turn and 0 calls');
  expect(shown.erasedAll()).toBe(0);
  await shown.leave();
});

test('a reply with reasoning, text and calls is shown once', async () => {
  const shown = await all.open([{ reasoning: 'hm', text: ['I ', 'look.'], ...READ }, { text: ['ok'] }]);
  shown.say('go');
  await shown.shows('2 turns and 1 call');
  expect(shown.all().match(/I look\./g)).toHaveLength(1);
  await shown.leave();
});

test('the commands are listed while one is typed, and Enter sends what is there', async () => {
  const shown = await all.open([]);
  shown.type('/co');
  await shown.shows('/compact');
  await shown.shows('/cost');
  shown.type('s');
  await shown.hides('/compact');
  shown.type('t\r');
  await shown.shows('Nothing has been used yet');
  await shown.leave();
});
