import type { Transform } from 'node:stream';
import { clearScreenDown, createInterface, cursorTo, moveCursor, type Interface } from 'node:readline';
import { askApproval, askQuestion, shortRequestLines, type Prompter } from '../run/ask-approval.ts';
import { paintLine } from '../screen/spans.ts';
import type { Io } from '../terminal/io.ts';
import { coloursFor } from '../terminal/colours.ts';
import { oneLine, printable } from '../terminal/printable.ts';
import { lineRun, type Dialogue, type StartedRun } from './dialogue.ts';
import type { CallChanges } from './file-changes.ts';
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
export function lineDialogue(
  io: Io,
  {
    history = NO_HISTORY,
    changes,
  }: {
    readonly history?: ChatHistory | undefined;
    /** Shows what calls change. */
    readonly changes?: CallChanges | undefined;
  } = {},
): Dialogue {
  const { stdin, stdout } = io;
  const canPaste = io.env['TERM'] !== 'dumb';
  const pasted = pastedTexts();
  const keys = keysOf(stdin, pasted.add);
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

  const typing = (): boolean => run !== undefined && asked === undefined && reader.line !== '';
  const output = heldOutput(stdout, { isHeld: typing, reader });
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
    output.isAtLineStart = true;
    resolve(line);
  };
  const ask = (prompt: string): Promise<string | undefined> => {
    asksMessage = prompt === PROMPT;
    if (closed) return Promise.resolve(undefined);
    output.startLine();
    reader.setPrompt(prompt);
    reader.prompt(true);
    return new Promise((resolve) => {
      asked = resolve;
    });
  };
  const prompter = { writeLine: (line: string): void => output.write(`${line}\n`), ask };
  const startAsking = (): void => {
    if (!closed) clearTyped();
    output.startLine();
  };

  const isAnswer = (): boolean => asked !== undefined && !asksMessage;
  reader.on('line', (line) => {
    output.isAtLineStart = true;
    const text = pasted.textOf(line);
    pasted.clear();
    if (text.trim() !== '' && !isAnswer()) history.add(text);
    if (asked) answer(text);
    else if (!run) early.push(text);
    else if (text.trim() !== '') run.steer(text);
    output.release();
  });
  // Called before `line`, with the newest line first.
  reader.on('history', (lines: string[]) => {
    if (isAnswer()) lines.shift();
    else if (lines[0] !== undefined) lines[0] = inOneLine(pasted.textOf(lines[0]));
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
    if (run && !asked && reader.line === '' && text && text >= ' ') output.startLine();
  };
  // Runs after the editor has handled the key: the typed line may be empty again.
  const onKeyAfter = (): void => {
    if (!typing()) output.release();
  };
  keys.prependListener('keypress', onKeyBefore).on('keypress', onKeyAfter);
  reader.on('close', () => {
    closed = true;
    keys.off('keypress', onKeyBefore).off('keypress', onKeyAfter);
    stdin.unpipe(keys).pause();
    if (canPaste) stdout.write(PASTE_OFF);
    output.release();
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
      const shown = { writeText: (text: string): void => output.write(printable(text)), writeLine: prompter.writeLine };
      return lineRun(shown, { colours: coloursFor(stdout, io.env), width: stdout.columns ?? 120, end });
    },
    ...lineAsking({ prompter, startAsking, changes, width: () => (stdout.columns ?? 80) - 1 }),
    writeLine: prompter.writeLine,
    showEarlier({ asked, reply }) {
      prompter.writeLine(`${PROMPT}${oneLine(asked, EARLIER_CHARS)}`);
      if (reply !== '') prompter.writeLine(printable(reply));
    },
    outlivesInterrupt: true,
    close: () => reader.close(),
  };
}

interface HeldOutput {
  write(text: string): void;
  /** Writes what was held back. */
  release(): void;
  /** The same, and what follows begins a line. */
  startLine(): void;
  isAtLineStart: boolean;
}

/** Output that is held back while the user types a line. */
function heldOutput(
  stdout: Io['stdout'],
  { isHeld, reader }: { readonly isHeld: () => boolean; readonly reader: Interface },
): HeldOutput {
  let held = '';
  /** Clears the typed line from the screen only. The editor prints it again with the next prompt. */
  const eraseTyped = (): void => {
    moveCursor(stdout, 0, -reader.getCursorPos().rows);
    cursorTo(stdout, 0);
    clearScreenDown(stdout);
  };
  const output: HeldOutput = {
    isAtLineStart: true,
    write(text) {
      if (isHeld()) {
        held += text;
        return;
      }
      stdout.write(text);
      if (text !== '') output.isAtLineStart = text.endsWith('\n');
    },
    release() {
      if (held === '') return;
      const text = held;
      held = '';
      if (reader.line !== '') eraseTyped();
      output.write(text);
    },
    startLine() {
      output.release();
      if (!output.isAtLineStart) stdout.write('\n');
      output.isAtLineStart = true;
    },
  };
  return output;
}

/** What the user is asked, as lines. */
function lineAsking({
  prompter,
  startAsking,
  changes,
  width,
}: {
  readonly prompter: Prompter;
  readonly startAsking: () => void;
  readonly changes: CallChanges | undefined;
  readonly width: () => number;
}): Pick<Dialogue, 'approve' | 'answer' | 'confirm' | 'choose'> {
  const { ask, writeLine } = prompter;
  return {
    async approve(request, _others, explain) {
      startAsking();
      const preview = changes?.preview(request.call, width());
      const shown = preview ? { ...request, call: { ...request.call, ...preview.call } } : request;
      const [head = '', ...rest] = shortRequestLines(shown, Date.now());
      const lines = [head, ...(preview?.lines ?? []).map((line) => paintLine(line, undefined)), ...rest];
      return askApproval(request, prompter, { explain, lines });
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
      for (const [index, choice] of choices.entries()) writeLine(`${index + 1} ${choice}`);
      const number = Number((await ask(`${title} [1-${choices.length}] `))?.trim() || NaN);
      return Number.isInteger(number) && number >= 1 && number <= choices.length ? number - 1 : undefined;
    },
  };
}

/** Pasted texts of several lines, which the typed line has a mark for. */
function pastedTexts(): { add(text: string): string; textOf(line: string): string; clear(): void } {
  const texts = new Map<string, string>();
  return {
    /** What the line editor gets. */
    add(text) {
      const trimmed = text.replace(/\n$/, '');
      const lines = trimmed.split('\n').length;
      if (lines === 1) return printable(trimmed.replaceAll('\t', '  '));
      const mark = `[paste ${texts.size + 1}: ${lines} lines]`;
      texts.set(mark, trimmed);
      return mark;
    },
    /** What a line of the editor stands for. */
    textOf(line) {
      let text = line.replaceAll(LINE_BREAK, '\n');
      for (const [mark, content] of texts) text = text.replace(mark, () => content);
      return text;
    },
    clear: () => texts.clear(),
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
