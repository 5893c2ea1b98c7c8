import type { IncomingMessage } from 'node:http';
import { setImmediate } from 'node:timers/promises';
import { systemClock, type Clock } from '@treadle/core';
import type { Context } from 'hono';
import { ApiError, badRequest } from '../api-error.ts';
import type { Env } from './admission.ts';
import { jsonErrorAt, lineAndColumn } from './json-error.ts';
import { firstTurn, isLargeNow, MEDIUM, nextTurn } from './large-work.ts';

export interface BodyOptions {
  /** How long the whole body may take to arrive; default 60 s. */
  readonly timeoutMs?: number;
  /** How deep arrays and objects may be nested; default 128. */
  readonly maxDepth?: number;
  /** How many values the body may have, all elements and fields counted; default 100,000. */
  readonly maxValues?: number;
  readonly clock?: Clock;
}

/**
 * The JSON body of a request. Rejects with an `ApiError`: 415 for another type, 413 for more than `maxBytes` (as soon as
 * that is known), 429 or 503 if the requests in progress are too large together, 408 if it arrives too slowly, 400 if it is not JSON, nested too deeply, or has too many values. Messages never quote the body.
 *
 * A large body is processed in pieces, and other requests are served between them. `JSON.parse` is one piece: it takes at most
 * 0.1 s for 16 MB, because most of a large body with few values is text.
 */
export async function readJson(
  context: Pick<Context<Env>, 'env'>,
  maxBytes: number,
  options: BodyOptions = {},
): Promise<unknown> {
  const bytes = await readJsonBytes(context, maxBytes, options);
  return parseBody(bytes, context.env.exchange.caller?.tenant ?? '', options);
}

/** The same before it is parsed, for a signature. */
export async function readJsonBytes(
  { env: { incoming, exchange } }: Pick<Context<Env>, 'env'>,
  maxBytes: number,
  { timeoutMs = 60_000, clock = systemClock }: BodyOptions = {},
): Promise<Buffer> {
  checkContentType(incoming);
  // Node has checked that it is a number.
  const length = Number(incoming.headers['content-length'] ?? 0);
  if (length > maxBytes) throw tooLarge(maxBytes);
  // Counted before it arrives: of many large bodies at once, each would get a part of the room, and none would be read.
  exchange.hold(length);
  return readBytes(incoming, { maxBytes, timeoutMs, clock, counted: length, hold: exchange.hold });
}

/** Parses a body that has arrived, with the limits and in the pieces of `readJson`. */
export async function parseBody(
  bytes: Buffer,
  tenant: string,
  { maxDepth = 128, maxValues = 100_000 }: Pick<BodyOptions, 'maxDepth' | 'maxValues'> = {},
): Promise<unknown> {
  await checkStructure(bytes, { maxDepth, maxValues });
  if (bytes.length < MEDIUM || !isLargeNow(bytes.length)) return parseJson(decodeUtf8(bytes));
  await firstTurn(tenant);
  const text = decodeUtf8(bytes);
  await nextTurn();
  const body = parseJson(text);
  // What follows is large work too: the request is validated.
  await nextTurn();
  return body;
}

function checkContentType({ headers }: IncomingMessage): void {
  const [type = '', ...parameters] = (headers['content-type'] ?? '').toLowerCase().split(';');
  if (!/^application\/(?:json|[\w.!#$&^+-]+\+json)$/.test(type.trim()))
    throw unsupportedType('Send the body as JSON, with the header "Content-Type: application/json".');
  const charset = parameters.map((one) => /^\s*charset\s*=\s*"?([^"\s]*)"?\s*$/.exec(one)?.[1]).find(Boolean);
  if (charset !== undefined && charset !== 'utf-8' && charset !== 'utf8')
    throw unsupportedType('Send the body in UTF-8: the server accepts no other charset.');
  const encoding = headers['content-encoding'];
  if (encoding !== undefined && encoding.toLowerCase() !== 'identity')
    throw unsupportedType('Send the body without compression: the server accepts no Content-Encoding.');
}

interface ReadOptions {
  readonly maxBytes: number;
  readonly timeoutMs: number;
  readonly clock: Clock;
  /** The bytes that are counted already. */
  readonly counted: number;
  readonly hold: (bytes: number) => void;
}

/** So many chunks in a row that are small together are joined. */
const MOST_CHUNKS = 256;
const SMALL_CHUNKS = 65_536;

/**
 * The chunks of a body. Each needs some hundred bytes of memory besides its own, and a client may send a chunk for each byte,
 * so small ones are joined.
 */
function chunkList(): { add(chunk: Buffer): void; take(): Buffer } {
  const chunks: Buffer[] = [];
  /** The number of chunks at the beginning that stay as they are. */
  let kept = 0;
  let size = 0;
  return {
    add(chunk) {
      chunks.push(chunk);
      size += chunk.length;
      if (chunks.length - kept < MOST_CHUNKS) return;
      if (size < SMALL_CHUNKS) chunks.push(Buffer.concat(chunks.splice(kept)));
      kept = chunks.length;
      size = 0;
    },
    take() {
      const joined = chunks.length === 1 && chunks[0] ? chunks[0] : Buffer.concat(chunks);
      // Listeners keep the list as long as the request is answered.
      chunks.length = 0;
      return joined;
    },
  };
}

function readBytes(incoming: IncomingMessage, options: ReadOptions): Promise<Buffer> {
  const { maxBytes, timeoutMs, clock, counted, hold } = options;
  return new Promise((resolve, reject) => {
    const chunks = chunkList();
    let size = 0;
    const cancelTimer = clock.timer(timeoutMs, () => {
      fail(
        new ApiError(408, 'invalid_request_error', `The body did not arrive within ${timeoutMs} ms. Send it again.`, {
          code: 'request_timeout',
          headers: { Connection: 'close' },
        }),
      );
    });
    const onData = (chunk: Buffer): void => {
      size += chunk.length;
      if (size > maxBytes) return fail(tooLarge(maxBytes));
      try {
        if (size > counted) hold(chunk.length);
      } catch (error) {
        return fail(error as ApiError);
      }
      chunks.add(chunk);
    };
    const onEnd = (): void => {
      stopReading();
      resolve(chunks.take());
    };
    // The client has disconnected and does not receive this error.
    const onClose = (): void => fail(badRequest('The connection ended before the body did.'));
    const fail = (error: ApiError): void => {
      stopReading();
      incoming.pause();
      reject(error);
    };
    const stopReading = (): void => {
      cancelTimer();
      incoming.off('data', onData).off('end', onEnd).off('close', onClose);
    };
    // The error listener is not removed: without one, a connection error later would crash the process.
    incoming.on('error', onClose).on('data', onData).on('end', onEnd).on('close', onClose);
    if (incoming.destroyed) onClose();
  });
}

const utf8 = new TextDecoder('utf-8', { fatal: true });

function decodeUtf8(bytes: Buffer): string {
  try {
    return utf8.decode(bytes);
  } catch {
    throw badRequest('The body is not valid UTF-8.', undefined, 'invalid_json');
  }
}

function parseJson(text: string): unknown {
  if (text.trim() === '') throw badRequest('The body is empty: send a JSON object.', undefined, 'invalid_json');
  try {
    return JSON.parse(text) as unknown;
  } catch {
    throw badRequest(`The body is not valid JSON${errorPlace(text)}.`, undefined, 'invalid_json');
  }
}

/** Finding the place takes longer than parsing, so large texts are not searched. */
const LONGEST_SEARCHED = 1_000_000;

function errorPlace(text: string): string {
  if (text.length > LONGEST_SEARCHED) return '';
  const at = jsonErrorAt(text) ?? text.length;
  const what = at >= text.length ? 'it ends too early' : 'unexpected character';
  return `: ${what} at ${lineAndColumn(text, at)} (position ${at})`;
}

interface StructureLimits {
  readonly maxDepth: number;
  readonly maxValues: number;
}

/** How many bytes are checked before other requests are served. */
const SLICE = 1024 * 1024;

const QUOTE = 0x22;
const COMMA = 0x2c;
const BACKSLASH = 0x5c;

/**
 * Rejects a body that is nested too deeply or has too many values. It is checked before parsing, because a parsed body of
 * brackets takes a hundred times its size in memory, and one of short fields a second for each million. Strings, which are
 * most of a body, are skipped.
 */
async function checkStructure(bytes: Buffer, { maxDepth, maxValues }: StructureLimits): Promise<void> {
  let depth = 0;
  let values = 1;
  let pauseAt = SLICE;
  for (let at = 0; at < bytes.length; at += 1) {
    const byte = bytes[at];
    if (byte === QUOTE) {
      at = bytes.indexOf(QUOTE, at + 1);
      while (at !== -1 && isEscaped(bytes, at)) {
        if (at >= pauseAt) {
          pauseAt = at + SLICE;
          await setImmediate();
        }
        at = bytes.indexOf(QUOTE, at + 1);
      }
      if (at === -1) return;
    } else if (byte === COMMA) values += 1;
    else if (byte === 0x5b || byte === 0x7b) {
      depth += 1;
      values += 1;
    } else if (byte === 0x5d || byte === 0x7d) depth -= 1;
    if (depth > maxDepth) throw tooComplex(`nests arrays and objects more than ${maxDepth} levels deep`, bytes, at);
    if (values > maxValues) throw tooComplex(`has more than ${maxValues} values`, bytes, at);
    if (at < pauseAt) continue;
    pauseAt = at + SLICE;
    await setImmediate();
  }
}

function isEscaped(bytes: Buffer, quote: number): boolean {
  let before = quote - 1;
  while (bytes[before] === BACKSLASH) before -= 1;
  return (quote - before) % 2 === 0;
}

function tooComplex(what: string, bytes: Buffer, at: number): ApiError {
  const before = bytes.toString('utf8', 0, Math.min(at, LONGEST_SEARCHED));
  const place = at > LONGEST_SEARCHED ? '' : `, at ${lineAndColumn(before, before.length)}`;
  return badRequest(`The body ${what}${place}.`, undefined, 'invalid_json');
}

function tooLarge(maxBytes: number): ApiError {
  return new ApiError(413, 'invalid_request_error', `The body is larger than the limit of ${maxBytes} bytes.`, {
    code: 'request_too_large',
  });
}

function unsupportedType(message: string): ApiError {
  return new ApiError(415, 'invalid_request_error', message, { code: 'unsupported_media_type' });
}
