import { expect, test } from 'vitest';
import { openEditor, type Editor } from './editor.ts';

function edited(text: string, ...keys: readonly string[]): Editor {
  const editor = openEditor();
  for (const [index, line] of text.split('\n').entries()) {
    if (index > 0) editor.press('ctrl-j');
    editor.insert(line);
  }
  for (const key of keys) editor.press(key);
  return editor;
}

/** The text, with a | where the cursor is. */
function shown({ state: { text, at } }: Editor): string {
  return `${text.slice(0, at)}|${text.slice(at)}`;
}

test.each([
  [['left', 'left'], 'one t|wo'],
  [['home'], '|one two'],
  [['ctrl-w'], 'one |'],
  [['ctrl-w', 'ctrl-w', 'ctrl-y'], 'one |'],
  [['alt-b', 'ctrl-k'], 'one |'],
  [['home', 'alt-d'], '| two'],
  [['ctrl-u'], '|'],
  [['ctrl-u', 'ctrl-_'], 'one two|'],
  [['backspace', 'backspace', 'ctrl-_'], 'one tw|'],
  [['home', 'delete'], '|ne two'],
])('%j', (keys, expected) => {
  expect(shown(edited('one two', ...keys))).toBe(expected);
});

test('up and down keep the column, and report when there is no further line', () => {
  const editor = edited('long line\nab\nother', 'up');
  expect(shown(editor)).toBe('long line\nab|\nother');
  editor.press('up');
  expect(shown(editor)).toBe('lo|ng line\nab\nother');
  expect(editor.press('up')).toBe(false);
});

test('a character of several code points is one', () => {
  expect(shown(edited('a👩‍👩‍👧e\u0301', 'backspace', 'backspace'))).toBe('a|');
});

test('a folded paste is deleted as a whole, and is in the text that is sent', () => {
  const editor = openEditor();
  editor.paste('one\ntwo');
  editor.insert(' and ');
  editor.paste('$& three\nfour\n');
  expect(editor.state.text).toBe('[paste 1: 2 lines] and [paste 2: 2 lines]');
  expect(editor.whole()).toBe('one\ntwo and $& three\nfour');
  editor.press('backspace');
  editor.press('left');
  expect(shown(editor)).toBe('[paste 1: 2 lines] and| ');
});

test('control characters do not enter the text', () => {
  const editor = openEditor();
  editor.paste('a\u001b[2J\u0007b');
  expect(editor.state.text).toBe('a\\u001b[2J\\u0007b');
});
