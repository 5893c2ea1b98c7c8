import type { AssistantPart, ModelReply } from '@treadle/core';
import OpenAI from 'openai';
import type { Response as SdkResponse } from 'openai/resources/responses/responses';
import { expect, test } from 'vitest';
import { serving, typeOf } from '../../test/fetches.ts';
import { fixtures } from '../../test/fixtures.ts';
import { replayer } from '../../test/replay.ts';
import { openaiResponsesProtocol } from './openai-responses.ts';

const protocol = openaiResponsesProtocol({
  model: 'm',
  stream: true,
  store: false,
  encryptedReasoning: true,
  strict: false,
  signer: 'openai-responses',
});
const { replay } = replayer(protocol);
const fixture = fixtures('openai-responses');

const ours = (name: string): ModelReply => replay([fixture(name)]).reply;

/** The official client, served these bytes. */
const clientFor = (bytes: Buffer<ArrayBuffer>, type: string): OpenAI =>
  new OpenAI({ apiKey: 'sk-test', maxRetries: 0, fetch: serving(bytes, type) });
const client = (name: string): OpenAI => clientFor(fixture(name), typeOf(name));

const ASKED = { model: 'm', input: 'hi' };

/** What the SDK has decoded, in our form. */
function inOurForm(response: SdkResponse): ModelReply {
  const content = response.output.flatMap((item): AssistantPart[] => {
    switch (item.type) {
      case 'message':
        return item.content.map((part) =>
          part.type === 'output_text'
            ? { type: 'text', text: part.text }
            : { type: 'text', text: part.refusal, refusal: true },
        );
      case 'function_call':
        return [{ type: 'tool-call', id: item.call_id, name: item.name, arguments: item.arguments }];
      case 'reasoning':
        return [
          {
            type: 'reasoning',
            text: (item.content ?? item.summary).map(({ text }) => text).join('\n\n'),
            ...(!item.content && item.summary.length > 0 && { summary: true }),
            signature: JSON.stringify(item),
            protocol: 'openai-responses',
          },
        ];
      default:
        return [];
    }
  });
  const reason = response.incomplete_details?.reason;
  const called = content.some((part) => part.type === 'tool-call');
  const { input_tokens, output_tokens, input_tokens_details, output_tokens_details } = response.usage!;
  const { cached_tokens, cache_write_tokens } = input_tokens_details;
  return {
    type: 'reply',
    content,
    finish:
      reason === 'content_filter' ? 'content-filter' : reason !== undefined ? 'length' : called ? 'tool-calls' : 'stop',
    rawFinish: reason ?? response.status!,
    usage: {
      inputTokens: input_tokens,
      outputTokens: output_tokens,
      cachedTokens: cached_tokens,
      ...(cache_write_tokens !== undefined && { cacheWriteTokens: cache_write_tokens }),
      reasoningTokens: output_tokens_details.reasoning_tokens,
    },
    model: response.model,
  };
}

const OF_OPENAI = [
  'text.sse',
  'one-call.sse',
  'parallel-calls.sse',
  'reasoning-call.sse',
  'refusal.sse',
  'length.sse',
  'length-in-reasoning.sse',
  'content-filter.sse',
  'web-search.sse',
];

test.each(OF_OPENAI)('%s: the official SDK reads the same', async (name) => {
  const gathered = await client(name).responses.stream(ASKED).finalResponse();
  expect(inOurForm(gathered)).toEqual(ours(name));
});

test.each([
  ['vllm-open-reasoning.sse', 'an event that OpenAI does not have', /Unhandled response stream event/],
  ['gateway-ids-change-no-output.sse', 'an item whose id changes', /expected item_id/],
])('%s: is read, though the official SDK throws on %s', async (name, _what, message) => {
  await expect(client(name).responses.stream(ASKED).finalResponse()).rejects.toThrow(message);
  expect(ours(name).type).toBe('reply');
});

test.each([...OF_OPENAI, 'vllm-open-reasoning.sse'])(
  '%s: the last event that the official SDK reads contains the same',
  async (name) => {
    let last: SdkResponse | undefined;
    for await (const event of await client(name).responses.create({ ...ASKED, stream: true })) {
      if (event.type === 'response.completed' || event.type === 'response.incomplete') last = event.response;
    }
    expect(inOurForm(last!)).toEqual(ours(name));
  },
);

test.each(['whole.json', 'whole-refusal.json', 'whole-length.json'])(
  '%s: the official SDK reads the same',
  async (name) => {
    const decoded = await client(name).responses.create(ASKED);
    expect(inOurForm(decoded)).toEqual(protocol.decode(fixture(name).toString()));
  },
);

test.each([
  ['error-frame.sse', 'server_error'],
  ['error-frame-nested.sse', 'rate_limit_exceeded'],
])('%s: fails, and the official SDK throws', async (name, code) => {
  const thrown: unknown = await client(name)
    .responses.stream(ASKED)
    .finalResponse()
    .catch((error: unknown) => error);
  expect(thrown).toBeInstanceOf(OpenAI.APIError);
  expect(thrown).toMatchObject({ code });
  const reply = ours(name);
  if (reply.type === 'reply') throw new Error('a reply');
  expect((thrown as Error).message).toContain(
    reply.error.message.replace('The provider broke off with an error: ', ''),
  );
});

test.each(['failed.sse', 'whole-failed.json'])(
  '%s: fails, though the official SDK only returns the status',
  async (name) => {
    const { responses } = client(name);
    const response = name.endsWith('.sse')
      ? await responses.stream(ASKED).finalResponse()
      : await responses.create(ASKED);
    expect(response.status).toBe('failed');
    const reply = name.endsWith('.sse') ? ours(name) : protocol.decode(fixture(name).toString());
    expect(reply).toMatchObject({
      type: 'failure',
      error: { message: `The provider broke off with an error: ${response.error!.message}` },
    });
  },
);

test('a truncated stream fails, though the official SDK returns a part of it', async () => {
  const whole = fixture('text.sse');
  const cut = whole.subarray(0, whole.lastIndexOf('event: '));
  const sdk = clientFor(cut, typeOf('text.sse'));
  expect((await sdk.responses.stream(ASKED).finalResponse()).status).toBe('in_progress');
  expect(replay([cut]).reply).toMatchObject({ type: 'failure', error: { code: 'protocol', retryable: true } });
});
