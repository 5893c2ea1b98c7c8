import type { Message } from '@treadle/core';
import { describe, expect, test } from 'vitest';
import { editedConversation } from './context-edits.ts';
import { parseMessageRequest } from './parse-request.ts';

const LONG = 'x'.repeat(400);

function edited(messages: readonly Message[], edit: object, others = 0) {
  const given = { edits: [edit] };
  const body = { model: 'm', max_tokens: 1, messages: [{ role: 'user', content: 'x' }], context_management: given };
  return editedConversation(messages, parseMessageRequest(body).edits!, others);
}

describe('thoughts', () => {
  const turns = (count: number): readonly Message[] =>
    Array.from({ length: count }, (_, turn): readonly Message[] => [
      { role: 'user', content: [{ type: 'text', text: `u${turn}` }] },
      {
        role: 'assistant',
        content: [
          { type: 'reasoning', text: LONG },
          { type: 'text', text: `a${turn}` },
        ],
      },
    ]).flat();
  const thoughts = (messages: readonly Message[]): number =>
    messages.flatMap(({ content }) => content.filter(({ type }) => (type as string) === 'reasoning')).length;

  test.each<[unknown, number]>([
    [undefined, 1],
    [{ type: 'thinking_turns', value: 2 }, 2],
    ['all', 3],
    [{ type: 'all' }, 3],
  ])('of all but the last turns are cleared: keep %j', (keep, left) => {
    const { messages, applied } = edited(turns(3), { type: 'clear_thinking_20251015', keep });
    expect([messages.length, thoughts(messages)]).toEqual([6, left]);
    if (left === 3) return expect(applied).toEqual([]);
    const [{ cleared_input_tokens: tokens, ...one } = { cleared_input_tokens: 0 }] = applied;
    expect(one).toEqual({ type: 'clear_thinking_20251015', cleared_thinking_turns: 3 - left });
    expect(tokens).toBeGreaterThan(90);
  });
});

describe('results', () => {
  const call = (id: string, name: string): Message[] => [
    { role: 'assistant', content: [{ type: 'tool-call', id, name, arguments: `{"long":"${LONG}"}` }] },
    {
      role: 'tool',
      content: [{ type: 'tool-result', callId: id, name, content: [{ type: 'text', text: LONG }], isError: false }],
    },
  ];
  const messages: readonly Message[] = [
    { role: 'user', content: [{ type: 'text', text: 'go' }] },
    ...['a', 'b', 'c', 'd'].flatMap((id, index) => call(id, index === 1 ? 'kept' : 'f')),
  ];
  const type = 'clear_tool_uses_20250919';
  const trigger = { type: 'tool_uses', value: 2 };
  const keep = { type: 'tool_uses', value: 1 };
  const lefts = (all: readonly Message[]): unknown =>
    all.flatMap((message) =>
      message.role === 'tool'
        ? message.content.map(({ content }) => (content[0] as { text: string }).text === LONG)
        : [],
    );
  const inputs = (all: readonly Message[]): unknown =>
    all.flatMap((message) =>
      message.role === 'assistant'
        ? message.content.map((part) => part.type === 'tool-call' && part.arguments !== '{}')
        : [],
    );

  test('of all but the last calls are cleared', () => {
    const { messages: sent, applied } = edited(messages, { type, trigger, keep });
    expect([lefts(sent), inputs(sent)]).toEqual([
      [false, false, false, true],
      [true, true, true, true],
    ]);
    expect(applied).toEqual([{ type, cleared_tool_uses: 3, cleared_input_tokens: expect.any(Number) }]);
  });

  test('of excluded tools are not', () => {
    const { messages: sent } = edited(messages, { type, trigger, keep, exclude_tools: ['kept'] });
    expect(lefts(sent)).toEqual([false, true, false, true]);
  });

  test.each([[true], [['f']]])('with the arguments of their calls: %j', (clear_tool_inputs) => {
    const { messages: sent } = edited(messages, { type, trigger, keep, clear_tool_inputs });
    expect(inputs(sent)).toEqual([false, clear_tool_inputs !== true, false, true]);
  });

  test.each<[string, object]>([
    ['there are few calls', { trigger: { type: 'tool_uses', value: 4 } }],
    ['there are few tokens', { trigger: { type: 'input_tokens', value: 10_000 } }],
    ['little would be cleared', { trigger, clear_at_least: { type: 'input_tokens', value: 10_000 } }],
    ['all are kept', { trigger, keep: { type: 'tool_uses', value: 4 } }],
  ])('nothing is cleared if %s', (_, more) => {
    expect(edited(messages, { type, keep, ...more })).toEqual({ messages, applied: [] });
  });

  test('the tokens of instructions and tools count', () => {
    const few = { type, keep, trigger: { type: 'input_tokens', value: 10_000 } };
    expect(edited(messages, few, 10_000).applied).toHaveLength(1);
  });
});
