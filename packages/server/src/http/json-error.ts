/**
 * The position at which a text stops being valid JSON; undefined if it is valid. For error messages only: the error of
 * `JSON.parse` does not always contain the position, and it quotes the text.
 */
export function jsonErrorAt(text: string): number | undefined {
  const open: ('{' | '[')[] = [];
  let at = 0;
  let expected: 'value' | 'value or ]' | 'name' | 'name or }' | 'more' = 'value';
  for (;;) {
    while (WHITE.has(text[at] ?? '')) at += 1;
    const char = text[at];
    if (expected === 'more') {
      const container = open.at(-1);
      if (container === undefined) return at === text.length ? undefined : at;
      if (char === ',') expected = container === '{' ? 'name' : 'value';
      else if (char === (container === '{' ? '}' : ']')) open.pop();
      else return at;
      at += 1;
    } else if (expected === 'name' || expected === 'name or }') {
      if (char === '}' && expected === 'name or }') {
        open.pop();
        expected = 'more';
        at += 1;
        continue;
      }
      if (char !== '"') return at;
      const end = stringEnd(text, at);
      if (!end.ok) return end.at;
      at = end.at;
      while (WHITE.has(text[at] ?? '')) at += 1;
      if (text[at] !== ':') return at;
      at += 1;
      expected = 'value';
    } else if (char === '{' || char === '[') {
      open.push(char);
      expected = char === '{' ? 'name or }' : 'value or ]';
      at += 1;
    } else if (char === ']' && expected === 'value or ]') {
      open.pop();
      expected = 'more';
      at += 1;
    } else {
      const end = char === '"' ? stringEnd(text, at) : plainEnd(text, at);
      if (!end.ok) return end.at;
      at = end.at;
      expected = 'more';
    }
  }
}

/** `line 3, column 14`, counted from 1. */
export function lineAndColumn(text: string, at: number): string {
  let line = 1;
  let start = 0;
  for (let end = text.indexOf('\n'); end !== -1 && end < at; end = text.indexOf('\n', start)) {
    line += 1;
    start = end + 1;
  }
  return `line ${line}, column ${at - start + 1}`;
}

/** The end of a string or a word, or the position of its error. */
interface End {
  readonly ok: boolean;
  readonly at: number;
}

const WHITE = new Set([' ', '\t', '\n', '\r']);
const HEX = /^[0-9a-f]$/i;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const NUMBER_PREFIX = /-?(?:(?:0|[1-9]\d*)(?:\.(?:\d+(?:[eE][+-]?\d*)?)?|[eE][+-]?\d*)?)?/y;

function stringEnd(text: string, start: number): End {
  for (let at = start + 1; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (code === 0x22) return { ok: true, at: at + 1 };
    if (code < 0x20) return { ok: false, at };
    if (code !== 0x5c) continue;
    at += 1;
    const escape = text[at] ?? '';
    if (escape === 'u') {
      for (let digit = 0; digit < 4; digit += 1) {
        at += 1;
        if (!HEX.test(text[at] ?? '')) return { ok: false, at };
      }
    } else if (escape === '' || !'"\\/bfnrt'.includes(escape)) return { ok: false, at };
  }
  return { ok: false, at: text.length };
}

function plainEnd(text: string, start: number): End {
  for (const word of ['true', 'false', 'null']) {
    if (text[start] !== word[0]) continue;
    let same = 1;
    while (same < word.length && text[start + same] === word[same]) same += 1;
    return { ok: same === word.length, at: start + same };
  }
  NUMBER.lastIndex = start;
  NUMBER_PREFIX.lastIndex = start;
  const whole = NUMBER.test(text) ? NUMBER.lastIndex : start;
  const prefix = NUMBER_PREFIX.test(text) ? NUMBER_PREFIX.lastIndex : start;
  return { ok: whole > start && whole === prefix, at: prefix };
}
