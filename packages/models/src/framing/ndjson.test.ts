import { expect, test } from 'vitest';
import { ndjson } from './ndjson.ts';

const bytes = (text: string): Buffer => Buffer.from(text, 'utf8');

function linesOf(chunks: readonly Uint8Array[]): string[] {
  const all: string[] = [];
  const frames = ndjson.open(({ name, data }) => all.push(`${name}${data}`));
  for (const chunk of chunks) frames.feed(chunk);
  frames.end();
  return all;
}

const STREAM = '\uFEFF{"a":1}\n\n  \n\t\n{"b":"Grüße 🌨️"}\n[]\n7';
const LINES = ['{"a":1}', '{"b":"Grüße 🌨️"}', '[]', '7'];

test.each([
  ['LF', STREAM],
  ['CRLF', STREAM.replaceAll('\n', '\r\n')],
])('with %s the lines are the same whole, byte by byte and cut at every point', (_ending, stream) => {
  const whole = bytes(stream);
  expect(linesOf([whole])).toEqual(LINES);
  expect(linesOf([...whole].map((byte) => Uint8Array.of(byte)))).toEqual(LINES);
  for (let at = 0; at <= whole.length; at++) {
    expect(linesOf([whole.subarray(0, at), whole.subarray(at)])).toEqual(LINES);
  }
});

test('a last line is given out without its end, whole or cut, and once with it', () => {
  expect(linesOf([bytes('{"a":1}\n{"b"')])).toEqual(['{"a":1}', '{"b"']);
  expect(linesOf([bytes('{"a":1}\n')])).toEqual(['{"a":1}']);
  expect(linesOf([])).toEqual([]);
});
