import {
  textOf,
  type AssistantMessage,
  type Message,
  type ToolMessage,
  type ToolResult,
  type UserBlock,
} from '@treadle/core';

/** One message as the API wants it. A tool message becomes one per result; what cannot be in those follows from the user. */
export function wireMessage(message: Message): string {
  switch (message.role) {
    case 'user':
      return JSON.stringify({ role: 'user', content: userContent(message.content) });
    case 'assistant':
      return JSON.stringify(assistant(message));
    case 'tool':
      return toolMessages(message)
        .map((wire) => JSON.stringify(wire))
        .join(',');
    default:
      return message satisfies never;
  }
}

export function systemMessage(instructions: string): string {
  return JSON.stringify({ role: 'system', content: instructions.toWellFormed() });
}

function userContent(blocks: readonly UserBlock[]): unknown {
  return blocks.every((block) => block.type === 'text') ? textOf(blocks).toWellFormed() : blocks.map(userPart);
}

function userPart(block: UserBlock): unknown {
  switch (block.type) {
    case 'text':
      return { type: 'text', text: block.text.toWellFormed() };
    case 'image':
      return { type: 'image_url', image_url: { url: address(block) } };
    case 'file':
      return { type: 'file', file: { filename: block.name ?? 'file', file_data: address(block) } };
    default:
      return block satisfies never;
  }
}

function address({ mediaType, source }: Extract<UserBlock, { type: 'image' | 'file' }>): string {
  return source.type === 'url' ? source.url : `data:${mediaType};base64,${source.data}`;
}

function assistant({ content }: AssistantMessage): unknown {
  const calls = content.filter((part) => part.type === 'tool-call');
  const text = textOf(content).toWellFormed();
  if (calls.length === 0) return { role: 'assistant', content: text };
  return {
    role: 'assistant',
    content: text === '' ? null : text,
    tool_calls: calls.map(({ id, name, arguments: json }) => ({
      id,
      type: 'function',
      function: { name, arguments: json === '' ? '{}' : json.toWellFormed() },
    })),
  };
}

function toolMessages({ content }: ToolMessage): unknown[] {
  const wire: unknown[] = content.map((result) => ({
    role: 'tool',
    tool_call_id: result.callId,
    name: result.name,
    content: resultText(result),
  }));
  const media = content.flatMap(mediaParts);
  if (media.length > 0) wire.push({ role: 'user', content: media });
  return wire;
}

/** The API has no place for "this is an error", so the words say it. */
function resultText({ content, isError }: ToolResult): string {
  const text = textOf(content).toWellFormed();
  const attached = content.some((block) => block.type === 'image' || block.type === 'file');
  const words = text === '' && attached ? 'The result is attached to the next message.' : text;
  return isError && !/^error\b/i.test(words) ? `Error: ${words}` : words;
}

function mediaParts({ callId, name, content }: ToolResult): unknown[] {
  const media = content.filter((block) => block.type === 'image' || block.type === 'file');
  if (media.length === 0) return [];
  return [{ type: 'text', text: `Result of ${name} (${callId}):` }, ...media.map(userPart)];
}
