import { clearScreenDown, createInterface, cursorTo, moveCursor } from 'node:readline';
import { askApproval, askQuestion } from '../run/ask-approval.ts';
import type { Io } from '../terminal/io.ts';
import { printable } from '../terminal/printable.ts';
import type { Interrupt } from '../terminal/signals.ts';
import type { Dialogue } from './dialogue.ts';

const PROMPT = '> ';

/**
 * A chat on a terminal. One line editor is open during the whole chat, so the user can type at any time:
 * 1. A line answers the last question. If there is none, it steers the current run.
 * 2. While the user types a line during a run, output is held back, so that the two do not mix.
 * 3. Text that was typed before an approval or an answer was asked for never gives it.
 */
export function terminalDialogue(io: Io): Dialogue {
  const { stdin, stdout } = io;
  const reader = createInterface({ input: stdin, output: stdout, terminal: true, prompt: PROMPT });
  let closed = false;
  let asked: ((line: string | undefined) => void) | undefined;
  let run: { readonly interrupt: Interrupt; readonly steer: (text: string) => void } | undefined;
  /** Lines that were entered before they were asked for, such as the rest of a pasted text. */
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
    if (reader.line !== '') eraseTyped();
    write(text);
  };
  /** Clears the typed line from the screen only. The editor prints it again with the next prompt. */
  const eraseTyped = (): void => {
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
    // The user did not press Enter.
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
  const prompter = { writeLine: (line: string): void => write(`${line}\n`), ask };
  const startAsking = (): void => {
    if (!closed) clearTyped();
    startLine();
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
  // Runs before the editor prints the first key, so that the typed line starts on a new line.
  const onKeyBefore = (text: string | undefined): void => {
    if (run && !asked && reader.line === '' && !atLineStart && text && text >= ' ') {
      stdout.write('\n');
      atLineStart = true;
    }
  };
  // Runs after the editor has handled the key: the typed line may be empty again.
  const onKeyAfter = (): void => {
    if (!typing()) release();
  };
  stdin.prependListener('keypress', onKeyBefore).on('keypress', onKeyAfter);
  reader.on('close', () => {
    closed = true;
    stdin.off('keypress', onKeyBefore).off('keypress', onKeyAfter);
    release();
    answer(undefined);
  });

  return {
    nextMessage: async () => early.shift() ?? ask(PROMPT),
    startRun(started) {
      run = started;
      const onAbort = (): void => answer(undefined);
      started.interrupt.signal.addEventListener('abort', onAbort);
      return () => {
        started.interrupt.signal.removeEventListener('abort', onAbort);
        run = undefined;
      };
    },
    async approve(request, explain) {
      startAsking();
      return askApproval(request, prompter, explain);
    },
    async answer(request, rejected) {
      startAsking();
      return askQuestion(request, prompter, rejected);
    },
    writeText: (text) => write(printable(text)),
    writeLine: (line) => write(`${line}\n`),
    outlivesInterrupt: true,
    close: () => reader.close(),
  };
}
