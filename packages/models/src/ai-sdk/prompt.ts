import {
  textOf,
  type AssistantMessage,
  type FileBlock,
  type ImageBlock,
  type Message,
  type ResultBlock,
  type ToolResult,
  type UserBlock,
} from '@treadle/core';
import type { AiSdkVersion, ProviderOptions } from './language-model.ts';
import { signedOf } from './signature.ts';

export interface PromptOptions {
  readonly version: AiSdkVersion;
  /** Whose signatures go back. */
  readonly protocol: string;
}

/** Makes prompts of histories. A message is converted once, as the same ones come again with each turn. */
export function promptOf(
  options: PromptOptions,
): (instructions: string | undefined, history: readonly Message[]) => readonly unknown[] {
  const converted = new WeakMap<Message, object | null>();

  return (instructions, history) => {
    const prompt: object[] = instructions ? [{ role: 'system', content: instructions.toWellFormed() }] : [];
    for (const message of history) {
      let made = converted.get(message);
      if (made === undefined) converted.set(message, (made = promptMessage(message, options)));
      if (made !== null) prompt.push(made);
    }
    return prompt;
  };
}

/** Null: of a reply that was nothing but somebody else's reasoning, nothing is left. */
function promptMessage(message: Message, options: PromptOptions): object | null {
  switch (message.role) {
    case 'user':
      return { role: 'user', content: message.content.map((block) => userPart(block, options.version)) };
    case 'assistant': {
      const content = assistantParts(message, options);
      return content.length === 0 ? null : { role: 'assistant', content };
    }
    case 'tool':
      return { role: 'tool', content: message.content.map((result) => toolResult(result, options.version)) };
    default:
      return message satisfies never;
  }
}

function userPart(block: UserBlock, version: AiSdkVersion): object {
  return block.type === 'text' ? { type: 'text', text: block.text.toWellFormed() } : filePart(block, version);
}

function filePart(block: ImageBlock | FileBlock, version: AiSdkVersion): object {
  const { mediaType } = block;
  const filename = nameOf(block);
  return { type: 'file', mediaType, ...(filename !== undefined && { filename }), data: dataOf(block, version) };
}

/** V4 tags what V3 tells apart by its class. */
function dataOf({ source }: ImageBlock | FileBlock, version: AiSdkVersion): unknown {
  if (source.type === 'url') {
    const url = new URL(source.url);
    return version === 'v3' ? url : { type: 'url', url };
  }
  return version === 'v3' ? source.data : { type: 'data', data: source.data };
}

function nameOf(block: ImageBlock | FileBlock): string | undefined {
  return block.type === 'file' ? block.name : undefined;
}

function assistantParts({ content }: AssistantMessage, { protocol }: PromptOptions): object[] {
  const parts: object[] = [];
  let next: ProviderOptions | undefined;
  const add = (part: object, providerOptions = next): void => {
    parts.push(providerOptions === undefined ? part : { ...part, providerOptions });
    next = undefined;
  };
  for (const part of content) {
    switch (part.type) {
      case 'text':
        add({ type: 'text', text: part.text.toWellFormed() });
        break;
      case 'tool-call':
        add({ type: 'tool-call', toolCallId: part.id, toolName: part.name, input: inputOf(part.arguments) });
        break;
      case 'reasoning': {
        const signed = signedOf(part, protocol);
        if (signed === undefined) break;
        if (part.text !== '' || signed.own) add({ type: 'reasoning', text: part.text.toWellFormed() }, signed.own);
        next = signed.next;
        break;
      }
      default:
        part satisfies never;
    }
  }
  return parts;
}

/** Providers take an object and nothing else. What was broken has been answered with what is wrong with it. */
function inputOf(json: string): unknown {
  try {
    const input: unknown = JSON.parse(json);
    return typeof input === 'object' && input !== null && !Array.isArray(input) ? input : {};
  } catch {
    return {};
  }
}

function toolResult(result: ToolResult, version: AiSdkVersion): object {
  return { type: 'tool-result', toolCallId: result.callId, toolName: result.name, output: outputOf(result, version) };
}

function outputOf({ content, isError }: ToolResult, version: AiSdkVersion): object {
  if (content.some(({ type }) => type === 'image' || type === 'file')) {
    // Contents with media have no form that says so.
    const failed = isError && !content.some(({ type }) => type === 'error');
    const parts = content.map((block) => resultPart(block, version));
    return { type: 'content', value: failed ? [{ type: 'text', text: 'The call failed.' }, ...parts] : parts };
  }
  return { type: isError ? 'error-text' : 'text', value: textOf(content).toWellFormed() };
}

function resultPart(block: ResultBlock, version: AiSdkVersion): object {
  if (block.type === 'text' || block.type === 'error') {
    const words = block.text.toWellFormed();
    return { type: 'text', text: block.type === 'error' ? `Error: ${words}` : words };
  }
  if (version === 'v4') return filePart(block, version);
  const { mediaType, source, type } = block;
  if (source.type === 'url') {
    return { type: `${type}-url`, url: source.url, ...(type === 'file' && { mediaType }) };
  }
  const filename = nameOf(block);
  return { type: `${type}-data`, data: source.data, mediaType, ...(filename !== undefined && { filename }) };
}
