import { setTimeout as sleep } from 'node:timers/promises';
import {
  SseError,
  SSEClientTransport,
  StreamableHTTPClientTransport,
  type AuthProvider,
  type OAuthClientProvider,
  type StreamableHTTPClientTransportOptions,
} from '@modelcontextprotocol/client';
import { McpError, type HttpServer } from './options.ts';

export interface HttpTransportOptions {
  readonly maxMessageBytes: number;
  /** It is told of answers that are too large, because streams do not end by that. */
  readonly onFailure: (error: McpError) => void;
  /** HTTP with server-sent events, as before 2025-03-26: one stream with all answers, and an address for messages. */
  readonly isSse: boolean;
}

/** A transport that refuses answers of more than `maxMessageBytes`. */
export function httpTransport(
  { url, headers, fetch: given = fetch, auth, name }: HttpServer & { readonly name: string },
  { maxMessageBytes, onFailure, isSse }: HttpTransportOptions,
): SSEClientTransport | StreamableHTTPClientTransport {
  const tooLarge = (): McpError => {
    const message = `MCP server "${name}" sent a message of more than ${maxMessageBytes} bytes. The connection was ended.`;
    const error = new McpError('too-large', message);
    onFailure(error);
    return error;
  };
  const pace: Pace = { events: 0, since: 0, unanswered: 0 };
  const options: StreamableHTTPClientTransportOptions = {
    ...(auth !== undefined && { authProvider: auth as AuthProvider | OAuthClientProvider }),
    ...(headers && { requestInit: { headers: { ...headers } } }),
    fetch: async (input, init) => limited(await given(input, init), maxMessageBytes, tooLarge, pace),
  };
  if (isSse) return endingWithStream(new SSEClientTransport(new URL(url), options));
  return reportingEnds(new StreamableHTTPClientTransport(new URL(url), options), pace);
}

/**
 * The session of such a server ends with its stream. The SDK opens another one, to which the answers of the first one do not come,
 * so the connection ends, and the next use opens a new one.
 */
function endingWithStream(transport: SSEClientTransport): SSEClientTransport {
  const start = transport.start.bind(transport);
  transport.start = async () => {
    await start();
    const onError = transport.onerror?.bind(transport);
    const endOnError = (error: Error): void => {
      onError?.(error);
      if (error instanceof SseError) void transport.close();
    };
    Object.assign(transport, { onerror: endOnError });
  };
  return transport;
}

/** A server that sends many events in a short time, or many requests at once, has to wait: its streams are not read meanwhile. */
interface Pace {
  events: number;
  since: number;
  /** Answers to its requests that are being sent. */
  unanswered: number;
}

/** About so many events are read in this time. */
const WINDOW_MS = 50;
const MAX_EVENTS = 250;
const MAX_UNANSWERED = 100;
const MAX_WAIT_MS = 5_000;

/** The code of the error that a request gets whose stream ended without an answer. */
export const STREAM_ENDED = -32_099;
/** An answer may still be in the queue of the SDK when the end of its stream is reported. */
const STREAM_END_MS = 100;

/** The SDK waits for an answer until the time limit, also if the stream that it would come on has ended. */
function reportingEnds(transport: StreamableHTTPClientTransport, pace: Pace): StreamableHTTPClientTransport {
  const send = transport.send.bind(transport);
  transport.send = (message, options) => {
    const { id } = message as { readonly id?: string | number };
    if (!('method' in message)) {
      pace.unanswered++;
      return send(message, options).finally(() => pace.unanswered--);
    }
    if (id === undefined || options?.onRequestStreamEnd) return send(message, options);
    const error = { code: STREAM_ENDED, message: 'The stream ended without an answer.' };
    const onRequestStreamEnd = (): void => {
      setTimeout(() => transport.onmessage?.({ jsonrpc: '2.0', id, error }), STREAM_END_MS).unref();
    };
    return send(message, { ...options, onRequestStreamEnd });
  };
  return transport;
}

/** A response that fails when a message in it is too large: the whole body, or one event of a stream. */
function limited(response: Response, maxBytes: number, tooLarge: () => McpError, pace: Pace): Response {
  if (!response.body || response.status < 200) return response;
  const isStream = response.headers.get('content-type')?.startsWith('text/event-stream') ?? false;
  let length = 0;
  let lastByte = 0;
  const counted = response.body.pipeThrough(
    new TransformStream<Uint8Array, Uint8Array>({
      async transform(bytes, controller) {
        if (isStream) await waitFor(pace, bytes);
        length += bytes.length;
        // An event ends with an empty line. Where exactly does not matter for the limit.
        if (isStream && endsEvent(bytes, lastByte)) length = 0;
        lastByte = bytes.at(-1) ?? lastByte;
        if (length > maxBytes) controller.error(tooLarge());
        else controller.enqueue(bytes);
      },
    }),
  );
  const { status, statusText, headers } = response;
  const copy = new Response(counted, { status, statusText, headers });
  Object.defineProperties(copy, { url: { value: response.url }, redirected: { value: response.redirected } });
  return copy;
}

async function waitFor(pace: Pace, bytes: Uint8Array): Promise<void> {
  // An event has two lines or more.
  for (let at = bytes.indexOf(10); at >= 0; at = bytes.indexOf(10, at + 1)) pace.events += 0.5;
  const now = Date.now();
  if (now - pace.since > WINDOW_MS && pace.events < MAX_EVENTS) Object.assign(pace, { events: 0, since: now });
  if (pace.events < MAX_EVENTS) return;
  await sleep((pace.events / MAX_EVENTS) * WINDOW_MS);
  for (let waited = 0; pace.unanswered > MAX_UNANSWERED && waited < MAX_WAIT_MS; waited += WINDOW_MS)
    await sleep(WINDOW_MS);
  Object.assign(pace, { events: 0, since: Date.now() });
}

function endsEvent(bytes: Uint8Array, before: number): boolean {
  let previous = before;
  for (const byte of bytes) {
    if (byte === 13) continue;
    if (byte === 10 && previous === 10) return true;
    previous = byte;
  }
  return false;
}
