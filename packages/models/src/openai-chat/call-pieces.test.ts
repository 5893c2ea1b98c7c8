import { expect, test } from 'vitest';
import { readCallPieces, startCalls, toolCallOf, type OpenCalls, type WireCall } from './call-pieces.ts';

function assembled(...chunks: WireCall[][]): unknown[] {
  const calls: OpenCalls = startCalls();
  for (const chunk of chunks) readCallPieces(calls, chunk, () => {});
  return calls.all
    .map((call) => toolCallOf(call, 'openai-chat@host'))
    .map(({ id, name, arguments: json }) => [id, name, json]);
}

test('assembles parallel calls whose pieces alternate', () => {
  expect(
    assembled(
      [{ index: 0, id: 'a', function: { name: 'f', arguments: '{"x"' } }],
      [{ index: 1, id: 'b', function: { name: 'g', arguments: '{"y"' } }],
      [
        { index: 0, function: { arguments: ':1}' } },
        { index: 1, function: { arguments: ':2}' } },
      ],
    ),
  ).toEqual([
    ['a', 'f', '{"x":1}'],
    ['b', 'g', '{"y":2}'],
  ]);
});

test('separates calls by id if every call has index 0', () => {
  expect(
    assembled(
      [{ index: 0, id: 'a', function: { name: 'f', arguments: '{"x":' } }],
      [{ index: 0, id: 'a', function: { name: 'f', arguments: '1}' } }],
      [{ index: 0, id: 'b', function: { name: 'f', arguments: '{"x":' } }],
      [{ index: 0, function: { arguments: '2}' } }],
    ),
  ).toEqual([
    ['a', 'f', '{"x":1}'],
    ['b', 'f', '{"x":2}'],
  ]);
});

test('separates calls by id without an index, and by name and braces without an id', () => {
  expect(
    assembled(
      [{ id: 'a', function: { name: 'f', arguments: '{"x"' } }],
      [{ id: 'b', function: { name: 'f', arguments: '{}' } }],
      [{ id: 'a', function: { arguments: ':1}' } }],
    ),
  ).toEqual([
    ['a', 'f', '{"x":1}'],
    ['b', 'f', '{}'],
  ]);
  expect(
    assembled(
      [{ function: { name: 'f', arguments: '{"x":' } }],
      [{ function: { name: 'f', arguments: '{"y":1}}' } }],
      [{ function: { name: 'f', arguments: '{}' } }],
      [{ function: { name: 'g', arguments: '' } }],
    ),
  ).toEqual([
    ['call_0', 'f', '{"x":{"y":1}}'],
    ['call_1', 'f', '{}'],
    ['call_2', 'g', ''],
  ]);
});

test('accepts a late id, a late name and a call without arguments', () => {
  expect(
    assembled([{ index: 0, function: { arguments: '' } }], [{ index: 0, id: 'a', function: { name: 'f' } }]),
  ).toEqual([['a', 'f', '']]);
});

test('joins 2 MB of arguments in pieces of one character once', () => {
  const calls = startCalls();
  const chunk: WireCall[] = [{ index: 0, function: { arguments: 'x' } }];
  const size = 2 * 1024 * 1024;
  let count = 0;
  for (let n = 0; n < size; n++) readCallPieces(calls, chunk, () => count++);
  expect(count).toBe(size);
  expect(calls.all).toHaveLength(1);
  expect(toolCallOf(calls.all[0]!, '').arguments).toHaveLength(size);
});
