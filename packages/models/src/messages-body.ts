import type { Message, ModelRequest, ToolSpec } from '@treadle/core';

/** How the parts of a body are made that has `messages` and, beside them, `tools` wrapped as functions. */
export interface MessagesBody {
  readonly model: string;
  readonly history: (messages: readonly Message[]) => Uint8Array;
  /** What the system message says; nothing: there is none. */
  readonly system: (request: ModelRequest) => string | undefined;
  readonly tools: (request: ModelRequest) => readonly ToolSpec[];
  /** All other fields; at least one. What is undefined is not sent. */
  readonly rest: (request: ModelRequest) => Readonly<Record<string, unknown>>;
}

const toolLists = new WeakMap<readonly ToolSpec[], Uint8Array>();

/**
 * `{"model":…,"messages":[` and the system message, the history, the tools, the rest: the form that OpenAI's Chat
 * Completions and Ollama's chat share. Only the rest is made each time.
 */
export function messagesBody(parts: MessagesBody): (request: ModelRequest) => readonly Uint8Array[] {
  const opening = `{"model":${JSON.stringify(parts.model)},"messages":[`;
  const heads = new WeakMap<readonly Message[], { system: string | undefined; bytes: Uint8Array }>();

  const headOf = (messages: readonly Message[], system: string | undefined): Uint8Array => {
    let head = heads.get(messages);
    if (head === undefined || head.system !== system) {
      head = { system, bytes: Buffer.from(opening + (system ? systemMessage(system) : '')) };
      heads.set(messages, head);
    }
    return head.bytes;
  };

  return (request) => {
    const system = parts.system(request);
    const messages = parts.history(request.messages);
    return [
      headOf(request.messages, system),
      system ? messages : messages.subarray(1),
      toolsOf(parts.tools(request)),
      Buffer.from(JSON.stringify(parts.rest(request)).slice(1)),
    ];
  };
}

function systemMessage(text: string): string {
  return JSON.stringify({ role: 'system', content: text.toWellFormed() });
}

function toolsOf(tools: readonly ToolSpec[]): Uint8Array {
  let bytes = toolLists.get(tools);
  if (bytes === undefined) {
    const wire = tools.map(({ name, description, parameters }) => ({
      type: 'function',
      function: { name, description, parameters },
    }));
    bytes = Buffer.from(tools.length === 0 ? '],' : `],"tools":${JSON.stringify(wire)},`);
    toolLists.set(tools, bytes);
  }
  return bytes;
}
