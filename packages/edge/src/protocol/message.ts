import { matchRegExp, schemaCheck, type SchemaCheck } from '@treadle/core/json-schema';

/*
 * What all messages have in common: JSON in UTF-8, one protocol version, a limit on their size, and a check against a schema.
 * Fields that a schema does not name are ignored, so that a newer peer can add some.
 */

/** This version. A message without a version is of a peer that knows only the original protocol. */
export const PROTOCOL_VERSION = 1;

/** Bytes of one message. What is larger is sent in parts. */
export const MAX_MESSAGE_BYTES: number = 1024 * 1024;
/** A list of tools with their schemas is one message. */
export const MAX_CAPABILITIES_BYTES: number = 4 * 1024 * 1024;

/** Levels of a message. Deeper JSON can be read, but not written again: that overflows the stack. */
const MAX_DEPTH = 200;

/** 1 to 256 characters without control characters. */
export const REQUEST_ID = { type: 'string', minLength: 1, maxLength: 256, pattern: '^[^\\p{Cc}]*$' } as const;

/** The id of a ledger. */
export const LEDGER_ID = { type: 'string', minLength: 1, maxLength: 128 } as const;

/** An object of a message, with any fields. */
export type Fields = Readonly<Record<string, unknown>>;

/** A JSON Schema. Both sides validate with it, and the page about the protocol shows it. */
export type MessageSchema = Readonly<Record<string, unknown>>;

export type Parsed = { readonly value: Fields } | { readonly problem: string };

/** The JSON object of a message, or why there is none. */
export function parseMessage(bytes: Uint8Array | string, maxBytes: number = MAX_MESSAGE_BYTES): Parsed {
  const size = typeof bytes === 'string' ? Buffer.byteLength(bytes) : bytes.length;
  if (size > maxBytes) return { problem: `it has ${size} bytes, and at most ${maxBytes} are read` };
  try {
    const text = typeof bytes === 'string' ? bytes : DECODER.decode(bytes);
    if (depthOf(text) > MAX_DEPTH) return { problem: `it has more than ${MAX_DEPTH} levels` };
    const value: unknown = JSON.parse(text);
    if (isFields(value)) return { value };
    return { problem: 'it is not a JSON object' };
  } catch (error) {
    return { problem: error instanceof SyntaxError ? 'it is not JSON' : 'it is not UTF-8' };
  }
}

/** How deep the objects and lists of a JSON text are nested. */
function depthOf(text: string): number {
  let [depth, deepest] = [0, 0];
  for (let at = 0; at < text.length; at++) {
    const character = text[at];
    if (character === '"') at = stringEnd(text, at);
    else if (character === '[' || character === '{') deepest = Math.max(deepest, ++depth);
    else if (character === ']' || character === '}') depth--;
  }
  return deepest;
}

/** The index of the quote that ends the string which begins there, or of the end of the text. */
function stringEnd(text: string, start: number): number {
  for (let end = text.indexOf('"', start + 1); end >= 0; end = text.indexOf('"', end + 1)) {
    let slashes = 0;
    while (text[end - 1 - slashes] === '\\') slashes++;
    if (slashes % 2 === 0) return end;
  }
  return text.length;
}

const DECODER = new TextDecoder('utf-8', { fatal: true });

export function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

const checks = new WeakMap<MessageSchema, SchemaCheck>();

/** The first problem of a value, or undefined. */
export function problemWith(schema: MessageSchema, value: unknown): string | undefined {
  let check = checks.get(schema);
  if (!check) checks.set(schema, (check = schemaCheck(schema)));
  const [problem] = check(value, matchRegExp);
  return problem;
}

/** Why a message of this version cannot be read here, or undefined. */
export function versionProblem({ version }: Fields): string | undefined {
  if (version === undefined || version === PROTOCOL_VERSION) return undefined;
  return `it has the protocol version ${JSON.stringify(version)}, and this side knows only ${PROTOCOL_VERSION}`;
}
