import { createHash, randomUUID } from 'node:crypto';
import { crc32 } from 'node:zlib';

/** The JSON of an entry or request, and the messages that were taken out of it. */
export interface SplitJson {
  /** The JSON with an empty input. */
  readonly rest: string;
  /** The position of the messages in the JSON. */
  readonly at: number;
  readonly messages: readonly string[];
  readonly digests: readonly Buffer[];
}

/** An input with fewer characters stays where it is: splitting it would save nothing. */
const MIN_CHARS = 1_024;
/** The JSON of an input with more characters is made once, and not joined to the JSON that contains it. */
const LARGE_CHARS = 262_144;

/** The JSON of a value that contains an input. */
export interface JsonWithInput {
  readonly length: number;
  /** Undefined if the input is short. */
  readonly split: SplitJson | undefined;
  /** The CRC-32 of the whole JSON, continued from another one. */
  readonly crc: (before?: number) => number;
  readonly whole: () => string;
}

/** Encodes a value that contains the list `input`. */
export function encodeWithInput(value: unknown, input: readonly unknown[]): JsonWithInput {
  const large = hasMoreChars(input, LARGE_CHARS) ? splitLarge(value, input) : undefined;
  if (large) return large;
  const text = JSON.stringify(value);
  return {
    length: text.length,
    split: splitInput(text, input),
    crc: (before) => crc32(text, before),
    whole: () => text,
  };
}

type EncodedInput = Pick<SplitJson, 'messages' | 'digests'>;

/** What `encodeInput` has made, until it is stored. */
const encodedInputs = new WeakMap<readonly unknown[], EncodedInput>();

/**
 * Encodes a large input before it is stored with an entry or a request, and calls `nextTurn` before each piece of that work.
 * Without it, the store does all of that in one turn. The input must not change before it is stored.
 */
export async function encodeInput(input: readonly unknown[], nextTurn: () => Promise<void>): Promise<void> {
  if (!hasMoreChars(input, LARGE_CHARS)) return;
  await nextTurn();
  const all = [...input];
  const messages: string[] = [];
  const digests: Buffer[] = [];
  let chars = 0;
  for (const message of all) {
    const json = jsonOrUndefined(message);
    // The store reports it.
    if (json === undefined) return;
    messages.push(json);
    chars += json.length;
    if (chars >= LARGE_CHARS) await nextTurn();
    digests.push(digestOf(json, digests.at(-1)));
    if (chars >= LARGE_CHARS) await nextTurn();
    chars %= LARGE_CHARS;
  }
  encodedInputs.set(input, { messages, digests });
}

function jsonOrUndefined(value: unknown): string | undefined {
  try {
    return JSON.stringify(value);
  } catch {
    return undefined;
  }
}

function takeEncoded(input: readonly unknown[]): EncodedInput {
  const encoded = encodedInputs.get(input);
  encodedInputs.delete(input);
  if (encoded) return encoded;
  const messages = input.map((message) => JSON.stringify(message));
  return { messages, digests: digestsOf(messages) };
}

/** Undefined if the list is not in the value, or more than once. */
function splitLarge(value: unknown, input: readonly unknown[]): JsonWithInput | undefined {
  const { messages, digests } = takeEncoded(input);
  const mark = randomUUID();
  const marked = JSON.stringify(value, (_, field: unknown) => (field === input ? [mark] : field));
  const [before = '', after, more] = marked.split(`"${mark}"`);
  if (after === undefined || more !== undefined) return undefined;
  return {
    length: marked.length + messages.reduce((sum, message) => sum + message.length + 1, 0),
    split: { rest: before + after, at: before.length, messages, digests },
    crc(sum) {
      let crc = crc32(before, sum);
      for (const [index, message] of messages.entries()) crc = crc32(message, index === 0 ? crc : crc32(',', crc));
      return crc32(after, crc);
    },
    whole: () => before + messages.join() + after,
  };
}

/** Whether the strings in a value have more characters than that. */
function hasMoreChars(value: unknown, most: number): boolean {
  let remaining = most;
  const count = (part: unknown): void => {
    if (typeof part === 'string') remaining -= part.length;
    else if (typeof part === 'object') for (const key in part) if (remaining >= 0) count((part as Fields)[key]);
  };
  count(value);
  return remaining < 0;
}

type Fields = Readonly<Record<string, unknown>>;

/** Takes the input out of the JSON that contains it. Undefined if the input is short. */
export function splitInput(text: string, input: readonly unknown[]): SplitJson | undefined {
  if (text.length < MIN_CHARS || input.length === 0) return undefined;
  const messages = input.map((message) => JSON.stringify(message));
  const joined = messages.join();
  if (joined.length < MIN_CHARS) return undefined;
  // The first place with these characters will do: they are inserted there again.
  const at = text.indexOf(`[${joined}]`) + 1;
  if (at === 0) return undefined;
  const rest = text.slice(0, at) + text.slice(at + joined.length);
  return { rest, at, messages, digests: digestsOf(messages) };
}

function digestsOf(messages: readonly string[]): readonly Buffer[] {
  const digests: Buffer[] = [];
  for (const message of messages) digests.push(digestOf(message, digests.at(-1)));
  return digests;
}

/** `before`: the digest of the message before it. */
function digestOf(message: string, before: Buffer | undefined): Buffer {
  const hash = createHash('sha256');
  if (before) hash.update(before);
  return hash.update(message).digest();
}
