import { readFileSync } from 'node:fs';
import {
  userText,
  type AssistantPart,
  type Message,
  type ModelRequest,
  type ResultBlock,
  type ToolChoice,
} from '@treadle/core';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { forms } from '../provider/forms/forms.ts';
import { historyProblem } from '../provider/rules/messages.ts';
import { makeModel, WAYS, type Way } from './protocols.ts';

/** Whatever a conversation that is sound by our own rules holds, the provider takes it. */

const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const image = { type: 'image', mediaType: 'image/png', source: { type: 'data', data: PNG } } as const;

const words = fc.oneof(
  fc.string({ minLength: 1, maxLength: 20 }),
  fc.string({ unit: 'grapheme', minLength: 1, maxLength: 5 }),
  fc.constantFrom(' ', '\n\n', '\u{1f328}\u{fe0f}', '\ud83c', 'a\u0000b', '"', '</tool>'),
);
const text = words.map((said) => ({ type: 'text', text: said }) as const);

const toolArguments = fc.oneof(
  fc.json({ maxDepth: 2 }),
  fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 1 })).map((input) => JSON.stringify(input)),
  fc.constantFrom('', '{', '{"a":', '[1]', '"text"', 'null', '{"a":1}}', '\ud83c'),
);

/** Ids are given once the whole history is there, since each may be used once. */
const call = fc.record({
  type: fc.constant('tool-call' as const),
  id: fc.constantFrom('call_', 'toolu_01', 'functions.add:', 'x'.repeat(30), 'ü/'),
  name: fc.constantFrom('add', 'get_weather', 'no-such-tool'),
  arguments: toolArguments,
});

/** Some of the host that is asked. */
const HOST = '127.0.0.1:9';
const SIGNERS = [`anthropic@${HOST}`, 'anthropic@elsewhere', 'openai-chat', 'ollama', 'another'];

const reasoning = fc.oneof(
  fc.record({ type: fc.constant('reasoning' as const), text: words }),
  fc.record({
    type: fc.constant('reasoning' as const),
    text: fc.oneof(words, fc.constant('')),
    signature: fc.constant('c2lnbmF0dXJl'),
    protocol: fc.constantFrom(...SIGNERS),
  }),
);

const answer = fc
  .array(reasoning, { maxLength: 1 })
  .chain((thoughts) =>
    fc
      .array(fc.oneof(text, reasoning, call, call), { minLength: 1, maxLength: 5 })
      .map((parts) => [...thoughts, ...parts]),
  );

const result = fc.record({
  blocks: fc.array(
    fc.oneof(
      fc.oneof(words, fc.constant('')).map((said): ResultBlock => ({ type: 'text', text: said })),
      words.map((said): ResultBlock => ({ type: 'error', text: said })),
      fc.constant<ResultBlock>(image),
    ),
    { maxLength: 3 },
  ),
  isError: fc.boolean(),
});

const question = fc.array(fc.oneof(text, fc.constant(image)), { minLength: 1, maxLength: 2 });

const turn = fc.record({
  answer,
  results: fc.array(result, { minLength: 5, maxLength: 5 }),
  more: fc.option(question, { nil: undefined }),
});

const history = fc.record({ question, turns: fc.array(turn, { maxLength: 4 }) }).map(({ question: first, turns }) => {
  const messages: Message[] = [{ role: 'user', content: first }];
  let calls = 0;
  for (const { answer: parts, results, more } of turns) {
    const content = parts.map((part): AssistantPart =>
      part.type === 'tool-call' ? { ...part, id: part.id + calls++ } : part,
    );
    if (content.every(({ type }) => type === 'reasoning')) content.push({ type: 'text', text: 'Well.' });
    messages.push({ role: 'assistant', content });
    const called = content.filter((part) => part.type === 'tool-call');
    if (called.length > 0) {
      messages.push({
        role: 'tool',
        content: called.map(({ id, name }, index) => ({
          type: 'tool-result',
          callId: id,
          name,
          content: results[index]!.blocks,
          isError: results[index]!.isError,
        })),
      });
    }
    if (more !== undefined) messages.push({ role: 'user', content: more });
    else if (called.length === 0) messages.push(userText('Go on.'));
  }
  return messages;
});

const tools = ['add', 'get_weather'].map((name) => ({
  name,
  description: 'A tool',
  parameters: { type: 'object', properties: { a: { type: 'number' } } },
}));

const request = fc.record({
  messages: history,
  tools: fc.constantFrom([], tools),
  toolChoice: fc.constantFrom<ToolChoice>('auto', 'required', 'none', { tool: 'add' }),
  allowed: fc.constantFrom(undefined, ['add'], ['add', 'get_weather'], []),
  parallel: fc.boolean(),
  instructions: fc.constantFrom(undefined, '', 'Be brief.'),
  reasoning: fc.constantFrom(undefined, 'low', 'medium', 'high'),
  maxOutputTokens: fc.constantFrom(undefined, 100, 4_000),
  temperature: fc.constantFrom(undefined, 0, 1.5),
  topP: fc.constantFrom(undefined, 0.5),
});

/** What a model sends; it gets no answer. */
async function sent({ form, options }: Way, asked: ModelRequest): Promise<unknown> {
  let body: unknown;
  const fetch: typeof globalThis.fetch = async (_url, init) => {
    body = JSON.parse(Buffer.from(init!.body as Uint8Array).toString('utf8'));
    return new Response('{}', { status: 400 });
  };
  const model = makeModel(form, { model: 'm-1', baseURL: `http://${HOST}`, maxRetries: 0, ...options, fetch });
  await model.reply(asked, () => {}, new AbortController().signal);
  return body;
}

/** The loop lets no such names into a history, but whoever brings a history may. */
function withOddNames(messages: readonly Message[]): readonly Message[] {
  return JSON.parse(JSON.stringify(messages).replaceAll('"no-such-tool"', '"fs.read/ü"')) as readonly Message[];
}

describe.each(WAYS)('$name', (way) => {
  test('any history', async () => {
    await fc.assert(
      fc.asyncProperty(request, async (given) => {
        const { allowed, instructions, reasoning: effort, maxOutputTokens, temperature, topP, ...rest } = given;
        expect(historyProblem(rest.messages)).toBeUndefined();
        const settings = {
          ...(effort && { reasoning: effort }),
          ...(maxOutputTokens && { maxOutputTokens }),
          ...(temperature !== undefined && { temperature }),
          ...(topP !== undefined && { topP }),
        } as const;
        const optional = {
          ...(allowed && { allowedTools: allowed }),
          ...(instructions !== undefined && { instructions }),
        };
        const messages = withOddNames(rest.messages);
        const asked: ModelRequest = { ...rest, ...optional, messages, settings, key: 'r/t1' };
        expect(forms[way.form].rules(await sent(way, asked), { strict: false })).toBeUndefined();
      }),
      { numRuns: 300 },
    );
  });

  test('the rich history, at each turn, also by the strict rules', async () => {
    const path = new URL('../provider/good-histories/treadle.json', import.meta.url);
    const { messages } = JSON.parse(readFileSync(path, 'utf8')) as { messages: Message[] };
    for (const length of [1, 3, 4, 6, 8]) {
      const asked = { messages: messages.slice(0, length), tools, toolChoice: 'auto', parallel: true } as const;
      expect(forms[way.form].rules(await sent(way, { ...asked, settings: {}, key: 'r/t1' }))).toBeUndefined();
    }
  });
});
