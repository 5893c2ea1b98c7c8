import { describe, expect, test } from 'vitest';
import { textOf, type ToolMessage } from '../../messages.ts';
import { manualClock } from '../../testing/manual-clock.ts';
import { scriptedModel } from '../../testing/scripted-model.ts';
import { tool } from '../../tools/tool.ts';
import { runLoop } from '../run.ts';

const cycle: { self?: unknown } = {};
cycle.self = cycle;
const hostile = new Proxy(
  {},
  {
    get: () => {
      throw new Error('do not look');
    },
    getPrototypeOf: () => {
      throw new Error('do not look');
    },
    has: () => {
      throw new Error('do not look');
    },
    ownKeys: () => {
      throw new Error('do not look');
    },
  },
);
class Rude extends Error {
  override get message(): string {
    throw new Error('do not ask');
  }
}
const revoked = Proxy.revocable({}, {});
revoked.revoke();

const thrown: [string, unknown, string | RegExp][] = [
  ['an Error', new Error('ouch'), 'ouch'],
  ['an Error without a message', new TypeError(), 'TypeError'],
  ['a text', 'ouch', 'ouch'],
  ['an empty text', '', ''],
  ['undefined', undefined, 'undefined'],
  ['null', null, 'null'],
  ['a number', 7, '7'],
  ['a big integer', 7n, /.+/],
  ['a symbol', Symbol('ouch'), 'Symbol(ouch)'],
  ['a function', () => 'ouch', /.+/],
  ['an object', { code: 7 }, '{"code":7}'],
  ['a cycle', cycle, /.+/],
  ['an object without a prototype', Object.create(null), '{}'],
  ['an object that resists', hostile, /.+/],
  ['a proxy that is gone', revoked.proxy, /.+/],
  ['an Error whose message throws', new Rude(), /.+/],
  ['an Error whose message is no text', Object.assign(new Error(), { message: Symbol('s') }), /.+/],
  [
    'an Error whose name and message are nothing',
    Object.assign(new Error(), { message: undefined, name: undefined }),
    /.*/,
  ],
];

const ways: [string, (what: unknown) => unknown][] = [
  [
    'throws',
    (what) => {
      throw what;
    },
  ],
  ['rejects', (what) => Promise.reject(what)],
  [
    'throws while iterated',
    // eslint-disable-next-line require-yield
    async function* (what) {
      throw what;
    },
  ],
];

describe.each(ways)('a tool that %s', (_, way) => {
  test.each(thrown)('%s: an error result, and the run goes on', async (_name, what, told) => {
    const clock = manualClock();
    using model = scriptedModel([{ calls: [{ name: 'bad' }] }, 'went on']);
    const bad = tool({ name: 'bad', description: 'x', execute: () => way(what) });
    const { messages, outcome, text } = await runLoop({ model, tools: [bad], input: 'go', clock });
    expect(outcome).toEqual({ type: 'completed' });
    expect(text).toBe('went on');
    const [result] = (messages[2] as ToolMessage).content;
    expect(result!.isError).toBe(true);
    const words = textOf(result!.content);
    expect(words.startsWith('The tool "bad" failed: ')).toBe(true);
    if (typeof told === 'string') expect(words).toBe(`The tool "bad" failed: ${told}`);
    else expect(words.slice('The tool "bad" failed: '.length)).toMatch(told);
    expect(clock.now()).toBe(0);
    expect(clock.pending).toBe(0);
  });
});

test('what was thrown is held to the size of any result', async () => {
  using model = scriptedModel([{ calls: [{ name: 'bad' }] }, 'went on']);
  const bad = tool({ name: 'bad', description: 'x', execute: () => Promise.reject(new Error('x'.repeat(1_000_000))) });
  const { messages } = await runLoop({ model, tools: [bad], input: 'go', maxResultChars: 100 });
  expect(textOf((messages[2] as ToolMessage).content[0]!.content).length).toBeLessThan(200);
});
