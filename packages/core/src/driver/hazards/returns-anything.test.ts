/* oxlint-disable unicorn/no-thenable -- what only resembles a promise is the subject here */
import { describe, expect, test } from 'vitest';
import { memoryJournal } from '../../journal/memory.ts';
import type { ToolMessage } from '../../messages.ts';
import { scriptedModel } from '../../testing/scripted-model.ts';
import { tool } from '../../tools/tool.ts';
import { replay } from '../../journal/replay.ts';
import { runLoop } from '../run.ts';

const cycle: { self?: unknown } = {};
cycle.self = cycle;
const raises = (): never => {
  throw new Error('do not ask');
};

const OUTPUT = { type: 'text', text: 'fine' };

/** What it returns, and the text of the result; absent: an error result. */
const returned: [string, unknown, string?][] = [
  ['a function', () => 1],
  ['a class', Map],
  ['a symbol', Symbol('s')],
  ['a cycle', cycle],
  ['a cycle in a list', [1, [cycle]]],
  ['a big integer', 1n],
  ['undefined', undefined, '(no output)'],
  ['null', null, 'null'],
  ['NaN', Number.NaN, 'null'],
  ['infinity', Infinity, 'null'],
  ['a date', new Date(0), '"1970-01-01T00:00:00.000Z"'],
  ['a date that is none', new Date(Number.NaN), 'null'],
  ['bytes', new Uint8Array([1, 2]), '{"0":1,"1":2}'],
  ['a map', new Map([['a', 1]])],
  ['a set', new Set([1])],
  ['a regular expression', /a/],
  ['an Error', new Error('returned')],
  ['a generator', [1].values()],
  ['an empty object', {}, '{}'],
  ['an object without a prototype', Object.create(null), '{}'],
  ['a list with holes', [undefined, () => 1, 1], '[null,null,1]'],
  ['an object whose toJSON throws', { toJSON: raises }],
  ['an object with a getter that throws', Object.defineProperty({}, 'a', { get: raises, enumerable: true })],
  ['a content that throws', Object.defineProperty({}, 'content', { get: raises, enumerable: true })],
  ['a then that throws', Object.defineProperty({}, 'then', { get: raises })],
  ['an object that resists', new Proxy({}, { get: raises, has: raises, ownKeys: raises })],
  ['a text object', Object('boxed'), '"boxed"'],
  ['nested too deep', JSON.parse(`${'['.repeat(100_000)}${']'.repeat(100_000)}`)],
  ['an empty text', '', ''],
  ['blocks', { content: [OUTPUT] }, 'fine'],
  ['blocks that are none', { content: [{ type: 'text', text: 7 }] }, '{"content":[{"type":"text","text":7}]}'],
  [
    'a block that is a call',
    { content: [{ type: 'tool-call', id: 'a' }] },
    '{"content":[{"type":"tool-call","id":"a"}]}',
  ],
  ['blocks with a cycle in them', { content: [{ ...OUTPUT, more: cycle }] }, 'fine'],
  ['blocks with a big integer in them', { content: [{ ...OUTPUT, more: 1n }] }, 'fine'],
  ['blocks with a function in them', { content: [{ ...OUTPUT, toJSON: raises }] }, 'fine'],
];

const ways: [string, (what: unknown) => unknown][] = [
  ['at once', (what) => what],
  ['later', async (what) => what],
  ['as a thenable', (what) => ({ then: (resolve: (value: unknown) => void) => resolve(what) })],
  [
    'from a generator',
    // eslint-disable-next-line require-yield
    async function* (what) {
      return what === undefined ? '(no output)' : what;
    },
  ],
];

describe.each(ways)('a tool that returns, %s,', (_, way) => {
  test.each(returned)('%s: there is a result, and the run goes on', async (_name, what, told) => {
    const journal = memoryJournal();
    using model = scriptedModel([{ calls: [{ name: 'odd' }] }, 'went on']);
    const odd = tool({ name: 'odd', description: 'x', execute: () => way(what) });
    const { messages, outcome } = await runLoop({ model, tools: [odd], input: 'go', journal, runId: 'r' });
    expect(outcome).toEqual({ type: 'completed' });
    const content = (messages[2] as ToolMessage).content;
    expect(content).toEqual([
      {
        type: 'tool-result',
        callId: 'call_0_0',
        name: 'odd',
        content: [told === undefined ? { type: 'error', text: expect.any(String) } : { type: 'text', text: told }],
        isError: told === undefined,
      },
    ]);
    // It is plain data: a journal on disk gives the same run.
    const entries = await journal.read('r');
    expect(JSON.parse(JSON.stringify(entries))).toEqual(entries);
    expect(replay(JSON.parse(JSON.stringify(entries)))).toMatchObject({ type: 'replayed' });
  });
});

test('what the tool does later to what it returned does not change the history', async () => {
  const content = [{ type: 'text', text: 'before' }];
  const journal = memoryJournal();
  using model = scriptedModel([
    { calls: [{ name: 'odd' }] },
    () => {
      content[0]!.text = 'after';
      content.push({ type: 'text', text: 'more' });
      return 'went on';
    },
  ]);
  const odd = tool({ name: 'odd', description: 'x', execute: () => ({ content }) });
  const { messages } = await runLoop({ model, tools: [odd], input: 'go', journal, runId: 'r' });
  expect((messages[2] as ToolMessage).content[0]!.content).toEqual([{ type: 'text', text: 'before' }]);
  expect(replay(await journal.read('r'))).toMatchObject({ type: 'replayed' });
});
