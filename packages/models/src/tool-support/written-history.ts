import {
  textOf,
  type AssistantMessage,
  type AssistantPart,
  type Message,
  type ToolMessage,
  type ToolResult,
  type UserBlock,
} from '@treadle/core';

interface Written {
  readonly messages: Message[];
  last: Message | undefined;
}

const histories = new WeakMap<readonly Message[], Written>();

/**
 * A history with its calls and results as text, for a model that knows neither. It grows as the history does, so that
 * what a protocol keeps of it stays good.
 */
export function writtenHistory(messages: readonly Message[]): readonly Message[] {
  let written = histories.get(messages);
  const count = written?.messages.length ?? 0;
  if (written === undefined || count > messages.length || (count > 0 && messages[count - 1] !== written.last)) {
    written = { messages: [], last: undefined };
    histories.set(messages, written);
  }
  while (written.messages.length < messages.length) {
    written.last = messages[written.messages.length]!;
    written.messages.push(inWords(written.last));
  }
  return written.messages;
}

function inWords(message: Message): Message {
  switch (message.role) {
    case 'user':
      return message;
    case 'assistant':
      return message.content.some(({ type }) => type === 'tool-call') ? assistant(message) : message;
    case 'tool':
      return { role: 'user', content: results(message) };
    default:
      return message satisfies never;
  }
}

/** Neighbouring words become one text, as a model would have written them. */
function assistant({ content }: AssistantMessage): AssistantMessage {
  const parts: AssistantPart[] = [];
  for (const part of content) {
    if (part.type === 'reasoning') {
      parts.push(part);
      continue;
    }
    const text = part.type === 'text' ? part.text : callText(part.name, part.arguments);
    const last = parts.at(-1);
    if (last?.type === 'text') parts[parts.length - 1] = { type: 'text', text: `${last.text}\n${text}` };
    else parts.push({ type: 'text', text });
  }
  return { role: 'assistant', content: parts };
}

/** The arguments stand as the model gave them, also where they are no JSON: it shall see what it did. */
function callText(name: string, json: string): string {
  return `<tool_call>\n{"name": ${JSON.stringify(name)}, "arguments": ${json === '' ? '{}' : json}}\n</tool_call>`;
}

function results({ content }: ToolMessage): UserBlock[] {
  return content.flatMap((result): UserBlock[] => {
    const media = result.content.filter((block) => block.type === 'image' || block.type === 'file');
    return [{ type: 'text', text: resultText(result) }, ...media];
  });
}

function resultText({ name, content, isError }: ToolResult): string {
  const error = isError ? ' error="true"' : '';
  return `<tool_response name=${JSON.stringify(name)}${error}>\n${textOf(content)}\n</tool_response>\n`;
}
