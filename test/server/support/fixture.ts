import { afterAll, beforeAll, expect } from 'vitest';
import { startProvider, type Provider, type Script } from '../../provider/provider.ts';
import type { FormName, ScriptedCall, Step } from '../../provider/script.ts';
import { modelOf, startServer, type ServerProcess, type ServerSettings } from './server-process.ts';

/** A tool call in a script of the model. */
export function call(name: string, input: object): ScriptedCall {
  return { name, arguments: JSON.stringify(input) };
}

/** Requests all tools of the server. */
export const SERVER_TOOLS = { type: 'mcp', server_label: 'treadle' } as const;

/** A function that the client executes. */
export const WEATHER = { type: 'function', name: 'weather', parameters: { type: 'object', properties: {} } } as const;

/** An image of one pixel, and the first bytes of a PDF, both in base64. */
export const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
export const PDF = 'JVBERi0xLjQKJeLjz9MK';

/** The message that the provider must receive for a user message with the text "Look", `PNG` and `PDF`. */
export const LOOK_MESSAGE = {
  role: 'user',
  content: [
    { type: 'text', text: 'Look' },
    { type: 'image_url', image_url: { url: `data:image/png;base64,${PNG}` } },
    { type: 'file', file: { filename: 'a.pdf', file_data: `data:application/pdf;base64,${PDF}` } },
  ],
} as const;

/** One server and one scripted provider, shared by all tests of a file. */
export interface ServerFixture {
  /** With `/v1`, as clients expect it. */
  readonly baseURL: string;
  readonly server: ServerProcess;
  readonly provider: Provider;
  /** Scripts the replies of a new model. */
  script(...steps: readonly Step[]): Promise<FixtureScript>;
}

export interface FixtureScript extends Script {
  /** The name of the model that gives these replies. */
  readonly model: string;
  /** The name of the same model, requested by the server in another wire form. */
  readonly modelIn: (form: FormName) => string;
  /** The requests that the provider received. Fails if the provider rejected one. */
  readonly bodies: () => Promise<readonly ChatBody[]>;
  /** The conversation of each request, one line per message: see `conversationLines`. */
  readonly conversations: () => Promise<readonly (readonly string[])[]>;
  /** For Anthropic's wire form: the content types of each message of the last request. Fails as `bodies` does. */
  readonly contentTypes: () => Promise<readonly string[]>;
}

/** The fields of a Chat Completions request that tests use. */
export interface ChatBody {
  readonly messages: readonly ChatMessage[];
  readonly tools?: readonly { readonly function: { readonly name: string; readonly parameters: unknown } }[];
  readonly [field: string]: unknown;
}

interface ChatMessage {
  readonly role: string;
  readonly content?: string | null | readonly { readonly type: string; readonly text?: string }[];
  readonly tool_calls?: readonly {
    readonly id: string;
    readonly function: { readonly name: string; readonly arguments: string };
  }[];
  readonly tool_call_id?: string;
}

export function useServerFixture(settings: ServerSettings = {}): ServerFixture {
  let provider: Provider;
  let server: ServerProcess;
  beforeAll(async () => {
    provider = await startProvider();
    server = await startServer(provider, settings);
  });
  afterAll(async () => {
    await server[Symbol.asyncDispose]();
    await provider[Symbol.asyncDispose]();
  });

  return {
    get baseURL() {
      return `${server.url}/v1`;
    },
    get server() {
      return server;
    },
    get provider() {
      return provider;
    },
    async script(...steps) {
      const script = await provider.script(steps);
      const bodies = async (): Promise<readonly ChatBody[]> => {
        const requests = await script.requests();
        for (const { refused } of requests) expect(refused).toBeUndefined();
        return requests.map(({ body }) => body as ChatBody);
      };
      return {
        ...script,
        model: modelOf(script),
        modelIn: (form) => modelOf(script, form),
        bodies,
        conversations: async () => (await bodies()).map(({ messages }) => conversationLines(messages)),
        contentTypes: async () =>
          (await bodies())
            .at(-1)!
            .messages.map(({ role, content }) =>
              [`${role}:`, ...(content as readonly { readonly type: string }[]).map(({ type }) => type)].join(' '),
            ),
      };
    },
  };
}

/**
 * One line per message. Calls are numbered in order, so that a result shows which call it answers:
 * `assistant: Let me see. [1] add {"a":1}`, `tool: [1] 3`.
 */
function conversationLines(messages: readonly ChatMessage[]): readonly string[] {
  const numbers = new Map<string, number>();
  return messages.map(({ role, content, tool_calls: calls = [], tool_call_id: answered }) => {
    const callTexts = calls.map(({ id, function: { name, arguments: json } }) => {
      numbers.set(id, numbers.size + 1);
      return `[${numbers.get(id)}] ${name} ${json}`;
    });
    const text = typeof content === 'string' ? content : (content ?? []).map((part) => part.text).join('|');
    const number = answered === undefined ? [] : [`[${numbers.get(answered)}]`];
    return [`${role}:`, ...number, ...(text === '' ? [] : [text]), ...callTexts].join(' ');
  });
}

/** Resolves when the provider has received this many requests for the script. */
export async function waitForRequests(script: Script, count: number): Promise<void> {
  while ((await script.requests()).length < count);
}

/** Creates a short response with a tool call, to check that the server still answers other clients. */
export async function expectServerResponds({
  server,
  provider,
}: Pick<ServerFixture, 'server' | 'provider'>): Promise<void> {
  const script = await provider.script([{ calls: [call('add', { a: 1, b: 2 })] }, { text: 'Three.' }]);
  const answer = await fetch(`${server.url}/v1/responses`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: modelOf(script), input: '1 + 2?', tools: [SERVER_TOOLS] }),
  });
  const output = [{ type: 'mcp_call', output: '3' }, { content: [{ text: 'Three.' }] }];
  expect(await answer.json()).toMatchObject({ status: 'completed', output });
}
