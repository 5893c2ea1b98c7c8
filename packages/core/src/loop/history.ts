import type { AssistantPart, Message, ResultBlock } from '../messages.ts';
import { EMPTY_ROLLING, rollText, type Rolling } from './digest.ts';

/**
 * A conversation that only grows: a view of the first `length` messages of an array that later states share, so that a
 * message costs the same to append however long the history is.
 *
 * 1. A view never changes: what lies beyond its length belongs to later states.
 * 2. Appending to the newest view extends the shared array; appending to an older one copies first.
 * 3. While the model is called, the newest view covers the whole array, so the array itself can be handed out.
 */
export interface History {
  readonly items: readonly Message[];
  readonly length: number;
  /** Call ids by the position of the message that introduced them. */
  readonly ids: ReadonlyMap<string, number>;
  /** Of the view's messages. */
  readonly rolling: Rolling;
}

export function emptyHistory(): History {
  return { items: [], length: 0, ids: new Map(), rolling: EMPTY_ROLLING };
}

export function append(history: History, message: Message): History {
  const { items, ids } = history.length === history.items.length ? history : copied(history);
  (items as Message[]).push(message);
  if (message.role === 'assistant') noteIds(ids as Map<string, number>, message.content, history.length);
  return { items, length: history.length + 1, ids, rolling: rolled(history.rolling, message) };
}

export function messagesOf(history: History): readonly Message[] {
  return history.items.slice(0, history.length);
}

export function digestOf(history: History): number {
  return history.rolling;
}

/** Takes in every word of a message and which part it stands in; pictures and files by their JSON. */
function rolled(rolling: Rolling, { role, content }: Message): Rolling {
  let hash = rollText(rolling, role);
  for (let i = 0; i < content.length; i++) {
    const part = content[i]!;
    switch (part.type) {
      case 'text':
        hash = rollText(rollText(hash, 't'), part.text);
        break;
      case 'reasoning':
        hash = rollText(rollText(rollText(hash, 'r'), part.text), part.signature ?? '');
        break;
      case 'tool-call':
        hash = rollText(rollText(rollText(rollText(hash, 'c'), part.id), part.name), part.arguments);
        break;
      case 'tool-result':
        hash = rollText(rollText(rollText(rollText(hash, 'a'), part.callId), part.name), part.isError ? 'e' : '');
        for (let j = 0; j < part.content.length; j++) hash = rolledBlock(hash, part.content[j]!);
        break;
      default:
        hash = rollText(rollText(hash, MARKS[part.type]), JSON.stringify(part));
    }
  }
  return hash >>> 0;
}

function rolledBlock(rolling: Rolling, block: ResultBlock): Rolling {
  return rollText(rollText(rolling, MARKS[block.type]), 'text' in block ? block.text : JSON.stringify(block));
}

/** Short, since every character is hashed. */
const MARKS = { text: 't', error: 'e', image: 'i', file: 'f' } as const;

/**
 * The reply's parts with every call id present and new to the conversation, every name one that providers take back, and
 * no text that is empty: they demand it, and models forget it.
 */
export function acceptable(history: History, given: readonly AssistantPart[], turn: number): readonly AssistantPart[] {
  let content: AssistantPart[] | undefined;
  const inReply = new Set<string>();
  for (let index = 0; index < given.length; index++) {
    const part = given[index]!;
    const accepted = acceptablePart(history, part, inReply, turn);
    if (accepted !== part) content ??= given.slice(0, index);
    if (accepted) content?.push(accepted);
  }
  return content ?? given;
}

/** `inReply`: the ids of the calls before it, to which its own is added. Absent for a text that is empty. */
function acceptablePart(
  history: History,
  part: AssistantPart,
  inReply: Set<string>,
  turn: number,
): AssistantPart | undefined {
  if (part.type !== 'tool-call') return part.type === 'text' && part.text === '' ? undefined : part;
  let { id } = part;
  if (id === '' || inReply.has(id) || has(history, id)) {
    id = `call_t${turn}_${inReply.size}`;
    while (inReply.has(id) || has(history, id)) id += '_';
  }
  inReply.add(id);
  const name = NAME.test(part.name) ? part.name : part.name.replace(/[^\w-]/g, '_').slice(0, 64) || 'unnamed';
  return id === part.id && name === part.name ? part : { ...part, id, name };
}

const NAME = /^[a-zA-Z0-9_-]{1,64}$/;

function has(history: History, id: string): boolean {
  return (history.ids.get(id) ?? history.length) < history.length;
}

function copied(history: History): { items: readonly Message[]; ids: ReadonlyMap<string, number> } {
  const ids = new Map<string, number>();
  for (const [id, position] of history.ids) if (position < history.length) ids.set(id, position);
  return { items: messagesOf(history), ids };
}

function noteIds(ids: Map<string, number>, content: readonly AssistantPart[], position: number): void {
  for (let i = 0; i < content.length; i++) {
    const part = content[i]!;
    if (part.type === 'tool-call' && !ids.has(part.id)) ids.set(part.id, position);
  }
}
