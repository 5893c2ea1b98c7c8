import type { AssistantPart, Message, ResultBlock, UserBlock } from '../messages.ts';
import type { Finish } from '../model.ts';

/* Messages in the form of the conventions, as JSON: only if content was asked for. */

type Part = Readonly<Record<string, unknown>>;

export function inputMessages(messages: readonly Message[]): string {
  return JSON.stringify(messages.map(({ role, content }) => ({ role, parts: content.map(partOf) })));
}

export function outputMessages(content: readonly AssistantPart[], finish: Finish): string {
  return JSON.stringify([{ role: 'assistant', parts: content.map(partOf), finish_reason: FINISH[finish] }]);
}

const FINISH: Readonly<Record<Finish, string>> = {
  stop: 'stop',
  'tool-calls': 'tool_call',
  length: 'length',
  'content-filter': 'content_filter',
};

export function instructionParts(text: string): string {
  return JSON.stringify([{ type: 'text', content: text }]);
}

function jsonValue(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** An object, as the conventions ask for: the one that the tool returned, or one with all parts. */
export function resultText(content: readonly ResultBlock[]): string {
  const [first] = content;
  const value = content.length === 1 && first?.type === 'text' ? jsonValue(first.text) : undefined;
  const isObject = typeof value === 'object' && value !== null && !Array.isArray(value);
  return JSON.stringify(isObject ? value : { content: content.map(partOf) });
}

function partOf(part: Message['content'][number] | ResultBlock | UserBlock): Part {
  switch (part.type) {
    case 'text':
      return { type: 'text', content: part.text };
    case 'error':
      return { type: 'text', content: part.text };
    case 'reasoning':
      return { type: 'reasoning', content: part.text };
    case 'tool-call':
      return { type: 'tool_call', id: part.id, name: part.name, arguments: jsonValue(part.arguments) };
    case 'tool-result':
      return { type: 'tool_call_response', id: part.callId, response: part.content.map(partOf) };
    case 'image':
    case 'file': {
      const modality = part.type === 'image' ? 'image' : 'document';
      const known = { modality, mime_type: part.mediaType };
      // The bytes would be larger than everything else.
      return part.source.type === 'url'
        ? { type: 'uri', ...known, uri: part.source.url }
        : { type: 'uri', ...known, uri: `data:${part.mediaType};base64,…` };
    }
    default:
      return part satisfies never;
  }
}
