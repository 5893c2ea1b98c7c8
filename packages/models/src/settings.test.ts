import type { Effort, FileBlock, ImageBlock, Model, ModelRequest, Settings, TokenLogprob } from '@treadle/core';
import { describe, expect, test } from 'vitest';
import { replayer } from '../test/replay.ts';
import { readBody, request } from '../test/request.ts';
import { anthropicProtocol } from './anthropic/anthropic.ts';
import { traitsOf } from './anthropic/models.ts';
import { googleProtocol } from './google/google.ts';
import { ollamaProtocol } from './ollama/ollama.ts';
import { openaiChat, openaiChatProtocol } from './openai-chat/openai-chat.ts';
import { groq } from './openai-compatible/presets.ts';
import { openaiResponsesProtocol } from './openai-responses/openai-responses.ts';
import { router } from './router/router.ts';

/** Each protocol passes on the settings that it says it takes, in the names of its API, and no other. */

const PROTOCOLS = {
  'openai-chat': openaiChatProtocol({ model: 'm', stream: false }),
  'openai-chat without hints': openaiChatProtocol({ model: 'm', stream: false, hints: false }),
  'openai-responses': openaiResponsesProtocol({
    model: 'm',
    stream: false,
    store: false,
    encryptedReasoning: true,
    strict: false,
    signer: 'openai-responses',
  }),
  anthropic: claude('claude-sonnet-4-6'),
  'anthropic without sampling': claude('claude-opus-5'),
  google: googleProtocol({ model: 'gemini-3.5-flash', stream: false, thinking: 'level', signer: 'google' }),
  ollama: ollamaProtocol({ model: 'qwen3', stream: false }),
};

function claude(model: string): ReturnType<typeof anthropicProtocol> {
  return anthropicProtocol({ model, stream: false, cache: false, signer: 'anthropic', ...traitsOf(model) });
}

type Name = keyof typeof PROTOCOLS;

/** What a request adds to the smallest one. */
function added(name: Name, more: Partial<ModelRequest>): Record<string, unknown> {
  const { body } = PROTOCOLS[name];
  const smallest = readBody(body(request()));
  const fields = Object.entries(readBody(body(request(more))));
  return Object.fromEntries(
    fields.filter(([field, value]) => JSON.stringify(value) !== JSON.stringify(smallest[field])),
  );
}

const SETTINGS: Required<Omit<Settings, 'reasoning' | 'maxOutputTokens'>> = {
  temperature: 0.5,
  topP: 0.9,
  stop: ['.'],
  seed: 7,
  presencePenalty: 1,
  frequencyPenalty: -1,
  logitBias: { 50_256: -100 },
  serviceTier: 'flex',
  promptCacheKey: 'k',
  verbosity: 'low',
  topLogprobs: 2,
};

const CHAT = {
  temperature: 0.5,
  top_p: 0.9,
  stop: ['.'],
  seed: 7,
  presence_penalty: 1,
  frequency_penalty: -1,
  logit_bias: { 50_256: -100 },
  logprobs: true,
  top_logprobs: 2,
};

test.each<[Name, unknown]>([
  ['openai-chat', { ...CHAT, service_tier: 'flex', prompt_cache_key: 'k', verbosity: 'low' }],
  ['openai-chat without hints', CHAT],
  [
    'openai-responses',
    {
      temperature: 0.5,
      top_p: 0.9,
      service_tier: 'flex',
      prompt_cache_key: 'k',
      text: { verbosity: 'low' },
      top_logprobs: 2,
      include: ['reasoning.encrypted_content', 'message.output_text.logprobs'],
    },
  ],
  ['anthropic', { temperature: 0.5, stop_sequences: ['.'] }],
  ['anthropic without sampling', { stop_sequences: ['.'] }],
  [
    'google',
    {
      generationConfig: {
        temperature: 0.5,
        topP: 0.9,
        seed: 7,
        presencePenalty: 1,
        frequencyPenalty: -1,
        stopSequences: ['.'],
        thinkingConfig: { includeThoughts: true },
      },
    },
  ],
  [
    'ollama',
    {
      logprobs: true,
      top_logprobs: 2,
      options: {
        temperature: 0.5,
        top_p: 0.9,
        stop: ['.'],
        seed: 7,
        presence_penalty: 1,
        frequency_penalty: -1,
      },
    },
  ],
])('%s sends all settings that its API has', (name, fields) => {
  expect(added(name, { settings: SETTINGS })).toEqual(fields);
});

test.each(Object.keys(PROTOCOLS) as Name[])('%s takes the settings that it sends, and says so', (name) => {
  const sent = (Object.keys(SETTINGS) as (keyof typeof SETTINGS)[]).filter(
    (setting) => Object.keys(added(name, { settings: { [setting]: SETTINGS[setting] } })).length > 0,
  );
  expect(PROTOCOLS[name].takes.toSorted()).toEqual([...sent, 'maxOutputTokens', 'reasoning'].toSorted());
});

test('log probabilities without alternatives', () => {
  const settings = { topLogprobs: 0 };
  expect(added('openai-chat', { settings })).toEqual({ logprobs: true });
  expect(added('openai-responses', { settings })).toEqual({
    top_logprobs: 0,
    include: ['reasoning.encrypted_content', 'message.output_text.logprobs'],
  });
});

test('anthropic sends the default tier as the standard one, and has no other', () => {
  const tier = (serviceTier: string): unknown => added('anthropic', { settings: { serviceTier } });
  expect([tier('default'), tier('auto'), tier('flex')]).toEqual([{ service_tier: 'standard_only' }, {}, {}]);
});

const EFFORTS: readonly Effort[] = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'];

describe('reasoning', () => {
  const efforts = (send: (reasoning: Effort) => unknown): unknown[] => EFFORTS.map(send);

  test("OpenAI's APIs get the effort as it is", () => {
    expect(efforts((reasoning) => added('openai-chat', { settings: { reasoning } }))).toEqual(
      EFFORTS.map((reasoning_effort) => ({ reasoning_effort })),
    );
    expect(efforts((reasoning) => added('openai-responses', { settings: { reasoning } }))).toEqual(
      EFFORTS.map((effort) => ({ reasoning: { effort } })),
    );
  });

  test('Anthropic gets the nearest effort, and thinking is off with none', () => {
    const adaptive = (effort: string): object => ({ thinking: { type: 'adaptive' }, output_config: { effort } });
    expect(efforts((reasoning) => added('anthropic without sampling', { settings: { reasoning } }))).toEqual([
      { thinking: { type: 'disabled' } },
      ...['low', 'low', 'medium', 'high', 'xhigh', 'max'].map(adaptive),
    ]);
    expect(added('anthropic', { settings: { reasoning: 'none', temperature: 0.5 } })).toEqual({ temperature: 0.5 });
  });

  test('a budget grows with the effort, up to half of the output', () => {
    const budgeted = claude('claude-sonnet-4-5');
    const budgets = efforts((reasoning) => {
      const settings: Settings = { reasoning, maxOutputTokens: 60_000 };
      return (readBody(budgeted.body(request({ settings })))['thinking'] as { budget_tokens?: number })?.budget_tokens;
    });
    expect(budgets).toEqual([undefined, 1_024, 4_096, 8_192, 16_384, 24_576, 30_000]);
  });

  test('Ollama gets whether to think, and gpt-oss the nearest level', () => {
    expect(efforts((reasoning) => added('ollama', { settings: { reasoning } })['think'])).toEqual([
      false,
      ...Array.from({ length: 6 }, () => true),
    ]);
    const oss = ollamaProtocol({ model: 'gpt-oss:20b', stream: false });
    expect(efforts((reasoning) => readBody(oss.body(request({ settings: { reasoning } })))['think'])).toEqual([
      'low',
      'low',
      'low',
      'medium',
      'high',
      'high',
      'high',
    ]);
  });
});

describe('the description of the output', () => {
  const output = { type: 'object', properties: { n: { type: 'number' } }, required: ['n'] };
  const form = { output, outputForm: { name: 'sum', description: 'The sum.' } };

  test("is a field of OpenAI's APIs", () => {
    expect(added('openai-chat', form)).toEqual({
      response_format: {
        type: 'json_schema',
        json_schema: { name: 'sum', description: 'The sum.', schema: output },
      },
    });
    expect(added('openai-responses', form)).toEqual({
      text: {
        format: { type: 'json_schema', name: 'sum', description: 'The sum.', schema: output, strict: false },
      },
    });
  });

  test('is part of the schema at Anthropic, and of the instructions at Ollama', () => {
    expect(added('anthropic', form)['output_config']).toMatchObject({
      format: { type: 'json_schema', schema: { description: 'The sum.', type: 'object' } },
    });
    const [system] = added('ollama', form)['messages'] as { content: string }[];
    expect(system!.content).toContain('\nThe sum.');
  });
});

describe('any JSON object', () => {
  const form = { output: { type: 'object' }, outputForm: { anyObject: true } } as const;

  test('is a mode of OpenAI and Ollama', () => {
    expect(added('openai-chat', form)).toEqual({ response_format: { type: 'json_object' } });
    expect(added('openai-responses', form)).toEqual({ text: { format: { type: 'json_object' } } });
    expect(added('ollama', form)).toMatchObject({ format: 'json' });
    expect(added('ollama', { outputForm: { anyObject: true } })).toEqual({});
  });

  test('is described at Anthropic', () => {
    const { system, ...others } = added('anthropic', form);
    expect(JSON.stringify(system)).toContain('JSON Schema');
    expect(others).toEqual({});
  });
});

describe('images and files', () => {
  const image: ImageBlock = {
    type: 'image',
    mediaType: 'image/png',
    source: { type: 'url', url: 'https://a.example/b.png' },
    detail: 'high',
  };
  const file = (url: string, mediaType: string): FileBlock => ({
    type: 'file',
    mediaType,
    source: { type: 'url', url },
  });
  const sent = (name: Name, block: ImageBlock | FileBlock): unknown => {
    const body = readBody(PROTOCOLS[name].body(request({ messages: [{ role: 'user', content: [block] }] })));
    return ((body['messages'] ?? body['input']) as { content: unknown[] }[])[0]!.content;
  };

  test("the detail of an image is sent to OpenAI's APIs", () => {
    const url = 'https://a.example/b.png';
    expect(sent('openai-chat', image)).toEqual([{ type: 'image_url', image_url: { url, detail: 'high' } }]);
    expect(sent('openai-responses', image)).toEqual([{ type: 'input_image', image_url: url, detail: 'high' }]);
    expect([PROTOCOLS.anthropic.accepts, PROTOCOLS.ollama.accepts]).toMatchObject([
      { imageDetail: false },
      { imageDetail: false },
    ]);
  });

  test("the URL of a file is sent to OpenAI's Responses API, and of a PDF to Anthropic", () => {
    const url = 'https://a.example/b';
    expect(sent('openai-responses', file(url, 'text/csv'))).toEqual([{ type: 'input_file', file_url: url }]);
    for (const type of ['application/pdf', 'application/octet-stream']) {
      expect(sent('anthropic', file(url, type))).toEqual([{ type: 'document', source: { type: 'url', url } }]);
    }
    const accepted = (['openai-responses', 'google', 'anthropic', 'openai-chat', 'ollama'] as const).map(
      (name) => PROTOCOLS[name].accepts?.fileUrls,
    );
    expect(accepted).toEqual([undefined, undefined, 'pdf', false, false]);
  });
});

test('a model takes what its protocol takes; a router says nothing of its own', () => {
  const own = openaiChat({ model: 'm' });
  const other = groq({ model: 'm' });
  expect([own.takes?.includes('verbosity'), other.takes?.includes('verbosity')]).toEqual([true, false]);
  const both: Model = router({ models: { own, other }, default: 'own' });
  expect(both.takes).toBeUndefined();
  const emulated = openaiChat({ model: 'm', toolSupport: 'text' });
  expect(emulated.takes).toEqual(own.takes!.filter((setting) => setting !== 'topLogprobs'));
});

describe('log probabilities', () => {
  const wire = (token: string): object => ({
    token,
    logprob: -0.5,
    bytes: [...Buffer.from(token)],
    top_logprobs: [{ token: 'x', logprob: -2, bytes: [120] }],
  });
  const read = (token: string): TokenLogprob => ({
    token,
    logprob: -0.5,
    bytes: [...Buffer.from(token)],
    top: [{ token: 'x', logprob: -2, bytes: [120] }],
  });
  const sse = (...events: object[]): Uint8Array[] =>
    events.map((event) => Buffer.from(`data: ${JSON.stringify(event)}\n\n`));
  const expected = {
    reply: { content: [{ type: 'text', text: 'a 日', logprobs: [read('a '), read('日')] }] },
    deltas: [
      { type: 'text-delta', text: 'a ', logprobs: [read('a ')] },
      { type: 'text-delta', text: '日', logprobs: [read('日')] },
    ],
  };

  test('of Chat Completions, also of a whole answer', () => {
    const { replay } = replayer(PROTOCOLS['openai-chat']);
    const chunk = (content: string): object => ({
      choices: [{ index: 0, delta: { content }, logprobs: { content: [wire(content)], refusal: null } }],
    });
    const end = { choices: [{ index: 0, delta: {}, finish_reason: 'stop', logprobs: null }] };
    expect(replay(sse(chunk('a '), chunk('日'), end))).toMatchObject(expected);
    const logprobs = { content: [wire('a '), wire('日'), null, { token: 7 }] };
    const whole = { choices: [{ index: 0, message: { content: 'a 日' }, finish_reason: 'stop', logprobs }] };
    expect(PROTOCOLS['openai-chat'].decode(JSON.stringify(whole))).toMatchObject(expected.reply);
  });

  test('of the Responses API, also if the items are not repeated at the end', () => {
    const protocol = PROTOCOLS['openai-responses'];
    const { replay } = replayer(protocol);
    const type = 'response.output_text.delta';
    const added = { type: 'response.output_item.added', output_index: 0, item: { type: 'message', id: 'm1' } };
    const delta = (text: string): object => ({ type, output_index: 0, delta: text, logprobs: [wire(text)] });
    const part = { type: 'output_text', text: 'a 日', logprobs: [wire('a '), wire('日')] };
    const output = [{ type: 'message', id: 'm1', content: [part] }];
    const done = { type: 'response.output_item.done', output_index: 0, item: output[0] };
    const end = { type: 'response.completed', response: {} };
    expect(replay(sse(added, delta('a '), delta('日'), end))).toMatchObject(expected);
    expect(replay(sse(added, delta('a '), delta('日'), done, end))).toMatchObject(expected);
    expect(replay(sse(done, end))).toMatchObject({
      reply: expected.reply,
      deltas: [{ type: 'text-delta', text: 'a 日', logprobs: [read('a '), read('日')] }],
    });
    expect(protocol.decode(JSON.stringify({ status: 'completed', output }))).toMatchObject(expected.reply);
  });

  test('of Ollama, but not those of thoughts', () => {
    const { replay } = replayer(PROTOCOLS.ollama);
    const lines = [
      { message: { thinking: 'Hm.' }, logprobs: [wire('Hm.')] },
      { message: { content: 'a ' }, logprobs: [wire('a ')] },
      { message: { content: '日' }, logprobs: [wire('日')] },
      { message: { content: '' }, done: true, done_reason: 'stop' },
    ];
    const { reply, deltas } = replay(lines.map((line) => Buffer.from(`${JSON.stringify(line)}\n`)));
    expect(reply).toMatchObject({ content: [{ type: 'reasoning', text: 'Hm.' }, ...expected.reply.content] });
    expect(deltas).toEqual([{ type: 'reasoning-delta', text: 'Hm.' }, ...expected.deltas]);
  });
});
