import type { AssistantMessage } from '@treadle/core';
import { expect, test } from 'vitest';
import { inputItems } from './body.ts';
import { decodeResponses } from './stream.ts';

const sender = { signer: 'openai-responses@api.openai.com' } as Parameters<typeof inputItems>[1];
const said = (text: string, phase?: unknown): object => ({
  type: 'message',
  role: 'assistant',
  content: [{ type: 'output_text', text }],
  ...(phase !== undefined && { phase }),
});

test('sends the phases of commentary and final answer back unchanged', () => {
  const output = [
    said('Looking.', 'commentary'),
    said('12 degrees.', 'final_answer'),
    said('Bye.', 'other'),
    said('.'),
  ];
  const reply = decodeResponses(JSON.stringify({ status: 'completed', output }), 'openai-responses@api.openai.com');
  const content = reply.type === 'reply' ? reply.content : [];
  expect(content).toEqual([
    { type: 'text', text: 'Looking.', phase: 'commentary' },
    { type: 'text', text: '12 degrees.', phase: 'final_answer' },
    { type: 'text', text: 'Bye.' },
    { type: 'text', text: '.' },
  ]);
  const message: AssistantMessage = { role: 'assistant', content };
  const phases = (JSON.parse(`[${inputItems(message, sender)}]`) as { phase?: string }[]).map(({ phase }) => phase);
  expect(phases).toEqual(['commentary', 'final_answer', undefined, undefined]);
});
