import { createParser } from 'eventsource-parser';
import { PARAMETERS, PROMPT, TOOL_DESCRIPTION, TOOL_NAME, type Contender, type StepInput } from './contender.ts';

interface Call {
  id: string;
  type: 'function';
  function: { name: string; arguments: string };
}

interface AssistantMessage {
  role: 'assistant';
  content: string | null;
  tool_calls?: Call[];
}

type Message =
  | { role: 'user'; content: string }
  | AssistantMessage
  | { role: 'tool'; tool_call_id: string; content: string };

const TOOLS = [
  { type: 'function', function: { name: TOOL_NAME, description: TOOL_DESCRIPTION, parameters: PARAMETERS } },
];

/** A simple loop written by hand: `fetch`, eventsource-parser, and an array of messages. */
export const contender: Contender = {
  prepare({ baseURL, model, stream, onDelta, step }) {
    const url = `${baseURL}/chat/completions`;
    const headers = { 'content-type': 'application/json', authorization: 'Bearer key' };
    const options = stream
      ? { model, tools: TOOLS, stream, stream_options: { include_usage: true } }
      : { model, tools: TOOLS };
    return async () => {
      const messages: Message[] = [{ role: 'user', content: PROMPT }];
      for (;;) {
        const response = await fetch(url, { method: 'POST', headers, body: JSON.stringify({ ...options, messages }) });
        if (!response.ok) throw new Error(await response.text());
        const reply = stream ? await streamed(response, onDelta) : await whole(response);
        messages.push(reply);
        if (!reply.tool_calls?.length) return reply.content ?? '';
        const pending = reply.tool_calls.map(({ function: called }) => step(JSON.parse(called.arguments) as StepInput));
        const results = await Promise.all(pending);
        for (const [index, { id }] of reply.tool_calls.entries()) {
          messages.push({ role: 'tool', tool_call_id: id, content: results[index]! });
        }
      }
    };
  },
};

async function whole(response: Response): Promise<AssistantMessage> {
  const { choices } = (await response.json()) as { choices: { message: AssistantMessage }[] };
  const { content, tool_calls } = choices[0]!.message;
  return { role: 'assistant', content, ...(tool_calls && { tool_calls }) };
}

interface Chunk {
  choices: { delta: { content?: string | null; tool_calls?: Part[] } }[];
}

interface Part {
  index: number;
  id?: string;
  function?: { name?: string; arguments?: string };
}

async function streamed(response: Response, onDelta: (text: string) => void): Promise<AssistantMessage> {
  let content = '';
  const calls: Call[] = [];
  const parser = createParser({
    onEvent({ data }) {
      if (data === '[DONE]') return;
      const delta = (JSON.parse(data) as Chunk).choices[0]?.delta;
      if (delta === undefined) return;
      if (delta.content) {
        content += delta.content;
        onDelta(delta.content);
      }
      if (!delta.tool_calls) return;
      for (const { index, id, function: part } of delta.tool_calls) {
        const call = (calls[index] ??= { id: id!, type: 'function', function: { name: part!.name!, arguments: '' } });
        call.function.arguments += part?.arguments ?? '';
      }
    },
  });
  const reader = response.body!.getReader();
  const decoder = new TextDecoder();
  for (let next = await reader.read(); !next.done; next = await reader.read()) {
    parser.feed(decoder.decode(next.value, { stream: true }));
  }
  return {
    role: 'assistant',
    content: content === '' ? null : content,
    ...(calls.length > 0 && { tool_calls: calls }),
  };
}
