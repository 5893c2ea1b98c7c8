import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { userText, type AssistantPart, type Message } from '../messages.ts';
import { appendMessage, digestOf, emptyHistory, messagesOf, acceptableParts, type History } from './history.ts';

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

describe('a view never changes', () => {
  test('what is appended later is not in it', () => {
    const one = historyOf(userText('1'));
    const two = appendMessage(one, userText('2'));
    expect(messagesOf(one)).toEqual([userText('1')]);
    expect(messagesOf(two)).toEqual([userText('1'), userText('2')]);
    expect(two.items).toBe(one.items);
  });

  test('appending to an older view does not disturb the newer', () => {
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

  test('each side of a fork has its own ids', () => {
    const base = historyOf(calls('base'));
    const left = appendMessage(base, calls('left'));
    const right = appendMessage(base, calls('right'));
    expect(idsOf(acceptableParts(left, [call('left'), call('right')], 9))).toEqual(['call_t9_0', 'right']);
    expect(idsOf(acceptableParts(right, [call('left'), call('right')], 9))).toEqual(['left', 'call_t9_1']);
    expect(idsOf(acceptableParts(base, [call('left'), call('base')], 9))).toEqual(['left', 'call_t9_1']);
  });

  test('what somebody else adds to the array is not part of it', () => {
    const one = historyOf(userText('1'));
    (one.items as Message[]).push(userText('smuggled'));
    const two = appendMessage(one, userText('2'));
    expect(messagesOf(one)).toEqual([userText('1')]);
    expect(messagesOf(two)).toEqual([userText('1'), userText('2')]);
  });

  test('the copy that is handed out is not the history', () => {
    const one = historyOf(userText('1'));
    (messagesOf(one) as Message[]).push(userText('2'));
    expect(messagesOf(one)).toEqual([userText('1')]);
  });

  test('for any tree of appends, every view is the path that led to it', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.nat(), fc.boolean()), { minLength: 1, maxLength: 40 }), (steps) => {
        const views: [History, Message[]][] = [[emptyHistory(), []]];
        for (const [index, [seed, asksTools]] of steps.entries()) {
          const [history, path] = views[seed % views.length]!;
          const message = asksTools ? calls(`c${index % 5}`) : userText(String(index));
          views.push([appendMessage(history, message), [...path, message]]);
        }
        for (const [history, path] of views) {
          expect(messagesOf(history)).toEqual(path);
          expect(digestOf(history)).toBe(digestOf(historyOf(...path)));
          const used = new Set(path.flatMap((message) => (message.role === 'assistant' ? idsOf(message.content) : [])));
          for (const id of ['c0', 'c1', 'c2', 'c3', 'c4']) {
            expect(idsOf(acceptableParts(history, [call(id)], 1))[0] === id).toBe(!used.has(id));
          }
        }
      }),
    );
  });
});

describe('call ids', () => {
  test('that are new and not empty stay, and so does the reply', () => {
    const content = [{ type: 'text', text: 'a' } as const, call('a'), call('b')];
    expect(acceptableParts(historyOf(calls('c')), content, 1)).toBe(content);
  });

  test.each<[string, string[], string[], string[]]>([
    ['empty', [], ['', ''], ['call_t3_0', 'call_t3_1']],
    ['twice in a reply', [], ['a', 'a', 'a'], ['a', 'call_t3_1', 'call_t3_2']],
    ['in an earlier turn', ['a', 'b'], ['b', 'c', 'a'], ['call_t3_0', 'c', 'call_t3_2']],
    ['like the one that would be made up', ['call_t3_0'], ['', 'call_t3_0_'], ['call_t3_0_', 'call_t3_1']],
    ['like one that was made up before it', [], ['', 'call_t3_0'], ['call_t3_0', 'call_t3_1']],
    ['of another language', [], ['𝒶', '𝒶'], ['𝒶', 'call_t3_1']],
    [
      'named like members of every object',
      [],
      ['constructor', '__proto__', '__proto__'],
      ['constructor', '__proto__', 'call_t3_2'],
    ],
  ])('%s', (_, before, given, fresh) => {
    const history = before.length > 0 ? historyOf(calls(...before)) : emptyHistory();
    expect(
      idsOf(
        acceptableParts(
          history,
          given.map((id) => call(id)),
          3,
        ),
      ),
    ).toEqual(fresh);
  });

  test('for any ids, all are new, and the first of a kind stays', () => {
    const some = fc.array(fc.constantFrom('', 'a', 'b', 'call_t2_0', 'call_t2_1', 'call_t2_1_', 'call_t2_2'), {
      maxLength: 8,
    });
    fc.assert(
      fc.property(some, some, (before, given) => {
        const history = historyOf(calls(...before));
        const fresh = idsOf(
          acceptableParts(
            history,
            given.map((id) => call(id)),
            2,
          ),
        );
        expect(new Set(fresh).size).toBe(given.length);
        expect(fresh).not.toContain('');
        for (const id of fresh) expect(before).not.toContain(id);
      }),
      { numRuns: 1_000 },
    );
  });
});

describe('the digest', () => {
  const base: readonly Message[] = [
    userText('hello'),
    {
      role: 'assistant',
      content: [
        { type: 'reasoning', text: 'hm', signature: 's' },
        { type: 'text', text: 'let me see' },
        call('a', 'look', '{"at":1}'),
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
          content: [
            { type: 'text', text: 'seen' },
            { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'AAAA' } },
          ],
        },
      ],
    },
  ];

  /** Every leaf of a value, changed; every list, shortened, lengthened and divided otherwise. */
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

  test('differs with every single change', () => {
    const seen = new Map([[digestOf(historyOf(...base)), JSON.stringify(base)]]);
    let count = 1;
    for (const changed of changes(base)) {
      const text = JSON.stringify(changed);
      const digest = digestOf(historyOf(...(changed as Message[])));
      if (seen.get(digest) === text) continue;
      expect(seen.get(digest), text).toBeUndefined();
      seen.set(digest, text);
      count++;
    }
    expect(count).toBeGreaterThan(40);
  });

  test('differs when the same words stand in other places', () => {
    const said = (...texts: string[]): Message => ({
      role: 'user',
      content: texts.map((text) => ({ type: 'text', text })),
    });
    const asked = (id: string, name: string, text: string): Message => ({
      role: 'assistant',
      content: [call(id, name, text)],
    });
    const histories = [
      [said('a', 'b')],
      [said('atextb')],
      [said('ab')],
      [said('a'), said('b')],
      [said('ausertextb')],
      [{ ...said('a', 'b'), role: 'assistant' } as Message],
      [asked('ab', 'c', '{}')],
      [asked('a', 'bc', '{}')],
      [asked('', 'abc', '{}')],
      [asked('a', 'b', 'c{}')],
    ];
    expect(new Set(histories.map((messages) => digestOf(historyOf(...messages)))).size).toBe(histories.length);
  });

  test('is the same after a trip through JSON', () => {
    const odd: Message[] = [...base, userText('\ud800 \u2028 \0'), { role: 'user', content: [] }];
    expect(digestOf(historyOf(...JSON.parse(JSON.stringify(odd))))).toBe(digestOf(historyOf(...odd)));
  });
});
