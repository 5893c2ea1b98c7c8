import type { IncomingMessage } from 'node:http';
import { systemClock, type Clock } from '@treadle/core';
import type { Context } from 'hono';
import { ApiError, badRequest } from '../api-error.ts';
import type { Env } from './admission.ts';
import { jsonErrorAt, lineAndColumn } from './json-error.ts';

export interface BodyOptions {
  /** How long the whole body may take to arrive; default 60 s. */
  readonly timeoutMs?: number;
  /** How deep arrays and objects may be nested; default 128. */
  readonly maxDepth?: number;
  readonly clock?: Clock;
}

/**
 * The JSON body of a request. Rejects with an `ApiError`: 415 for another type, 413 for more than `maxBytes` (as soon as
 * that is known), 429 or 503 if the requests in progress are too large together, 408 if it arrives too slowly, 400 if it is not JSON. Messages never quote the body.
 */
export async function readJson(
  { env: { incoming, exchange } }: Pick<Context<Env>, 'env'>,
  maxBytes: number,
  { timeoutMs = 60_000, maxDepth = 128, clock = systemClock }: BodyOptions = {},
): Promise<unknown> {
  checkContentType(incoming);
  // Node has checked that it is a number.
  if (Number(incoming.headers['content-length'] ?? 0) > maxBytes) throw tooLarge(maxBytes);
  const bytes = await readBytes(incoming, { maxBytes, timeoutMs, clock, hold: exchange.hold });
  return parseJson(decodeUtf8(bytes), maxDepth);
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
  readonly hold: (bytes: number) => void;
}

function readBytes(incoming: IncomingMessage, { maxBytes, timeoutMs, clock, hold }: ReadOptions): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
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
        hold(chunk.length);
      } catch (error) {
        return fail(error as ApiError);
      }
      chunks.push(chunk);
    };
    const onEnd = (): void => {
      stopReading();
      resolve(chunks.length === 1 && chunks[0] ? chunks[0] : Buffer.concat(chunks));
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

function parseJson(text: string, maxDepth: number): unknown {
  if (text.trim() === '') throw badRequest('The body is empty: send a JSON object.', undefined, 'invalid_json');
  const tooDeep = deeperThan(text, maxDepth);
  if (tooDeep !== undefined)
    throw badRequest(
      `The body nests arrays and objects more than ${maxDepth} levels deep, at ${lineAndColumn(text, tooDeep)}.`,
      undefined,
      'invalid_json',
    );
  try {
    return JSON.parse(text) as unknown;
  } catch {
    const at = jsonErrorAt(text) ?? text.length;
    const what = at >= text.length ? 'it ends too early' : 'unexpected character';
    throw badRequest(
      `The body is not valid JSON: ${what} at ${lineAndColumn(text, at)} (position ${at}).`,
      undefined,
      'invalid_json',
    );
  }
}

/**
 * The position where the nesting exceeds `maxDepth`. It is checked before parsing, because a parsed body of brackets takes a
 * hundred times its size in memory. Strings, which are most of a body, are skipped.
 */
function deeperThan(text: string, maxDepth: number): number | undefined {
  let depth = 0;
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (code === 0x22) {
      do at = text.indexOf('"', at + 1);
      while (at !== -1 && isEscaped(text, at));
      if (at === -1) return undefined;
    } else if (code === 0x5b || code === 0x7b) {
      depth += 1;
      if (depth > maxDepth) return at;
    } else if (code === 0x5d || code === 0x7d) depth -= 1;
  }
  return undefined;
}

function isEscaped(text: string, quote: number): boolean {
  let before = quote - 1;
  while (text.charCodeAt(before) === 0x5c) before -= 1;
  return (quote - before) % 2 === 0;
}

function tooLarge(maxBytes: number): ApiError {
  return new ApiError(413, 'invalid_request_error', `The body is larger than the limit of ${maxBytes} bytes.`, {
    code: 'request_too_large',
  });
}

function unsupportedType(message: string): ApiError {
  return new ApiError(415, 'invalid_request_error', message, { code: 'unsupported_media_type' });
}
