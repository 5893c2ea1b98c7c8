import type { ModelRequest, ToolSpec } from '@treadle/core';
import { bodies, type Histories } from './body.ts';
import { jsonOf } from './json.ts';
import { keptFor } from './kept.ts';

/** How the parts of a body are made that has `messages` and, beside them, `tools` wrapped as functions. */
export interface MessagesBody<State> {
  readonly model: string;
  readonly histories: Histories<State>;
  /** What the system message says; nothing: there is none. */
  readonly system: (request: ModelRequest) => string | undefined;
  readonly tools: (request: ModelRequest) => readonly ToolSpec[];
  /** All other fields. What is undefined is not sent. */
  readonly rest: (request: ModelRequest) => Readonly<Record<string, unknown>>;
}

const toolsOf = keptFor((tools: readonly ToolSpec[]) => {
  const wire = tools.map(({ name, description, parameters, strict }) => ({
    type: 'function',
    function: { name, description, parameters, ...(strict && { strict }) },
  }));
  return tools.length === 0 ? '' : `,"tools":${jsonOf(wire)}`;
});

/** The form that OpenAI's Chat Completions and Ollama's chat share. */
export function messagesBody<State>(parts: MessagesBody<State>): (request: ModelRequest) => Uint8Array {
  const { model, histories } = parts;
  return bodies(histories, {
    write(request) {
      const said = parts.system(request);
      const system = said ? jsonOf({ role: 'system', content: said }) : '';
      const rest = jsonOf({ model, ...parts.rest(request) }).slice(0, -1);
      return `${rest}${toolsOf(parts.tools(request))},"messages":[${system}`;
    },
  });
}
