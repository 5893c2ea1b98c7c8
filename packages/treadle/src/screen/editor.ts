import { printable, columnsOf } from '../terminal/printable.ts';

/** A text with a cursor, and what was removed from it. `at`: a position in `text`. */
export interface EditorState {
  readonly text: string;
  readonly at: number;
}

/**
 * The editor of a message. A long paste stands in the text as a mark, such as `[paste 1: 40 lines]`, which is one unit: it is
 * deleted as a whole.
 */
export interface Editor {
  readonly state: EditorState;
  /** Handles a key. False: it does not change the text or the place of the cursor. */
  press(name: string): boolean;
  insert(text: string): void;
  /** Inserts a pasted text, or a mark for it if it is long. */
  paste(text: string): void;
  /** Replaces a part of the text, and places the cursor behind it. */
  replace(from: number, to: number, text: string): void;
  set(text: string): void;
  /** The text with the pasted texts in the place of their marks. */
  whole(): string;
  /** Whether the cursor is on the first line, or on the last. */
  isOnFirstLine(): boolean;
  isOnLastLine(): boolean;
}

/** A pasted text of more lines or characters is folded. */
const FOLD_LINES = 1;
const FOLD_CHARS = 1_000;
const MAX_UNDO = 200;

export function openEditor(): Editor {
  let state: EditorState = { text: '', at: 0 };
  let killed = '';
  const pasted = new Map<string, string>();
  let undo: EditorState[] = [];
  const change = (text: string, at: number): void => {
    if (text === state.text && at === state.at) return;
    if (text !== state.text) undo = [...undo.slice(-MAX_UNDO), state];
    state = { text, at };
  };
  const replace = (from: number, to: number, text: string): void =>
    change(state.text.slice(0, from) + text + state.text.slice(to), from + text.length);
  const kill = (from: number, to: number): void => {
    if (from === to) return;
    killed = state.text.slice(from, to);
    replace(from, to, '');
  };
  /** The mark that ends, or begins, at the cursor. */
  const markAt = (at: number, side: 'before' | 'after'): string | undefined =>
    [...pasted.keys()].find((mark) =>
      side === 'before' ? state.text.slice(0, at).endsWith(mark) : state.text.startsWith(mark, at),
    );
  const before = (at: number): number =>
    at - (markAt(at, 'before')?.length ?? lastGrapheme(state.text.slice(Math.max(0, at - 64), at)).length);
  const after = (at: number): number =>
    at + (markAt(at, 'after')?.length ?? firstGrapheme(state.text.slice(at, at + 64)).length);
  const lineStart = (at: number): number => state.text.lastIndexOf('\n', at - 1) + 1;
  const lineEnd = (at: number): number => {
    const end = state.text.indexOf('\n', at);
    return end < 0 ? state.text.length : end;
  };
  const wordBefore = (at: number): number => {
    const [word = ''] = /[^\s]*\s*$/.exec(state.text.slice(0, at)) ?? [];
    return at - word.length;
  };
  const wordAfter = (at: number): number => {
    const [word = ''] = /^\s*[^\s]*/.exec(state.text.slice(at)) ?? [];
    return at + word.length;
  };
  const moveLine = (by: -1 | 1): void => {
    const start = lineStart(state.at);
    const column = columnsOf(state.text.slice(start, state.at));
    const target = by < 0 ? lineStart(start - 1) : lineEnd(state.at) + 1;
    let at = target;
    const end = lineEnd(target);
    while (at < end && columnsOf(state.text.slice(target, at)) < column) at = after(at);
    change(state.text, at);
  };
  const isOnFirstLine = (): boolean => lineStart(state.at) === 0;
  const isOnLastLine = (): boolean => lineEnd(state.at) === state.text.length;
  const moves: Readonly<Record<string, () => number>> = {
    left: () => before(state.at),
    'ctrl-b': () => before(state.at),
    right: () => after(state.at),
    'ctrl-f': () => after(state.at),
    home: () => lineStart(state.at),
    'ctrl-a': () => lineStart(state.at),
    end: () => lineEnd(state.at),
    'ctrl-e': () => lineEnd(state.at),
    'alt-b': () => wordBefore(state.at),
    'ctrl-left': () => wordBefore(state.at),
    'alt-left': () => wordBefore(state.at),
    'alt-f': () => wordAfter(state.at),
    'ctrl-right': () => wordAfter(state.at),
    'alt-right': () => wordAfter(state.at),
  };
  const edits: Readonly<Record<string, () => void>> = {
    backspace: () => replace(before(state.at), state.at, ''),
    'ctrl-h': () => replace(before(state.at), state.at, ''),
    delete: () => replace(state.at, after(state.at), ''),
    'ctrl-k': () => kill(state.at, Math.max(lineEnd(state.at), Math.min(state.at + 1, state.text.length))),
    'ctrl-u': () => kill(lineStart(state.at), state.at),
    'ctrl-w': () => kill(wordBefore(state.at), state.at),
    'alt-backspace': () => kill(wordBefore(state.at), state.at),
    'alt-d': () => kill(state.at, wordAfter(state.at)),
    'ctrl-y': () => replace(state.at, state.at, killed),
    'ctrl-j': () => replace(state.at, state.at, '\n'),
    'alt-enter': () => replace(state.at, state.at, '\n'),
    'shift-enter': () => replace(state.at, state.at, '\n'),
    'ctrl-_': () => {
      state = undo.pop() ?? state;
    },
  };
  return {
    get state() {
      return state;
    },
    press(name) {
      if (Object.hasOwn(moves, name)) change(state.text, clamp(moves[name]!(), state.text.length));
      else if (Object.hasOwn(edits, name)) edits[name]!();
      else if (name === 'up' && !isOnFirstLine()) moveLine(-1);
      else if (name === 'down' && !isOnLastLine()) moveLine(1);
      else return false;
      return true;
    },
    insert: (text) => replace(state.at, state.at, printable(text)),
    paste(text) {
      const content = text.replace(/\n$/, '');
      const lines = content.split('\n').length;
      if (lines <= FOLD_LINES && content.length <= FOLD_CHARS) {
        replace(state.at, state.at, printable(content.replaceAll('\t', '  ')));
        return;
      }
      const what = lines > 1 ? `${lines} lines` : `${content.length} characters`;
      const mark = `[paste ${pasted.size + 1}: ${what}]`;
      pasted.set(mark, content);
      replace(state.at, state.at, mark);
    },
    replace,
    set(text) {
      pasted.clear();
      undo = [];
      state = { text, at: text.length };
    },
    whole() {
      let { text } = state;
      for (const [mark, content] of pasted) text = text.replace(mark, () => content);
      return text;
    },
    isOnFirstLine,
    isOnLastLine,
  };
}

let made: Intl.Segmenter | undefined;
/** Made with the first key that needs it, because that takes 7 ms. */
const segmenter = (): Intl.Segmenter => (made ??= new Intl.Segmenter(undefined, { granularity: 'grapheme' }));

function firstGrapheme(text: string): string {
  for (const { segment } of segmenter().segment(text)) return segment;
  return '';
}

function lastGrapheme(text: string): string {
  let last = '';
  for (const { segment } of segmenter().segment(text)) last = segment;
  return last;
}

function clamp(at: number, length: number): number {
  return Math.min(Math.max(at, 0), length);
}
