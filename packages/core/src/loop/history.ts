import type { AssistantPart, Message } from '../messages.ts';
import { EMPTY_ROLLING, roll, type Rolling } from './digest.ts';

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
  return { items, length: history.length + 1, ids, rolling: roll(history.rolling, textsOf(message)) };
}

export function messagesOf(history: History): readonly Message[] {
  return history.items.slice(0, history.length);
}

export function digestOf(history: History): number {
  return history.rolling;
}

/** Short, since every character is hashed. */
const MARKS = {
  text: 't',
  reasoning: 'r',
  'tool-call': 'c',
  'tool-result': 'a',
  image: 'i',
  file: 'f',
  error: 'e',
} as const;

/** Every word of a message and which part it stands in; pictures and files by their JSON. */
function textsOf({ role, content }: Message): readonly string[] {
  const texts: string[] = [role];
  for (const part of content) {
    texts.push(MARKS[part.type]);
    switch (part.type) {
      case 'text':
        texts.push(part.text);
        break;
      case 'reasoning':
        texts.push(part.text, part.signature ?? '');
        break;
      case 'tool-call':
        texts.push(part.id, part.name, part.arguments);
        break;
      case 'tool-result':
        texts.push(part.callId, part.name, part.isError ? 'e' : '');
        for (const block of part.content)
          texts.push(MARKS[block.type], 'text' in block ? block.text : JSON.stringify(block));
        break;
      default:
        texts.push(JSON.stringify(part));
    }
  }
  return texts;
}

/**
 * The reply's parts with every call id present and new to the conversation, every name one that providers take back, and
 * no text that is empty: they demand it, and models forget it.
 */
export function acceptable(history: History, given: readonly AssistantPart[], turn: number): readonly AssistantPart[] {
  const content = given.some(isEmptyText) ? given.filter((part) => !isEmptyText(part)) : given;
  const inReply = new Set<string>();
  let index = -1;
  let changed = false;
  const parts = content.map((part) => {
    if (part.type !== 'tool-call') return part;
    index++;
    let { id } = part;
    if (id === '' || inReply.has(id) || has(history, id)) {
      id = `call_t${turn}_${index}`;
      while (inReply.has(id) || has(history, id)) id += '_';
    }
    inReply.add(id);
    const name = NAME.test(part.name) ? part.name : part.name.replace(/[^\w-]/g, '_').slice(0, 64) || 'unnamed';
    if (id === part.id && name === part.name) return part;
    changed = true;
    return { ...part, id, name };
  });
  return changed ? parts : content;
}

const NAME = /^[a-zA-Z0-9_-]{1,64}$/;

function isEmptyText(part: AssistantPart): boolean {
  return part.type === 'text' && part.text === '';
}

function has(history: History, id: string): boolean {
  return (history.ids.get(id) ?? history.length) < history.length;
}

function copied(history: History): { items: readonly Message[]; ids: ReadonlyMap<string, number> } {
  const ids = new Map<string, number>();
  for (const [id, position] of history.ids) if (position < history.length) ids.set(id, position);
  return { items: messagesOf(history), ids };
}

function noteIds(ids: Map<string, number>, content: readonly AssistantPart[], position: number): void {
  for (const part of content) if (part.type === 'tool-call' && !ids.has(part.id)) ids.set(part.id, position);
}
