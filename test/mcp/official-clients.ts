import { Client as NewClient, StreamableHTTPClientTransport as NewTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport as NewStdio } from '@modelcontextprotocol/client/stdio';
import { Client as OldClient } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport as OldStdio } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport as OldTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ElicitRequestSchema, ResourceUpdatedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';

/* The official clients: 2.x, which negotiates the newest revision, and 1.x. */

/** What a user answers to a question of the server. */
export type Answer = (message: string) => {
  action: 'accept' | 'decline' | 'cancel';
  content?: Record<string, string | boolean>;
};

export interface ClientOptions {
  readonly key?: string;
  /** Absent: the client does not support elicitation. */
  readonly answer?: Answer;
  readonly onUpdated?: (uri: string) => void;
}

export interface CallOptions {
  readonly onprogress?: (progress: { readonly progress: number; readonly message?: string | undefined }) => void;
  readonly signal?: AbortSignal;
  /** The `_meta` of the request. */
  readonly meta?: Readonly<Record<string, unknown>>;
}

/** The part of both clients that tests use. */
export interface TestClient extends AsyncDisposable {
  readonly revision: string | undefined;
  call(name: string, input?: Record<string, unknown>, options?: CallOptions): Promise<CallResult>;
  tools(): Promise<readonly { readonly name: string; readonly outputSchema?: unknown }[]>;
  resources(cursor?: string): Promise<{ resources: readonly { uri: string }[]; nextCursor?: string | undefined }>;
  read(uri: string): Promise<string>;
  subscribe(uri: string): Promise<unknown>;
  prompts(): Promise<readonly string[]>;
  prompt(name: string): Promise<string>;
}

export interface CallResult {
  readonly text: string;
  readonly isError: boolean;
  readonly structured?: unknown;
}

/** How to reach a server: its address, or a process. */
export type Target =
  | { readonly url: string }
  | { readonly command: string; readonly args: string[]; readonly cwd: string; readonly env: Record<string, string> };

const INFO = { name: 'test', version: '1.0.0' };

function headers({ key }: ClientOptions): { requestInit?: RequestInit } {
  return key === undefined ? {} : { requestInit: { headers: { authorization: `Bearer ${key}` } } };
}

export async function newClient(target: Target, options: ClientOptions = {}): Promise<TestClient> {
  const { answer } = options;
  const client = new NewClient(INFO, {
    capabilities: answer ? { elicitation: {} } : {},
    versionNegotiation: { mode: 'auto' },
  });
  if (answer) client.setRequestHandler('elicitation/create', ({ params: { message } }) => answer(message));
  await client.connect(
    'url' in target ? new NewTransport(new URL(`${target.url}/mcp`), headers(options)) : new NewStdio(target),
  );
  return {
    revision: client.getNegotiatedProtocolVersion(),
    call: async (name, input = {}, { meta, ...more } = {}) =>
      resultOf(await client.callTool({ name, arguments: input, ...(meta && { _meta: meta }) }, more)),
    tools: async () => (await client.listTools()).tools,
    resources: (cursor) => client.request({ method: 'resources/list', params: cursor === undefined ? {} : { cursor } }),
    read: async (uri) => textIn((await client.readResource({ uri })).contents),
    subscribe: (uri) => client.subscribeResource({ uri }),
    prompts: async () => (await client.listPrompts()).prompts.map(({ name }) => name),
    prompt: async (name) => (await client.getPrompt({ name })).messages.map(({ content }) => textIn([content])).join(),
    [Symbol.asyncDispose]: () => client.close(),
  };
}

export async function oldClient(target: Target, options: ClientOptions = {}): Promise<TestClient> {
  const { answer, onUpdated } = options;
  const client = new OldClient(INFO, { capabilities: answer ? { elicitation: {} } : {} });
  if (answer) client.setRequestHandler(ElicitRequestSchema, ({ params: { message } }) => answer(message));
  if (onUpdated)
    client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => onUpdated(params.uri));
  const transport =
    'url' in target ? new OldTransport(new URL(`${target.url}/mcp`), headers(options)) : new OldStdio(target);
  // Its types do not fit `exactOptionalPropertyTypes`.
  await client.connect(transport as Parameters<typeof client.connect>[0]);
  return {
    revision: (transport as { protocolVersion?: string }).protocolVersion,
    call: async (name, input = {}, { meta, ...more } = {}) => {
      const params = { name, arguments: input, ...(meta && { _meta: meta }) };
      return resultOf((await client.callTool(params, undefined, more)) as WireResult);
    },
    tools: async () => (await client.listTools()).tools,
    resources: (cursor) => client.listResources(cursor === undefined ? {} : { cursor }),
    read: async (uri) => textIn((await client.readResource({ uri })).contents),
    subscribe: (uri) => client.subscribeResource({ uri }),
    prompts: async () => (await client.listPrompts()).prompts.map(({ name }) => name),
    prompt: async (name) => (await client.getPrompt({ name })).messages.map(({ content }) => textIn([content])).join(),
    [Symbol.asyncDispose]: () => client.close(),
  };
}

interface WireResult {
  readonly content: readonly { readonly type: string; readonly text?: string }[];
  readonly isError?: boolean | undefined;
  readonly structuredContent?: unknown;
}

function resultOf({ content, isError = false, structuredContent }: WireResult): CallResult {
  const text = content.map((block) => block.text ?? `[${block.type}]`).join('\n');
  return { text, isError, ...(structuredContent !== undefined && { structured: structuredContent }) };
}

function textIn(contents: readonly object[]): string {
  return (contents[0] as { text: string }).text;
}
