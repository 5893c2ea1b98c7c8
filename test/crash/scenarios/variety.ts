import type { Message, ModelReply } from '@treadle/core';
import { keyedModel } from '../keyed-model.ts';
import type { Scenario } from '../scenario.ts';
import { alone, edit, look, picture } from '../tools.ts';
import { recordRequest } from '../world.ts';

const before: readonly Message[] = [
  { role: 'user', content: [{ type: 'text', text: 'What is in there?' }] },
  { role: 'assistant', content: [{ type: 'tool-call', id: 'earlier', name: 'look', arguments: '{"what":"there"}' }] },
  {
    role: 'tool',
    content: [
      {
        type: 'tool-result',
        callId: 'earlier',
        name: 'look',
        content: [{ type: 'error', text: 'dark' }],
        isError: true,
      },
    ],
  },
  {
    role: 'user',
    content: [
      { type: 'text', text: 'And here? Ωé💡' },
      { type: 'image', mediaType: 'image/png', source: { type: 'url', url: 'https://example.org/a.png' } },
      { type: 'file', mediaType: 'text/plain', name: 'a.txt', source: { type: 'data', data: 'YQ==' } },
    ],
  },
];

const first: ModelReply = {
  type: 'reply',
  content: [
    { type: 'reasoning', text: 'Let me see.', signature: 'opaque' },
    { type: 'text', text: 'All of it.' },
    {
      type: 'tool-call',
      id: 't1.model.0.0',
      name: 'picture',
      arguments: '{"what":"it"}',
      provider: { protocol: 'keyed@host', data: { signature: 'opaque', parts: [1, null, 'Ωé💡'] } },
    },
    { type: 'tool-call', id: 't1.model.0.1', name: 'edit', arguments: '```json\n{"what":"a",}\n```' },
    { type: 'tool-call', id: 't1.model.0.2', name: 'edit', arguments: '{"what":"a"}' },
    { type: 'tool-call', id: 't1.model.0.3', name: 'alone', arguments: '{"what":"it"}' },
    { type: 'tool-call', id: 'earlier', name: 'look', arguments: '{"what":7}' },
    { type: 'tool-call', id: '', name: 'forbidden', arguments: '{}' },
    { type: 'tool-call', id: '', name: 'look', arguments: '{"what":"too much"}' },
  ],
  finish: 'tool-calls',
  rawFinish: 'tool_use',
  usage: { inputTokens: 100, outputTokens: 50, cachedTokens: 40, cacheWriteTokens: 10, reasoningTokens: 5, cost: 0.25 },
  model: 'keyed-2026-01-01',
  attempts: [
    {
      model: 'other',
      ms: 12,
      error: { code: 'overloaded', message: 'busy', retryable: true, status: 529, retryAfterMs: 1_000 },
    },
    { model: 'keyed-2026-01-01', ms: 345 },
  ],
};

const last: ModelReply = {
  type: 'reply',
  content: [{ type: 'text', text: 'So far I have' }],
  finish: 'length',
  usage: { inputTokens: 10, outputTokens: 5, cost: 0 },
  model: 'keyed',
};

/** Every kind of content and refusal, most of the rules, and a closing turn at a limit. */
export const variety: Scenario = {
  name: 'all kinds of content, rules and refusals',
  code: (life) => ({
    model: keyedModel(
      {
        't1.model.0': first,
        't2.model.0': { calls: [['look', { what: 'a' }]] },
        't3.model.0': { calls: [['look', { what: 'a' }]] },
        't4.model.0': { calls: [['look', { what: 'a' }]] },
        't5.model.0': last,
      },
      { onAsk: (request) => recordRequest(life, request) },
    ),
    tools: [look(life), picture(life), edit(life), alone(life)],
    instructions: 'Look closely.',
    settings: { temperature: 0.5, maxOutputTokens: 1_000, topP: 0.9, stop: ['END'], seed: 7, reasoning: 'low' },
    session: 'a session',
    task: 'a task',
    trace: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
    labels: { kind: 'Ωé💡' },
    principal: { subject: 'ann', tenant: 'acme', scopes: ['look'] },
    toolChoice: 'required',
    allowedTools: ['look', 'picture', 'edit', 'alone'],
    maxCallsPerTurn: 6,
    repeatLimit: 1,
    maxTurns: 9,
    limits: { calls: 50, tokens: 10_000, cost: 1, durationMs: 7_200_000 },
    closingTurn: true,
    input: before,
  }),
  interrupted: { 'run/t1.tool.3': ['5'] },
};
