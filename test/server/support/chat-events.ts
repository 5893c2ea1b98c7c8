import { frameReader } from './sse-frames.ts';

/** An event of a conversation. The tests check what is in it. */
export interface ChatEvent {
  readonly type: string;
  readonly seq: number;
  // oxlint-disable-next-line typescript/no-explicit-any
  readonly [field: string]: any;
}

/** A client that reads the events of a stream. */
export interface EventsClient<T> {
  readonly events: readonly T[];
  /** Resolves to the first event of a type, or that a function accepts, when it has arrived. */
  event(wanted: string | ((event: T) => boolean)): Promise<T>;
  /** Resolves to all events when the stream has ended or was cut. */
  readonly ended: Promise<readonly T[]>;
  disconnect(): void;
}

export type ChatEvents = EventsClient<ChatEvent>;

export interface ChatOptions {
  readonly headers?: Readonly<Record<string, string>>;
  /** Called with each event as it arrives. */
  readonly onEvent?: (event: ChatEvent, client: ChatEvents) => void;
}

/** Sends a message. */
export function postChat(url: string, body: object, options: ChatOptions = {}): Promise<ChatEvents> {
  const request = {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...options.headers },
    body: JSON.stringify(body),
  };
  return readChat(`${url}/v1/chat`, request, options);
}

/** Continues to read a conversation. */
export function followChat(
  url: string,
  id: string,
  { after = 0, ...options }: ChatOptions & { readonly after?: number } = {},
): Promise<ChatEvents> {
  return readChat(`${url}/v1/chat/${id}/stream?after=${after}`, { headers: { ...options.headers } }, options);
}

function readChat(url: string, request: RequestInit, { onEvent }: ChatOptions): Promise<ChatEvents> {
  return readEvents(url, request, { parse: parseChatFrame, ...(onEvent && { onEvent }) });
}

function parseChatFrame(frame: string): ChatEvent {
  if (!frame.startsWith('data: ') || frame.includes('\n')) throw new Error(`Not a data line: ${frame}`);
  return JSON.parse(frame.slice('data: '.length)) as ChatEvent;
}

export interface ReadOptions<T> {
  /** The event of a frame; undefined for one that has no event. */
  readonly parse: (frame: string) => T | undefined;
  readonly onEvent?: (event: T, client: EventsClient<T>) => void;
}

/** Reads the events of a stream. */
export async function readEvents<T extends { readonly type: string }>(
  url: string,
  request: RequestInit,
  { parse, onEvent }: ReadOptions<T>,
): Promise<EventsClient<T>> {
  const connection = new AbortController();
  const answer = await fetch(url, { ...request, signal: connection.signal });
  if (answer.status !== 200) throw new Error(`status ${answer.status}: ${await answer.text()}`);
  const events: T[] = [];
  let arrived = Promise.withResolvers<void>();
  let isEnded = false;
  const push = frameReader((frame) => {
    if (frame.startsWith(':')) return;
    if (connection.signal.aborted) return;
    const event = parse(frame);
    if (!event) return;
    events.push(event);
    onEvent?.(event, client);
    arrived.resolve();
    arrived = Promise.withResolvers();
  });
  async function readAll(): Promise<readonly T[]> {
    const decoder = new TextDecoder();
    try {
      for await (const chunk of answer.body!) push(decoder.decode(chunk as Uint8Array, { stream: true }));
    } catch {
      // It was cut.
    }
    isEnded = true;
    arrived.resolve();
    return events;
  }
  const client: EventsClient<T> = {
    events,
    async event(wanted) {
      const isWanted = typeof wanted === 'string' ? ({ type }: T) => type === wanted : wanted;
      for (;;) {
        const found = events.find(isWanted);
        if (found) return found;
        if (isEnded) throw new Error(`The stream ended without the event: ${JSON.stringify(events)}`);
        await arrived.promise;
      }
    },
    ended: readAll(),
    disconnect: () => connection.abort(),
  };
  return client;
}

/** The answer that a client has received, as `GET /v1/chat/{id}` returns its parts. */
export function partsSeen(events: readonly ChatEvent[]): readonly object[] {
  const incomplete = new Set(
    events.flatMap(({ type, code, item }) => (type === 'warning' && code === 'item_incomplete' ? item : [])),
  );
  const stopped = new Set(events.flatMap(({ code, item }) => (code === 'item_stopped' ? item : [])));
  const parts: { type: string; id: string; text?: string; [field: string]: unknown }[] = [];
  for (const { type, seq: _, ...event } of events) {
    const { id } = event as { id: string };
    if (type === 'token_delta' || type === 'reasoning_delta') {
      if (incomplete.has(id)) continue;
      const known = parts.find((part) => part.id === id);
      if (known) known.text += event['delta'];
      else parts.push({ type: type === 'token_delta' ? 'text' : 'reasoning', id, text: event['delta'] });
    } else if (type === 'tool_call_start') {
      parts.push({ type: 'tool_call', ...(event as { id: string }), result: null });
    } else if (type === 'tool_call_decision') {
      const { id: _id, ...decision } = event;
      parts.find((part) => part.id === id)!['decision'] = decision;
    } else if (type === 'tool_call_result') {
      const { id: _id, ...result } = event;
      parts.find((part) => part.id === id)!['result'] = result;
    }
  }
  return parts.map(({ id, ...part }) => {
    if (part.type === 'tool_call') return { id, ...part };
    return stopped.has(id) ? { ...part, stopped: true } : part;
  });
}
