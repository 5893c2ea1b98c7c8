import { clearScreenDown, createInterface, cursorTo, moveCursor } from 'node:readline';
import { askApproval } from '../terminal/prompt.ts';
import type { AskedApproval, Decision } from '../run/drive-run.ts';
import type { Interrupt } from '../terminal/signals.ts';
import type { Io } from '../terminal/io.ts';
import { printable } from '../terminal/printable.ts';
import type { Dialogue } from './dialogue.ts';

const PROMPT = '> ';

/**
 * A chat on a terminal. One line editor lives as long as the chat, so the user can type at any time:
 * 1. a line is the answer to whatever was asked last, or else it steers the run that goes on;
 * 2. while a line is half typed during a run, output is held back, so that neither breaks into the other;
 * 3. what was typed before an approval was asked never answers it.
 */
export function terminalDialogue(io: Io): Dialogue {
  const { stdin, stdout } = io;
  const reader = createInterface({ input: stdin, output: stdout, terminal: true, prompt: PROMPT });
  let closed = false;
  let asked: ((line: string | undefined) => void) | undefined;
  let run: { readonly interrupt: Interrupt; readonly steer: (text: string) => void } | undefined;
  /** Lines that came before anybody asked, such as the rest of what was pasted. */
  const early: string[] = [];
  let held = '';
  let atLineStart = true;

  const typing = (): boolean => run !== undefined && asked === undefined && reader.line !== '';
  const write = (text: string): void => {
    if (typing()) {
      held += text;
      return;
    }
    stdout.write(text);
    if (text !== '') atLineStart = text.endsWith('\n');
  };
  const release = (): void => {
    if (held === '') return;
    const text = held;
    held = '';
    if (reader.line !== '') wipeTyped();
    write(text);
  };
  /** From the screen only: the editor shows it again with its next prompt. */
  const wipeTyped = (): void => {
    moveCursor(stdout, 0, -reader.getCursorPos().rows);
    cursorTo(stdout, 0);
    clearScreenDown(stdout);
  };
  const clearTyped = (): void => {
    reader.write(null, { ctrl: true, name: 'e' });
    reader.write(null, { ctrl: true, name: 'u' });
  };
  const answer = (line: string | undefined): void => {
    if (!asked) return;
    const resolve = asked;
    asked = undefined;
    reader.setPrompt('');
    // Nobody has pressed Enter.
    if (line === undefined) stdout.write('\n');
    atLineStart = true;
    resolve(line);
  };
  const startLine = (): void => {
    release();
    if (!atLineStart) stdout.write('\n');
    atLineStart = true;
  };
  const ask = (prompt: string): Promise<string | undefined> => {
    if (closed) return Promise.resolve(undefined);
    startLine();
    reader.setPrompt(prompt);
    reader.prompt(true);
    return new Promise((resolve) => {
      asked = resolve;
    });
  };
  const askForApproval = (approval: AskedApproval): Promise<Decision> => {
    if (!closed) clearTyped();
    startLine();
    return askApproval(approval, { say: (line) => write(`${line}\n`), ask });
  };

  reader.on('line', (line) => {
    atLineStart = true;
    if (asked) answer(line);
    else if (!run) early.push(line);
    else if (line.trim() !== '') run.steer(line);
    release();
  });
  reader.on('SIGINT', () => {
    if (run) run.interrupt.press();
    else if (reader.line !== '') clearTyped();
    else answer(undefined);
  });
  // Before the editor shows the first key of a line, which belongs on a line of its own.
  const beforeKey = (text: string | undefined): void => {
    if (run && !asked && reader.line === '' && !atLineStart && text && text >= ' ') {
      stdout.write('\n');
      atLineStart = true;
    }
  };
  // After it: the line may be empty again.
  const afterKey = (): void => {
    if (!typing()) release();
  };
  stdin.prependListener('keypress', beforeKey).on('keypress', afterKey);
  reader.on('close', () => {
    closed = true;
    stdin.off('keypress', beforeKey).off('keypress', afterKey);
    release();
    answer(undefined);
  });

  return {
    next: async () => early.shift() ?? ask(PROMPT),
    begin(begun) {
      run = begun;
      const onAbort = (): void => answer(undefined);
      begun.interrupt.signal.addEventListener('abort', onAbort);
      return () => {
        begun.interrupt.signal.removeEventListener('abort', onAbort);
        run = undefined;
      };
    },
    approve: askForApproval,
    writeText: (text) => write(printable(text)),
    writeLine: (line) => write(`${line}\n`),
    outlivesInterrupt: true,
    close: () => reader.close(),
  };
}
