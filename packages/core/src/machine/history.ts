import type { AssistantPart, Message } from '../messages.ts';

/**
 * A conversation that only grows: a view of the first `length` messages of an array that later states share. The cost of
 * appending a message does not depend on the length of the history.
 *
 * 1. A view never changes: messages beyond its length belong to later states.
 * 2. Appending to the newest view extends the shared array; appending to an older view copies the array first.
 * 3. While the model is called, the newest view covers the whole array, so the array itself can be passed on.
 */
export interface History {
  readonly items: readonly Message[];
  readonly length: number;
  /** Call ids by the position of the message that introduced them. */
  readonly ids: ReadonlyMap<string, number>;
  /** A hash of the view's messages; see `hashMessage`. */
  readonly rolling: number;
}

/* Other lists on hot paths, which usually have one item. */

/**
 * `list.map(to)`. Once V8 has optimised a function, `map` returns an array of another elements kind, which deoptimises the
 * code that was compiled for the first kind. Here the kind is always the same.
 */
export function mapped<From, To>(list: readonly From[], to: (item: From, index: number) => To): readonly To[] {
  if (list.length === 1) return [to(list[0]!, 0)];
  const made = list.slice() as unknown[];
  for (let index = 0; index < made.length; index++) made[index] = to(list[index]!, index);
  return made as To[];
}

/** Adds an item to a list that may not exist yet. An array literal of one item allocates less than an array that grows. */
export function added<Item>(list: Item[] | undefined, item: Item): Item[] {
  if (!list) return [item];
  list.push(item);
  return list;
}

export function emptyHistory(): History {
  return { items: [], length: 0, ids: new Map(), rolling: EMPTY_HASH };
}

export function appendMessage(history: History, message: Message): History {
  const { items, ids } = history.length === history.items.length ? history : copyView(history);
  (items as Message[]).push(message);
  if (message.role === 'assistant') {
    for (let i = 0; i < message.content.length; i++) {
      const part = message.content[i]!;
      if (part.type === 'tool-call' && !ids.has(part.id)) (ids as Map<string, number>).set(part.id, history.length);
    }
  }
  return { items, length: history.length + 1, ids, rolling: hashMessage(history.rolling, message) };
}

export function messagesOf(history: History): readonly Message[] {
  return history.items.slice(0, history.length);
}

/** Adds all text of a message and the types of its parts to a hash; images and files as JSON. */
function hashMessage(before: number, { role, content }: Message): number {
  let hash = hashText(before, role);
  for (let i = 0; i < content.length; i++) {
    const part = content[i]!;
    switch (part.type) {
      case 'text':
        hash = hashText(hashText(hash, 't'), part.text);
        break;
      case 'reasoning':
        hash = hashText(hashText(hashText(hash, 'r'), part.text), part.signature ?? '');
        break;
      case 'tool-call':
        hash = hashText(hashText(hashText(hashText(hash, 'c'), part.id), part.name), part.arguments);
        if (part.provider) hash = hashText(hash, stableJson(part.provider));
        if (part.references) hash = hashText(hash, stableJson(part.references));
        break;
      case 'tool-result':
        hash = hashText(hashText(hashText(hashText(hash, 'a'), part.callId), part.name), part.isError ? 'e' : '');
        for (let j = 0; j < part.content.length; j++) {
          const block = part.content[j]!;
          hash = hashText(hashText(hash, MARKS[block.type]), 'text' in block ? block.text : JSON.stringify(block));
        }
        if (part.blob !== undefined) hash = hashText(hash, part.blob);
        break;
      default:
        hash = hashText(hashText(hash, MARKS[part.type]), JSON.stringify(part));
    }
  }
  return hash >>> 0;
}

/** One character each, because every character is hashed. */
const MARKS = { text: 't', error: 'e', image: 'i', file: 'f' } as const;

/**
 * The parts of a reply as providers accept them in a later request: every call id is present and unique in the history,
 * every tool name is valid, and there is no empty text.
 */
export function acceptableParts(
  history: History,
  parts: readonly AssistantPart[],
  turn: number,
): readonly AssistantPart[] {
  let content: AssistantPart[] | undefined;
  const inReply = parts.length > 1 ? new Set<string>() : undefined;
  for (let index = 0; index < parts.length; index++) {
    const part = parts[index]!;
    const accepted = acceptablePart(history, part, inReply, turn);
    if (accepted !== part) content ??= parts.slice(0, index);
    if (accepted) content?.push(accepted);
  }
  return content ?? parts;
}

/**
 * `inReply` has the ids of the earlier calls of the reply; the id of this call is added. It is undefined if the reply has
 * only this part. Returns undefined for an empty text.
 */
function acceptablePart(
  history: History,
  part: AssistantPart,
  inReply: Set<string> | undefined,
  turn: number,
): AssistantPart | undefined {
  if (part.type !== 'tool-call') return part.type === 'text' && part.text === '' ? undefined : part;
  let { id } = part;
  if (id === '' || inReply?.has(id) || hasCallId(history, id)) {
    id = `call_t${turn}_${inReply?.size ?? 0}`;
    while (inReply?.has(id) || hasCallId(history, id)) id += '_';
  }
  inReply?.add(id);
  const name = isToolName(part.name) ? part.name : part.name.replace(/[^\w-]/g, '_').slice(0, 64) || 'unnamed';
  return id === part.id && name === part.name ? part : { ...part, id, name };
}

/** Whether providers accept a name: 1 to 64 letters, digits, "_" or "-". A regular expression would take ten times as long. */
function isToolName(name: string): boolean {
  for (let i = 0; i < name.length; i++) {
    const code = name.charCodeAt(i);
    const letter = code | 0x20;
    if (!((letter >= 0x61 && letter <= 0x7a) || (code >= 0x30 && code <= 0x39) || code === 0x5f || code === 0x2d))
      return false;
  }
  return name.length > 0 && name.length <= 64;
}

function hasCallId(history: History, id: string): boolean {
  return (history.ids.get(id) ?? history.length) < history.length;
}

function copyView(history: History): { items: readonly Message[]; ids: ReadonlyMap<string, number> } {
  const ids = new Map<string, number>();
  for (const [id, position] of history.ids) if (position < history.length) ids.set(id, position);
  return { items: messagesOf(history), ids };
}

/** A rough estimate: four characters per token, and a fixed number for an image or a file. */
export function estimateTokens({ content }: Message): number {
  let characters = 0;
  for (let i = 0; i < content.length; i++) {
    const part = content[i]!;
    if ('text' in part) characters += part.text.length;
    else if (part.type === 'tool-call') characters += part.name.length + part.arguments.length;
    else if (part.type === 'tool-result') {
      for (let j = 0; j < part.content.length; j++) {
        const block = part.content[j]!;
        characters += 'text' in block ? block.text.length : IMAGE_CHARACTERS;
      }
    } else characters += IMAGE_CHARACTERS;
  }
  return Math.ceil(characters / 4);
}

const IMAGE_CHARACTERS = 4_000;

/** FNV-1a. Finds accidental differences; it is not resistant to deliberate collisions. */
export const EMPTY_HASH = 0x811c9dc5;

/** Adds texts to a hash. The same characters divided differently give another hash. */
export function hashTexts(before: number, texts: readonly string[]): number {
  let hash = before;
  for (const text of texts) hash = hashText(hash, text);
  return hash >>> 0;
}

/** The result may be negative; `>>> 0` makes it the final hash. */
function hashText(before: number, text: string): number {
  let hash = before | 0;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return Math.imul(hash ^ text.length ^ 0x5bd1e995, 0x01000193);
}

/** JSON with sorted keys: a store may change their order. */
export function stableJson(value: unknown): string {
  return JSON.stringify(withSortedKeys(value));
}

/** A copy with sorted keys: a replacer of `JSON.stringify` would take twice as long. */
function withSortedKeys(given: unknown): unknown {
  if (typeof given !== 'object' || given === null) return given;
  const { toJSON } = given as { readonly toJSON?: unknown };
  const value: unknown = typeof toJSON === 'function' ? toJSON.call(given) : given;
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map(withSortedKeys);
  const copy: Record<string, unknown> = {};
  const keys = sortKeys(Object.keys(value));
  for (let i = 0; i < keys.length; i++) {
    const key = keys[i]!;
    const part = withSortedKeys((value as Record<string, unknown>)[key]);
    if (key !== '__proto__') copy[key] = part;
    else Object.defineProperty(copy, key, { value: part, enumerable: true });
  }
  return copy;
}

/** Sorts in place. `sort` takes several times as long for a few keys, and insertion much longer for many. */
function sortKeys(keys: string[]): readonly string[] {
  if (keys.length > 32) return keys.sort();
  for (let i = 1; i < keys.length; i++) {
    const key = keys[i]!;
    let at = i;
    for (; at > 0 && keys[at - 1]! > key; at--) keys[at] = keys[at - 1]!;
    keys[at] = key;
  }
  return keys;
}
