import type { Message, ModelRequest, ToolSpec } from '@treadle/core';
import { jsonOf } from './json.ts';
import { keptHead, keptTools } from './kept-bytes.ts';

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

const toolsOf = keptTools((tools) => {
  const wire = tools.map(({ name, description, parameters }) => ({
    type: 'function',
    function: { name, description, parameters },
  }));
  return tools.length === 0 ? '],' : `],"tools":${jsonOf(wire)},`;
});

/**
 * `{"model":…,"messages":[` and the system message, the history, the tools, the rest: the form that OpenAI's Chat
 * Completions and Ollama's chat share. Only the rest is made each time.
 */
export function messagesBody(parts: MessagesBody): (request: ModelRequest) => readonly Uint8Array[] {
  const opening = `${jsonOf({ model: parts.model }).slice(0, -1)},"messages":[`;
  const headOf = keptHead((system) => opening + (system ? jsonOf({ role: 'system', content: system }) : ''));

  return (request) => {
    const system = parts.system(request);
    const messages = parts.history(request.messages);
    return [
      headOf(request.messages, system),
      system ? messages : messages.subarray(1),
      toolsOf(parts.tools(request)),
      Buffer.from(jsonOf(parts.rest(request)).slice(1)),
    ];
  };
}
