import type { JsonWithInput, SplitJson } from '../records/input.ts';
import { putBackStrings, referencesIn, stringDigest, takeOutStrings } from '../records/long-strings.ts';
import type { Query } from './connection.ts';

/*
 * Long strings and messages, each stored once, as in the store on SQLite (`shared-texts.ts`, `messages.ts`). Here the reference to a
 * long string, and to a message, is its digest. So JSON is encoded without reading the database.
 */

export interface LongText {
  readonly digest: Buffer;
  readonly content: string;
  /** The digest of the message that contains it. Null: it is not in a message. */
  readonly message: Buffer | null;
}

export interface StoredMessage {
  readonly digest: Buffer;
  readonly previous: Buffer | null;
  readonly depth: number;
  readonly text: string;
}

/** JSON as it is stored, and what was taken out of it. */
export interface EncodedJson {
  readonly stored: string;
  readonly texts: readonly LongText[];
  readonly input: StoredInput | undefined;
  /** The bytes of the complete JSON. */
  readonly size: number;
}

export interface StoredInput {
  /** The digest of the last message. */
  readonly last: Buffer;
  /** The position of the messages in the JSON. */
  readonly at: number;
  readonly split: SplitJson;
}

/** Takes the long strings out of JSON. */
function encodeTexts(json: string, message: Buffer | null = null): Pick<EncodedJson, 'stored' | 'texts'> {
  const texts: LongText[] = [];
  const stored = takeOutStrings(json, (content) => {
    const digest = stringDigest(content);
    texts.push({ digest, content, message });
    return digest.toString('base64');
  });
  return { stored, texts };
}

export function encodeJson(json: string): EncodedJson {
  return { ...encodeTexts(json), input: undefined, size: Buffer.byteLength(json) };
}

export function encodeJsonWithInput(json: JsonWithInput): EncodedJson {
  const { split } = json;
  if (!split) return encodeJson(json.whole());
  const { stored, texts } = encodeTexts(split.rest);
  const size = split.messages.reduce(
    (sum, message) => sum + Buffer.byteLength(message) + 1,
    Buffer.byteLength(split.rest),
  );
  return { stored, texts, input: { last: split.digests.at(-1)!, at: split.at, split }, size: size - 1 };
}

/** The messages of an input that are not known yet, and the long strings in them. */
export function messagesOf(
  { split: { messages, digests } }: StoredInput,
  isKnown: (digest: Buffer) => boolean,
): { readonly messages: readonly StoredMessage[]; readonly texts: readonly LongText[] } {
  const added: StoredMessage[] = [];
  const texts: LongText[] = [];
  for (const [index, message] of messages.entries()) {
    const digest = digests[index]!;
    if (isKnown(digest)) continue;
    const encoded = encodeTexts(message, digest);
    texts.push(...encoded.texts);
    added.push({ digest, previous: digests[index - 1] ?? null, depth: index + 1, text: encoded.stored });
  }
  return { messages: added, texts };
}

/** Which of these messages are stored. */
export async function findKnownMessages(
  query: Query,
  inputs: readonly StoredInput[],
): Promise<(digest: Buffer) => boolean> {
  const digests = inputs.flatMap(({ split }) => split.digests);
  if (digests.length === 0) return () => false;
  const { rows } = await query<{ readonly digest: Buffer }>(
    'SELECT digest FROM treadle.messages WHERE digest = ANY ($1::bytea[])',
    [digests],
  );
  const known = new Set(rows.map(({ digest }) => digest.toString('latin1')));
  return (digest) => known.has(digest.toString('latin1'));
}

/** In a transaction: stores the long strings and the input of a request. */
export async function storeTexts(
  query: Query,
  requestId: number | undefined,
  encoded: readonly EncodedJson[],
): Promise<void> {
  const inputs = encoded.flatMap(({ input }) => input ?? []);
  const isKnown = await findKnownMessages(query, inputs);
  const parts = inputs.map((input) => messagesOf(input, isKnown));
  const messages = parts.flatMap((part) => part.messages);
  const inMessages = parts.flatMap((part) => part.texts);
  const texts = [...encoded.flatMap((one) => one.texts), ...inMessages];
  if (texts.length > 0) {
    await query('SELECT treadle.store_texts($1::bytea[], $2::text[])', [
      texts.map(({ digest }) => digest),
      texts.map(({ content }) => content),
    ]);
  }
  if (messages.length > 0) {
    await query(
      'SELECT treadle.store_messages($1::bytea[], $2::bytea[], $3::integer[], $4::text[], $5::bytea[], $6::bytea[])',
      [
        messages.map(({ digest }) => digest),
        messages.map(({ previous }) => previous),
        messages.map(({ depth }) => depth),
        messages.map((message) => message.text),
        inMessages.map(({ message }) => message),
        inMessages.map(({ digest }) => digest),
      ],
    );
  }
  if (requestId !== undefined) await useTexts(query, requestId, encoded);
}

/** In the same transaction, if the id of the request was not known before. */
export async function useTexts(query: Query, requestId: number, encoded: readonly EncodedJson[]): Promise<void> {
  const used = encoded.flatMap(({ texts }) => texts);
  if (used.length === 0) return;
  await query(
    `INSERT INTO treadle.text_uses (kind, user_id, text) SELECT DISTINCT 3, $1::bigint, used FROM unnest($2::bytea[]) AS used
     ORDER BY used ON CONFLICT DO NOTHING`,
    [requestId, used.map(({ digest }) => digest)],
  );
}

/** Puts the long strings back into stored JSON. Another text if one is damaged or missing. */
export async function restoreTexts(query: Query, stored: readonly string[]): Promise<readonly string[]> {
  const references = [...new Set(stored.flatMap(referencesIn))];
  if (references.length === 0) return stored;
  const found = new Map<string, string>();
  // In pieces, because one of them may be long.
  for (let at = 0; at < references.length; at += TEXTS_AT_ONCE) {
    const digests = references.slice(at, at + TEXTS_AT_ONCE).map((reference) => Buffer.from(reference, 'base64'));
    const { rows } = await query<{ readonly digest: Buffer; readonly text: string }>(
      'SELECT digest, text FROM treadle.texts WHERE digest = ANY ($1::bytea[])',
      [digests],
    );
    for (const row of rows) found.set(row.digest.toString('base64'), row.text);
  }
  return stored.map((json) => putBackStrings(json, (reference) => found.get(reference) ?? ''));
}

const TEXTS_AT_ONCE = 200;

/** The messages of an input, in order: their JSON. */
async function readMessages(query: Query, last: Buffer): Promise<readonly string[]> {
  const { rows } = await query<{ readonly text: string }>(
    `WITH RECURSIVE path (previous, depth, text) AS (
       SELECT previous, depth, text FROM treadle.messages WHERE digest = $1
       UNION ALL
       SELECT m.previous, m.depth, m.text FROM path JOIN treadle.messages m ON m.digest = path.previous AND m.depth < path.depth
     ) SELECT text FROM path ORDER BY depth`,
    [last],
  );
  return restoreTexts(
    query,
    rows.map((row) => row.text),
  );
}

/** Puts an input back into the JSON that it was taken out of. */
export async function restoreInput(
  query: Query,
  rest: string,
  { input_last: last, input_at: at }: { readonly input_last: Buffer | null; readonly input_at: number | null },
): Promise<string> {
  if (last === null || at === null) return rest;
  return rest.slice(0, at) + (await readMessages(query, last)).join() + rest.slice(at);
}
