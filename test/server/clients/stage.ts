import { afterAll, beforeAll, expect } from 'vitest';
import { startProvider, type Provider, type Script } from '../../provider/provider.ts';
import type { FormName, ScriptedCall, Step } from '../../provider/script.ts';
import type { Settings } from '../process/settings.ts';
import { modelOf, startServer, type ServerProcess } from '../process/start.ts';

/** A call as the model makes it. */
export function call(name: string, input: object): ScriptedCall {
  return { name, arguments: JSON.stringify(input) };
}

/** Asks for all tools of the server. */
export const SERVER_TOOLS = { type: 'mcp', server_label: 'treadle' } as const;

/** A function that the client executes. */
export const WEATHER = { type: 'function', name: 'weather', parameters: { type: 'object', properties: {} } } as const;

/** The smallest picture, and the beginning of a document. */
export const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
export const PDF = 'JVBERi0xLjQKJeLjz9MK';

/** What a user's message with the words "Look" and both of them is to the provider. */
export const LOOK = {
  role: 'user',
  content: [
    { type: 'text', text: 'Look' },
    { type: 'image_url', image_url: { url: `data:image/png;base64,${PNG}` } },
    { type: 'file', file: { filename: 'a.pdf', file_data: `data:application/pdf;base64,${PDF}` } },
  ],
} as const;

/** The server with the provider behind it, for all tests of a file. */
export interface Stage {
  /** With `/v1`, as clients want it. */
  readonly baseURL: string;
  readonly server: ServerProcess;
  readonly provider: Provider;
  /** What the model is going to say. */
  script(...steps: readonly Step[]): Promise<Played>;
}

export interface Played extends Script {
  /** The model that says it, by the name that clients use. */
  readonly model: string;
  /** The same, spoken to by the server in another form. */
  readonly modelIn: (form: FormName) => string;
  /** The requests that came to the provider. Fails if it has refused one. */
  readonly bodies: () => Promise<readonly ChatBody[]>;
  /** The conversation of each request, in words: see `told`. */
  readonly heard: () => Promise<readonly (readonly string[])[]>;
  /** Of a model in Anthropic's form: the types of what each message of the last request holds. Fails as `bodies` does. */
  readonly types: () => Promise<readonly string[]>;
}

/** A request in the form of the chat API, as far as tests look at it. */
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

export function stage(settings: Settings = {}): Stage {
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
        heard: async () => (await bodies()).map(({ messages }) => told(messages)),
        types: async () =>
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
 * A conversation in a line for each message. Calls are numbered as they come, so that a result shows which one it
 * answers: `assistant: Let me see. [1] add {"a":1}`, `tool: [1] 3`.
 */
function told(messages: readonly ChatMessage[]): readonly string[] {
  const numbers = new Map<string, number>();
  return messages.map(({ role, content, tool_calls: calls = [], tool_call_id: answered }) => {
    const said = calls.map(({ id, function: { name, arguments: json } }) => {
      numbers.set(id, numbers.size + 1);
      return `[${numbers.get(id)}] ${name} ${json}`;
    });
    const words = typeof content === 'string' ? content : (content ?? []).map(({ text }) => text).join('|');
    const head = answered === undefined ? [] : [`[${numbers.get(answered)}]`];
    return [`${role}:`, ...head, ...(words === '' ? [] : [words]), ...said].join(' ');
  });
}
