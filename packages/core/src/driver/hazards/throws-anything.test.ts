import { describe, expect, test } from 'vitest';
import { textOf, type ToolMessage } from '../../messages.ts';
import { manualClock } from '../../testing/manual-clock.ts';
import { scriptedModel } from '../../testing/scripted-model.ts';
import { tool } from '../../tools/tool.ts';
import { runLoop } from '../run.ts';

const cycle: { self?: unknown } = {};
cycle.self = cycle;
const throwingProxy = new Proxy(
  {},
  {
    get: () => {
      throw new Error('trap');
    },
    getPrototypeOf: () => {
      throw new Error('trap');
    },
    has: () => {
      throw new Error('trap');
    },
    ownKeys: () => {
      throw new Error('trap');
    },
  },
);
class UnreadableError extends Error {
  override get message(): string {
    throw new Error('getter');
  }
}
const revoked = Proxy.revocable({}, {});
revoked.revoke();

const thrown: [string, unknown, string | RegExp][] = [
  ['an Error', new Error('failure'), 'failure'],
  ['an Error without a message', new TypeError(), 'TypeError'],
  ['a string', 'failure', 'failure'],
  ['an empty string', '', ''],
  ['undefined', undefined, 'undefined'],
  ['null', null, 'null'],
  ['a number', 7, '7'],
  ['a big integer', 7n, /.+/],
  ['a symbol', Symbol('failure'), 'Symbol(failure)'],
  ['a function', () => 'failure', /.+/],
  ['an object', { code: 7 }, '{"code":7}'],
  ['a cycle', cycle, /.+/],
  ['an object without a prototype', Object.create(null), '{}'],
  ['a proxy whose traps throw', throwingProxy, /.+/],
  ['a revoked proxy', revoked.proxy, /.+/],
  ['an Error whose message throws', new UnreadableError(), /.+/],
  ['an Error whose message is not a string', Object.assign(new Error(), { message: Symbol('s') }), /.+/],
  [
    'an Error whose name and message are undefined',
    Object.assign(new Error(), { message: undefined, name: undefined }),
    /.*/,
  ],
];

const ways: [string, (value: unknown) => unknown][] = [
  [
    'throws',
    (value) => {
      throw value;
    },
  ],
  ['rejects', (value) => Promise.reject(value)],
  [
    'throws in a generator',
    // eslint-disable-next-line require-yield
    async function* (value) {
      throw value;
    },
  ],
];

describe.each(ways)('a tool that %s', (_, fail) => {
  test.each(thrown)('%s: the call gets an error result, and the run continues', async (_name, value, message) => {
    const clock = manualClock();
    using model = scriptedModel([{ calls: [{ name: 'bad' }] }, 'continued']);
    const bad = tool({ name: 'bad', description: 'x', execute: () => fail(value) });
    const { messages, outcome, text } = await runLoop({ model, tools: [bad], input: 'go', clock });
    expect(outcome).toEqual({ type: 'completed' });
    expect(text).toBe('continued');
    const [result] = (messages[2] as ToolMessage).content;
    expect(result!.isError).toBe(true);
    const received = textOf(result!.content);
    expect(received.startsWith('The tool "bad" failed: ')).toBe(true);
    if (typeof message === 'string') expect(received).toBe(`The tool "bad" failed: ${message}`);
    else expect(received.slice('The tool "bad" failed: '.length)).toMatch(message);
    expect(clock.now()).toBe(0);
    expect(clock.pending).toBe(0);
  });
});

test('cuts the message of an error to maxResultChars', async () => {
  using model = scriptedModel([{ calls: [{ name: 'bad' }] }, 'continued']);
  const bad = tool({ name: 'bad', description: 'x', execute: () => Promise.reject(new Error('x'.repeat(1_000_000))) });
  const { messages } = await runLoop({ model, tools: [bad], input: 'go', maxResultChars: 100 });
  expect(textOf((messages[2] as ToolMessage).content[0]!.content).length).toBeLessThan(200);
});
