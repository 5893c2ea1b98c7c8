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

/** How many times as many cases as `npm test` tries. `npm run test:long` sets it. */
const CASES = Number(process.env['TREADLE_CASES'] ?? 1);

/** Every history that is valid by the rules of the loop becomes a request that is valid by the rules of the provider. */

const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const image = { type: 'image', mediaType: 'image/png', source: { type: 'data', data: PNG } } as const;

const words = fc.oneof(
  fc.string({ minLength: 1, maxLength: 20 }),
  fc.string({ unit: 'grapheme', minLength: 1, maxLength: 5 }),
  fc.constantFrom(' ', '\n\n', '\u{1f328}\u{fe0f}', '\ud83c', 'a\u0000b', '"', '</tool>'),
);
const text = words.map((value) => ({ type: 'text', text: value }) as const);

const toolArguments = fc.oneof(
  fc.json({ maxDepth: 2 }),
  fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 1 })).map((input) => JSON.stringify(input)),
  fc.constantFrom('', '{', '{"a":', '[1]', '"text"', 'null', '{"a":1}}', '\ud83c'),
);

/** The prefix of an id. The history adds a number, because each id must be unique. */
const call = fc.record({
  type: fc.constant('tool-call' as const),
  id: fc.constantFrom('call_', 'toolu_01', 'functions.add:', 'x'.repeat(30), 'ü/'),
  name: fc.constantFrom('add', 'get_weather', 'no-such-tool'),
  arguments: toolArguments,
});

/** One of the signers is the host that receives the request. */
const HOST = '127.0.0.1:9';
const SIGNERS = [`anthropic@${HOST}`, `google@${HOST}`, 'anthropic@elsewhere', 'openai-chat', 'ollama', 'another'];

const reasoning = fc.oneof(
  fc.record({ type: fc.constant('reasoning' as const), text: words }),
  fc.record({
    type: fc.constant('reasoning' as const),
    text: fc.oneof(words, fc.constant('')),
    signature: fc.constantFrom('c2lnbmF0dXJl', 'text:0:c2lnbmF0dXJl', 'text:1:c2lnbmF0dXJl'),
    protocol: fc.constantFrom(...SIGNERS),
  }),
);

const answer = fc
  .array(reasoning, { maxLength: 1 })
  .chain((before) =>
    fc
      .array(fc.oneof(text, reasoning, call, call), { minLength: 1, maxLength: 5 })
      .map((parts) => [...before, ...parts]),
  );

const result = fc.record({
  blocks: fc.array(
    fc.oneof(
      fc.oneof(words, fc.constant('')).map((value): ResultBlock => ({ type: 'text', text: value })),
      words.map((value): ResultBlock => ({ type: 'error', text: value })),
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

/** The body that a model sends. It gets an error as the answer. */
async function sentBody({ form, options }: Way, asked: ModelRequest): Promise<unknown> {
  let body: unknown;
  const fetch: typeof globalThis.fetch = async (_url, init) => {
    body = JSON.parse(Buffer.from(init!.body as Uint8Array).toString('utf8'));
    return new Response('{}', { status: 400 });
  };
  const model = makeModel(form, { model: 'm-1', baseURL: `http://${HOST}`, maxRetries: 0, ...options, fetch });
  await model.reply(asked, () => {}, new AbortController().signal);
  return body;
}

/** The loop does not put such names into a history, but a history from elsewhere may contain them. */
function withInvalidNames(messages: readonly Message[]): readonly Message[] {
  return JSON.parse(JSON.stringify(messages).replaceAll('"no-such-tool"', '"fs.read/ü"')) as readonly Message[];
}

function modelIn({ options }: Way): string {
  return (options as { readonly model?: string } | undefined)?.model ?? 'm-1';
}

describe.each(WAYS)('$name', (variant) => {
  test('sends a valid request for any history', async () => {
    await fc.assert(
      fc.asyncProperty(request, async (generated) => {
        const { allowed, instructions, reasoning: effort, maxOutputTokens, temperature, topP, ...rest } = generated;
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
        const messages = withInvalidNames(rest.messages);
        const asked: ModelRequest = { ...rest, ...optional, messages, settings, key: 'r/t1' };
        const rules = { strict: false, model: modelIn(variant) };
        expect(forms[variant.form].rules(await sentBody(variant, asked), rules)).toBeUndefined();
      }),
      { numRuns: 100 * CASES },
    );
  });

  test('sends a request that is valid by the strict rules at each turn of a long history', async () => {
    const path = new URL('../provider/good-histories/treadle.json', import.meta.url);
    const { messages } = JSON.parse(readFileSync(path, 'utf8')) as { messages: Message[] };
    for (const length of [1, 3, 4, 6, 8]) {
      const asked = { messages: messages.slice(0, length), tools, toolChoice: 'auto', parallel: true } as const;
      expect(
        forms[variant.form].rules(await sentBody(variant, { ...asked, settings: {}, key: 'r/t1' })),
      ).toBeUndefined();
    }
  });
});
