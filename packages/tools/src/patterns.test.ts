import fc from 'fast-check';
import { afterEach, expect, test, vi } from 'vitest';
import { matchPattern } from './patterns.ts';

const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
afterEach(nextTurn);

const inJavaScript = (pattern: string, text: string): boolean => new RegExp(pattern, 'u').test(text);

test.each(['^(a+)+$', '^(.*)*x$', String.raw`^(\s*\S+)*\.$`, '^(a|a)*$', '^(([a-z])+.)+[A-Z]([a-z])+$'])(
  'a pattern of exponential time is matched in linear time: %s',
  (pattern) => {
    expect(matchPattern(pattern, `${'a'.repeat(20_000)}!`)).toBe(false);
  },
);

test.each(['^(?=a)(a+)+$', String.raw`^(a+)+\1$`, '^(a+){1,2000}b$'])(
  'a pattern that RE2 does not support is stopped: %s',
  async (pattern) => {
    expect(matchPattern(pattern, 'aa')).toBe(inJavaScript(pattern, 'aa'));
    expect(() => matchPattern(pattern, `${'a'.repeat(40)}!`)).toThrow('takes too long');
    // The time is for the turn of the event loop, not for each text.
    expect(() => matchPattern('^(?=a)', 'a')).toThrow('takes too long');
    await nextTurn();
    expect(matchPattern('^(?=a)', 'a')).toBe(true);
  },
);

test('after a match was stopped, all others of the turn are, also if little time has passed by the other clock', async () => {
  const now = vi.spyOn(performance, 'now').mockReturnValue(0);
  try {
    expect(() => matchPattern('^(?=a)(a+)+$', `${'a'.repeat(40)}!`)).toThrow('takes too long');
    expect(() => matchPattern('^(?=a)', 'a')).toThrow('takes too long');
  } finally {
    now.mockRestore();
  }
  await nextTurn();
  expect(matchPattern('^(?=a)', 'a')).toBe(true);
});

test('a large pattern for a long text is stopped', async () => {
  // Any of the states of the pattern is possible after any character.
  const pattern = '^[ab]*a[ab]{900}$';
  let seed = 1;
  const random = (): string => ((seed = (seed * 48_271) % 2_147_483_647) % 2 === 0 ? 'a' : 'b');
  const text = Array.from({ length: 100_000 }, random).join('');
  expect(() => matchPattern(pattern, `${text}c`)).toThrow('takes too long');
  await nextTurn();
  // Few enough that they are not stopped, however busy the machine is.
  expect(matchPattern(pattern, text.slice(0, 20))).toBe(false);
  expect(matchPattern('^[ab]*$', text.slice(0, 20))).toBe(true);
});

test('a pattern that takes long to prepare is stopped', () => {
  const pattern = Array.from({ length: 900 }, (_, n) => `[a-${n % 2 ? 'y' : 'z'}]{1000}`).join('|');
  expect(() => matchPattern(pattern.slice(0, 9_000).replace(/\|[^|]*$/, ''), 'b')).toThrow('takes too long');
});

test('many texts are stopped together', () => {
  const pattern = '^[ab]*a[ab]{900}$';
  const text = 'ab'.repeat(11);
  expect(() => {
    for (let n = 0; n < 200_000; n++) matchPattern(pattern, `${text}c`);
  }).toThrow('takes too long');
});

test('a pattern that is not valid in JavaScript, or is too long, is an error', () => {
  for (const pattern of ['(', '(?P<a>x)', String.raw`\Aa`, 'a]', '[[:alpha:]]']) {
    expect(() => matchPattern(pattern, 'a'), pattern).toThrow(SyntaxError);
  }
  expect(() => matchPattern('a'.repeat(10_001), 'a')).toThrow('may have 10000');
});

const PIECES = String.raw`
  . ^ $ a [ab] [^a] [^] [] [.] [[] [a[:b] (?:a|b) (a) (?<y>b) | \s \S \d \w \b \B [\s] [^\s] [\S] \. \/ [\]] [\-a] \p{L}
  \p{Script=Greek} \u00e9 \u{1F600} \cJ \v \0 \x61 [\b] (?!b) (?<=a) (?:) - 😀
`;
const piece = fc.constantFrom(...PIECES.trim().split(/\s+/));
const quantifier = fc.constantFrom('', '', '', '*', '+', '?', '{2}', '{1,}', '*?');
const patterns = fc
  .array(fc.tuple(piece, quantifier), { minLength: 1, maxLength: 4 })
  .map((parts) => parts.flat().join(''));
const texts = fc.string({
  unit: fc.constantFrom(
    'a',
    'b',
    '.',
    '-',
    '[',
    ':',
    '\n',
    '\r',
    '\v',
    ' ',
    ' ',
    '\u2028',
    '\uFEFF',
    'é',
    'α',
    '😀',
    '\0',
    '\b',
    '/',
  ),
  maxLength: 6,
});

/** Another process may have had the processor for as long as a pattern may take. Each turn of the event loop has its own time. */
async function matchedInTime(pattern: string, text: string): Promise<boolean> {
  for (let tries = 0; ; tries++) {
    try {
      return matchPattern(pattern, text);
    } catch (error) {
      if (tries === 20 || !String(error).includes('takes too long')) throw error;
      await nextTurn();
    }
  }
}

test('the result is that of JavaScript', async () => {
  let matched = 0;
  await fc.assert(
    fc.asyncProperty(patterns, texts, async (pattern, text) => {
      await nextTurn();
      let expected: boolean;
      try {
        expected = inJavaScript(pattern, text);
      } catch {
        expect(() => matchPattern(pattern, text)).toThrow(SyntaxError);
        return;
      }
      expect(await matchedInTime(pattern, text)).toBe(expected);
      if (expected) matched++;
    }),
    { numRuns: 1_000 },
  );
  expect(matched).toBeGreaterThan(100);
});
