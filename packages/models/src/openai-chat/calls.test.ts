import { expect, test } from 'vitest';
import { closedCall, openCalls, takeCalls, type OpenCalls } from './calls.ts';
import type { WireCall } from './wire.ts';

function assembled(...chunks: WireCall[][]): unknown[] {
  const calls: OpenCalls = openCalls();
  for (const chunk of chunks) takeCalls(calls, chunk, () => {});
  return calls.all.map((call) => closedCall(call)).map(({ id, name, arguments: json }) => [id, name, json]);
}

test('pieces of parallel calls may alternate', () => {
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

test('index 0 on every call: a new id is a new call, and its pieces go on', () => {
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

test('without index the id tells, without id the name and the braces', () => {
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

test('an id or a name may come late, and a call may have no arguments', () => {
  expect(
    assembled([{ index: 0, function: { arguments: '' } }], [{ index: 0, id: 'a', function: { name: 'f' } }]),
  ).toEqual([['a', 'f', '']]);
});

test('10 MB of arguments in pieces of one character are joined once', () => {
  const calls = openCalls();
  const chunk: WireCall[] = [{ index: 0, function: { arguments: 'x' } }];
  const size = 10 * 1024 * 1024;
  let told = 0;
  for (let n = 0; n < size; n++) takeCalls(calls, chunk, () => told++);
  expect(told).toBe(size);
  expect(calls.all).toHaveLength(1);
  expect(closedCall(calls.all[0]!).arguments).toHaveLength(size);
});
