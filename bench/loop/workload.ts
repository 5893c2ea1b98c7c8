import { tool, type JsonSchema, type Model, type ModelReply, type Tool, type ToolDefinition } from '@treadle/core';

interface Called {
  readonly name: string;
  readonly arguments: (turn: number) => string;
}

const ADD_CALL: Called = { name: 'add', arguments: (turn) => `{"a":${turn},"b":1}` };

/** Replies with a call in each of `turns` turns, then with a text. Each reply has `deltas` deltas. */
export function chainModel(turns: number, deltas: number, called: Called = ADD_CALL): Model {
  const usage = { inputTokens: 100, outputTokens: 20, cost: 0 };
  const call = (turn: number): ModelReply => ({
    type: 'reply',
    content: [{ type: 'tool-call', id: `call_${turn}`, name: called.name, arguments: called.arguments(turn) }],
    finish: 'tool-calls',
    usage,
    model: 'chain',
  });
  const answer: ModelReply = {
    type: 'reply',
    content: [{ type: 'text', text: 'done' }],
    finish: 'stop',
    usage,
    model: 'chain',
  };
  return {
    id: 'chain',
    async reply(request, emit) {
      for (let i = 0; i < deltas; i++) emit({ type: 'text-delta', text: 'word ' });
      // The task and two messages per turn. Searching the history would affect the measurement.
      const turn = (request.messages.length - 1) / 2;
      return turn < turns ? call(turn) : answer;
    },
  };
}

export const ADD: ToolDefinition<JsonSchema> = {
  name: 'add',
  description: 'Adds two numbers',
  input: {
    type: 'object',
    properties: { a: { type: 'number' }, b: { type: 'number' } },
    required: ['a', 'b'],
  },
  effect: 'pure',
  execute: ({ a, b }) => String((a as number) + (b as number)),
};

export const add: Tool = tool(ADD);
