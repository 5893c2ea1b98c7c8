import Anthropic from '@anthropic-ai/sdk';
import type { AssistantPart, ModelReply } from '@treadle/core';
import { expect, test } from 'vitest';
import { serving, typeOf } from '../../test/fetches.ts';
import { fixtureNames, fixtures } from '../../test/fixtures.ts';
import { asked } from '../../test/request.ts';
import { anthropic } from './anthropic.ts';

const fixture = fixtures('anthropic');
const names = fixtureNames('anthropic', '.sse', '.json');
const CUT = /^closed-|^overloaded-|^whole-error/;

const servingFixture = (name: string): typeof fetch => serving(fixture(name), typeOf(name));

async function bySdk(name: string): Promise<Anthropic.Message> {
  const client = new Anthropic({
    apiKey: 'k',
    fetch: servingFixture(name),
    maxRetries: 0,
    baseURL: 'http://127.0.0.1:9',
  });
  const params = { model: 'm', max_tokens: 1, messages: [{ role: 'user' as const, content: 'hi' }] };
  return name.endsWith('.json') ? client.messages.create(params) : client.messages.stream(params).finalMessage();
}

async function byUs(name: string): Promise<ModelReply> {
  const model = anthropic({
    model: 'm',
    apiKey: 'k',
    fetch: servingFixture(name),
    maxRetries: 0,
    baseURL: 'http://127.0.0.1:9',
    stream: !name.endsWith('.json'),
  });
  return (await asked(model, { messages: [] })).reply;
}

/** The message of the SDK in our form. Blocks other than text, thoughts and calls are omitted on both sides. */
function facts({ content, stop_reason, usage, model }: Anthropic.Message): unknown {
  const { input_tokens, output_tokens, cache_read_input_tokens, cache_creation_input_tokens } = usage;
  return {
    model,
    rawFinish: stop_reason,
    input: input_tokens + (cache_read_input_tokens ?? 0) + (cache_creation_input_tokens ?? 0),
    output: output_tokens,
    read: cache_read_input_tokens ?? undefined,
    written: cache_creation_input_tokens ?? undefined,
    thinking: usage.output_tokens_details?.thinking_tokens,
    content: content.flatMap((block): unknown[] => {
      if (block.type === 'text') return block.text === '' ? [] : [block.text];
      if (block.type === 'thinking') return [[block.thinking, block.signature]];
      if (block.type === 'redacted_thinking') return [['', `redacted_thinking:${block.data}`]];
      return block.type === 'tool_use' ? [[block.id, block.name, block.input]] : [];
    }),
  };
}

function ourFacts(reply: ModelReply): unknown {
  if (reply.type === 'failure') throw new Error(reply.error.message);
  const { content, rawFinish, usage, model } = reply;
  return {
    model,
    rawFinish,
    input: usage.inputTokens,
    output: usage.outputTokens,
    read: usage.cachedTokens,
    written: usage.cacheWriteTokens,
    thinking: usage.reasoningTokens,
    content: content.map((part: AssistantPart): unknown => {
      if (part.type === 'text') return part.text;
      if (part.type === 'reasoning') return [part.text, part.signature];
      return [part.id, part.name, inputOf(part.arguments)];
    }),
  };
}

/** The SDK reads the complete members of truncated arguments; we store the text unchanged. */
function inputOf(json: string): unknown {
  try {
    return JSON.parse(json || '{}');
  } catch {
    return JSON.parse(`${json.slice(0, json.lastIndexOf(','))}}`);
  }
}

test.each(names.filter((name) => !CUT.test(name)))('%s: the official SDK reads the same', async (name) => {
  expect(ourFacts(await byUs(name))).toEqual(facts(await bySdk(name)));
});

test.each(names.filter((name) => CUT.test(name) && name.endsWith('.sse')))(
  '%s: the official SDK fails too',
  async (name) => {
    await expect(bySdk(name)).rejects.toThrow(/\S/);
    expect(await byUs(name)).toMatchObject({ type: 'failure' });
  },
);
