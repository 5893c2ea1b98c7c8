import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { userText, type AssistantPart, type Message } from '../messages.ts';
import {
  appendMessage,
  emptyHistory,
  messagesOf,
  acceptableParts,
  hashTexts,
  stableJson,
  type History,
} from './history.ts';

function historyOf(...messages: Message[]): History {
  return messages.reduce(appendMessage, emptyHistory());
}

function call(id: string, name = 'x', text = '{}'): AssistantPart {
  return { type: 'tool-call', id, name, arguments: text };
}

function calls(...ids: string[]): Message {
  return { role: 'assistant', content: ids.map((id) => call(id)) };
}

function idsOf(parts: readonly AssistantPart[]): string[] {
  return parts.flatMap((part) => (part.type === 'tool-call' ? part.id : []));
}

describe('a view of the history', () => {
  test('does not contain messages that were appended later', () => {
    const one = historyOf(userText('1'));
    const two = appendMessage(one, userText('2'));
    expect(messagesOf(one)).toEqual([userText('1')]);
    expect(messagesOf(two)).toEqual([userText('1'), userText('2')]);
    expect(two.items).toBe(one.items);
  });

  test('does not change when a message is appended to an older view', () => {
    const base = historyOf(userText('1'));
    const left = appendMessage(base, calls('left'));
    const right = appendMessage(base, calls('right'));
    expect(messagesOf(left)).toEqual([userText('1'), calls('left')]);
    expect(messagesOf(right)).toEqual([userText('1'), calls('right')]);
    const longer = appendMessage(left, userText('3'));
    expect(messagesOf(right)).toEqual([userText('1'), calls('right')]);
    expect(longer.items).toBe(left.items);
    expect(right.items).not.toBe(left.items);
  });

  test('has only the call ids of its own branch', () => {
    const base = historyOf(calls('base'));
    const left = appendMessage(base, calls('left'));
    const right = appendMessage(base, calls('right'));
    expect(idsOf(acceptableParts(left, [call('left'), call('right')], 9))).toEqual(['call_t9_0', 'right']);
    expect(idsOf(acceptableParts(right, [call('left'), call('right')], 9))).toEqual(['left', 'call_t9_1']);
    expect(idsOf(acceptableParts(base, [call('left'), call('base')], 9))).toEqual(['left', 'call_t9_1']);
  });

  test('does not contain messages that other code adds to the shared array', () => {
    const one = historyOf(userText('1'));
    (one.items as Message[]).push(userText('foreign'));
    const two = appendMessage(one, userText('2'));
    expect(messagesOf(one)).toEqual([userText('1')]);
    expect(messagesOf(two)).toEqual([userText('1'), userText('2')]);
  });

  test('does not change when the copy from messagesOf changes', () => {
    const one = historyOf(userText('1'));
    (messagesOf(one) as Message[]).push(userText('2'));
    expect(messagesOf(one)).toEqual([userText('1')]);
  });

  test('contains exactly the messages on its own path, for any tree of appends', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.nat(), fc.boolean()), { minLength: 1, maxLength: 40 }), (steps) => {
        const views: [History, Message[]][] = [[emptyHistory(), []]];
        for (const [index, [seed, callsTools]] of steps.entries()) {
          const [history, path] = views[seed % views.length]!;
          const message = callsTools ? calls(`c${index % 5}`) : userText(String(index));
          views.push([appendMessage(history, message), [...path, message]]);
        }
        for (const [history, path] of views) {
          expect(messagesOf(history)).toEqual(path);
          expect(history.rolling).toBe(historyOf(...path).rolling);
          const used = new Set(path.flatMap((message) => (message.role === 'assistant' ? idsOf(message.content) : [])));
          for (const id of ['c0', 'c1', 'c2', 'c3', 'c4']) {
            expect(idsOf(acceptableParts(history, [call(id)], 1))[0] === id).toBe(!used.has(id));
          }
        }
      }),
    );
  });
});

describe('acceptableParts', () => {
  test('returns the same reply if all call ids are new and not empty', () => {
    const content = [{ type: 'text', text: 'a' } as const, call('a'), call('b')];
    expect(acceptableParts(historyOf(calls('c')), content, 1)).toBe(content);
  });

  test.each<[string, string[], string[], string[]]>([
    ['empty ids', [], ['', ''], ['call_t3_0', 'call_t3_1']],
    ['an id that occurs several times in the reply', [], ['a', 'a', 'a'], ['a', 'call_t3_1', 'call_t3_2']],
    ['ids of an earlier turn', ['a', 'b'], ['b', 'c', 'a'], ['call_t3_0', 'c', 'call_t3_2']],
    [
      'an earlier id equal to the one that would be generated',
      ['call_t3_0'],
      ['', 'call_t3_0_'],
      ['call_t3_0_', 'call_t3_1'],
    ],
    ['an id equal to one generated before it', [], ['', 'call_t3_0'], ['call_t3_0', 'call_t3_1']],
    ['ids with characters outside of ASCII', [], ['𝒶', '𝒶'], ['𝒶', 'call_t3_1']],
    [
      'ids named like members of Object.prototype',
      [],
      ['constructor', '__proto__', '__proto__'],
      ['constructor', '__proto__', 'call_t3_2'],
    ],
  ])('replaces %s', (_, before, ids, expected) => {
    const history = before.length > 0 ? historyOf(calls(...before)) : emptyHistory();
    expect(
      idsOf(
        acceptableParts(
          history,
          ids.map((id) => call(id)),
          3,
        ),
      ),
    ).toEqual(expected);
  });

  test('returns ids that are unique and not in the history, for any ids', () => {
    const some = fc.array(fc.constantFrom('', 'a', 'b', 'call_t2_0', 'call_t2_1', 'call_t2_1_', 'call_t2_2'), {
      maxLength: 8,
    });
    fc.assert(
      fc.property(some, some, (before, ids) => {
        const history = historyOf(calls(...before));
        const accepted = idsOf(
          acceptableParts(
            history,
            ids.map((id) => call(id)),
            2,
          ),
        );
        expect(new Set(accepted).size).toBe(ids.length);
        expect(accepted).not.toContain('');
        for (const id of accepted) expect(before).not.toContain(id);
      }),
      { numRuns: 1_000 },
    );
  });
});

test('keeps exactly the tool names that providers accept', () => {
  const ascii = Array.from({ length: 129 }, (_, code) => String.fromCharCode(code));
  const names = [
    ...ascii,
    ...ascii.map((char) => `a${char}Z`),
    'read_file-2',
    '',
    'é',
    'ſ',
    '𝒶',
    'a'.repeat(64),
    'a'.repeat(65),
  ];
  for (const name of names) {
    const [part] = acceptableParts(emptyHistory(), [call('id', name)], 1);
    const kept = part?.type === 'tool-call' && part.name === name;
    expect(kept, JSON.stringify(name)).toBe(/^[a-zA-Z0-9_-]{1,64}$/.test(name));
  }
});

describe('the digest of a history', () => {
  const base: readonly Message[] = [
    userText('hello'),
    {
      role: 'assistant',
      content: [
        { type: 'reasoning', text: 'hm', signature: 's' },
        { type: 'text', text: 'let me see' },
        { type: 'tool-call', id: 'a', name: 'look', arguments: '{"at":1}', references: ['at'] },
      ],
    },
    {
      role: 'tool',
      content: [
        {
          type: 'tool-result',
          callId: 'a',
          name: 'look',
          isError: false,
          blob: 'long',
          content: [
            { type: 'text', text: 'seen' },
            { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'AAAA' } },
          ],
        },
      ],
    },
  ];

  /** Copies of a value with one change each: every leaf changed, every element of an array removed or repeated. */
  function* changes(value: unknown): Generator<unknown> {
    if (typeof value === 'string') yield* [`${value}x`, value.slice(1)];
    else if (typeof value === 'boolean') yield !value;
    else if (Array.isArray(value)) {
      for (const [index, part] of value.entries()) {
        yield value.toSpliced(index, 1);
        yield value.toSpliced(index, 0, part);
        for (const changed of changes(part)) yield value.with(index, changed);
      }
    } else if (typeof value === 'object' && value !== null) {
      for (const [key, part] of Object.entries(value)) {
        if (key === 'type' || key === 'role') continue;
        for (const changed of changes(part)) yield { ...value, [key]: changed };
      }
    }
  }

  test('differs after every single change', () => {
    const seen = new Map([[historyOf(...base).rolling, JSON.stringify(base)]]);
    let count = 1;
    for (const changed of changes(base)) {
      const text = JSON.stringify(changed);
      const digest = historyOf(...(changed as Message[])).rolling;
      if (seen.get(digest) === text) continue;
      expect(seen.get(digest), text).toBeUndefined();
      seen.set(digest, text);
      count++;
    }
    expect(count).toBeGreaterThan(40);
  });

  test('differs when the same texts are in other places', () => {
    const user = (...texts: string[]): Message => ({
      role: 'user',
      content: texts.map((text) => ({ type: 'text', text })),
    });
    const calling = (id: string, name: string, text: string): Message => ({
      role: 'assistant',
      content: [call(id, name, text)],
    });
    const histories = [
      [user('a', 'b')],
      [user('atextb')],
      [user('ab')],
      [user('a'), user('b')],
      [user('ausertextb')],
      [{ ...user('a', 'b'), role: 'assistant' } as Message],
      [calling('ab', 'c', '{}')],
      [calling('a', 'bc', '{}')],
      [calling('', 'abc', '{}')],
      [calling('a', 'b', 'c{}')],
    ];
    expect(new Set(histories.map((messages) => historyOf(...messages).rolling)).size).toBe(histories.length);
  });

  test('is the same after JSON.stringify and JSON.parse', () => {
    const odd: Message[] = [...base, userText('\ud800 \u2028 \0'), { role: 'user', content: [] }];
    expect(historyOf(...JSON.parse(JSON.stringify(odd))).rolling).toBe(historyOf(...odd).rolling);
  });
});

function hashOf(...pieces: string[]): number {
  return hashTexts(emptyHistory().rolling, pieces);
}

describe('hashTexts', () => {
  test('returns an unsigned integer that survives JSON', () => {
    fc.assert(
      fc.property(fc.array(fc.string({ unit: 'binary' })), (pieces) => {
        const hash = hashOf(...pieces);
        expect(Number.isSafeInteger(hash) && hash >= 0).toBe(true);
        expect(JSON.parse(JSON.stringify(hash))).toBe(hash);
      }),
    );
  });

  test('continues from an earlier hash', () => {
    const half = hashTexts(emptyHistory().rolling, ['one']);
    expect(hashTexts(half, ['two'])).toBe(hashOf('one', 'two'));
    expect(half).toBe(hashOf('one'));
  });

  test('differs when any single character differs', () => {
    const text = 'the quick brown fox jumps over the lazy dog '.repeat(20);
    const seen = new Set([hashOf(text)]);
    for (let at = 0; at < text.length; at++) {
      for (const other of ['X', '\0', '\uffff', 'é']) seen.add(hashOf(text.slice(0, at) + other + text.slice(at + 1)));
    }
    expect(seen.size).toBe(1 + text.length * 4);
  });

  test('differs when a character is removed, repeated, swapped or added', () => {
    fc.assert(
      fc.property(fc.string({ minLength: 2, unit: 'binary' }), fc.nat(), (text, seed) => {
        const at = seed % (text.length - 1);
        const [a, b] = [text[at]!, text[at + 1]!];
        const changed = [
          text.slice(0, at) + text.slice(at + 1),
          text.slice(0, at) + a + text.slice(at),
          `${text}\0`,
          `\0${text}`,
          ...(a === b ? [] : [text.slice(0, at) + b + a + text.slice(at + 2)]),
        ];
        for (const other of changed) expect(hashOf(other)).not.toBe(hashOf(text));
      }),
      { numRuns: 1_000 },
    );
  });

  test('differs when the same characters are divided differently', () => {
    const ways = [['ab', 'c'], ['a', 'bc'], ['abc'], ['abc', ''], ['', 'abc'], ['a', 'b', 'c'], ['', '', 'abc']];
    expect(new Set(ways.map((pieces) => hashOf(...pieces))).size).toBe(ways.length);
  });

  test('returns different hashes for 200,000 similar texts', () => {
    const seen = new Set<number>();
    for (let index = 0; index < 200_000; index++) seen.add(hashOf(`call_${index}`));
    expect(seen.size).toBe(200_000);
  });
});

describe('JSON with sorted keys', () => {
  /** The definition, and what journals contain: a replacer of `JSON.stringify`. */
  const sorted = (_key: string, value: unknown): unknown =>
    typeof value !== 'object' || value === null || Array.isArray(value)
      ? value
      : Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)));

  test('has the keys of every object in order, for any value', () => {
    const anything = fc.anything({ withDate: true, withSparseArray: true, withNullPrototype: true });
    fc.assert(
      fc.property(anything, (value) => {
        expect(stableJson(value)).toBe(JSON.stringify(value, sorted));
      }),
    );
  });

  test.each([2, 32, 33, 200])('of %i keys in any order is the same', (count) => {
    const keys = Array.from({ length: count }, (_, index) => `key ${(index * 7_919) % 1_009}`);
    const json = JSON.stringify(Object.fromEntries(keys.toSorted().map((key) => [key, key])));
    for (const order of [keys, keys.toReversed(), keys.toSorted(), keys.toSorted().reverse()]) {
      expect(stableJson(Object.fromEntries(order.map((key) => [key, key])))).toBe(json);
    }
  });

  test.each([
    [{ b: 1, a: undefined, 2: [undefined, { d: 1, c: () => 1 }] }, '{"2":[null,{"d":1}],"b":1}'],
    [JSON.parse('{"b":{},"__proto__":{"b":1,"a":2}}'), '{"__proto__":{"a":2,"b":1},"b":{}}'],
    [
      { at: new Date(0), own: { toJSON: () => ({ b: 1, a: 2 }) } },
      '{"at":"1970-01-01T00:00:00.000Z","own":{"a":2,"b":1}}',
    ],
  ])('of %j is %s', (value, json) => {
    expect(stableJson(value)).toBe(json);
    expect(JSON.stringify(value, sorted)).toBe(json);
  });
});
