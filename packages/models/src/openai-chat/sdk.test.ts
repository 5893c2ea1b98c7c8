import type { AssistantPart, ModelReply } from '@treadle/core';
import OpenAI from 'openai';
import type { ChatCompletion } from 'openai/resources/chat/completions';
import { expect, test } from 'vitest';
import { serving, typeOf } from '../../test/fetches.ts';
import { fixtureNames, fixtures } from '../../test/fixtures.ts';
import { replayer } from '../../test/replay.ts';
import { openaiChatProtocol } from './openai-chat.ts';

const protocol = openaiChatProtocol({ model: 'm', stream: true, maxTokensField: 'max_tokens' });
const { replay } = replayer(protocol);
const fixture = fixtures();

const ours = (name: string): ModelReply => replay([fixture(name)]).reply;

/** The official client, served the bytes of a fixture. */
function client(name: string): OpenAI {
  const fetch = serving(fixture(name), typeOf(name));
  return new OpenAI({ apiKey: 'sk-test', maxRetries: 0, logLevel: 'off', fetch });
}

const ASKED = { model: 'm', messages: [{ role: 'user' as const, content: 'hi' }] };
const gathered = (name: string): Promise<ChatCompletion> =>
  client(name).chat.completions.stream(ASKED).finalChatCompletion();

/** What the SDK has decoded, in our words. Of reasoning it knows nothing. */
function inOurWords({ choices, usage, model }: ChatCompletion): object {
  const { message, finish_reason } = choices[0]!;
  const content: AssistantPart[] = [];
  const text = (message.content ?? '') + (message.refusal ?? '');
  if (text !== '') content.push({ type: 'text', text });
  for (const call of message.tool_calls ?? []) {
    if (call.type !== 'function') continue;
    content.push({ type: 'tool-call', id: call.id, name: call.function.name, arguments: call.function.arguments });
  }
  const cachedTokens = usage?.prompt_tokens_details?.cached_tokens;
  const reasoningTokens = usage?.completion_tokens_details?.reasoning_tokens;
  return {
    content,
    rawFinish: finish_reason,
    usage: {
      inputTokens: usage?.prompt_tokens ?? 0,
      outputTokens: usage?.completion_tokens ?? 0,
      ...(cachedTokens !== undefined && { cachedTokens }),
      ...(reasoningTokens !== undefined && { reasoningTokens }),
    },
    model,
  };
}

function withoutReasoning(reply: ModelReply): object {
  return reply.type === 'failure'
    ? reply
    : { ...reply, content: reply.content.filter((part) => part.type !== 'reasoning') };
}

/** Replies to us, where the host is out of OpenAI's specification and the official SDK gives up. */
const GIVEN_UP: Record<string, [why: string, words: RegExp]> = {
  'arguments-as-object.sse': ['calls without a type', /missing `type`/],
  'bom-ping-multiline.sse': ['a ping without choices', /not iterable/],
  'mistral-thinking-calls.sse': ['calls without a type', /missing `type`/],
  'name-in-every-chunk.sse': ['a message without a role', /missing role/],
  'closed-in-done.sse': ['a last word that was cut', /JSON/],
  'pings-and-blanks.sse': ['data that is no JSON', /JSON/],
  'no-index-no-id-no-done.sse': ['calls without an index', /invalid tool call index/],
};
/** Replies to both, but not the same; each has its own test. */
const DIFFERENT = ['index-zero-every-call.sse', 'groq-usage-elsewhere.sse'];

const ALL = fixtureNames('', '.sse');
const failing = ALL.filter((name) => ours(name).type === 'failure');
const equal = ALL.filter((name) => !failing.includes(name) && !DIFFERENT.includes(name) && !(name in GIVEN_UP));

test.each(equal)('%s: the official SDK gathers the same', async (name) => {
  expect(withoutReasoning(ours(name))).toMatchObject(inOurWords(await gathered(name)));
});

test.each(failing)('%s: a failure to us, and the official SDK throws', async (name) => {
  const thrown: unknown = await gathered(name).catch((error: unknown) => error);
  expect(thrown).toBeInstanceOf(Error);
  const reply = ours(name);
  // What the provider said of it is in both.
  if (thrown instanceof OpenAI.APIError && reply.type === 'failure') {
    expect(reply.error.message).toContain(thrown.message);
  }
});

test.each(Object.entries(GIVEN_UP))('%s: the official SDK gives up on %s', async (name, [, words]) => {
  await expect(gathered(name)).rejects.toThrow(words);
  expect(ours(name).type).toBe('reply');
});

test('index-zero-every-call.sse: the official SDK makes one call with broken arguments of two', async () => {
  const { choices } = await gathered('index-zero-every-call.sse');
  expect(choices[0]!.message.tool_calls).toMatchObject([
    { id: 'call_k2m1x0qd', function: { arguments: '{"city":"Oslo"}{"city":"Rome"}' } },
  ]);
  expect(ours('index-zero-every-call.sse')).toMatchObject({
    content: [{ arguments: '{"city":"Oslo"}' }, { arguments: '{"city":"Rome"}' }],
  });
});

test('groq-usage-elsewhere.sse: the official SDK does not see the usage', async () => {
  const completion = await gathered('groq-usage-elsewhere.sse');
  expect(completion.usage).toBeUndefined();
  const { usage, ...rest } = ours('groq-usage-elsewhere.sse') as Extract<ModelReply, { type: 'reply' }>;
  const { usage: _none, ...theirs } = inOurWords(completion) as typeof rest & { usage: unknown };
  expect(rest).toMatchObject(theirs);
  expect(usage).toMatchObject({ inputTokens: 72, outputTokens: 10 });
});

test('deepseek-reasoning-call.sse: the official SDK loses the reasoning', async () => {
  const { choices } = await gathered('deepseek-reasoning-call.sse');
  expect(choices[0]!.message).toMatchObject({ reasoning_content: null });
  expect(ours('deepseek-reasoning-call.sse')).toMatchObject({
    content: [{ type: 'reasoning', text: "The user wants Oslo's weather." }, {}, {}],
  });
});

test('openai-whole.json: the official SDK decodes the same', async () => {
  const completion = await client('openai-whole.json').chat.completions.create(ASKED);
  expect(protocol.decode(fixture('openai-whole.json').toString())).toMatchObject(inOurWords(completion));
});
