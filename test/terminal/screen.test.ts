import { existsSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Io } from 'treadle';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { playground, type Playground } from '../command/playground.ts';
import { scriptedOpenAi, type ScriptedOpenAi, type Step } from '../command/scripted-openai.ts';
import { onScreen, type CommandOnScreen, type Size } from './emulated-screen.ts';

let play: Playground;
let server: ScriptedOpenAi;

beforeEach(async () => {
  play = await playground();
});
afterEach(async () => {
  await server.close();
  await play.remove();
});

interface Opened extends CommandOnScreen {
  /** Enters a message, and waits until the prompt is empty again. */
  say(text: string): void;
  leave(): Promise<number>;
}

async function open(
  steps: Parameters<typeof scriptedOpenAi>[0],
  {
    args = [],
    size,
    env,
    io,
  }: {
    readonly args?: readonly string[];
    readonly size?: Size;
    readonly env?: Record<string, string>;
    readonly io?: Partial<Io>;
  } = {},
): Promise<Opened> {
  server = await scriptedOpenAi(steps);
  const shown = onScreen(['chat', '--model', 'scripted', '--base-url', server.baseURL, ...args], play.folder, {
    ...(size && { size }),
    ...(env && { env }),
    ...(io && { io }),
  });
  await shown.shows(/^> *$/m);
  return {
    ...shown,
    say: (text) => shown.type(`${text}\r`),
    async leave() {
      shown.type(CTRL_D);
      return shown.exit;
    },
  };
}

const READ: Step = { calls: [{ name: 'read', arguments: '{"path":"notes.txt"}' }] };
const CTRL_C = '\u0003';
const CTRL_D = '\u0004';
const CTRL_R = '\u0012';
const UP = '\u001b[A';
const ALT_ENTER = '\u001b\r';
const paste = (text: string): string => `\u001b[200~${text}\u001b[201~`;

describe('a reply', () => {
  const MARKDOWN = [
    '# Title\n\nSome **bold** and `code` and [a link](http://x.example/).\n\n',
    '- one **strong** item\n- two\n  1. inner\n  2. inner 2\n\n```ts\nconst x = 1; // done\n```\n\n',
    '| a | b |\n|---|--:|\n| 1 | 22 |\n\n> quoted\n\nThe end.',
  ];

  test('is shown as Markdown, however it arrives', async () => {
    const pieces = [...MARKDOWN.join('')];
    const shown = await open([{ text: pieces }, { text: MARKDOWN }]);
    shown.say('go');
    await shown.shows('The end.');
    await shown.shows('1 turn and 0 calls');
    const lines = shown.all().split('\n');
    const from = lines.indexOf('Title');
    expect(lines.slice(from, lines.indexOf('The end.') + 1)).toEqual([
      'Title',
      '',
      'Some bold and code and a link (http://x.example/).',
      '',
      '• one strong item',
      '• two',
      '  1. inner',
      '  2. inner 2',
      '',
      '  const x = 1; // done',
      '',
      'a │  b',
      '──┼───',
      '1 │ 22',
      '',
      '│ quoted',
      '',
      'The end.',
    ]);
    expect(shown.styleOf('Title')).toEqual(['bold']);
    expect(shown.styleOf('strong')).toEqual(['bold']);
    expect(await shown.leave()).toBe(0);
  });

  test('stays whole when the terminal is resized while it arrives', async () => {
    const words = Array.from({ length: 120 }, (_, index) => `word${index}`).join(' ');
    const shown = await open([{ hang: `First.\n\n${words}` }]);
    shown.say('go');
    await shown.shows('word119');
    shown.resize({ columns: 50, rows: 20 });
    shown.resize({ columns: 100, rows: 30 });
    shown.resize({ columns: 60, rows: 24 });
    server.resume();
    await shown.shows('1 turn and 0 calls');
    const text = shown.all();
    expect(text.match(/word\d+/g)).toEqual(words.split(' '));
    expect(text.match(/First\./g)).toHaveLength(1);
    expect(text.match(/> go/g)).toHaveLength(1);
    await shown.leave();
  });

  test('of 10,000 lines is in the scrollback, each line once and in order', async () => {
    const lines = Array.from({ length: 10_000 }, (_, index) => `line ${index}`);
    const code = `\`\`\`\n${lines.join('\n')}\n\`\`\`\n`;
    const pieces = code.match(/[^]{1,4000}/g)!;
    const shown = await open([{ text: pieces }]);
    shown.say('go');
    await shown.shows('1 turn and 0 calls');
    const seen = shown
      .all()
      .split('\n')
      .filter((line) => /^ +line \d+$/.test(line));
    expect(seen.map((line) => line.trim())).toEqual(lines);
    await shown.leave();
  });

  test('cannot control the terminal', async () => {
    const shown = await open([{ text: ['\u001b[2J\u001b]0;owned\u0007 still here'] }]);
    shown.say('go');
    await shown.shows('still here');
    expect(shown.all()).toContain('> go');
    expect(shown.titles).not.toContain('owned');
    await shown.leave();
  });
});

describe('the prompt', () => {
  test('takes several lines: Alt+Enter, Ctrl+J, and a backslash before Enter', async () => {
    const shown = await open([{ text: ['Received.'] }]);
    shown.type(`one${ALT_ENTER}two\nthree\\\rfour`);
    await shown.shows('> one\n  two\n  three\n  four');
    expect(shown.cursor()).toMatchObject({ column: 6 });
    shown.type('\r');
    await shown.shows('Received.');
    expect(server.requests[0]!.messages.at(-1)).toMatchObject({ content: 'one\ntwo\nthree\nfour' });
    await shown.leave();
  });

  test('folds a pasted text, also one of 1 MB, and sends it whole', async () => {
    const big = `${'0123456789abcde\n'.repeat(65_536)}end`;
    const shown = await open([{ text: ['Received.'] }]);
    shown.type(`Look: ${paste(big.replaceAll('\n', '\r'))} there`);
    await shown.shows('> Look: [paste 1: 65537 lines] there');
    // The mark is one unit.
    shown.type(`${'\u001b[D'.repeat(6)}\u007f${paste('a\rb')}\r`);
    await shown.shows('Received.');
    expect(server.requests[0]!.messages.at(-1)).toMatchObject({ content: 'Look: a\nb there' });
    await shown.leave();
  });

  test('sends a pasted text of 1 MB', async () => {
    const big = `${'0123456789abcde\n'.repeat(65_536)}end`;
    const shown = await open([{ text: ['Received.'] }]);
    shown.type(`${paste(big)}\r`);
    await shown.shows('Received.');
    expect(server.requests[0]!.messages.at(-1)).toMatchObject({ content: big });
    await shown.leave();
  });

  test('recalls earlier messages, and searches them', async () => {
    const shown = await open([{ text: ['a1'] }, { text: ['a2'] }, { text: ['a3'] }, { text: ['a4'] }]);
    shown.say('the first one');
    await shown.shows('a1');
    shown.say('another');
    await shown.shows('a2');
    shown.type(`${UP}${UP}`);
    await shown.shows(/> the first one\n*$/);
    shown.type('\r');
    await shown.shows('a3');
    shown.type(`${CTRL_R}anoth`);
    await shown.shows('search: anoth\nanother');
    shown.type('\r');
    await shown.shows(/> another\n*$/);
    shown.type('\r');
    await shown.shows('a4');
    expect(server.requests.map(({ messages }) => messages.at(-1)!.content)).toEqual([
      'the first one',
      'another',
      'the first one',
      'another',
    ]);
    await shown.leave();
  });

  test('Ctrl-Z gives the terminal back, and the text is there when the chat continues', async () => {
    let proceed: (() => void) | undefined;
    const shown = await open([], { io: { stop: (listener) => (proceed = listener) } });
    shown.type('some words');
    await shown.shows('> some words');
    shown.type('\u001a');
    await shown.hides('> some words');
    await expect.poll(() => proceed).toBeDefined();
    shown.type('y');
    proceed!();
    await shown.shows('> some wordsy');
    shown.type(`${CTRL_C}${CTRL_D}`);
    expect(await shown.exit).toBe(0);
  });

  describe('Ctrl-G edits it with the editor of the user', () => {
    const withEditor = (edit: (file: string, text: string) => Promise<number>): Promise<Opened> =>
      open([{ text: ['Received.'] }], {
        env: { EDITOR: 'my-editor --wait' },
        io: {
          async runOnTerminal(command) {
            const [, file] = /^my-editor --wait "(.*)"$/.exec(command)!;
            return edit(file!, await readFile(file!, 'utf8'));
          },
        },
      });

    test('and takes what was written', async () => {
      let edited = '';
      const shown = await withEditor(async (file, text) => {
        edited = file;
        await writeFile(file, `${text} two\nthree\n`);
        return 0;
      });
      shown.type('one\u0007');
      await shown.shows('> one two\n  three');
      expect(existsSync(edited)).toBe(false);
      shown.type('\r');
      await shown.shows('Received.');
      expect(server.requests[0]!.messages.at(-1)).toMatchObject({ content: 'one two\nthree' });
      await shown.leave();
    });

    test('and keeps it if the editor fails', async () => {
      const shown = await withEditor(async () => 3);
      shown.type('one\u0007');
      await shown.shows('The editor (my-editor --wait) ended with 3');
      expect(shown.screen()).toContain('> one');
      shown.type(`${CTRL_C}${CTRL_D}`);
      expect(await shown.exit).toBe(0);
    });
  });

  test('Ctrl-C clears it, and leaves at the second time without a text', async () => {
    const shown = await open([]);
    shown.type('some words');
    await shown.shows('> some words');
    shown.type(CTRL_C);
    await shown.hides('> some words');
    shown.type(CTRL_C);
    await shown.shows('Press Ctrl-C again to leave.');
    shown.type(CTRL_C);
    expect(await shown.exit).toBe(0);
  });

  test('wraps between words, and the cursor goes where it is seen', async () => {
    const shown = await open([], { size: { columns: 31, rows: 20 } });
    shown.type('some words that do not fit into one line');
    await shown.shows('> some words that do not fit\n  into one line');
    expect(shown.cursor()).toMatchObject({ column: 15 });
    shown.type(`${'\u001b[D'.repeat(14)}s`);
    await shown.shows('> some words that do not fits\n  into one line');
    expect(shown.cursor()).toMatchObject({ column: 29 });
    shown.type('!');
    await shown.shows('> some words that do not\n  fits! into one line');
    expect(shown.cursor()).toMatchObject({ column: 7 });
    shown.type(`${CTRL_C}${CTRL_D}`);
    await shown.exit;
  });

  test('wraps a long text, and keeps the cursor where the next character goes', async () => {
    const shown = await open([], { size: { columns: 40, rows: 20 } });
    shown.type('x'.repeat(50));
    await shown.shows(`> ${'x'.repeat(37)}\n  ${'x'.repeat(13)}`);
    expect(shown.cursor()).toMatchObject({ column: 15 });
    shown.type('\u001b[D\u001b[D日本');
    await shown.shows('x日本xx');
    expect(shown.cursor()).toMatchObject({ column: 17 });
    shown.type(`${CTRL_C}${CTRL_D}`);
    await shown.exit;
  });
});

describe('a call', () => {
  test('is a line that fills in', async () => {
    const shown = await open([READ, { text: ['I saw it.'] }]);
    shown.say('look');
    await shown.shows('I saw it.');
    expect(shown.all()).toContain(`✓ #1 read notes.txt · 1 the word is ${play.nonce}`);
    await shown.leave();
  });

  test('that fails says why', async () => {
    const shown = await open([{ calls: [{ name: 'read', arguments: '{"path":"none.txt"}' }] }, { text: ['Gone.'] }]);
    shown.say('look');
    await shown.shows('Gone.');
    expect(shown.all()).toMatch(/✗ #1 read none\.txt · .*none\.txt/);
    await shown.leave();
  });
});

describe('a decision', () => {
  test('takes one key, and the call runs only after yes', async () => {
    const shown = await open([READ, { text: ['Seen.'] }, READ, { text: ['Not seen.'] }], { args: ['--ask'] });
    shown.say('look');
    await shown.shows('read wants to run\n  reads notes.txt');
    await shown.shows('Allow it?\ny yes · n no');
    expect(shown.all()).not.toContain(play.nonce);
    shown.type('y');
    await shown.shows('Seen.');
    expect(shown.all()).toContain(`the word is ${play.nonce}`);
    shown.say('again');
    await shown.shows('Allow it?\ny yes · n no');
    shown.type('n');
    await shown.shows('Why not?');
    shown.type('too early\r');
    await shown.shows('Not seen.');
    expect(JSON.stringify(server.requests[3]!.messages.at(-1))).toContain('The user said no: too early');
    await shown.leave();
  });

  test('is not taken by a text that is being typed, or by a pasted one', async () => {
    const shown = await open([{ hang: 'Working' }, READ, { text: ['Fine.'] }], { args: ['--ask'] });
    shown.say('look');
    await shown.shows('Working');
    shown.type('then read');
    await shown.shows('> then read');
    shown.type('\r');
    server.resume();
    await shown.shows('Allow it?');
    shown.type(paste('y'));
    shown.type('x');
    shown.type('n\r');
    await shown.shows('Fine.');
    expect(shown.all()).not.toContain(play.nonce);
    await shown.leave();
  });

  test('waits while a text is being typed', async () => {
    const shown = await open([{ hang: 'Working' }, READ, { text: ['Fine.'] }], { args: ['--ask'] });
    shown.say('look');
    await shown.shows('Working');
    shown.type('first\r');
    await shown.shows('> first');
    shown.type('yes and');
    await shown.shows('> yes and');
    server.resume();
    await shown.shows('A decision waits');
    shown.type('y');
    await shown.shows('> yes andy');
    expect(shown.all()).not.toContain(play.nonce);
    shown.type('\u001b');
    await shown.shows('Allow it?');
    shown.type('y');
    await shown.shows('Fine.');
    await shown.shows('> yes andy');
    shown.type(`${CTRL_C}${CTRL_D}`);
    await shown.exit;
  });

  test('always holds in the conversation, also when it is continued, and not in another one', async () => {
    const write: Step = { calls: [{ name: 'write', arguments: '{"path":"a.txt","content":"x","overwrite":true}' }] };
    const said: Step = { text: ['Written.'] };
    const first = await open([write, said, write, said]);
    first.say('go');
    await first.shows('a always in this conversation');
    first.type('a');
    await first.shows('Written.');
    first.say('again');
    await first.shows(/Written\.[^]*Written\./);
    await first.leave();
    await server.close();
    const second = await open([write, said, write, said], { args: ['--continue'] });
    second.say('again');
    await second.shows(/> again[^]*> again[^]*Written\./);
    second.say('/clear');
    await second.shows('is empty');
    expect(second.all()).not.toContain('Allow it?');
    second.say('in another one');
    await second.shows('Allow it?');
    second.type('n\r');
    await second.shows(/Written\.[^]*not approved[^]*Written\./);
    await second.leave();
  });

  test('Ctrl-C cancels the run, and the chat continues with a valid history', async () => {
    const shown = await open([READ, { text: ['Fine.'] }], { args: ['--ask'] });
    shown.say('look');
    await shown.shows('Allow it?');
    shown.type(CTRL_C);
    await shown.shows('Cancelled while waiting for approval');
    shown.say('never mind');
    await shown.shows('Fine.');
    const roles = server.requests[1]!.messages.map(({ role }) => role).filter((role) => role !== 'system');
    expect(roles).toEqual(['user', 'assistant', 'tool', 'user']);
    await shown.leave();
  });
});

describe('a change of a file', () => {
  const WRITE: Step = { calls: [{ name: 'write', arguments: '{"path":"new.txt","content":"one\\ntwo\\n"}' }] };
  const edit = (path: string): Step => ({
    calls: [{ name: 'edit', arguments: JSON.stringify({ path, old_text: 'the word', new_text: 'a word' }) }],
  });

  test('is shown as a diff in the decision, and afterwards', async () => {
    const shown = await open([READ, edit('notes.txt'), { text: ['Done.'] }], { args: ['--ask'] });
    shown.say('go');
    await shown.shows('Allow it?');
    shown.type('y');
    await shown.shows('  notes.txt +1 -1');
    expect(shown.all()).toContain(`  1 - the word is ${play.nonce}\n  1 + a word is ${play.nonce}`);
    expect(shown.all()).not.toContain('old_text');
    expect(shown.styleOf('- the word')).toEqual(['1']);
    expect(shown.styleOf('+ a word')).toEqual(['2']);
    shown.type('y');
    await shown.shows('Done.');
    expect(shown.all().match(/1 \+ a word is/g)).toHaveLength(2);
    await shown.leave();
  });

  test('is shown on a screen of its own with d', async () => {
    const shown = await open([WRITE, { text: ['Done.'] }], { args: ['--ask'] });
    shown.say('go');
    await shown.shows('d diff');
    shown.type('d');
    await shown.shows('q closes');
    expect(shown.screen()).toMatch(/^ {2}new\.txt \(new\) \+2 -0\n {2}1 \+ one\n {2}2 \+ two\n/);
    expect(shown.screen()).not.toContain('Allow it?');
    shown.type('q');
    await shown.shows('Allow it?');
    shown.type('n\r');
    await shown.shows('Done.');
    expect(existsSync(join(play.folder, 'new.txt'))).toBe(false);
    await shown.leave();
  });
});

describe('several decisions', () => {
  const BOTH: Step = {
    calls: [
      { name: 'read', arguments: '{"path":"notes.txt"}' },
      { name: 'glob', arguments: '{"pattern":"*.md"}' },
    ],
  };

  test('are a list, and any of them can be taken first', async () => {
    const shown = await open([BOTH, { text: ['Done.'] }], { args: ['--ask'] });
    shown.say('go');
    await shown.shows('2 calls wait for a decision');
    expect(shown.screen()).toContain('❯ read notes.txt\n  glob *.md');
    shown.type('\u001b[B');
    await shown.shows('❯ glob *.md');
    await shown.shows('glob wants to run with');
    shown.type('n\r');
    await shown.hides('2 calls wait');
    shown.type('y');
    await shown.shows('Done.');
    const [read, glob] = server.requests[1]!.messages.slice(-2).map((message) => JSON.stringify(message));
    expect(read).toContain(play.nonce);
    expect(glob).toContain('The user said no.');
    await shown.leave();
  });
});

describe('p saves a narrow rule', () => {
  const WRITE = (path: string): Step => ({
    calls: [{ name: 'write', arguments: JSON.stringify({ path, content: 'x', overwrite: true }) }],
  });

  test('after showing it, and it applies in later conversations to exactly that', async () => {
    await play.write('treadle.toml', '# a comment\n[policy]\nautonomy = 1\n');
    const first = await open([WRITE('a.txt'), { text: ['Done.'] }]);
    first.say('go');
    await first.shows('p save a rule');
    first.type('p');
    await first.shows('In this folder, write may always do exactly this');
    // However many lines it writes.
    expect(first.screen()).toMatch(/^ {2}writes a\.txt$/m);
    first.type('\u001b');
    await first.hides('In this folder');
    first.type('p');
    await first.shows('In this folder, write');
    first.type('y');
    await first.shows('Saved in .treadle/rules.json: write may always do this: writes a.txt\n');
    await first.leave();
    await server.close();
    const second = await open([WRITE('a.txt'), WRITE('b.txt'), { text: ['Done.'] }]);
    second.say('go');
    await second.shows('Allow it?');
    expect(second.all()).toMatch(/✓ #1 write a\.txt/);
    expect(second.all()).toContain('writes b.txt');
    second.type('n\r');
    await second.shows('Done.');
    await second.leave();
    expect(await readFile(join(play.folder, 'treadle.toml'), 'utf8')).toContain('# a comment');
  });

  test('and a damaged file allows nothing', async () => {
    await play.write('.treadle/rules.json', '{"allow": [{"tool": "write"}]}');
    const shown = await open([WRITE('a.txt'), { text: ['Done.'] }]);
    expect(shown.all()).toContain('.treadle/rules.json are not used');
    shown.say('go');
    await shown.shows('Allow it?');
    shown.type('n\r');
    await shown.shows('Done.');
    await shown.leave();
  });
});

test('e edits the arguments: the model makes the call again, and it runs without another question', async () => {
  const shown = await open(
    [
      { calls: [{ name: 'read', arguments: '{"path":"wrong.txt"}' }] },
      { calls: [{ name: 'read', arguments: '{ "path": "notes.txt" }' }] },
      { text: ['Done.'] },
    ],
    { args: ['--ask'] },
  );
  shown.say('go');
  await shown.shows('Allow it?');
  shown.type('e');
  await shown.shows('"path": "wrong.txt"');
  shown.type(`${'\u007f'.repeat(30)}nonsense\r`);
  await shown.shows('These arguments are not a JSON object.');
  shown.type('\u0015{"path":"notes.txt"}\r');
  await shown.shows('Done.');
  expect(JSON.stringify(server.requests[1]!.messages.at(-1))).toContain('Make the call again with exactly these');
  expect(shown.all()).toMatch(/✓ #2 read notes\.txt/);
  expect(shown.all().match(/wants to run/g)).toHaveLength(1);
  await shown.leave();
});

describe('a question', () => {
  const ASK: Step = {
    calls: [{ name: 'question', arguments: '{"prompt":"Which one?","choices":["red","green","blue"]}' }],
  };

  test('is answered with the arrow keys', async () => {
    const shown = await open([ASK, { text: ['Thanks.'] }]);
    shown.say('go');
    await shown.shows('❯ 1 red\n  2 green\n  3 blue');
    shown.type('\u001b[B');
    await shown.shows('❯ 2 green');
    shown.type('\r');
    await shown.shows('Thanks.');
    expect(JSON.stringify(server.requests[1]!.messages.at(-1))).toContain('green');
    await shown.leave();
  });
});

describe('while it works', () => {
  test('a message steers the run, and Esc stops it', async () => {
    const shown = await open([{ hang: 'Working' }, { hang: 'More' }, { text: ['Hello.'] }]);
    shown.say('one');
    await shown.shows('Working');
    shown.say('and two');
    server.resume();
    await shown.shows('More');
    expect(server.requests[1]!.messages.slice(-3)).toMatchObject([
      { role: 'user', content: 'one' },
      { role: 'assistant', content: 'Working' },
      { role: 'user', content: 'and two' },
    ]);
    shown.type('\u001b');
    await shown.shows('Cancelled while the model was replying');
    shown.say('hello?');
    await shown.shows('Hello.');
    await shown.leave();
  });
});

describe('a message', () => {
  const PNG = Buffer.from(
    'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
    'base64',
  );

  test('has the files that it names after an @, texts and images', async () => {
    await writeFile(join(play.folder, 'dot.png'), PNG);
    const shown = await open([{ text: ['Seen.'] }]);
    shown.say('compare @notes.txt and @dot.png, mail me@example.com, @nobody');
    await shown.shows('Seen.');
    const content = server.requests[0]!.messages.at(-1)!.content as readonly { readonly type: string }[];
    expect(content.map(({ type }) => type)).toEqual(['text', 'text', 'image_url']);
    expect(JSON.stringify(content[1])).toContain(play.nonce);
    await shown.leave();
  });

  test('Tab completes commands, their arguments, and files that .gitignore leaves', async () => {
    await play.write('.gitignore', '*.log\n');
    await play.write('src/main-view.ts', '');
    await play.write('src/main-view.log', '');
    await play.write('src/other.ts', '');
    const shown = await open([{ text: ['ok.'] }]);
    shown.type('/com\t');
    await shown.shows(/> \/compact/);
    shown.type('\u0015/s\t');
    await shown.shows(/> \/skills/);
    shown.type('\u0015look at @mv\t');
    await shown.shows('> look at @src/main-view.ts');
    shown.type('\u0015@src/\t');
    await shown.shows('@src/\n  src/other.ts');
    shown.type('\t\t\r\r');
    await shown.shows('ok.');
    expect(JSON.stringify(server.requests[0]!.messages.at(-1)!.content)).toContain('src/main-view.ts');
    await shown.leave();
  });

  test('Esc twice edits an earlier one: the conversation goes on from there', async () => {
    const shown = await open([{ text: ['One.'] }, { text: ['Two.'] }, { text: ['Three.'] }]);
    shown.say('first');
    await shown.shows('One.');
    shown.say('secnd');
    await shown.shows('Two.');
    await shown.shows(/Two\.[^]*1 turn and 0 calls/);
    shown.type('\u001b');
    await shown.shows('Esc again edits');
    shown.type('\u001b');
    await shown.shows('❯ secnd');
    shown.type('\r');
    await shown.shows(/> secnd\n*$/);
    shown.type('\u007f\u007fond\r');
    await shown.shows('Three.');
    expect(server.requests[2]!.messages.map(({ role, content }) => [role, content]).slice(1)).toEqual([
      ['user', 'first'],
      ['assistant', 'One.'],
      ['user', 'second'],
    ]);
    await shown.leave();
  });

  test('Esc leaves the choice of an earlier one, and does not begin it again', async () => {
    const shown = await open([{ text: ['One.'] }]);
    shown.say('first');
    await shown.shows('1 turn');
    shown.type('\u001b');
    await shown.shows('Esc again edits');
    shown.type('\u001b');
    await shown.shows('Which message do you want to edit?');
    shown.type('\u001b');
    await shown.hides('Which message');
    shown.type('\u001b');
    await shown.shows('Esc again edits');
    await shown.leave();
  });

  test('with ! runs a command under the policy, and the model gets its output', async () => {
    const shown = await open([{ text: ['I see.'] }]);
    shown.say('!cat notes.txt; echo $((40+2))');
    await shown.shows('Allow it?');
    expect(server.requests).toHaveLength(0);
    shown.type('y');
    await shown.shows(/\n42\n/);
    shown.say('and?');
    await shown.shows('I see.');
    const [, ran, asked] = server.requests[0]!.messages;
    expect(ran!.content).toContain(`$ cat notes.txt; echo $((40+2))\n\nthe word is ${play.nonce}\n42`);
    expect(asked!.content).toBe('and?');
    await shown.leave();
  });
});

describe('/plan', () => {
  const WRITE: Step = { calls: [{ name: 'write', arguments: '{"path":"new.txt","content":"x"}' }] };
  const TODO: Step = { calls: [{ name: 'todowrite', arguments: '{"task":"Write it","status":"in_progress"}' }] };

  test('changes nothing until the plan is approved, then works on it with todos shown', async () => {
    const shown = await open(
      [WRITE, { text: ['1. Write new.txt'] }, TODO, { hang: 'Working' }, WRITE, { text: ['Written.'] }],
      {
        args: ['--yes'],
      },
    );
    shown.say('/plan make new.txt');
    await shown.shows('Approve the plan, and work on it?');
    expect(shown.screen()).toContain('plan mode · ');
    expect(existsSync(join(play.folder, 'new.txt'))).toBe(false);
    expect(shown.all()).toMatch(/✗ #1 write new\.txt · .*denied: plan/);
    expect(shown.all()).toMatch(/\nwrite is denied: /);
    expect(server.requests[0]!.messages.at(-1)!.content).toMatch(
      /^<plan-mode>\nPlan first: [^<]*<\/plan-mode>\n\nmake new\.txt$/,
    );
    shown.type('y');
    await shown.shows('Working');
    expect(shown.screen()).toContain('  ▶ Write it');
    shown.say('go on');
    server.resume();
    await shown.shows('Written.');
    expect(existsSync(join(play.folder, 'new.txt'))).toBe(true);
    await shown.leave();
  });

  test('is a part of its message that Esc twice keeps, and that is not shown', async () => {
    const shown = await open([{ text: ['1. Look'] }, { text: ['Looked.'] }, { text: ['1. See'] }]);
    shown.say('/plan look');
    await shown.shows('Approve the plan');
    shown.type('y');
    await shown.shows('Looked.');
    await shown.shows(/Looked\.[^]*1 turn and 0 calls/);
    shown.type('\u001b\u001b');
    await shown.shows('❯ look');
    expect(shown.screen()).not.toContain('Plan first');
    expect(shown.screen()).not.toContain('The plan is approved');
    shown.type('\r');
    await shown.shows('plan mode · scripted');
    await shown.shows(/> look$/);
    shown.type(' again\r');
    await shown.shows('1. See');
    await shown.shows(/1\. See[^]*Approve the plan/);
    expect(JSON.stringify(server.requests[2]!.messages.at(-1))).toContain('<plan-mode>');
    shown.type('n');
    await shown.hides('y yes');
    shown.say('/runs');
    await shown.shows(/completed .* look again\n/);
    await shown.leave();
  });

  test('is a mode that Shift+Tab begins and ends', async () => {
    const shown = await open([]);
    shown.type('\u001b[Z');
    await shown.shows('plan mode · scripted');
    shown.type('\u001b[Z');
    await shown.hides('plan mode');
    await shown.leave();
  });
});

describe('the first lines', () => {
  test('say what applies, and how to change it; the line above the prompt says what is used', async () => {
    await play.write('AGENTS.md', 'Use tabs.');
    const shown = await open([{ text: ['ok.'] }], { args: ['--tools', 'read,glob'], size: { columns: 100, rows: 30 } });
    expect(shown.all()).toMatch(/model {4}scripted \(\/model NAME\)/);
    expect(shown.all()).toMatch(/sandbox {2}.*\(orchestrator\.tools in treadle\.toml\)/);
    expect(shown.all()).toContain('policy   level 1, supervised: asks before it changes something (policy.autonomy');
    expect(shown.all()).toContain('tools    2: read, glob (--tools)');
    expect(shown.all()).toContain('project  AGENTS.md (9 B)');
    expect(shown.all()).not.toContain('/init');
    shown.say('go');
    await shown.shows('scripted · 15 tokens · 0% of 128 k context');
    await shown.leave();
  });

  test('say how to get AGENTS.md if there is none', async () => {
    const shown = await open([]);
    expect(shown.all()).toContain('project  no AGENTS.md (/init writes one)');
    await shown.leave();
  });

  test('fit into 40 columns, and so does everything else', async () => {
    const size = { columns: 40, rows: 16 };
    const shown = await open(
      [{ ...READ, text: ['A longer text, with `code` 😀 日本語 '.repeat(4)] }, { text: ['Done.'] }],
      { args: ['--ask'], size },
    );
    shown.say('a message that is wider than the terminal');
    await shown.shows('Allow it?');
    shown.type('y');
    await shown.shows('Done.');
    await shown.shows('scripted');
    // The folder of the test is one long word.
    for (const line of shown.all().split('\n').slice(3)) expect(line.length).toBeLessThan(40);
    expect(shown.all()).toContain('Type a message, /help for help, Ctrl-D\nto leave.\n');
    await shown.leave();
  });
});

test('what a newcomer reads first is broken between words', async () => {
  server = await scriptedOpenAi([]);
  const shown = onScreen(['chat'], play.folder, { size: { columns: 60, rows: 24 } });
  await shown.shows(/^> *$/m);
  expect(shown.all()).toMatch(
    /^No API key and no configured model: this is the demo model,\nwhich follows a few fixed rules\.\n/,
  );
  shown.type(CTRL_D);
  expect(await shown.exit).toBe(0);
});

test('the name alone starts a chat, also with flags', async () => {
  server = await scriptedOpenAi([]);
  const shown = onScreen(['--model', 'scripted', '--base-url', server.baseURL], play.folder);
  await shown.shows(/^> *$/m);
  shown.type(CTRL_D);
  expect(await shown.exit).toBe(0);
});

describe('at the turn limit', () => {
  test('the user is asked whether to go on', async () => {
    const shown = await open([READ, { text: ['Finished.'] }, READ], { args: ['--max-turns', '1'] });
    shown.say('go');
    await shown.shows('It has taken 1 turn and is not done. Continue?');
    shown.type('y');
    await shown.shows('Finished.');
    expect(server.requests[1]!.messages.at(-1)).toMatchObject({ role: 'user', content: 'Continue.' });
    shown.say('again');
    await shown.shows(/not done[^]*not done\. Continue\?/);
    shown.type('n');
    await shown.shows(/> *\n*$/);
    expect(server.requests).toHaveLength(3);
    await shown.leave();
  });
});

describe('a long conversation', () => {
  test('/compact replaces it by a summary that keeps what matters', async () => {
    const shown = await open([{ text: ['One.'] }, { text: ['The summary.'] }, { text: ['Two.'] }]);
    shown.say('first');
    await shown.shows('One.');
    shown.say('/compact the names');
    await shown.shows('Compacted the conversation from 15 tokens');
    expect(server.requests[1]!.messages.at(-1)!.content).toMatch(
      /^Summarise this conversation.*What matters most: the names$/,
    );
    shown.say('second');
    await shown.shows('Two.');
    const [, summary, second] = server.requests[2]!.messages;
    expect(summary!.content).toMatch(/^Summary of the conversation so far;[^]*The summary\.$/);
    expect(second!.content).toBe('second');
    await shown.leave();
  });

  test('is compacted by itself before the context is full', async () => {
    server = await scriptedOpenAi([{ text: ['One.'] }, { text: ['The summary.'] }, { text: ['Two.'] }]);
    await play.write(
      'treadle.toml',
      `[models]\ndefault = "a"\n[models.a]\nmodel = "m"\nbase_url = "${server.baseURL}"\ncontext_tokens = 18\n`,
    );
    const shown = onScreen(['chat'], play.folder);
    await shown.shows(/^> *$/m);
    shown.type('first\r');
    await shown.shows('83% of');
    shown.type('second\r');
    await shown.shows('Two.');
    expect(shown.all()).toContain('Compacted the conversation');
    expect(server.requests[2]!.messages.map(({ role }) => role)).toEqual(['system', 'user', 'user']);
    shown.type(CTRL_D);
    await shown.exit;
  });
});

test('a bell and a title say that it waits for a decision', async () => {
  const shown = await open([READ, { text: ['Seen.'] }], { args: ['--ask'] });
  expect(shown.titles).toEqual(['treadle']);
  shown.say('look');
  await shown.shows('Allow it?');
  expect([shown.bells(), shown.titles.at(-1)]).toEqual([1, '● treadle waits for you']);
  shown.type('y');
  await shown.shows('Seen.');
  expect([shown.bells(), shown.titles.at(-1)]).toEqual([1, 'treadle']);
  await shown.leave();
});

test('has no colours with NO_COLOR', async () => {
  const shown = await open([{ text: ['**bold** `code`'] }], { env: { NO_COLOR: '1' } });
  shown.say('go');
  await shown.shows('bold code');
  expect(shown.styleOf('bold')).toEqual([]);
  expect(shown.styleOf('code')).toEqual([]);
  await shown.leave();
});
