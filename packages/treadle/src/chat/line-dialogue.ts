import type { Transform } from 'node:stream';
import { clearScreenDown, createInterface, cursorTo, moveCursor } from 'node:readline';
import { askApproval, askQuestion } from '../run/ask-approval.ts';
import type { Io } from '../terminal/io.ts';
import { coloursFor } from '../terminal/colours.ts';
import { oneLine, printable } from '../terminal/printable.ts';
import { lineRun, type Dialogue, type StartedRun } from './dialogue.ts';
import { MAX_ENTRIES, NO_HISTORY, type ChatHistory } from './history.ts';
import { PASTE_OFF, PASTE_ON, pasteFilter } from '../terminal/paste.ts';

const PROMPT = '> ';
const EARLIER_CHARS = 400;
/** Stands for a line break in the line editor. */
const LINE_BREAK = '␤';

/**
 * A chat on a terminal that shows lines and redraws nothing but the line editor: for screen readers, and for terminals that cannot
 * move the cursor. One line editor is open during the whole chat, so the user can type at any time:
 * 1. A line answers the last question. If there is none, it steers the current run.
 * 2. While the user types a line during a run, output is held back, so that the two do not mix.
 * 3. Text that was typed before an approval or an answer was asked for never gives it.
 * 4. A pasted text of several lines is one message. The editor shows a mark in its place.
 */
export function lineDialogue(io: Io, history: ChatHistory = NO_HISTORY): Dialogue {
  const { stdin, stdout } = io;
  const canPaste = io.env['TERM'] !== 'dumb';
  /** The texts of the marks in the typed line. */
  const pasted = new Map<string, string>();
  const keys = keysOf(stdin, (text) => {
    const trimmed = text.replace(/\n$/, '');
    const lines = trimmed.split('\n').length;
    if (lines === 1) return printable(trimmed.replaceAll('\t', '  '));
    const mark = `[paste ${pasted.size + 1}: ${lines} lines]`;
    pasted.set(mark, trimmed);
    return mark;
  });
  /** What a line of the editor stands for. */
  const textOf = (line: string): string => {
    let text = line.replaceAll(LINE_BREAK, '\n');
    for (const [mark, content] of pasted) text = text.replace(mark, () => content);
    return text;
  };
  const reader = createInterface({
    input: keys,
    output: stdout,
    terminal: true,
    prompt: PROMPT,
    history: history.entries.toReversed().map(inOneLine),
    historySize: MAX_ENTRIES,
    removeHistoryDuplicates: true,
  });
  if (canPaste) stdout.write(PASTE_ON);
  let closed = false;
  let asked: ((line: string | undefined) => void) | undefined;
  /** The user is asked for a message, and not for an approval or an answer. */
  let asksMessage = false;
  let run: StartedRun | undefined;
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
    asksMessage = prompt === PROMPT;
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

  const isAnswer = (): boolean => asked !== undefined && !asksMessage;
  reader.on('line', (line) => {
    atLineStart = true;
    const text = textOf(line);
    pasted.clear();
    if (text.trim() !== '' && !isAnswer()) history.add(text);
    if (asked) answer(text);
    else if (!run) early.push(text);
    else if (text.trim() !== '') run.steer(text);
    release();
  });
  // Called before `line`, with the newest line first.
  reader.on('history', (lines: string[]) => {
    if (isAnswer()) lines.shift();
    else if (lines[0] !== undefined) lines[0] = inOneLine(textOf(lines[0]));
  });
  reader.on('SIGINT', () => {
    if (run) {
      // The second one ends the process.
      if (canPaste && run.interrupt.signal.aborted) stdout.write(PASTE_OFF);
      run.interrupt.press();
    } else if (reader.line !== '') clearTyped();
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
  keys.prependListener('keypress', onKeyBefore).on('keypress', onKeyAfter);
  reader.on('close', () => {
    closed = true;
    keys.off('keypress', onKeyBefore).off('keypress', onKeyAfter);
    stdin.unpipe(keys).pause();
    if (canPaste) stdout.write(PASTE_OFF);
    release();
    answer(undefined);
    run?.leave?.();
  });

  return {
    nextMessage: async () => early.shift() ?? ask(PROMPT),
    startRun(started) {
      run = started;
      const onAbort = (): void => answer(undefined);
      started.interrupt.signal.addEventListener('abort', onAbort);
      const end = (): void => {
        started.interrupt.signal.removeEventListener('abort', onAbort);
        run = undefined;
      };
      const shown = { writeText: (text: string): void => write(printable(text)), writeLine: prompter.writeLine };
      return lineRun(shown, { colours: coloursFor(stdout, io.env), width: stdout.columns ?? 120, end });
    },
    async approve(request, _others, explain) {
      startAsking();
      return askApproval(request, prompter, explain);
    },
    async answer(request, rejected) {
      startAsking();
      return askQuestion(request, prompter, rejected);
    },
    async confirm(question) {
      startAsking();
      return /^y(es)?$/i.test((await ask(`${question} [y/N] `))?.trim() ?? '');
    },
    async choose(title, choices) {
      startAsking();
      for (const [index, choice] of choices.entries()) prompter.writeLine(`${index + 1} ${choice}`);
      const number = Number((await ask(`${title} [1-${choices.length}] `))?.trim() || NaN);
      return Number.isInteger(number) && number >= 1 && number <= choices.length ? number - 1 : undefined;
    },
    writeLine: prompter.writeLine,
    showEarlier({ asked, reply }) {
      prompter.writeLine(`${PROMPT}${oneLine(asked, EARLIER_CHARS)}`);
      if (reply !== '') prompter.writeLine(printable(reply));
    },
    outlivesInterrupt: true,
    close: () => reader.close(),
  };
}

function inOneLine(text: string): string {
  return text.replaceAll('\n', LINE_BREAK);
}

/** The keys of a terminal without pasted texts. The line editor switches its mode through them. */
function keysOf(stdin: Io['stdin'], onPaste: (text: string) => string): Transform {
  const terminal = stdin as Io['stdin'] & { readonly setRawMode?: (on: boolean) => unknown };
  const keys = Object.assign(pasteFilter(onPaste), {
    isTTY: true,
    setRawMode: (on: boolean): void => void terminal.setRawMode?.(on),
  });
  return stdin.pipe(keys);
}
