import fc from 'fast-check';
import { expect, test } from 'vitest';
import { lines, ndjson, sse, type WireEvent } from './framing.ts';

const bytes = (text: string): Buffer => Buffer.from(text, 'utf8');

function eventsOf(chunks: readonly Uint8Array[]): WireEvent[] {
  const events: WireEvent[] = [];
  const frames = sse.open((event) => events.push(event));
  for (const chunk of chunks) frames.feed(chunk);
  frames.end();
  return events;
}

function linesOf(chunks: readonly Uint8Array[]): string[] {
  const all: string[] = [];
  const splitter = lines((line) => all.push(line));
  for (const chunk of chunks) splitter.feed(chunk);
  splitter.end();
  return all;
}

const STREAM = [
  '\uFEFF: a comment\n',
  'data: plain\n\n',
  'event: ping\ndata: {}\n\n',
  'data:no space\n\n',
  'data:  two spaces\n\n',
  'data: first\ndata: second\ndata\ndata: fourth\n\n',
  'event: no data\n\n',
  'id: 1\nretry: 10\nunknown: field\ndata: Grüße 🌨️ −4 °C\n\n',
  ':\n\n\n\n',
  'data: [DONE]\n\n',
  '{\n  "error": {\n    "data": 1 }\n}\n\n',
  '[{}]\n\n',
].join('');

const EVENTS: WireEvent[] = [
  { name: '', data: 'plain' },
  { name: 'ping', data: '{}' },
  { name: '', data: 'no space' },
  { name: '', data: ' two spaces' },
  { name: '', data: 'first\nsecond\n\nfourth' },
  { name: '', data: 'Grüße 🌨️ −4 °C' },
  { name: '', data: '[DONE]' },
  { name: '', data: '{\n  "error": {\n    "data": 1 }\n}' },
  { name: '', data: '[{}]' },
];

test.each([
  ['LF', STREAM],
  ['CRLF', STREAM.replaceAll('\n', '\r\n')],
  ['CR', STREAM.replaceAll('\n', '\r')],
])('sse: emits the same events with %s line ends, whole, byte by byte and split at every point', (_ending, stream) => {
  const whole = bytes(stream);
  expect(eventsOf([whole])).toEqual(EVENTS);
  expect(eventsOf([...whole].map((byte) => Uint8Array.of(byte)))).toEqual(EVENTS);
  for (let at = 0; at <= whole.length; at++) {
    expect(eventsOf([whole.subarray(0, at), whole.subarray(at)])).toEqual(EVENTS);
  }
});

/** Line ends, whole and broken characters, BOMs, fields. */
const PIECES = [
  ...['\r', '\n', '\r\n', 'data:', 'data: ', 'event: ', ':', ' ', 'x', 'ø', '🌨️', '\uFEFF', '\u2028'].map(bytes),
  ...['ef', 'efbb', 'eda080', 'f09f8c', '80', 'c080', 'ff', 'f4908080'].map((hex) => Buffer.from(hex, 'hex')),
];

test('emits the same events and lines for any bytes, wherever they are split', () => {
  const whole = fc.array(fc.constantFrom(...PIECES), { maxLength: 30 }).map((pieces) => Buffer.concat(pieces));
  fc.assert(
    fc.property(whole, fc.array(fc.nat(60), { maxLength: 12 }), (all, cuts) => {
      const ends = [...cuts.toSorted((a, b) => a - b), all.length];
      const chunks = ends.map((end, index) => all.subarray(ends[index - 1] ?? 0, end));
      expect(linesOf(chunks)).toEqual(linesOf([all]));
      expect(eventsOf(chunks)).toEqual(eventsOf([all]));
    }),
    { numRuns: 2_000 },
  );
});

test('lines: accepts mixed line ends', () => {
  expect(linesOf([bytes('a\r\nb\nc\rd\n\re\r\r\nf')])).toEqual(['a', 'b', 'c', 'd', '', 'e', '', 'f']);
});

test('sse: emits the last event without its blank line', () => {
  expect(eventsOf([bytes('data: a\n\ndata: b')])).toEqual([
    { name: '', data: 'a' },
    { name: '', data: 'b' },
  ]);
  expect(eventsOf([bytes('data: b\n')])).toEqual([{ name: '', data: 'b' }]);
  expect(eventsOf([])).toEqual([]);
});

test('lines: replaces a truncated UTF-8 sequence by a replacement character', () => {
  expect(linesOf([bytes('ø').subarray(0, 1)])).toEqual(['\uFFFD']);
});

test('lines: drops a BOM at the start only', () => {
  expect(linesOf([bytes('\uFEFFa\n\uFEFFb')])).toEqual(['a', '\uFEFFb']);
});

test('sse: joins a line of 8 MB in chunks of 16 bytes once', () => {
  const chunk = bytes('0123456789abcdef');
  const count = (8 * 1024 * 1024) / chunk.length;
  let length = 0;
  const frames = sse.open(({ data }) => {
    length = data.length;
  });
  frames.feed(bytes('data: '));
  for (let n = 0; n < count; n++) frames.feed(chunk);
  frames.feed(bytes('\n\n'));
  expect(length).toBe(8 * 1024 * 1024);
});

function jsonLinesOf(chunks: readonly Uint8Array[]): string[] {
  const all: string[] = [];
  const frames = ndjson.open(({ name, data }) => all.push(`${name}${data}`));
  for (const chunk of chunks) frames.feed(chunk);
  frames.end();
  return all;
}

const JSON_STREAM = '\uFEFF{"a":1}\n\n  \n\t\n{"b":"Grüße 🌨️"}\n[]\n7';
const JSON_LINES = ['{"a":1}', '{"b":"Grüße 🌨️"}', '[]', '7'];

test.each([
  ['LF', JSON_STREAM],
  ['CRLF', JSON_STREAM.replaceAll('\n', '\r\n')],
])(
  'ndjson: emits the same lines with %s line ends, whole, byte by byte and split at every point',
  (_ending, stream) => {
    const whole = bytes(stream);
    expect(jsonLinesOf([whole])).toEqual(JSON_LINES);
    expect(jsonLinesOf([...whole].map((byte) => Uint8Array.of(byte)))).toEqual(JSON_LINES);
    for (let at = 0; at <= whole.length; at++) {
      expect(jsonLinesOf([whole.subarray(0, at), whole.subarray(at)])).toEqual(JSON_LINES);
    }
  },
);

test('ndjson: emits the last line without its line end, whole or truncated, and only once with it', () => {
  expect(jsonLinesOf([bytes('{"a":1}\n{"b"')])).toEqual(['{"a":1}', '{"b"']);
  expect(jsonLinesOf([bytes('{"a":1}\n')])).toEqual(['{"a":1}']);
  expect(jsonLinesOf([])).toEqual([]);
});

test.each([
  ['a line', (n: number) => bytes(n === 0 ? `data: ${'x'.repeat(1_000_000)}` : 'x'.repeat(1_000_000))],
  ['the lines of an event', () => bytes(`data: ${'x'.repeat(1_000_000)}\n`)],
])('%s of more than 32 MB is rejected', (_, chunk) => {
  const frames = sse.open(() => {});
  const feedAll = (): void => {
    for (let n = 0; n < 40; n++) frames.feed(chunk(n));
  };
  expect(feedAll).toThrow(new RangeError('an event has more than 32 MB'));
});
