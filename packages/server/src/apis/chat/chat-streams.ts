import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { Context } from 'hono';
import { toApiError } from '../../api-error.ts';
import type { Engine } from '../../engine/engine.ts';
import { follow, type EventSource, type FollowOptions } from '../../requests/event-log.ts';
import { storedStreams, type Numbered, type StreamRun } from '../../requests/stored-streams.ts';
import type { Caller, Env } from '../../http/admission.ts';
import { eventStream, type EventStream } from '../../http/respond.ts';
import { isChatRecord } from '../../history/conversation-records.ts';
import type { ChatEvent, NumberedEvent } from './wire.ts';

/** The streams of conversations: where their events go (sinks), and where clients read them. */
export interface ChatStreams {
  /** Sends events to a client and stores only how many they are. `after`: the number of the last event so far. */
  directSink(id: string, after: number, deliver: Deliver): ChatSink;
  /** Stores events. Readers follow the stream. */
  storedSink(run: StreamRun, id: string, after: number): ChatSink;
  /** The events of a conversation, which is not checked. Live while a run is in progress. */
  events(id: string, caller: StreamCaller): EventSource<Numbered<NumberedEvent>>;
  /** The stored events after a number. `hold` counts their bytes. */
  eventsAfter(id: string, after: number, hold: Caller['hold']): Promise<readonly NumberedEvent[]>;
  /** Delivers events until the run has ended, the signal aborts, or the server shuts down. */
  followChat(id: string, caller: StreamCaller, options: FollowOptions & { readonly deliver: Deliver }): Promise<void>;
  /** Lets readers see that a run has ended, which does not change the stream. */
  wakeReaders(id: string): void;
}

/** `isLive`: the event is stored nowhere. */
export type Deliver = (event: NumberedEvent, isLive?: 'live') => void | Promise<void>;

/** `hold` counts what the caller reads. */
type StreamCaller = Pick<Caller, 'tenant' | 'hold'>;

/** Where the events of a run go. */
export interface ChatSink {
  /** Returns a promise if the client or the store is slow. */
  add(event: ChatEvent): void | Promise<void>;
  /** Stores what has to be stored. `last`: the last event of the run. */
  flush(last?: ChatEvent): Promise<void>;
  /** Called when the end of the run is stored. */
  ended(): void;
  readonly last: number;
}

/** `stopping` aborts when the server shuts down. Readers can continue at another process, or after the restart. */
export function chatStreams(engine: Pick<Engine, 'store' | 'driven' | 'log'>, stopping: AbortSignal): ChatStreams {
  const { store } = engine;
  const { requests: records, conversations, streams } = store;
  const stored = storedStreams(engine);

  function directSink(id: string, after: number, deliver: Deliver): ChatSink {
    let last = after;
    let final: NumberedEvent | undefined;
    return {
      get last() {
        return last;
      },
      add: (event) => deliver({ ...event, seq: ++last }, isDelta(event) ? 'live' : undefined),
      async flush(event) {
        if (event) final = { ...event, seq: ++last };
        await streams.append(id, final ? last : last + 1, final ? [final] : []);
      },
      ended() {
        if (final) void deliver(final);
      },
    };
  }

  function storedSink(run: StreamRun, id: string, after: number): ChatSink {
    const writer = stored.writer(run, id, after);
    const add = (event: ChatEvent): void | Promise<void> => writer.add({ ...event, seq: writer.last + 1 });
    return {
      get last() {
        return writer.last;
      },
      add,
      async flush(event) {
        if (event) void add(event);
        await writer.flush();
      },
      ended() {},
    };
  }

  function events(id: string, { tenant }: StreamCaller): EventSource<Numbered<NumberedEvent>> {
    return stored.source({
      stream: id,
      async isLive() {
        const conversation = await conversations.get(tenant, id);
        // The events of a response are in a stream of its own.
        const isChat = conversation?.head !== undefined && isChatRecord(conversation.head);
        const head = isChat ? await records.head(tenant, conversation.head!) : undefined;
        return head?.status === 'in_progress';
      },
      isLast: ({ type }) => type === 'done',
    });
  }

  return {
    directSink,
    storedSink,
    events,
    eventsAfter: async (id, after, hold) => (await stored.eventsAfter(id, after, hold)) as readonly NumberedEvent[],
    followChat: (id, caller, { after, signal, deliver }) =>
      follow(
        events(id, caller),
        { after, signal: AbortSignal.any([signal, stopping]), hold: caller.hold },
        ({ event }) => deliver(event),
      ),
    wakeReaders: stored.wakeReaders,
  };
}

interface StreamOptions {
  readonly hasEndMark?: boolean;
  /** The last frames of a stream that failed. */
  readonly framesOf?: (failure: Failure) => readonly object[];
}

export type Failure = Extract<ChatEvent, { type: 'error' }>;

/** Sends events until `send` resolves. `signal` aborts when the client disconnects. The stream has to be counted before. */
export async function sendEvents(
  c: Context<Env>,
  heartbeatMs: number,
  send: (stream: EventStream, signal: AbortSignal) => Promise<void>,
  { hasEndMark = false, framesOf = (failure) => [failure] }: StreamOptions = {},
): Promise<Response> {
  const { log, requestId } = c.get('caller');
  const disconnected = new AbortController();
  const onDisconnect = (): void => disconnected.abort();
  const stream = eventStream(c, { heartbeatMs, onDisconnect, hasEndMark });
  try {
    await send(stream, disconnected.signal);
  } catch (error) {
    log.error({ err: error }, 'the events of a conversation could not be sent');
    const { code, message } = toApiError(error, requestId);
    for (const frame of framesOf({ type: 'error', code: code ?? 'internal_error', message }))
      void stream.send(undefined, frame);
  }
  stream.end();
  return RESPONSE_ALREADY_SENT;
}

/** What is part of an item that is not stored yet. */
function isDelta({ type }: ChatEvent): boolean {
  return type === 'token_delta' || type === 'reasoning_delta' || type === 'tool_call_output';
}
