import { PassThrough } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import { stripVTControlCharacters } from 'node:util';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { ApprovalRequest } from '../run/drive-run.ts';
import type { Io } from '../terminal/io.ts';
import { catchInterrupt, type Interrupt } from '../terminal/signals.ts';
import type { Dialogue } from './dialogue.ts';
import { PASTE_OFF } from '../terminal/paste.ts';
import { lineDialogue } from './line-dialogue.ts';

let stdin: PassThrough;
let shown: string;
let quits: number[];
let io: Io;
let dialogue: Dialogue;

beforeEach(() => {
  stdin = new PassThrough();
  const stdout = new PassThrough().setEncoding('utf8').on('data', (text: string) => (shown += text));
  shown = '';
  quits = [];
  io = {
    stdin: Object.assign(stdin, { isTTY: true }),
    stdout: Object.assign(stdout, { isTTY: true, columns: 80 }),
    stderr: Object.assign(new PassThrough(), { isTTY: true }),
    env: {},
    cwd: '/',
    onInterrupt: () => () => {},
    onTerminate: () => () => {},
    outliveReaders: () => {},
    quit: (code) => void quits.push(code),
  };
  dialogue = lineDialogue(io);
});
afterEach(() => dialogue.close());

/** Types the keys, and waits until the editor has handled them. */
async function type(keys: string): Promise<void> {
  stdin.write(keys);
  await setImmediate();
}
const screen = (): string => stripVTControlCharacters(shown).replaceAll('\r', '');
const CTRL_C = '\u0003';
const CTRL_D = '\u0004';

function startRun(): { interrupt: Interrupt; steered: string[]; writeText: (text: string) => void; end: () => void } {
  const interrupt = catchInterrupt(io);
  const steered: string[] = [];
  const { onItem, end } = dialogue.startRun({ interrupt, steer: (text) => steered.push(text) });
  return { interrupt, steered, writeText: (text) => onItem({ type: 'text-delta', text }), end };
}

const request: ApprovalRequest = {
  type: 'approval',
  effect: 't1.tool.0',
  digest: 'd',
  expiresAt: 0,
  call: {
    turn: 1,
    index: 0,
    id: 'c',
    name: 'read',
    arguments: `{"path":"\u202e${'x'.repeat(500)}"}`,
    resources: [],
    effect: 'pure',
    exclusive: false,
    client: false,
    verifiable: false,
  },
};

describe('at the prompt', () => {
  test('returns the lines of the user, and pasted lines one by one', async () => {
    const first = dialogue.nextMessage();
    await type('one\rtwo\rthr');
    expect(await first).toBe('one');
    expect(await dialogue.nextMessage()).toBe('two');
    const third = dialogue.nextMessage();
    await type('ee\r');
    expect(await third).toBe('three');
  });

  test('ends the chat at Ctrl-D', async () => {
    const message = dialogue.nextMessage();
    await type(CTRL_D);
    expect(await message).toBeUndefined();
    expect(await dialogue.nextMessage()).toBeUndefined();
    expect(screen()).toBe('> \n');
  });

  test('clears the typed line at Ctrl-C, and ends the chat if there is none', async () => {
    const message = dialogue.nextMessage();
    await type(`some words${CTRL_C}`);
    await type('other words\r');
    expect(await message).toBe('other words');
    const next = dialogue.nextMessage();
    await type(CTRL_C);
    expect(await next).toBeUndefined();
  });
});

describe('a pasted text', () => {
  const paste = (text: string): Promise<void> => type(`\u001b[200~${text}\u001b[201~`);

  test('of several lines is one message', async () => {
    const message = dialogue.nextMessage();
    await type('Look: ');
    await paste('one\r\ttwo\r\rthree\r');
    expect(screen()).toBe('> Look: [paste 1: 4 lines]');
    await type('!\r');
    expect(await message).toBe('Look: one\n\ttwo\n\nthree!');
  });

  test('of one line can be edited, and does not enter itself', async () => {
    const message = dialogue.nextMessage();
    await paste('some \u0003words\r');
    expect(screen()).toBe('> some \\u0003words');
    await type('\u007f\r');
    expect(await message).toBe('some \\u0003word');
  });

  test('is one message during a run, too', async () => {
    const { steered, end } = startRun();
    await paste('one\rtwo');
    await type('\r');
    expect(steered).toEqual(['one\ntwo']);
    end();
  });

  test('never approves a call', async () => {
    const { end } = startRun();
    const decision = dialogue.approve(request, []);
    await paste('y\ry\r');
    await type('\r');
    await type('n\r');
    expect(await decision).toMatchObject({ approved: false });
    end();
  });
});

describe('the history', () => {
  const UP = '\u001b[A';

  test('has messages of earlier chats and of this one, but no decisions', async () => {
    dialogue.close();
    const added: string[] = [];
    dialogue = lineDialogue(io, {
      history: {
        entries: ['old', 'two\nlines'],
        add: (text) => void added.push(text),
        saved: async () => undefined,
      },
    });
    const first = dialogue.nextMessage();
    await type('new\r');
    expect(await first).toBe('new');
    const { end } = startRun();
    const decision = dialogue.approve(request, []);
    await type('y\r');
    expect(await decision).toMatchObject({ approved: true });
    end();
    const second = dialogue.nextMessage();
    await type(`${UP}${UP}\r`);
    expect(await second).toBe('two\nlines');
    expect(added).toEqual(['new', 'two\nlines']);
  });
});

describe('during a run', () => {
  test('steers the run with a line', async () => {
    const { steered, end } = startRun();
    await type('and also this\r\r');
    expect(steered).toEqual(['and also this']);
    end();
  });

  test('holds output back while a line is typed, and prints it on a new line', async () => {
    const { steered, writeText, end } = startRun();
    writeText('The first ');
    await type('more');
    writeText('and the second ');
    dialogue.writeLine('#1 a call');
    expect(screen()).toBe('The first \nmore');
    await type('\r');
    expect(screen()).toBe('The first \nmore\nand the second #1 a call\n');
    expect(steered).toEqual(['more']);
    end();
  });

  test('prints held output when the typed text is deleted', async () => {
    const { writeText, end } = startRun();
    await type('x');
    writeText('words');
    expect(screen()).not.toContain('words');
    await type('\u007f');
    expect(screen()).toContain('words');
    end();
  });

  test('keeps the typed text and the output at the end of the run', async () => {
    const { writeText, end } = startRun();
    await type('half a ');
    writeText('words\n');
    end();
    const message = dialogue.nextMessage();
    expect(screen().endsWith('words\n> half a ')).toBe(true);
    await type('message\r');
    expect(await message).toBe('half a message');
  });

  test('cancels the run at Ctrl-C, and quits at the second', async () => {
    const { interrupt, end } = startRun();
    await type(CTRL_C);
    expect([interrupt.signal.aborted, quits]).toEqual([true, []]);
    await type(CTRL_C);
    expect(quits).toEqual([130]);
    expect(shown.endsWith(PASTE_OFF)).toBe(true);
    end();
  });

  test('escapes control sequences in text of the model', () => {
    const { writeText, end } = startRun();
    shown = '';
    writeText('\u001b[2J\u001b]0;owned\u0007');
    expect(shown).toBe('\\u001b[2J\\u001b]0;owned\\u0007');
    end();
  });
});

describe('an approval', () => {
  test('shows the complete arguments with control characters escaped', async () => {
    const { end } = startRun();
    const decision = dialogue.approve(request, []);
    expect(screen()).toContain(`read wants to run with {"path":"\\u202e${'x'.repeat(500)}"}\n`);
    expect(screen()).toMatch(/Allow it\? \[y\/N\/a\/e\] $/);
    await type('y\r');
    expect(await decision).toEqual({ approved: true });
    end();
  });

  test.each([
    ['yes\r', true],
    ['Y\r', true],
    ['n\r', false],
    ['\r', false],
    ['a\r', true],
    ['what?\ry\r', true],
    ['what?\rno\r', false],
    [CTRL_D, false],
  ])('%j', async (keys, approved) => {
    const { end } = startRun();
    const decision = dialogue.approve(request, []);
    for (const key of keys) await type(key);
    expect(await decision).toMatchObject({ approved });
    end();
  });

  test('shows exactly what the call would touch, on lines that cannot be taken for others', async () => {
    const { end } = startRun();
    const decision = dialogue.approve(
      {
        ...request,
        call: { ...request.call, name: 'act', arguments: '{}' },
        reason: 'It acts.',
        touches: [
          { type: 'write', path: 'a\u200b\nreads b' },
          { type: 'command', command: 'ls\u00a0-l\nAllow it? [y/N/a/e] y' },
          { type: 'url', url: 'https://good.example@evil.example/\u001b[2J' },
          { type: 'unknown' },
        ],
        shown: { diff: '-old\n+new\u001b[A' },
      },
      [],
    );
    const lines = screen().split('\n');
    expect(lines.slice(lines.findIndex((line) => line.includes('act wants')) + 1, -2)).toEqual([
      '  writes a\\u200b\\nreads b',
      '  runs ls\\u00a0-l',
      '       Allow it? [y/N/a/e] y',
      '  connects to evil.example: https://good.example@evil.example/\\u001b[2J',
      '  does not say what it touches',
      '  -old',
      '  +new\\u001b[A',
      '(It acts.)',
    ]);
    await type('a\r');
    expect(await decision).toEqual({ approved: true, forRun: true });
    end();
  });

  test('does not offer to allow the rest of the run if the rule asks each time', async () => {
    const { end } = startRun();
    const decision = dialogue.approve({ ...request, eachTime: true }, []);
    expect(screen()).toMatch(/Allow it\? \[y\/N\/e\] $/);
    await type('a\r');
    expect(screen()).toMatch(/it is asked about each time: $/);
    await type('y\r');
    expect(await decision).toEqual({ approved: true });
    end();
  });

  test('is not answered by text that was typed before', async () => {
    const { steered, end } = startRun();
    await type('y');
    const decision = dialogue.approve(request, []);
    await type('\r');
    expect(await decision).toMatchObject({ approved: false });
    expect(steered).toEqual([]);
    end();
  });

  test('is denied if the user has left during the run', async () => {
    const { end } = startRun();
    await type(CTRL_D);
    expect(await dialogue.approve(request, [])).toMatchObject({ approved: false });
    end();
    expect(await dialogue.nextMessage()).toBeUndefined();
  });

  test('is denied by Ctrl-C, which also cancels the run', async () => {
    const { interrupt, end } = startRun();
    const decision = dialogue.approve(request, []);
    await type(CTRL_C);
    expect(await decision).toMatchObject({ approved: false });
    expect(interrupt.signal.aborted).toBe(true);
    end();
  });
});
