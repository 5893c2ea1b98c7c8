import type { Model, ModelReply } from '@treadle/core';

/**
 * A model that makes one call, and then ends. A run with it executes a single call of a tool as every other run does: the
 * arguments are validated, the policy judges the call, and the journal records it.
 */
export function callingModel(name: string, text: string): Model {
  const usage = { inputTokens: 0, outputTokens: 0 };
  const call: ModelReply = {
    type: 'reply',
    content: [{ type: 'tool-call', id: 'call', name, arguments: text }],
    finish: 'tool-calls',
    model: ID,
    usage,
  };
  const end: ModelReply = {
    type: 'reply',
    content: [{ type: 'text', text: 'Done.' }],
    finish: 'stop',
    model: ID,
    usage,
  };
  return { id: ID, reply: async ({ messages }) => (messages.at(-1)?.role === 'tool' ? end : call) };
}

const ID = 'one call';
