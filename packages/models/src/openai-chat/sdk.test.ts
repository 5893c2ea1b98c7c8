import type { AssistantPart, ModelReply } from '@treadle/core';
import OpenAI from 'openai';
import type { ChatCompletion } from 'openai/resources/chat/completions';
import { expect, test } from 'vitest';
import { serving, typeOf } from '../../test/fetches.ts';
import { fixtureNames, fixtures } from '../../test/fixtures.ts';
import { replayer } from '../../test/replay.ts';
import { openaiChatProtocol } from './openai-chat.ts';

const protocol = openaiChatProtocol({ model: 'm', stream: true, maxTokensField: 'max_tokens' });
const tools = ['edit_existing_file', 'ls_all'].map((name) => ({ name, description: '', parameters: {} }));
const { replay } = replayer(protocol, tools);
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

/** What the SDK has decoded, in our form. The SDK does not support reasoning. */
function inOurForm({ choices, usage, model }: ChatCompletion): object {
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

/** Replies that violate the specification of OpenAI: we read them and the official SDK throws. */
const SDK_THROWS: Record<string, [why: string, message: RegExp]> = {
  'arguments-as-object.sse': ['calls without a type', /missing `type`/],
  'bom-ping-multiline.sse': ['a ping without choices', /not iterable/],
  'mistral-thinking-calls.sse': ['calls without a type', /missing `type`/],
  'name-in-every-chunk.sse': ['a message without a role', /missing role/],
  'closed-in-done.sse': ['a truncated last event', /JSON/],
  'pings-and-blanks.sse': ['data that is not JSON', /JSON/],
  'empty-finish-reason.sse': ['an empty finish reason', /missing finish_reason/],
  'no-finish-reason-call.sse': ['a missing finish reason', /missing finish_reason/],
  'no-index-no-id-no-done.sse': ['calls without an index', /invalid tool call index/],
};
/** Both read them, but differently. Each has its own test. */
const DIFFERENT = [
  'arguments-encoded-twice.sse',
  'arguments-repeated.sse',
  'groq-usage-elsewhere.sse',
  'index-zero-every-call.sse',
  'name-in-pieces.sse',
];

const ALL = fixtureNames('', '.sse');
const failing = ALL.filter((name) => ours(name).type === 'failure');
const equal = ALL.filter((name) => !failing.includes(name) && !DIFFERENT.includes(name) && !(name in SDK_THROWS));

test.each(equal)('%s: the official SDK reads the same', async (name) => {
  expect(withoutReasoning(ours(name))).toMatchObject(inOurForm(await gathered(name)));
});

test.each(failing)('%s: fails, and the official SDK throws', async (name) => {
  const thrown: unknown = await gathered(name).catch((error: unknown) => error);
  expect(thrown).toBeInstanceOf(Error);
  const reply = ours(name);
  // Both contain the message of the provider.
  if (thrown instanceof OpenAI.APIError && reply.type === 'failure') {
    expect(reply.error.message).toContain(thrown.message);
  }
});

test.each(Object.entries(SDK_THROWS))(
  '%s: is read, though the official SDK throws on %s',
  async (name, [, message]) => {
    await expect(gathered(name)).rejects.toThrow(message);
    expect(ours(name).type).toBe('reply');
  },
);

test('index-zero-every-call.sse: reads two calls, which the official SDK merges into a broken one', async () => {
  const { choices } = await gathered('index-zero-every-call.sse');
  expect(choices[0]!.message.tool_calls).toMatchObject([
    { id: 'call_k2m1x0qd', function: { arguments: '{"city":"Oslo"}{"city":"Rome"}' } },
  ]);
  expect(ours('index-zero-every-call.sse')).toMatchObject({
    content: [{ arguments: '{"city":"Oslo"}' }, { arguments: '{"city":"Rome"}' }],
  });
});

test.each([
  [
    'arguments-encoded-twice.sse',
    0,
    { arguments: expect.stringMatching(/^"\{/) },
    { arguments: expect.stringMatching(/^\{/) },
  ],
  ['arguments-repeated.sse', 1, { arguments: expect.stringContaining('}{') }, { name: 'read_file' }],
  ['name-in-pieces.sse', 2, { name: '_all' }, { name: 'ls_all' }],
])('%s: reads a call that the official SDK does not', async (name, index, theirs, expected) => {
  const { choices } = await gathered(name);
  expect(choices[0]!.message.tool_calls![index]).toMatchObject({ function: theirs });
  const reply = ours(name) as Extract<ModelReply, { type: 'reply' }>;
  const called = reply.content[index] as Extract<AssistantPart, { type: 'tool-call' }>;
  expect(called).toMatchObject(expected);
  expect(JSON.parse(called.arguments)).toEqual(expect.any(Object));
});

test('groq-usage-elsewhere.sse: reads the usage, which the official SDK misses', async () => {
  const completion = await gathered('groq-usage-elsewhere.sse');
  expect(completion.usage).toBeUndefined();
  const { usage, ...rest } = ours('groq-usage-elsewhere.sse') as Extract<ModelReply, { type: 'reply' }>;
  const { usage: _none, ...theirs } = inOurForm(completion) as typeof rest & { usage: unknown };
  expect(rest).toMatchObject(theirs);
  expect(usage).toMatchObject({ inputTokens: 72, outputTokens: 10 });
});

test('deepseek-reasoning-call.sse: reads the reasoning, which the official SDK drops', async () => {
  const { choices } = await gathered('deepseek-reasoning-call.sse');
  expect(choices[0]!.message).toMatchObject({ reasoning_content: null });
  expect(ours('deepseek-reasoning-call.sse')).toMatchObject({
    content: [{ type: 'reasoning', text: "The user wants Oslo's weather." }, {}, {}],
  });
});

test('openai-whole.json: the official SDK reads the same', async () => {
  const completion = await client('openai-whole.json').chat.completions.create(ASKED);
  expect(protocol.decode(fixture('openai-whole.json').toString())).toMatchObject(inOurForm(completion));
});
