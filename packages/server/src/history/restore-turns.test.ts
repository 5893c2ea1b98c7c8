import type { Message, ToolResult } from '@treadle/core';
import { describe, expect, test } from 'vitest';
import { restoreTurns, turnsToStore, type StoredTurns } from './restore-turns.ts';

const X = '0'.repeat(31) + 'a';
const Y = '0'.repeat(31) + 'b';
const wire = (hex: string, turn: number, index: number): string => `call_${hex}_${turn}_${index}`;

const user: Message = { role: 'user', content: [{ type: 'text', text: 'go' }] };

function says(text: string, ...calls: readonly (readonly [id: string, name: string, json?: string])[]): Message {
  return {
    role: 'assistant',
    content: [
      ...(text === '' ? [] : [{ type: 'text', text } as const]),
      ...calls.map(([id, name, json = '{}']) => ({ type: 'tool-call', id, name, arguments: json }) as const),
    ],
  };
}

function result(callId: string, name: string, text: string): ToolResult {
  return { type: 'tool-result', callId, name, content: [{ type: 'text', text }], isError: false };
}

function results(...content: readonly ToolResult[]): Message {
  return { role: 'tool', content };
}

/** Two turns. In the second, a call of the server is between two calls for the client. */
const waitingTurns: StoredTurns = {
  messages: [
    says('First.', ['m1', 'look']),
    results(result('m1', 'look', 'seen')),
    says('Then.', ['m2', 'ask', '{"a": 1}'], ['m3', 'look'], ['m4', 'tell']),
  ],
  open: {
    calls: [
      { wireId: wire(X, 2, 0), callId: 'm2', name: 'ask' },
      { wireId: wire(X, 2, 1), callId: 'm3', name: 'look', result: result('m3', 'look', 'seen again') },
      { wireId: wire(X, 2, 2), callId: 'm4', name: 'tell' },
    ],
  },
};

const stored = async (id: string): Promise<StoredTurns | undefined> =>
  id === `chatcmpl-${X}` ? waitingTurns : undefined;

const followUp: readonly Message[] = [
  user,
  says('First.\n\nThen.', [wire(X, 2, 0), 'ask', '{"a":1}'], [wire(X, 2, 2), 'tell']),
  results(result(wire(X, 2, 0), 'ask', 'asked'), result(wire(X, 2, 2), 'tell', 'told')),
];

const whole: readonly Message[] = [
  user,
  ...waitingTurns.messages,
  results(result('m2', 'ask', 'asked'), result('m3', 'look', 'seen again'), result('m4', 'tell', 'told')),
];

test('replaces the message by the stored turns, with all results in call order', async () => {
  expect(await restoreTurns(followUp, stored)).toEqual(whole);
});

test('restores several completions, and leaves other messages unchanged', async () => {
  const other: StoredTurns = {
    messages: [
      {
        role: 'assistant',
        content: [
          { type: 'reasoning', text: 'Hm.', signature: 's', protocol: 'p' },
          ...says('', ['n1', 'ask']).content,
        ],
      } as Message,
    ],
    open: { calls: [{ wireId: wire(Y, 1, 0), callId: 'n1', name: 'ask' }] },
  };
  const both = async (id: string): Promise<StoredTurns | undefined> => (id === `chatcmpl-${Y}` ? other : stored(id));
  const later = [says('', [wire(Y, 1, 0), 'ask']), results(result(wire(Y, 1, 0), 'ask', 'again'))];
  expect(await restoreTurns([...followUp, ...later, says('Done.'), user], both)).toEqual([
    ...whole,
    ...other.messages,
    results(result('n1', 'ask', 'again')),
    says('Done.'),
    user,
  ]);
});

test('leaves messages of unknown completions unchanged', async () => {
  const foreign = [user, says('', ['abc', 'ask']), results(result('abc', 'ask', 'x'))];
  expect(await restoreTurns(foreign, stored)).toEqual(foreign);
  const asked: string[] = [];
  const nothing = async (id: string): Promise<undefined> => void asked.push(id);
  expect(await restoreTurns(followUp, nothing)).toEqual(followUp);
  expect(asked).toEqual([`chatcmpl-${X}`]);
});

test('looks up only calls with ids of this server', async () => {
  const never = (): Promise<undefined> => Promise.reject(new Error('asked'));
  const messages = [user, says('a'), says('', ['call_1', 'ask']), results(result('call_1', 'ask', 'x'))];
  expect(await restoreTurns(messages, never)).toEqual(messages);
});

describe('a client that has changed its conversation', () => {
  test('may send each call as a message of its own', async () => {
    const apart = [
      user,
      says('First.\n\nThen.', [wire(X, 2, 0), 'ask', '{"a":1}']),
      results(result(wire(X, 2, 0), 'ask', 'asked')),
      says('', [wire(X, 2, 2), 'tell']),
      results(result(wire(X, 2, 2), 'tell', 'told')),
      user,
    ];
    expect(await restoreTurns(apart, stored)).toEqual([...whole, user]);
  });

  test('may leave a call out', async () => {
    const less = [user, says('', [wire(X, 2, 2), 'tell']), results(result(wire(X, 2, 2), 'tell', 'told'))];
    expect(await restoreTurns(less, stored)).toEqual([
      user,
      ...waitingTurns.messages.slice(0, 2),
      says('Then.', ['m3', 'look'], ['m4', 'tell']),
      results(result('m3', 'look', 'seen again'), result('m4', 'tell', 'told')),
    ]);
  });

  test('may change arguments', async () => {
    const changed = [
      user,
      says('', [wire(X, 2, 0), 'ask', '{"a":2}'], [wire(X, 2, 2), 'tell', 'broken']),
      results(result(wire(X, 2, 0), 'ask', 'asked'), result(wire(X, 2, 2), 'tell', 'told')),
    ];
    expect((await restoreTurns(changed, stored))[3]).toEqual(
      says('Then.', ['m2', 'ask', '{"a":2}'], ['m3', 'look'], ['m4', 'tell', 'broken']),
    );
  });

  test.each<[string, readonly string[]]>([
    ['answers a call of the server', [wire(X, 2, 0), wire(X, 2, 1)]],
    ['names a call that does not exist', [wire(X, 2, 0), wire(X, 2, 7)]],
    ['names another turn', [wire(X, 1, 0)]],
    ['mixes two completions', [wire(X, 2, 0), wire(Y, 2, 0)]],
    ['mixes in a call of its own', [wire(X, 2, 0), 'mine']],
  ])('%s: its messages are left unchanged', async (_, ids) => {
    const messages = [
      user,
      says('', ...ids.map((id) => [id, 'ask'] as const)),
      results(...ids.map((id) => result(id, 'ask', 'x'))),
    ];
    expect(await restoreTurns(messages, stored)).toEqual(messages);
  });
});

describe('turnsToStore', () => {
  const open = { calls: [{ wireId: wire(X, 1, 0), callId: 'm1', name: 'ask' }] };

  test('returns only the messages that the run added', () => {
    expect(
      turnsToStore({ messages: [user, says('Earlier.'), user, ...waitingTurns.messages], open: waitingTurns.open }, 3),
    ).toEqual(waitingTurns);
  });

  test('returns nothing for one turn without server calls and reasoning', () => {
    expect(turnsToStore({ messages: [user, says('Well.', ['m1', 'ask'])], open }, 1)).toBe(undefined);
  });

  test('returns nothing for a run that does not wait for its client', () => {
    expect(turnsToStore({ messages: [user, says('Done.')] }, 1)).toBe(undefined);
  });

  test.each<[string, Message[], StoredTurns['open']]>([
    [
      'thoughts',
      [
        {
          role: 'assistant',
          content: [{ type: 'reasoning', text: '', signature: 's' }, ...says('', ['m1', 'ask']).content],
        } as Message,
      ],
      open,
    ],
    [
      'a call of the server',
      [says('', ['m1', 'ask'], ['m2', 'look'])],
      { calls: [...open.calls, { wireId: '', callId: 'm2', name: 'look', result: result('m2', 'look', 'x') }] },
    ],
    ['an earlier turn', [says('', ['m0', 'look']), results(result('m0', 'look', 'x')), says('', ['m1', 'ask'])], open],
  ])('%s', (_, own, open) => {
    expect(turnsToStore({ messages: [user, ...own], open }, 1)).toEqual({ messages: own, open });
  });
});
