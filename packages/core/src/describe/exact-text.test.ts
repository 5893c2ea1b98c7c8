import { expect, test } from 'vitest';
import { exactText } from './exact-text.ts';

test('escapes every character that is ignored by default, and no letter, mark, number or symbol that can be seen', () => {
  const kept = /^[\p{L}\p{M}\p{N}\p{P}\p{S} \t\n]$/u;
  const blank = ['\u2800', '\ufffc', '\u{13441}', '\u{13442}', '\u{16fe4}', '\u{1d159}'];
  const wrong: string[] = [];
  for (let code = 0; code <= 0x10ffff; code++) {
    const char = String.fromCodePoint(code);
    const isSeen = kept.test(char) && !/\p{Default_Ignorable_Code_Point}/u.test(char) && !blank.includes(char);
    if ((exactText(char) === char) !== isSeen) wrong.push(code.toString(16));
  }
  expect(wrong).toEqual([]);
});

test.each([
  ['\u3164', '\\u3164'],
  ['\u115f\u1160\uffa0', '\\u115f\\u1160\\uffa0'],
  ['a\ufe0f\u180b\u{e0100}', 'a\\ufe0f\\u180b\\u{e0100}'],
  ['\u034f\u17b4\u2065\u{e0fff}', '\\u034f\\u17b4\\u2065\\u{e0fff}'],
  ['rm\u2800-rf\u00a0x', 'rm\\u2800-rf\\u00a0x'],
  ['a\r\n\tb c', 'a\\r\n\tb c'],
  ['\u202e\u200b\u{e0041}\ud800', '\\u202e\\u200b\\u{e0041}\\ud800'],
  ['ümläut e\u0301 🙂 日本 한글', 'ümläut e\u0301 🙂 日本 한글'],
])('%j is shown as %j', (text, shown) => {
  expect(exactText(text)).toBe(shown);
});
