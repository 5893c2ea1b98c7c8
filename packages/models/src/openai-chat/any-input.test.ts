import type { ModelReply } from '@treadle/core';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { replayer } from '../../test/replay.ts';
import { openaiChatProtocol } from './openai-chat.ts';

const protocol = openaiChatProtocol({ model: 'm', stream: true });
const { replay } = replayer(protocol);

/** Whether all fields have their types, whatever the host sent. */
function isWellFormed(reply: ModelReply): boolean {
  if (reply.type === 'failure') return typeof reply.error.message === 'string';
  const texts = reply.content.flatMap((part) =>
    part.type === 'tool-call' ? [part.id, part.name, part.arguments] : [part.text],
  );
  return [...texts, reply.model, reply.rawFinish].every((text) => typeof text === 'string');
}

const odd = fc.oneof(fc.jsonValue(), fc.constantFrom(null, true, 7, '', 'x', [], {}, [null], [{}]));
const maybe = (fields: Record<string, fc.Arbitrary<unknown>>): fc.Arbitrary<unknown> =>
  fc.oneof({ weight: 1, arbitrary: odd }, { weight: 4, arbitrary: fc.record(fields, { requiredKeys: [] }) });
const called = maybe({ name: odd, arguments: odd });
const message = maybe({
  content: fc.oneof(odd, fc.array(maybe({ text: odd, thinking: fc.oneof(odd, fc.array(maybe({ text: odd }))) }))),
  refusal: odd,
  reasoning: odd,
  reasoning_content: odd,
  reasoning_details: fc.oneof(
    odd,
    fc.array(maybe({ type: odd, index: odd, text: odd, summary: odd, signature: odd, data: odd })),
  ),
  tool_calls: fc.oneof(odd, fc.array(maybe({ index: odd, id: odd, function: called }))),
  function_call: called,
});
const choice = maybe({ index: fc.constant(0), delta: message, message, finish_reason: odd });
const chunk = maybe({
  model: odd,
  choices: fc.oneof(odd, fc.array(choice, { maxLength: 2 })),
  usage: maybe({ prompt_tokens: odd, completion_tokens: odd, prompt_tokens_details: odd, cost: odd }),
  x_groq: odd,
  error: fc.option(odd, { nil: undefined }),
}).map((value) => Buffer.from(`data: ${JSON.stringify(value)}\n\n`));

test('returns a well-formed reply or a failure for any input, and never throws', () => {
  fc.assert(
    fc.property(fc.array(fc.oneof({ weight: 5, arbitrary: chunk }, fc.uint8Array()), { maxLength: 5 }), (chunks) => {
      const { reply } = replay(chunks);
      expect(isWellFormed(reply), JSON.stringify(reply)).toBe(true);
      const whole = Buffer.concat(chunks).toString('utf8');
      expect(isWellFormed(protocol.decode(whole.replace(/^data: /, '')))).toBe(true);
      expect(protocol.failure(500, whole)).toMatchObject({ message: expect.any(String), status: 500 });
    }),
    { numRuns: 1_000 },
  );
});
