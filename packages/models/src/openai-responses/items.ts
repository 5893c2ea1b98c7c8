import type { AssistantPart, ReasoningPart, SaidText } from '@treadle/core';
import { fieldsOf, listOf, parsed, textIn } from '../json.ts';
import { addLogprobs, logprobsOf, type WithLogprobs } from '../logprobs.ts';

/** The fields of an output item that are read. Hosts omit and add fields, so no field and no type is certain. */
export interface WireItem {
  readonly type?: unknown;
  readonly id?: unknown;
  /** Of a message, and of reasoning in plain text. */
  readonly content?: unknown;
  /** Of a message. */
  readonly phase?: unknown;
  readonly summary?: unknown;
  readonly encrypted_content?: unknown;
  readonly call_id?: unknown;
  readonly name?: unknown;
  readonly arguments?: unknown;
  /** Of a call with a text. */
  readonly input?: unknown;
}

interface WirePart {
  readonly text?: unknown;
  readonly logprobs?: unknown;
  readonly refusal?: unknown;
}

/** Separates two thoughts of one item. */
export const THOUGHT_BREAK = '\n\n';

/** The parts of a reply with these items. Items of other types, such as searches of the provider, are ignored. */
export function partsOf(items: readonly unknown[], signer: string): AssistantPart[] {
  const parts: AssistantPart[] = [];
  for (const value of items) {
    const item = fieldsOf<WireItem>(value);
    if (item.type === 'message') {
      for (const said of messageTexts(item)) parts.push({ type: 'text', ...said, ...phaseOf(item) });
    } else if (item.type === 'function_call') {
      const id = textIn(item.call_id) || textIn(item.id);
      parts.push({ type: 'tool-call', id, name: textIn(item.name), arguments: argumentsOf(item) });
    } else if (item.type === 'custom_tool_call') {
      const id = textIn(item.call_id) || textIn(item.id);
      const json = JSON.stringify({ input: textIn(item.input) });
      parts.push({ type: 'tool-call', id, name: textIn(item.name), arguments: json, custom: true });
    } else if (item.type === 'reasoning') {
      parts.push(...reasoningParts(item, signer));
    }
  }
  return parts;
}

function phaseOf({ phase }: WireItem): Pick<SaidText, 'phase'> {
  return phase === 'commentary' || phase === 'final_answer' ? { phase } : {};
}

/** Texts that follow each other are one. */
function messageTexts({ content }: WireItem): readonly Pick<SaidText, 'text' | 'refusal' | 'logprobs'>[] {
  const texts: ({ text: string; refusal?: true } & WithLogprobs)[] = [];
  for (const value of typeof content === 'string' ? [{ text: content }] : listOf(content)) {
    const part = fieldsOf<WirePart>(value);
    const isRefusal = textIn(part.text) === '';
    const text = isRefusal ? textIn(part.refusal) : textIn(part.text);
    if (text === '') continue;
    let last = texts.at(-1);
    if (last && (last.refusal ?? false) === isRefusal) last.text += text;
    else texts.push((last = isRefusal ? { text, refusal: true } : { text }));
    addLogprobs(last, logprobsOf(part.logprobs));
  }
  return texts;
}

/** JSON text, or on some hosts the object itself. */
function argumentsOf({ arguments: value }: WireItem): string {
  if (typeof value === 'string') return value;
  return value == null ? '' : JSON.stringify(value);
}

/**
 * The summary and the reasoning itself, of which most hosts send one. The last part has the signature: the whole item as
 * JSON, so that it can be sent back unchanged.
 */
function reasoningParts(item: WireItem, signer: string): readonly ReasoningPart[] {
  const summary = thoughtsOf(item.summary);
  const text = thoughtsOf(item.content);
  const canReturn = textIn(item.id) !== '' || textIn(item.encrypted_content) !== '';
  const signed = canReturn && { signature: JSON.stringify(item), protocol: signer };
  if (text === '') {
    return summary === '' && !signed
      ? []
      : [{ type: 'reasoning', text: summary, ...(summary !== '' && { summary: true }), ...signed }];
  }
  const part: ReasoningPart = { type: 'reasoning', text, ...signed };
  return summary === '' ? [part] : [{ type: 'reasoning', text: summary, summary: true }, part];
}

function thoughtsOf(parts: unknown): string {
  return listOf(parts)
    .map((part) => textIn(fieldsOf<WirePart>(part).text))
    .filter((thought) => thought !== '')
    .join(THOUGHT_BREAK);
}

/** What decides in which form items are sent back, and which reasoning can be. */
export interface Sender {
  /** Only reasoning signed under this name is sent back. */
  readonly signer: string;
  /** The provider stores the responses. */
  readonly stored: boolean;
  /** The provider has calls with a text. */
  readonly custom: boolean;
}

/**
 * The item to send back, if there is one: a summary alone is rejected. A provider that has stored the response finds its
 * items by id. Any other needs all of the thoughts, encrypted or plain.
 */
export function reasoningItem({ signature, protocol }: ReasoningPart, { stored, signer }: Sender): unknown {
  if (protocol !== signer || signature === undefined) return undefined;
  const item = fieldsOf<WireItem>(parsed(signature));
  if (item.type !== 'reasoning') return undefined;
  return stored || textIn(item.encrypted_content) !== '' || listOf(item.content).length > 0 ? item : undefined;
}
