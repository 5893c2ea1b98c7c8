/** A conversation as Treadle keeps it: one shape for every provider. Instructions are not a message. */
export type Message = UserMessage | AssistantMessage | ToolMessage;

export interface UserMessage {
  readonly role: 'user';
  readonly content: readonly UserBlock[];
}

/** One reply of the model, its parts in the order in which it gave them. */
export interface AssistantMessage {
  readonly role: 'assistant';
  readonly content: readonly AssistantPart[];
}

/** All results of one turn, in the order of the calls that they answer. */
export interface ToolMessage {
  readonly role: 'tool';
  readonly content: readonly ToolResult[];
}

export interface TextBlock {
  readonly type: 'text';
  readonly text: string;
}

/** What a model says. Some tell what is said along the way from the answer, and want to have that back. */
export interface SaidText extends TextBlock {
  readonly phase?: 'commentary' | 'final_answer';
}

/** Where the bytes of an image or a file are. `data` is base64. */
export type Source = { readonly type: 'data'; readonly data: string } | { readonly type: 'url'; readonly url: string };

export interface ImageBlock {
  readonly type: 'image';
  readonly mediaType: string;
  readonly source: Source;
}

export interface FileBlock {
  readonly type: 'file';
  readonly mediaType: string;
  readonly name?: string;
  readonly source: Source;
}

/** Something that went wrong, told in words; only in results. */
export interface ErrorBlock {
  readonly type: 'error';
  readonly text: string;
}

/**
 * `signature` is the provider's opaque proof; it goes back unchanged or not at all. `protocol` names who gave it, a wire
 * protocol and its host: nobody else may get it.
 */
export interface ReasoningPart {
  readonly type: 'reasoning';
  readonly text: string;
  readonly signature?: string;
  readonly protocol?: string;
}

/** `arguments` is the model's own JSON text, kept as it came, also when it is broken. */
export interface ToolCall {
  readonly type: 'tool-call';
  readonly id: string;
  readonly name: string;
  readonly arguments: string;
}

export type UserBlock = TextBlock | ImageBlock | FileBlock;
export type AssistantPart = SaidText | ReasoningPart | ToolCall;
export type ResultBlock = TextBlock | ImageBlock | FileBlock | ErrorBlock;

export interface ToolResult {
  readonly type: 'tool-result';
  readonly callId: string;
  readonly name: string;
  readonly content: readonly ResultBlock[];
  readonly isError: boolean;
}

export function userText(text: string): UserMessage {
  return { role: 'user', content: [{ type: 'text', text }] };
}

/** The words of a message or a result, without what is not words. */
export function textOf(content: readonly { readonly type: string; readonly text?: string }[]): string {
  if (content.length === 1 && content[0]!.type === 'text') return content[0]!.text!;
  let text = '';
  for (const block of content) if (block.type === 'text' || block.type === 'error') text += block.text;
  return text;
}
