import { PassThrough } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import { stripVTControlCharacters } from 'node:util';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { AskedApproval } from '../run/drive-run.ts';
import { interruptible, type Interrupt } from '../terminal/signals.ts';
import type { Io } from '../terminal/io.ts';
import type { Dialogue } from './dialogue.ts';
import { terminalDialogue } from './terminal-dialogue.ts';

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
  dialogue = terminalDialogue(io);
});
afterEach(() => dialogue.close());

/** Types, and lets the editor see it. */
async function type(keys: string): Promise<void> {
  stdin.write(keys);
  await setImmediate();
}
const screen = (): string => stripVTControlCharacters(shown).replaceAll('\r', '');
const CTRL_C = '\u0003';
const CTRL_D = '\u0004';

function begin(): { interrupt: Interrupt; steered: string[]; end: () => void } {
  const interrupt = interruptible(io);
  const steered: string[] = [];
  const end = dialogue.begin({ interrupt, steer: (text) => steered.push(text) });
  return { interrupt, steered, end };
}

const asked: AskedApproval = {
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
  test('a line is what the user says; pasted ones come one by one', async () => {
    const first = dialogue.next();
    await type('one\rtwo\rthr');
    expect(await first).toBe('one');
    expect(await dialogue.next()).toBe('two');
    const third = dialogue.next();
    await type('ee\r');
    expect(await third).toBe('three');
  });

  test('Ctrl-D leaves', async () => {
    const said = dialogue.next();
    await type(CTRL_D);
    expect(await said).toBeUndefined();
    expect(await dialogue.next()).toBeUndefined();
    expect(screen()).toBe('> \n');
  });

  test('Ctrl-C forgets what was typed, and leaves when there is nothing', async () => {
    const said = dialogue.next();
    await type(`some words${CTRL_C}`);
    await type('other words\r');
    expect(await said).toBe('other words');
    const next = dialogue.next();
    await type(CTRL_C);
    expect(await next).toBeUndefined();
  });
});

describe('while a run goes on', () => {
  test('a line steers it', async () => {
    const { steered, end } = begin();
    await type('and also this\r\r');
    expect(steered).toEqual(['and also this']);
    end();
  });

  test('output waits while a line is half typed, and has a line of its own', async () => {
    const { steered, end } = begin();
    dialogue.writeText('The first ');
    await type('more');
    dialogue.writeText('and the second ');
    dialogue.writeLine('#1 a call');
    expect(screen()).toBe('The first \nmore');
    await type('\r');
    expect(screen()).toBe('The first \nmore\nand the second #1 a call\n');
    expect(steered).toEqual(['more']);
    end();
  });

  test('output comes back when what was typed is deleted', async () => {
    const { end } = begin();
    await type('x');
    dialogue.writeText('words');
    expect(screen()).not.toContain('words');
    await type('\u007f');
    expect(screen()).toContain('words');
    end();
  });

  test('what is half typed at its end is not lost, nor is the output', async () => {
    const { end } = begin();
    await type('half a ');
    dialogue.writeText('words\n');
    end();
    const said = dialogue.next();
    expect(screen().endsWith('words\n> half a ')).toBe(true);
    await type('message\r');
    expect(await said).toBe('half a message');
  });

  test('Ctrl-C cancels it, a second one quits', async () => {
    const { interrupt, end } = begin();
    await type(CTRL_C);
    expect([interrupt.signal.aborted, quits]).toEqual([true, []]);
    await type(CTRL_C);
    expect(quits).toEqual([130]);
    end();
  });

  test('what the model says cannot move the cursor', () => {
    dialogue.writeText('\u001b[2J\u001b]0;owned\u0007');
    expect(shown).toBe('\\u001b[2J\\u001b]0;owned\\u0007');
  });
});

describe('an approval', () => {
  test('shows the whole of what it is about, with nothing hidden', async () => {
    const { end } = begin();
    const decision = dialogue.approve(asked);
    expect(screen()).toContain(`read wants to run with {"path":"\\u202e${'x'.repeat(500)}"}\nAllow it? [y/N] `);
    await type('y\r');
    expect(await decision).toEqual({ approved: true });
    end();
  });

  test.each([
    ['yes\r', true],
    ['Y\r', true],
    ['n\r', false],
    ['\r', false],
    ['what?\ry\r', true],
    ['what?\rno\r', false],
    [CTRL_D, false],
  ])('%j', async (keys, approved) => {
    const { end } = begin();
    const decision = dialogue.approve(asked);
    for (const key of keys) await type(key);
    expect(await decision).toMatchObject({ approved });
    end();
  });

  test('is never answered by what was typed before', async () => {
    const { steered, end } = begin();
    await type('y');
    const decision = dialogue.approve(asked);
    await type('\r');
    expect(await decision).toMatchObject({ approved: false });
    expect(steered).toEqual([]);
    end();
  });

  test('is a no when the user has left in the middle of the run', async () => {
    const { end } = begin();
    await type(CTRL_D);
    expect(await dialogue.approve(asked)).toMatchObject({ approved: false });
    end();
    expect(await dialogue.next()).toBeUndefined();
  });

  test('Ctrl-C there cancels the run', async () => {
    const { interrupt, end } = begin();
    const decision = dialogue.approve(asked);
    await type(CTRL_C);
    expect(await decision).toMatchObject({ approved: false });
    expect(interrupt.signal.aborted).toBe(true);
    end();
  });
});
