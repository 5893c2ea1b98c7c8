import { createHash, randomUUID } from 'node:crypto';
import type { DatabaseSync } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import { MESSAGE, storedSize, type SharedTexts } from './shared-texts.ts';

/**
 * The messages in the input of runs, and the items in the requests of responses, each stored once. Both are called messages
 * here.
 *
 * 1. An input is a path in a tree: the row of a message refers to the message before it, and the row of a run or response to
 *    its last message. So a run that continues a conversation adds only the messages that are new.
 * 2. A message is found by its digest: SHA-256 of the digest of the message before it and its own text. So equal messages
 *    after different conversations are different rows.
 * 3. A message has a higher id than the message before it, because it is inserted while that one exists.
 * 4. A message is deleted when no run, no response and no message after it refers to it.
 */
export interface Messages {
  /**
   * Inside a transaction: stores the messages that are not stored yet. Returns the id of the last one; undefined if a
   * message that is stored already is damaged, so that the input has to stay where it was.
   */
  readonly store: (split: SplitJson) => number | undefined;
  /** The JSON that `splitInput` was called with. Another text if a message is damaged or missing. */
  readonly restore: (rest: string, { input_last, input_at }: InputPlace) => string;
  /** The ids of the messages up to this one, in order. */
  readonly path: (last: number) => readonly number[];
  /** The JSON of one message. Another text if it is damaged or missing. */
  readonly text: (id: number) => string;
  /** The bytes that `restore` adds. It reads no message. */
  readonly size: (last: number | null) => number;
  /** Inside a transaction, after a run or response was deleted: deletes the messages that are not used any more. */
  readonly release: (last: number | null) => void;
}

/** Where an input is. Columns of `runs` and `responses`; null if it is in the first entry or in the request. */
export interface InputPlace {
  /** The id of the last message. */
  readonly input_last: number | null;
  /** The position of the messages in the JSON of the entry or request. */
  readonly input_at: number | null;
}

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

export function openMessages(db: DatabaseSync, shared: SharedTexts): Messages {
  const findMessage = db.prepare('SELECT id FROM messages WHERE digest = ?');
  const insertMessage = db.prepare('INSERT INTO messages (previous, digest, text) VALUES (?, ?, ?)');
  // `<`, so that a damaged reference cannot lead into a circle.
  const findTexts = db.prepare(
    `WITH RECURSIVE path (id, previous, text) AS (
       SELECT id, previous, text FROM messages WHERE id = ?
       UNION ALL
       SELECT one.id, one.previous, one.text FROM path JOIN messages one ON one.id = path.previous AND one.id < path.id
     ) SELECT text FROM path`,
  );
  const findPath = db.prepare(
    `WITH RECURSIVE path (id, previous) AS (
       SELECT id, previous FROM messages WHERE id = ?
       UNION ALL
       SELECT one.id, one.previous FROM path JOIN messages one ON one.id = path.previous AND one.id < path.id
     ) SELECT id FROM path`,
  );
  const findText = db.prepare('SELECT text FROM messages WHERE id = ?');
  const sumSizes = db.prepare(
    `WITH RECURSIVE path (id, previous, size) AS (
       SELECT id, previous, ${storedSize('text')} FROM messages WHERE id = ?
       UNION ALL
       SELECT one.id, one.previous, ${storedSize('one.text')}
       FROM path JOIN messages one ON one.id = path.previous AND one.id < path.id
     ) SELECT sum(size + 1) AS size FROM path`,
  );
  const findUse = db.prepare(
    `SELECT 1 FROM messages WHERE previous = ?1 UNION ALL SELECT 1 FROM runs WHERE input_last = ?1
     UNION ALL SELECT 1 FROM requests WHERE input_last = ?1`,
  );
  const deleteMessage = db.prepare('DELETE FROM messages WHERE id = ? RETURNING previous');

  /** The messages up to this one, as they are in a JSON list. */
  function joinedTexts(last: number): string {
    const texts = findTexts.all(last).map(({ text }) => shared.restore(text as string));
    return texts.reverse().join();
  }

  /** Whether the messages up to this one are the first `count` of a list. Compared one by one: joined, they need twice the time. */
  function isPathOf(last: number, list: readonly string[], count: number): boolean {
    const rows = findTexts.all(last);
    return (
      rows.length === count &&
      rows.every(({ text }, index) => shared.restore(text as string) === list[count - 1 - index])
    );
  }

  function idOf(digest: Buffer): number | null {
    return (findMessage.get(digest)?.['id'] as number | undefined) ?? null;
  }

  return {
    store({ messages, digests }) {
      // From the end, because most conversations continue one that is stored.
      let known = messages.length;
      let last: number | null = null;
      while (known > 0 && (last = idOf(digests[known - 1]!)) === null) known--;
      if (last !== null && !isPathOf(last, messages, known)) return undefined;
      for (let index = known; index < messages.length; index++) {
        const used: number[] = [];
        const text = shared.share(messages[index]!, used);
        last = Number(insertMessage.run(last, digests[index]!, text).lastInsertRowid);
        shared.use([MESSAGE, last], used);
      }
      return last!;
    },

    restore(rest, { input_last: last, input_at: at }) {
      return last === null || at === null ? rest : rest.slice(0, at) + joinedTexts(last) + rest.slice(at);
    },

    path: (last) =>
      findPath
        .all(last)
        .map(({ id }) => id as number)
        .toReversed(),
    text: (id) => shared.restore((findText.get(id)?.['text'] as string | undefined) ?? ''),

    size: (last) => (last === null ? 0 : ((sumSizes.get(last)?.['size'] as number | null | undefined) ?? 0)),

    release(last) {
      for (let id = last; id !== null && !findUse.get(id);) {
        const deleted = deleteMessage.get(id);
        shared.release([MESSAGE, id]);
        id = (deleted?.['previous'] as number | null | undefined) ?? null;
      }
    },
  };
}
