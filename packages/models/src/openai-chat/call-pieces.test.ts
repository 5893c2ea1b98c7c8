import { expect, test } from 'vitest';
import { readCallPieces, startCalls, toolCallOf, type OpenCalls, type WireCall } from './call-pieces.ts';

function assembled(...chunks: WireCall[][]): unknown[] {
  return assembledWith([], ...chunks);
}

function assembledWith(names: readonly string[], ...chunks: WireCall[][]): unknown[] {
  const calls: OpenCalls = startCalls(names.map((name) => ({ name, description: '', parameters: {} })));
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

const args = (json: string, fields: object = {}): WireCall[] => [
  { index: 0, function: { arguments: json }, ...fields },
];
const named = (name: string, json = '', id = ''): WireCall[] => [{ index: 0, id, function: { name, arguments: json } }];

test('drops whole arguments that are sent again for the same call', () => {
  const once = [['a', 'f', '{"x": [1]}']];
  expect(assembled(named('f', '{"x": [1]}', 'a'), args('{"x": [1]}'))).toEqual(once);
  expect(assembled(named('f', '{"x": ', 'a'), args('[1]}'), args('{"x":[1]}'), args('{"x":[1]}'))).toEqual(once);
  expect(assembled(named('f', '{"x": [1]}', 'a'), named('f', '{"x":[1]}', 'a'))).toEqual(once);
  expect(assembled(named('f', '{"x": [1]}', 'a'), named('f', '{"x":[1]}'))).toEqual(once);
});

test('reads equal arguments of two calls as two calls', () => {
  const twice = [
    ['a', 'f', '{}'],
    ['b', 'f', '{}'],
  ];
  expect(assembled(named('f', '{}', 'a'), named('f', '{}', 'b'))).toEqual(twice);
  expect(assembled([...named('f', '{}', 'a'), ...named('f', '{}', 'b')])).toEqual(twice);
  expect(assembled(named('f', '{}'), named('f', '{}'))).toEqual([
    ['call_0', 'f', '{}'],
    ['call_1', 'f', '{}'],
  ]);
});

test.each([
  ['other arguments follow', ['{"x":1}', '{"x":2}'], '{"x":1}{"x":2}'],
  ['a placeholder is first', ['{}', '{"x":1}'], '{}{"x":1}'],
  ['the arguments are incomplete', ['{"x":1', '{"x":1}'], '{"x":1{"x":1}'],
  ['a text contains its start twice', ['{"x":"{}', '{}', '{}"}'], '{"x":"{}{}{}"}'],
])('drops nothing if %s', (_, pieces, json) => {
  expect(assembled(named('f', '', 'a'), ...pieces.map((piece) => args(piece)))).toEqual([['a', 'f', json]]);
});

test('drops nothing of a text, and does not decode it', () => {
  const custom = (input: string): WireCall[] => [{ index: 0, id: 'a', custom: { name: 'f', input } }];
  expect(assembled(custom('{}'), custom('{}'))).toEqual([['a', 'f', '{"input":"{}{}"}']]);
  expect(assembled(custom('"{}"'))).toEqual([['a', 'f', String.raw`{"input":"\"{}\""}`]]);
});

test.each([
  ['an object', '"{\\"x\\":\\"\\\\u00e9\\"}"', '{"x":"\\u00e9"}'],
  ['a text', '"Oslo"', '"Oslo"'],
  ['an array', '"[1]"', '"[1]"'],
  ['an object that is cut off', '"{\\"x\\":"', '"{\\"x\\":"'],
  ['an object in a text that is cut off', '"{}', '"{}'],
  ['an object that is encoded three times', JSON.stringify('"{}"'), JSON.stringify('"{}"')],
])('decodes a JSON string in which there is an object: %s', (_, sent, json) => {
  expect(assembled(named('f', '', 'a'), ...[...sent].map((char) => args(char)))).toEqual([['a', 'f', json]]);
});

test.each([
  ['in pieces', ['read_f', 'ile'], 'read_file'],
  ['in pieces of which the first is a tool', ['read', '_file'], 'read_file'],
  ['in equal pieces', ['go', 'go'], 'gogo'],
  ['whole, repeated', ['read', 'read', 'read'], 'read'],
  ['whole, repeated, of an unknown tool', ['write', 'write'], 'write'],
  ['growing', ['rea', 'read_f', 'read_file'], 'read_file'],
  ['in pieces that end as a tool', ['un', 'read'], 'unread'],
  ['of an unknown tool, in pieces', ['wri', 'te'], 'write'],
])('reads a name that is sent %s', (_, pieces, name) => {
  const chunks = pieces.map((piece) => named(piece));
  expect(assembledWith(['read', 'read_file', 'gogo'], ...chunks, args('{}'))).toEqual([['call_0', name, '{}']]);
});

test('reads a whole name with each piece, though it starts the name of another tool twice', () => {
  expect(assembledWith(['go', 'gogo'], named('go', '', 'a'), named('go', '{'), named('go', '}'))).toEqual([
    ['a', 'go', '{}'],
  ]);
});

test('stops joining the pieces of a name that no tool can have', () => {
  const calls = startCalls();
  for (let n = 0; n < 1_000; n++) readCallPieces(calls, named(`${n}_`), () => {});
  expect(calls.all[0]!.name.length).toBeLessThan(80);
});

test('looks for repeated arguments in linear time', () => {
  let joined = 0;
  const calls = startCalls();
  const piece = args('{}');
  readCallPieces(calls, named('f', '{"x":"}', 'a'), () => {});
  const { pieces } = calls.all[0]!;
  for (let n = 0; n < 1_000; n++) {
    readCallPieces(calls, piece, () => {});
    if (calls.all[0]!.pieces !== pieces) joined++;
  }
  expect(joined).toBeLessThan(1_000);
  expect(calls.all[0]!.pieces.length).toBeGreaterThan(900);
});

test('reads arguments that are nested too deep to compare', () => {
  const deep = `{"x":${'['.repeat(50_000)}${']'.repeat(50_000)}}`;
  expect(assembled(named('f', deep, 'a'), args(deep.replace(':', ': ')))).toHaveLength(1);
});
