import { dynamicTool, jsonSchema, lazySchema, tool as aiTool, zodSchema } from '@ai-sdk/provider-utils';
import { runLoop, TreadleError, type Item, type LoopOptions, type ToolMessage } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { aiSdkApprovals, fromAiSdkTools, type AiSdkTools, type FromAiSdkToolsOptions } from './from-ai-sdk-tools.ts';

async function results(
  tools: AiSdkTools,
  calls: readonly { name: string; arguments: object }[],
  allOptions: Partial<LoopOptions> & FromAiSdkToolsOptions = {},
): Promise<unknown[]> {
  const { approvals, effects, ...options } = allOptions;
  const result = await runLoop({
    model: scriptedModel([{ calls }, 'Done.']),
    tools: fromAiSdkTools(tools, { ...(approvals && { approvals }), ...(effects && { effects }) }),
    input: 'Go.',
    runId: 'r1',
    ...options,
  });
  const { content } = result.messages.find((message): message is ToolMessage => message.role === 'tool')!;
  return content.map((one) => (one.isError ? { error: one.content } : one.content));
}

const text = (words: string): object[] => [{ type: 'text', text: words }];

test('describes and validates the input with every type of schema', async () => {
  const seen: unknown[] = [];
  const execute = (input: unknown): string => (seen.push(input), 'ok');
  const n = z.object({ n: z.coerce.number() });
  const plain = { type: 'object', properties: { n: { type: 'number' } }, required: ['n'] } as const;
  const tools = {
    zod: aiTool({ description: 'Z', inputSchema: n, execute }),
    wrapped: aiTool({
      description: 'W',
      inputSchema: zodSchema(z.object({ n: z.number().transform((v) => v + 1) })),
      execute,
    }),
    json: aiTool({ inputSchema: jsonSchema(plain), execute }),
    lazy: dynamicTool({ description: 'L', inputSchema: lazySchema(() => jsonSchema(plain)), execute }),
    none: { description: 'N', execute },
  };
  const made = fromAiSdkTools(tools, { effects: { json: 'pure' } });
  expect(made.map(({ name, description, effect }) => [name, description, effect])).toEqual([
    ['zod', 'Z', 'once'],
    ['wrapped', 'W', 'once'],
    ['json', '', 'pure'],
    ['lazy', 'L', 'once'],
    ['none', 'N', 'once'],
  ]);
  for (const { name, parameters } of made.slice(0, 4)) {
    expect(parameters, name).toMatchObject({ type: 'object', properties: { n: { type: 'number' } } });
    expect(parameters, name).not.toHaveProperty('$schema');
  }
  const calls = ['zod', 'wrapped', 'json', 'lazy'].map((name) => ({ name, arguments: { n: 1 } }));
  expect(await results(tools, [...calls, { name: 'none', arguments: {} }])).toEqual(Array(5).fill(text('ok')));
  expect(seen).toEqual([{ n: 1 }, { n: 2 }, { n: 1 }, { n: 1 }, {}]);
  const wrong = calls.map((call) => ({ ...call, arguments: { n: 'x' } }));
  for (const result of await results(tools, wrong)) expect(result).toMatchObject({ error: [{ type: 'error' }] });
  expect(seen).toHaveLength(5);
});

test('passes the same call information as the AI SDK', async () => {
  let info: Record<string, unknown> = {};
  const tools = {
    f: aiTool({ inputSchema: z.object({}), execute: (_, callInfo) => ((info = { ...callInfo }), 'ok') }),
  };
  await results(tools, [{ name: 'f', arguments: {} }], { context: { user: 'a' } });
  expect(info).toEqual({
    toolCallId: 'r1/t1.tool.0',
    messages: [],
    abortSignal: expect.any(AbortSignal),
    context: { user: 'a' },
    experimental_context: { user: 'a' },
  });
});

test('returns strings unchanged, other results as JSON, the last of several, and errors', async () => {
  const inputSchema = z.object({});
  const tools = {
    json: aiTool({ inputSchema, execute: () => ({ content: [1], isError: true }) }),
    nothing: aiTool({ inputSchema, execute: () => undefined }),
    several: aiTool({
      inputSchema,
      async *execute() {
        yield 'first';
        yield 'second';
      },
    }),
    throws: aiTool({
      inputSchema,
      execute: (): string => {
        throw new Error('no luck');
      },
    }),
  };
  const items: Item[] = [];
  const calls = Object.keys(tools).map((name) => ({ name, arguments: {} }));
  expect(await results(tools, calls, { onItem: (item) => items.push(item) })).toEqual([
    text('{"content":[1],"isError":true}'),
    text('null'),
    text('second'),
    { error: [{ type: 'error', text: 'The tool "throws" failed: no luck' }] },
  ]);
  const reports = items.flatMap((item) => (item.type === 'tool-report' ? item.progress : []));
  expect(reports).toEqual(['first', 'second']);
});

test('ends an async iterable when the call is aborted', async () => {
  const controller = new AbortController();
  const ended = Promise.withResolvers<string>();
  const { promise: more, resolve: giveMore } = Promise.withResolvers<void>();
  const tools = {
    f: {
      description: 'F',
      async *execute() {
        try {
          yield 'first';
          await more;
          yield 'second';
          ended.resolve('went on');
        } finally {
          ended.resolve('ended');
        }
      },
    },
  };
  await runLoop({
    model: scriptedModel([{ calls: [{ name: 'f', arguments: {} }] }]),
    tools: fromAiSdkTools(tools),
    input: 'Go.',
    signal: controller.signal,
    onItem: (item) => item.type === 'tool-report' && controller.abort(),
  });
  giveMore();
  expect(await ended.promise).toBe('ended');
});

test('converts the output of toModelOutput', async () => {
  const url = new URL('https://host/a.pdf');
  const cases: [output: object, blocks: unknown][] = [
    [{ type: 'text', value: 'T' }, text('T')],
    [{ type: 'json', value: { a: 1 } }, text('{"a":1}')],
    [{ type: 'error-text', value: 'E' }, { error: [{ type: 'error', text: 'E' }] }],
    [{ type: 'error-json', value: { e: 1 } }, { error: [{ type: 'error', text: '{"e":1}' }] }],
    [{ type: 'execution-denied', reason: 'late' }, { error: [{ type: 'error', text: 'Denied: late' }] }],
    [
      {
        type: 'content',
        value: [
          { type: 'text', text: 'see' },
          { type: 'file', mediaType: 'image/png', data: { type: 'data', data: Uint8Array.of(0) } },
          { type: 'file', mediaType: 'application/pdf', filename: 'a.pdf', data: { type: 'url', url } },
          { type: 'file', mediaType: 'text/plain', data: { type: 'text', text: 'inline' } },
          { type: 'image-data', mediaType: 'image/png', data: 'AA==' },
          { type: 'image-url', url: 'https://host/a.png' },
          { type: 'file-url', url: 'https://host/a.bin' },
          { type: 'custom' },
        ],
      },
      [
        { type: 'text', text: 'see' },
        { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'AA==' } },
        { type: 'file', mediaType: 'application/pdf', name: 'a.pdf', source: { type: 'url', url: url.href } },
        { type: 'text', text: 'inline' },
        { type: 'image', mediaType: 'image/png', source: { type: 'data', data: 'AA==' } },
        { type: 'image', mediaType: 'image/*', source: { type: 'url', url: 'https://host/a.png' } },
        { type: 'file', mediaType: 'application/octet-stream', source: { type: 'url', url: 'https://host/a.bin' } },
        { type: 'text', text: '(A part of type custom is not stored.)' },
      ],
    ],
  ];
  const asked: unknown[] = [];
  const tools = Object.fromEntries(
    cases.map(([output], index) => [
      `f${index}`,
      {
        inputSchema: z.object({ n: z.number() }),
        execute: () => 'raw',
        toModelOutput: (made: unknown) => (asked.push(made), output),
      },
    ]),
  );
  const calls = cases.map((_, n) => ({ name: `f${n}`, arguments: { n } }));
  expect(await results(tools, calls)).toEqual(cases.map(([, blocks]) => blocks));
  expect(asked[0]).toEqual({ toolCallId: 'r1/t1.tool.0', input: { n: 0 }, output: 'raw' });
  const broken = { f: { execute: () => 'raw', toModelOutput: () => ({ type: 'new' }) } };
  expect(await results(broken, [{ name: 'f', arguments: {} }])).toMatchObject([{ error: [{ type: 'error' }] }]);
});

test('leaves a tool without execute to the client', async () => {
  const tools = { ask: { description: 'Asks', inputSchema: z.object({}) } };
  const result = await runLoop({
    model: scriptedModel([{ calls: [{ name: 'ask', arguments: {} }] }]),
    tools: fromAiSdkTools(tools),
    input: 'Go.',
  });
  expect(result).toMatchObject({ waiting: [{ type: 'client', call: { name: 'ask' } }] });
});

test('asks for approval with aiSdkApprovals, and throws without a policy', async () => {
  const tools = {
    always: aiTool({ inputSchema: z.object({}), needsApproval: true, execute: () => 'ran' }),
    some: aiTool({
      inputSchema: z.object({ n: z.number() }),
      needsApproval: ({ n }) => Promise.resolve(n > 1),
      execute: () => 'ran',
    }),
    free: aiTool({ inputSchema: z.object({}), execute: () => 'ran' }),
  };
  expect(() => fromAiSdkTools(tools)).toThrow(/"always" needs approval.*aiSdkApprovals\(tools\).*approvals: 'policy'/);
  const result = await runLoop({
    model: scriptedModel([
      {
        calls: [
          { name: 'always', arguments: {} },
          { name: 'some', arguments: { n: 1 } },
          { name: 'some', arguments: { n: 2 } },
          { name: 'free', arguments: {} },
        ],
      },
    ]),
    tools: fromAiSdkTools(tools, { approvals: 'policy' }),
    policy: aiSdkApprovals(tools),
    input: 'Go.',
  });
  expect(result.waiting?.map(({ type, call }) => `${type} ${call.name}`)).toEqual(['approval always', 'approval some']);
});

test.each([
  ['a provider tool', { f: { type: 'provider', id: 'x.y', args: {} } }, /"f" is executed by the provider/],
  ['a plain JSON Schema', { f: { inputSchema: { type: 'object' } } }, /inputSchema of "f" is not a schema/],
  ['a promised schema', { f: { inputSchema: jsonSchema(Promise.resolve({})) } }, /"f" is a promise/],
  ['a computed description', { f: { description: () => 'x' } }, /description of "f" is a function/],
  ['undefined', { f: undefined }, /"f" is not a tool/],
  ['an invalid name', { 'a b': { description: 'x' } }, /"a b" is not accepted by providers/],
])('throws for %s', (_, tools, message) => {
  expect(() => fromAiSdkTools(tools as never)).toThrow(message);
  expect(() => fromAiSdkTools(tools as never)).toThrow(TreadleError);
});

test.each([
  [undefined, {}, 'pass the tools by name'],
  [[], {}, 'pass the tools by name'],
  [{}, { effect: {} }, 'fromAiSdkTools has no option "effect". Did you mean "effects"?'],
  [{}, { effects: { wether: 'pure' } }, '"effects" names "wether", which is not one of the tools.'],
])('rejects the arguments %j, %j', (tools, options, message) => {
  expect(() => fromAiSdkTools(tools as never, options as never)).toThrow(message);
});
