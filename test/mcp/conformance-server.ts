import { setTimeout as delay } from 'node:timers/promises';
import { tool, type JsonSchema, type Tool, type ToolContext } from '@treadle/core';
import type { McpOptions } from '@treadle/server';
import { askMcpClient, completable, inputRequired, mcpClientOf, ResourceTemplate } from '@treadle/server/mcp';
import { z } from 'zod';

/* What the conformance suite expects of a server, made with the public API. */

const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const WAV = 'UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=';
const base64 = (text: string): string => Buffer.from(text).toString('base64');

type Execute = (input: Readonly<Record<string, unknown>>, context: ToolContext) => unknown;

function fixture(name: string, execute: Execute, properties: JsonSchema = {}): Tool {
  const input = { type: 'object', properties, required: Object.keys(properties) };
  return tool({ name, description: `Fixture ${name}`, input, touches: () => [], execute });
}

const IMAGE = { type: 'image', mediaType: 'image/png', source: { type: 'data', data: PNG } };
const embedded = (name: string, mediaType: string, text: string): object => ({
  type: 'file',
  name,
  mediaType,
  source: { type: 'data', data: base64(text) },
});

/** The answer to a form with fields of a text. */
async function askForm(context: ToolContext, id: string, prompt: string, ...fields: string[]): Promise<string> {
  const properties = Object.fromEntries(fields.map((field) => [field, { type: 'string' }]));
  return JSON.stringify(await context.ask({ id, prompt, schema: { type: 'object', properties, required: fields } }));
}

async function confirm(context: ToolContext): Promise<string> {
  const schema = { type: 'object', properties: { ok: { type: 'boolean' } }, required: ['ok'] };
  return `state-ok ${JSON.stringify(await context.ask({ id: 'confirm', prompt: 'Please confirm', schema }))}`;
}

async function sample(context: ToolContext, id: string, text: string): Promise<string> {
  const { content } = await askMcpClient(context, {
    id,
    method: 'sampling/createMessage',
    params: { messages: [{ role: 'user', content: { type: 'text', text } }], maxTokens: 100 },
  });
  return `LLM response: ${JSON.stringify(content)}`;
}

async function roots(context: ToolContext): Promise<string> {
  return JSON.stringify((await askMcpClient(context, { id: 'client_roots', method: 'roots/list' })).roots);
}

async function logThrice(_: unknown, { report }: ToolContext): Promise<string> {
  for (const data of ['Tool execution started', 'Tool processing data', 'Tool execution completed']) {
    report({ level: 'info', data });
    await delay(50);
  }
  return 'Logged.';
}

const options = (...values: string[]): object[] =>
  values.map((value) => ({ const: value, title: `Title of ${value}` }));

const DEFAULTS: JsonSchema = {
  type: 'object',
  properties: {
    name: { type: 'string', default: 'John Doe' },
    age: { type: 'integer', default: 30 },
    score: { type: 'number', default: 95.5 },
    status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
    verified: { type: 'boolean', default: true },
  },
};

const ENUMS: JsonSchema = {
  type: 'object',
  properties: {
    untitledSingle: { type: 'string', enum: ['option1', 'option2', 'option3'] },
    titledSingle: { type: 'string', oneOf: options('value1', 'value2', 'value3') },
    legacyEnum: {
      type: 'string',
      enum: ['opt1', 'opt2', 'opt3'],
      enumNames: ['Option One', 'Option Two', 'Option Three'],
    },
    untitledMulti: { type: 'array', items: { type: 'string', enum: ['option1', 'option2', 'option3'] } },
    titledMulti: { type: 'array', items: { anyOf: options('value1', 'value2', 'value3') } },
  },
};

/** Keywords that clients must get unchanged. */
const SCHEMA_2020: JsonSchema = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  $defs: {
    address: {
      $anchor: 'addressDef',
      type: 'object',
      properties: { street: { type: 'string' }, city: { type: 'string' } },
    },
  },
  properties: {
    name: { type: 'string' },
    address: { $ref: '#/$defs/address' },
    contactMethod: { type: 'string', enum: ['phone', 'email'] },
    phone: { type: 'string' },
    email: { type: 'string' },
  },
  allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
  if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
  // oxlint-disable-next-line unicorn/no-thenable -- a keyword of JSON Schema
  then: { required: ['phone'] },
  else: { required: ['email'] },
  additionalProperties: false,
};

/** Long enough for a call to become a task. */
const LONG_MS = 600;

const CONFIRM: JsonSchema = { type: 'object', properties: { confirm: { type: 'boolean' } }, required: ['confirm'] };

/** What the scenarios of the extension `tasks` call. */
export const conformanceTaskTools: readonly Tool[] = [
  fixture('greet', ({ name }) => `Hello, ${String(name)}!`, { name: { type: 'string' } }),
  fixture(
    'slow_compute',
    async ({ seconds, label }, { signal }) => {
      await delay(Number(seconds) * 1_000, undefined, { signal });
      return `Computed ${String(label)}.`;
    },
    { seconds: { type: 'number' }, label: { type: 'string' } },
  ),
  fixture('failing_job', async () => {
    await delay(LONG_MS);
    throw new Error('This job intentionally fails');
  }),
  // The client cannot be asked for what it does not have.
  fixture('protocol_error_job', async (_, context) => {
    await delay(LONG_MS);
    return roots(context);
  }),
  fixture(
    'confirm_delete',
    async ({ filename }, { ask }) => {
      await delay(LONG_MS);
      await ask({ id: 'confirm', prompt: `Delete ${String(filename)}?`, schema: CONFIRM });
      return `Deleted ${String(filename)}.`;
    },
    { filename: { type: 'string' } },
  ),
  fixture('multi_input', async (_, { ask }) => {
    await delay(LONG_MS);
    const all = ['first', 'second'].map((id) => ask({ id, prompt: `Confirm the ${id}`, schema: CONFIRM }));
    return JSON.stringify(await Promise.all(all));
  }),
  fixture('test_tool_with_task', async (_, context) => {
    const name = await askForm(context, 'user_name', 'What is your name?', 'name');
    await delay(LONG_MS);
    return `Hello, ${name}!`;
  }),
];

export const conformanceTools: readonly Tool[] = [
  fixture('test_simple_text', () => 'This is a simple text response for testing.'),
  fixture('test_image_content', () => ({ content: [IMAGE] })),
  fixture('test_audio_content', () => ({
    content: [{ type: 'file', mediaType: 'audio/wav', source: { type: 'data', data: WAV } }],
  })),
  fixture('test_embedded_resource', () => ({
    content: [embedded('test://embedded-resource', 'text/plain', 'This is an embedded resource content.')],
  })),
  fixture('test_multiple_content_types', () => ({
    content: [
      { type: 'text', text: 'Multiple content types test:' },
      IMAGE,
      embedded('test://mixed-content-resource', 'application/json', '{"test":"data","value":123}'),
    ],
  })),
  fixture('test_error_handling', () => {
    throw new Error('This tool intentionally returns an error for testing');
  }),
  fixture('test_tool_with_logging', logThrice),
  fixture('test_logging_tool', logThrice),
  fixture('test_tool_with_progress', async (_, { report }) => {
    for (const progress of [0, 50, 100]) {
      report({ progress, total: 100 });
      await delay(50);
    }
    return 'Done.';
  }),
  fixture('test_sampling', ({ prompt }, context) => sample(context, 'sample', String(prompt)), {
    prompt: { type: 'string' },
  }),
  fixture(
    'test_elicitation',
    async ({ message }, context) =>
      `User response: ${await askForm(context, 'user', String(message), 'username', 'email')}`,
    { message: { type: 'string' } },
  ),
  fixture('test_elicitation_sep1034_defaults', async (_, { ask }) => ask({ prompt: 'Defaults', schema: DEFAULTS })),
  fixture('test_elicitation_sep1330_enums', async (_, { ask }) => ask({ prompt: 'Choose', schema: ENUMS })),
  fixture('test_missing_capability', (_, context) => sample(context, 'sample', 'Hello')),
  fixture('test_streaming_elicitation', (_, context) => askForm(context, 'user_name', 'What is your name?', 'name')),
  fixture('test_input_required_result_elicitation', async (_, context) => {
    return `Hello, ${await askForm(context, 'user_name', 'What is your name?', 'name')}!`;
  }),
  fixture('test_input_required_result_sampling', (_, context) =>
    sample(context, 'capital_question', 'What is the capital of France?'),
  ),
  fixture('test_input_required_result_list_roots', (_, context) => roots(context)),
  fixture('test_input_required_result_request_state', (_, context) => confirm(context)),
  fixture('test_input_required_result_tampered_state', (_, context) => confirm(context)),
  fixture('test_input_required_result_multiple_inputs', async (_, context) => {
    const all = [
      askForm(context, 'user_name', 'What is your name?', 'name'),
      sample(context, 'greeting', 'Generate a greeting'),
      roots(context),
    ];
    return (await Promise.all(all)).join('\n');
  }),
  fixture('test_input_required_result_multi_round', async (_, context) => {
    const name = await askForm(context, 'step1', 'Step 1: What is your name?', 'name');
    return name + (await askForm(context, 'step2', 'Step 2: What is your favorite color?', 'color'));
  }),
  fixture('test_input_required_result_capabilities', async (_, context) => {
    const { elicitation, sampling } = mcpClientOf(context)!.capabilities;
    const all = [
      ...(elicitation ? [askForm(context, 'user_name', 'What is your name?', 'name')] : []),
      ...(sampling ? [sample(context, 'greeting', 'Generate a greeting')] : []),
    ];
    return (await Promise.all(all)).join('\n');
  }),
  fixture('test_custom_headers', ({ region }) => `Region: ${String(region)}`, {
    region: { type: 'string', 'x-mcp-header': 'Region' },
  }),
  tool({
    name: 'json_schema_2020_12_tool',
    description: 'Tool with JSON Schema 2020-12 features',
    input: SCHEMA_2020,
    touches: () => [],
    execute: () => 'Accepted.',
  }),
];

const user = <Content extends object>(content: Content) => ({ role: 'user' as const, content });
const text = (said: string) => ({ type: 'text' as const, text: said });

export const conformanceMcp: McpOptions = {
  name: 'treadle-conformance',
  register(server) {
    server.registerPrompt('test_simple_prompt', { description: 'A prompt' }, () => ({
      messages: [user(text('This is a simple prompt for testing.'))],
    }));
    server.registerPrompt(
      'test_prompt_with_arguments',
      {
        description: 'A prompt with arguments',
        argsSchema: z.object({
          arg1: completable(z.string(), (value) => ['paris', 'park', 'party'].filter((one) => one.startsWith(value))),
          arg2: z.string(),
        }),
      },
      ({ arg1, arg2 }) => ({ messages: [user(text(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`))] }),
    );
    server.registerPrompt(
      'test_prompt_with_embedded_resource',
      { description: 'A prompt with a resource', argsSchema: z.object({ resourceUri: z.string() }) },
      ({ resourceUri: uri }) => ({
        messages: [
          user({
            type: 'resource' as const,
            resource: { uri, mimeType: 'text/plain', text: 'Embedded resource content for testing.' },
          }),
          user(text('Please process the embedded resource above.')),
        ],
      }),
    );
    server.registerPrompt('test_prompt_with_image', { description: 'A prompt with an image' }, () => ({
      messages: [
        user({ type: 'image' as const, data: PNG, mimeType: 'image/png' }),
        user(text('Please analyze the image above.')),
      ],
    }));
    server.registerPrompt('test_input_required_result_prompt', { description: 'A prompt that asks' }, ({ mcpReq }) => {
      if (mcpReq.inputResponses?.['user_context']) return { messages: [user(text('With context.'))] };
      const schema = { type: 'object' as const, properties: { context: { type: 'string' as const } } };
      const message = 'What context should the prompt use?';
      return inputRequired({
        inputRequests: { user_context: inputRequired.elicit({ message, requestedSchema: schema }) },
      });
    });
    const contents = (uri: URL, content: { text: string } | { blob: string }, mimeType: string) => ({
      contents: [{ uri: uri.href, mimeType, ...content }],
    });
    server.registerResource('static-text', 'test://static-text', { mimeType: 'text/plain' }, (uri) =>
      contents(uri, { text: 'This is the content of the static text resource.' }, 'text/plain'),
    );
    server.registerResource('static-binary', 'test://static-binary', { mimeType: 'image/png' }, (uri) =>
      contents(uri, { blob: PNG }, 'image/png'),
    );
    server.registerResource('watched', 'test://watched-resource', { mimeType: 'text/plain' }, (uri) =>
      contents(uri, { text: 'Watched.' }, 'text/plain'),
    );
    server.registerResource(
      'template',
      new ResourceTemplate('test://template/{id}/data', { list: undefined }),
      { mimeType: 'application/json' },
      (uri, { id }) => contents(uri, { text: JSON.stringify({ id }) }, 'application/json'),
    );
  },
};
