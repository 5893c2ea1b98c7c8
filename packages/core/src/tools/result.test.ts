import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type ImageBlock, type ResultBlock, textOf } from '../messages.ts';
import { errorResult, truncateResult, resultOf } from './result.ts';

const IMAGE: ImageBlock = { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'AAAA' } };

function blocksOf(result: ReturnType<typeof resultOf>): readonly ResultBlock[] {
  if (result.type !== 'result') throw new Error(`expected a result, not ${result.type}`);
  return result.content;
}

function firstText(result: ReturnType<typeof resultOf>): string {
  return textOf(blocksOf(result).slice(0, 1));
}

function textResult(text: string): ReturnType<typeof resultOf> {
  return { type: 'result', content: [{ type: 'text', text }], isError: false };
}

describe('converts the return value of a tool', () => {
  test.each([
    ['a text', 'hello', 'hello'],
    ['an empty text', '', ''],
    ['undefined', undefined, '(no output)'],
    ['null', null, 'null'],
    ['a number', 7, '7'],
    ['NaN', Number.NaN, 'null'],
    ['a boolean', false, 'false'],
    ['an object', { a: [1, { b: null }] }, '{"a":[1,{"b":null}]}'],
    ['an array', [1, 'two'], '[1,"two"]'],
    ['a date', new Date(0), '"1970-01-01T00:00:00.000Z"'],
    ['an object with toJSON', { toJSON: () => ({ a: 1 }) }, '{"a":1}'],
    ['an object with content and other keys', { content: 'x', title: 'y' }, '{"content":"x","title":"y"}'],
    ['content that is neither text nor blocks', { content: 7 }, '{"content":7}'],
  ])('%s', (_, value, text) => {
    expect(resultOf('x', value)).toEqual(textResult(text));
  });

  test('blocks', () => {
    const content: ResultBlock[] = [
      { type: 'text', text: 'a' },
      IMAGE,
      { ...IMAGE, name: 'dot.png' },
      { type: 'file', mediaType: 'text/csv', name: 'a.csv', source: { type: 'url', url: 'https://example.org/a.csv' } },
      { type: 'error', text: 'b' },
    ];
    expect(resultOf('x', { content })).toEqual({ type: 'result', content, isError: false });
    expect(resultOf('x', { content, isError: true })).toEqual({ type: 'result', content, isError: true });
    expect(resultOf('x', { content: [] })).toEqual({ type: 'result', content: [], isError: false });
  });

  test('content as a text, with and without isError', () => {
    expect(resultOf('x', { content: 'a' })).toEqual(textResult('a'));
    expect(resultOf('x', { content: 'a', isError: true })).toEqual({ ...textResult('a'), isError: true });
    expect(resultOf('x', { content: 'a', isError: 'yes' })).toEqual(textResult('a'));
  });

  test.each([
    [{ type: 'text' }],
    [{ type: 'text', text: 7 }],
    [{ type: 'image', mediaType: 'image/png' }],
    [{ type: 'image', mediaType: 'image/png', source: { type: 'data' } }],
    [{ type: 'image', source: { type: 'data', data: 'A' } }],
    [{ type: 'file', mediaType: 'x', source: { type: 'path', path: '/etc/passwd' } }],
    [{ type: 'tool-call', id: '1', name: 'x', arguments: '{}' }],
    ['text'],
    [null],
  ])('malformed blocks become JSON: %j', (...content) => {
    expect(resultOf('x', { content })).toEqual(textResult(JSON.stringify({ content })));
  });

  test('blocks are copied with their known fields only', () => {
    const cycle: { self?: unknown } = {};
    cycle.self = cycle;
    const block = { type: 'text', text: 'a', more: cycle, big: 1n };
    const file = {
      type: 'file',
      mediaType: 'x',
      name: 'n',
      source: { type: 'url', url: 'u', more: cycle },
      more: cycle,
    };
    const content = [block, file];
    const result = resultOf('x', { content });
    expect(result).toEqual({
      type: 'result',
      content: [
        { type: 'text', text: 'a' },
        { type: 'file', mediaType: 'x', name: 'n', source: { type: 'url', url: 'u' } },
      ],
      isError: false,
    });
    content.pop();
    block.text = 'changed later';
    file.source.url = 'changed later';
    expect(JSON.stringify(result)).not.toContain('changed later');
    expect(result).toMatchObject({ content: { length: 2 } });
  });
});

describe('a value without a JSON form is an error result', () => {
  const cycle: { self?: unknown } = {};
  cycle.self = cycle;
  test.each([
    ['a function', () => 1, 'a function'],
    ['a symbol', Symbol('s'), 'a symbol'],
    ['a big integer', 1n, 'BigInt'],
    ['a big integer inside', { a: [1n] }, 'BigInt'],
    ['a cycle', cycle, 'circular'],
    ['an object whose toJSON returns undefined', { toJSON: () => undefined }, 'object'],
    [
      'an object whose toJSON throws',
      {
        toJSON: () => {
          throw new Error('ouch');
        },
      },
      'ouch',
    ],
  ])('%s', (_, value, what) => {
    expect(resultOf('x', value)).toEqual({
      type: 'result',
      content: [
        {
          type: 'error',
          text: expect.stringMatching(/^The tool "x" returned something that has no JSON form \(.*\)\./s),
        },
      ],
      isError: true,
    });
    expect(firstText(resultOf('x', value))).toContain(what);
  });
});

describe('truncateResult', () => {
  const content = (...texts: string[]): ReturnType<typeof resultOf> => ({
    type: 'result',
    content: texts.map((text) => ({ type: 'text', text })),
    isError: false,
  });

  test('returns a result within the limit unchanged', () => {
    const result = content('a'.repeat(60), 'b'.repeat(40));
    expect(truncateResult(result, 100)).toBe(result);
    expect(truncateResult({ type: 'not-done' }, 0)).toEqual({ type: 'not-done' });
    expect(truncateResult({ type: 'unknown' }, 0)).toEqual({ type: 'unknown' });
  });

  test('keeps the head and the tail of a longer text, and counts the omitted characters', () => {
    const text = `${'h'.repeat(75)}${'m'.repeat(12_345)}${'t'.repeat(25)}`;
    expect(truncateResult(content(text), 100)).toEqual(
      content(`${'h'.repeat(75)}\n[… 12,345 of 12,445 characters left out …]\n${'t'.repeat(25)}`),
    );
  });

  test('keeps errors and images; images do not count', () => {
    const picture: ImageBlock = { ...IMAGE, source: { type: 'data', data: 'A'.repeat(10_000) } };
    const result = {
      type: 'result',
      content: [picture, { type: 'error', text: 'e'.repeat(1_000) }, IMAGE],
      isError: true,
    } as const;
    const { content: kept, isError } = truncateResult(result, 100) as typeof result;
    expect(isError).toBe(true);
    expect(kept.map(({ type }) => type)).toEqual(['image', 'error', 'image']);
    expect(kept[0]).toEqual(picture);
    expect(truncateResult({ ...result, content: [picture] }, 1)).toEqual({ ...result, content: [picture] });
  });

  test.each([1, 2, 3, 4, 5, 7])('enforces a limit of %d', (most) => {
    const [head, , tail] = firstText(truncateResult(content('abcdefghij'.repeat(10)), most)).split('\n');
    expect(head!.length + tail!.length).toBe(most);
    expect('abcdefghij'.repeat(10).startsWith(head!)).toBe(true);
    expect('abcdefghij'.repeat(10).endsWith(tail!)).toBe(true);
  });

  test('leaves no half of a surrogate pair', () => {
    for (let most = 1; most < 40; most++) {
      expect(firstText(truncateResult(content('🧵'.repeat(100)), most)).isWellFormed(), String(most)).toBe(true);
    }
  });

  test('applies the limit to all blocks together', () => {
    const result = content(...Array.from({ length: 10_000 }, (_, index) => String(index % 10)));
    const kept = blocksOf(truncateResult(result, 100));
    const text = textOf(kept);
    expect(text.startsWith('0123456789'.repeat(7))).toBe(true);
    expect(text).toContain('9,900');
    expect(text.length).toBeLessThan(300);
    expect(kept.length).toBeLessThan(200);
  });

  test('for any blocks and any limit: keeps to the limit, adds a note, keeps every image', () => {
    const blocks = fc.array(
      fc.oneof(
        fc.string({ maxLength: 300 }).map((text): ResultBlock => ({ type: 'text', text })),
        fc.constant<ResultBlock>(IMAGE),
      ),
      { maxLength: 30 },
    );
    fc.assert(
      fc.property(blocks, fc.integer({ min: 1, max: 1_000 }), (some, most) => {
        const result = truncateResult({ type: 'result', content: some, isError: false }, most);
        if (result.type !== 'result') throw new Error('expected a result');
        const whole = textOf(some);
        const kept = textOf(result.content);
        const notes = kept.match(/\n?\[… .*? left out …\]\n?/g) ?? [];
        if (whole.length <= most) expect(kept).toBe(whole);
        else expect(kept.length - notes.join('').length).toBeLessThanOrEqual(most);
        expect(notes.join('').length).toBeLessThan(200);
        expect(result.content.filter(({ type }) => type === 'image')).toEqual(
          some.filter(({ type }) => type === 'image'),
        );
      }),
      { numRuns: 500 },
    );
  });
});

test('errorResult has one error block', () => {
  expect(errorResult('no')).toEqual({ type: 'result', content: [{ type: 'error', text: 'no' }], isError: true });
});
