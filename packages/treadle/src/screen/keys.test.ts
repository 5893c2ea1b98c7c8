import { describe, expect, test } from 'vitest';
import { keyDecoder, type Key } from './keys.ts';

const key = (name: string): Key => ({ type: 'key', name });
const text = (value: string): Key => ({ type: 'text', text: value });
const ESC = '\u001b';

test.each([
  ['a', [text('a')]],
  ['日本', [text('日本')]],
  ['a\r', [text('a'), key('enter')]],
  ['\n', [key('ctrl-j')]],
  ['\u0003', [key('ctrl-c')]],
  ['\u007f\b', [key('backspace'), key('backspace')]],
  [`${ESC}[A${ESC}OB`, [key('up'), key('down')]],
  [`${ESC}[1;5C`, [key('ctrl-right')]],
  [`${ESC}[3~${ESC}[1~`, [key('delete'), key('home')]],
  [`${ESC}\r`, [key('alt-enter')]],
  [`${ESC}[13;2u`, [key('shift-enter')]],
  [`${ESC}[27;2;13~`, [key('shift-enter')]],
  [`${ESC}[27u`, [key('escape')]],
  [`${ESC}b${ESC}\u007f`, [key('alt-b'), key('alt-backspace')]],
  [`${ESC}[Z\t`, [key('shift-tab'), key('tab')]],
  // Unknown sequences are not text.
  [`${ESC}[99~${ESC}[?1;2cx`, [text('x')]],
])('%j', (bytes, keys) => {
  const decoder = keyDecoder();
  expect([...decoder.feed(bytes), ...decoder.flush()]).toEqual(keys);
});

describe('Escape', () => {
  test('is a key of its own when nothing follows', () => {
    const decoder = keyDecoder();
    expect(decoder.feed(ESC)).toEqual([]);
    expect(decoder.isWaiting).toBe(true);
    expect(decoder.flush()).toEqual([key('escape')]);
    expect(decoder.feed('[')).toEqual([text('[')]);
  });

  test('twice is two keys', () => {
    const decoder = keyDecoder();
    expect([...decoder.feed(ESC + ESC), ...decoder.flush()]).toEqual([key('escape'), key('escape')]);
  });
});

test('a pasted text is one key, wherever it is split', () => {
  const bytes = `a${ESC}[200~one\r\ntwo\r${ESC}[A${ESC}[201~b`;
  for (let at = 0; at <= bytes.length; at++) {
    const decoder = keyDecoder();
    expect([...decoder.feed(bytes.slice(0, at)), ...decoder.feed(bytes.slice(at))]).toEqual([
      text('a'),
      { type: 'paste', text: `one\ntwo\n${ESC}[A` },
      text('b'),
    ]);
  }
});
