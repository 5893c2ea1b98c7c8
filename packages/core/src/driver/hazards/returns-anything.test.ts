/* oxlint-disable unicorn/no-thenable -- these tests use thenables */
import { describe, expect, test } from 'vitest';
import { memoryJournal } from '../../journal/memory.ts';
import type { ToolMessage } from '../../messages.ts';
import { scriptedModel } from '../../testing/scripted-model.ts';
import { tool } from '../../tools/tool.ts';
import { replay } from '../../journal/replay.ts';
import { runLoop } from '../run.ts';

const cycle: { self?: unknown } = {};
cycle.self = cycle;
const throwError = (): never => {
  throw new Error('getter');
};

const OUTPUT = { type: 'text', text: 'fine' };

/** The returned value, and the text of the result; absent: an error result. */
const returned: [string, unknown, string?][] = [
  ['a function', () => 1],
  ['a class', Map],
  ['a symbol', Symbol('s')],
  ['a cycle', cycle],
  ['a cycle in an array', [1, [cycle]]],
  ['a big integer', 1n],
  ['undefined', undefined, '(no output)'],
  ['null', null, 'null'],
  ['NaN', Number.NaN, 'null'],
  ['infinity', Infinity, 'null'],
  ['a date', new Date(0), '"1970-01-01T00:00:00.000Z"'],
  ['an invalid date', new Date(Number.NaN), 'null'],
  ['bytes', new Uint8Array([1, 2]), '{"0":1,"1":2}'],
  ['a map', new Map([['a', 1]]), '[["a",1]]'],
  ['a set', new Set([1]), '[1]'],
  ['an empty map', new Map(), '[]'],
  [
    'maps and sets inside of others',
    { users: new Map([['ann', new Set([1, {}])]]), none: {} },
    '{"users":[["ann",[1,{}]]],"none":{}}',
  ],
  ['a regular expression', /a/],
  ['an Error', new Error('returned')],
  ['a generator', [1].values()],
  ['an empty object', {}, '{}'],
  ['an object without a prototype', Object.create(null), '{}'],
  ['an array with values that JSON omits', [undefined, () => 1, 1], '[null,null,1]'],
  ['an object whose toJSON throws', { toJSON: throwError }],
  ['an object with a getter that throws', Object.defineProperty({}, 'a', { get: throwError, enumerable: true })],
  [
    'an object whose content getter throws',
    Object.defineProperty({}, 'content', { get: throwError, enumerable: true }),
  ],
  ['an object whose then getter throws', Object.defineProperty({}, 'then', { get: throwError })],
  ['a proxy whose traps throw', new Proxy({}, { get: throwError, has: throwError, ownKeys: throwError })],
  ['a String object', Object('boxed'), '"boxed"'],
  ['arrays nested too deep', JSON.parse(`${'['.repeat(100_000)}${']'.repeat(100_000)}`)],
  ['an empty string', '', ''],
  ['content blocks', { content: [OUTPUT] }, 'fine'],
  ['invalid content blocks', { content: [{ type: 'text', text: 7 }] }, '{"content":[{"type":"text","text":7}]}'],
  [
    'a tool call as content block',
    { content: [{ type: 'tool-call', id: 'a' }] },
    '{"content":[{"type":"tool-call","id":"a"}]}',
  ],
  ['content blocks with a cycle', { content: [{ ...OUTPUT, more: cycle }] }, 'fine'],
  ['content blocks with a big integer', { content: [{ ...OUTPUT, more: 1n }] }, 'fine'],
  ['content blocks with a function', { content: [{ ...OUTPUT, toJSON: throwError }] }, 'fine'],
];

const ways: [string, (value: unknown) => unknown][] = [
  ['synchronously', (value) => value],
  ['asynchronously', async (value) => value],
  ['as a thenable', (value) => ({ then: (resolve: (value: unknown) => void) => resolve(value) })],
  [
    'from a generator',
    // eslint-disable-next-line require-yield
    async function* (value) {
      return value === undefined ? '(no output)' : value;
    },
  ],
];

describe.each(ways)('a tool that returns %s', (_, returnValue) => {
  test.each(returned)('%s: the call gets a result, and the run continues', async (_name, value, text) => {
    const journal = memoryJournal();
    using model = scriptedModel([{ calls: [{ name: 'odd' }] }, 'continued']);
    const odd = tool({ name: 'odd', description: 'x', execute: () => returnValue(value) });
    const { messages, outcome } = await runLoop({ model, tools: [odd], input: 'go', journal, runId: 'r' });
    expect(outcome).toEqual({ type: 'completed' });
    const content = (messages[2] as ToolMessage).content;
    expect(content).toEqual([
      {
        type: 'tool-result',
        callId: 'call_0_0',
        name: 'odd',
        content: [text === undefined ? { type: 'error', text: expect.any(String) } : { type: 'text', text }],
        isError: text === undefined,
        ...(text === undefined && { errorType: 'execution_failed' }),
      },
    ]);
    // The entries are plain JSON, so a journal on disk replays the same run.
    const entries = await journal.read('r');
    expect(JSON.parse(JSON.stringify(entries))).toEqual(entries);
    expect(replay(JSON.parse(JSON.stringify(entries)))).toMatchObject({ type: 'replayed' });
  });
});

test('later changes of the returned value do not change the history', async () => {
  const content = [{ type: 'text', text: 'before' }];
  const journal = memoryJournal();
  using model = scriptedModel([
    { calls: [{ name: 'odd' }] },
    () => {
      content[0]!.text = 'after';
      content.push({ type: 'text', text: 'more' });
      return 'continued';
    },
  ]);
  const odd = tool({ name: 'odd', description: 'x', execute: () => ({ content }) });
  const { messages } = await runLoop({ model, tools: [odd], input: 'go', journal, runId: 'r' });
  expect((messages[2] as ToolMessage).content[0]!.content).toEqual([{ type: 'text', text: 'before' }]);
  expect(replay(await journal.read('r'))).toMatchObject({ type: 'replayed' });
});
