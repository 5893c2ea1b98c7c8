import type { AssistantPart, ModelReply } from '@treadle/core';
import { Ollama, type ChatResponse } from 'ollama';
import { expect, test } from 'vitest';
import { serving, typeOf } from '../../test/fetches.ts';
import { fixtures } from '../../test/fixtures.ts';
import { asked } from '../../test/request.ts';
import { ollama } from './ollama.ts';

/** The parts of a reply that are compared. */
interface Summary {
  readonly text: string;
  readonly thinking: string;
  readonly calls: readonly { readonly name: string; readonly arguments: unknown }[];
  readonly reason: string | undefined;
  readonly usage: readonly (number | undefined)[];
  readonly model: string;
}

const fixture = fixtures('ollama');
const servingFixture = (name: string): typeof fetch => serving(fixture(name), typeOf(name));

function summaryOfLines(lines: readonly ChatResponse[]): Summary {
  const last = lines.at(-1)!;
  return {
    text: lines.map(({ message }) => message.content).join(''),
    thinking: lines.map(({ message }) => message.thinking ?? '').join(''),
    calls: lines.flatMap(({ message }) => (message.tool_calls ?? []).map((call) => call.function)),
    reason: last.done_reason,
    usage: [last.prompt_eval_count, last.eval_count],
    model: last.model,
  };
}

function summaryOfReply(reply: ModelReply): Summary {
  if (reply.type === 'failure') throw new Error(reply.error.message);
  const textsOf = (type: AssistantPart['type']): string =>
    reply.content.map((part) => (part.type === type && 'text' in part ? part.text : '')).join('');
  return {
    text: textsOf('text'),
    thinking: textsOf('reasoning'),
    calls: reply.content.flatMap((part) =>
      part.type === 'tool-call' ? { name: part.name, arguments: JSON.parse(part.arguments) as unknown } : [],
    ),
    reason: reply.rawFinish,
    usage: [reply.usage.inputTokens, reply.usage.outputTokens],
    model: reply.model,
  };
}

const ours = async (fetch: typeof globalThis.fetch, stream: boolean): Promise<ModelReply> =>
  (await asked(ollama({ model: 'm', stream, fetch, maxRetries: 0 }), { messages: [] })).reply;

async function streamed(fetch: typeof globalThis.fetch): Promise<ChatResponse[]> {
  const lines: ChatResponse[] = [];
  const stream = await new Ollama({ fetch }).chat({ model: 'm', messages: [], stream: true });
  for await (const line of stream) lines.push(line);
  return lines;
}

/** Drops the index inside the function, which the package leaves in place. */
const withoutIndex = (summary: Summary): Summary => ({
  ...summary,
  calls: summary.calls.map(({ name, arguments: input }) => ({ name, arguments: input })),
});

test.each([
  'text.ndjson',
  'one-call.ndjson',
  'parallel-calls.ndjson',
  'parallel-calls-in-one-line.ndjson',
  'thinking-call.ndjson',
  'refusal.ndjson',
  'length.ndjson',
])('%s: the official package reads the same', async (name) => {
  const fetch = servingFixture(name);
  expect(summaryOfReply(await ours(fetch, true))).toEqual(withoutIndex(summaryOfLines(await streamed(fetch))));
});

test.each(['whole.json', 'whole-length.json'])('%s: the official package reads the same', async (name) => {
  const fetch = servingFixture(name);
  const theirs = await new Ollama({ fetch }).chat({ model: 'm', messages: [] });
  expect(summaryOfReply(await ours(fetch, false))).toEqual(withoutIndex(summaryOfLines([theirs])));
});

test.each([
  ['error-line.ndjson', 'an error was encountered while running the model: unexpected EOF'],
  ['closed-without-done.ndjson', ''],
])('%s: the official package fails too', async (name, message) => {
  const fetch = servingFixture(name);
  await expect(streamed(fetch)).rejects.toThrow(message);
  expect(await ours(fetch, true)).toMatchObject({
    type: 'failure',
    error: { message: expect.stringContaining(message) },
  });
});
