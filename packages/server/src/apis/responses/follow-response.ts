import type { RequestRecord } from '@treadle/store';
import { ApiError, badRequest } from '../../api-error.ts';
import type { Engine } from '../../engine/engine.ts';
import { follow, type EventWriter } from '../../requests/event-log.ts';
import { responseDeleted } from '../../requests/idempotency.ts';
import type { Requests } from '../../requests/requests.ts';
import type { StoredStreams } from '../../requests/stored-streams.ts';
import type { Caller } from '../../http/admission.ts';
import type { ResponseEvent } from './output-items.ts';
import { errorEvent, isTerminal, replayResponse } from './projection.ts';
import { interruptedError, type FinishedResponse, type PreparedResponse, type ResponseListener } from './response.ts';
import type { StoredRequest } from './stored-request.ts';
import { presentedResponse, type ResponseResource } from './wire.ts';

/*
 * Readers of responses that exist: those of the stored events of a background response, which anybody can follow from any
 * event on, and those of the output of another response, from which events are made.
 */
export interface ResponseFollower {
  /** A background response that was created before. */
  followed(record: RequestRecord, after: number, caller: Caller): PreparedResponse;
  /** Sends the stored events of a background response, and those that follow. Resolves to the response as it was given. */
  followStream(response: ResponseResource, caller: Caller, reader: StreamReader): Promise<FinishedResponse>;
  /** The events of a response after a number. See `Responses`. */
  stream(id: string, after: number | undefined, caller: Caller): Promise<PreparedResponse>;
}

export interface StreamReader {
  /** The number of the last event that the client has; -1 if it has none. */
  readonly after: number;
  readonly signal: AbortSignal;
  readonly listener: ResponseListener;
}

interface FollowerOptions {
  readonly engine: Engine;
  readonly stored: Requests;
  readonly streams: StoredStreams;
  /** Aborts when the server shuts down. */
  readonly stopping: AbortSignal;
  /** Rejects with a 404 for a response of another tenant. */
  readonly findResponse: (id: string, caller: Caller) => Promise<RequestRecord>;
  readonly currentResponse: (record: RequestRecord) => Promise<ResponseResource>;
}

export function responseFollower(options: FollowerOptions): ResponseFollower {
  const { engine, stored, streams, stopping, findResponse, currentResponse } = options;
  const { store, log } = engine;
  const records = store.requests;

  function followedResponse(record: RequestRecord, after: number, caller: Caller): PreparedResponse {
    const { id } = record;
    return {
      id,
      isResumable: true,
      async run(listener, signal) {
        if (!listener.emit) return { response: await currentResponse(record) };
        // Its client should not have to wait until this server looks for such runs.
        if (record.status === 'in_progress') {
          stored.recoverRecord(record).catch((error: unknown) => {
            log.debug({ err: error, response: id }, 'a response was not resumed');
          });
        }
        return followStream(record.response as ResponseResource, caller, { after, signal, listener });
      },
    };
  }

  async function followStream(
    response: ResponseResource,
    caller: Caller,
    { after, signal, listener: { emit, requiresAction, hold } }: StreamReader,
  ): Promise<FinishedResponse> {
    const { id } = response;
    const source = streams.source<ResponseEvent>({
      stream: streamOf(id),
      isLive: async () => (await records.head(caller.tenant, id))?.status === 'in_progress',
      isLast: isTerminal,
    });
    const options = { after: after + 1, signal: AbortSignal.any([signal, stopping]), hold };
    let isEnded = false;
    await follow(source, options, ({ event }) => {
      isEnded = isTerminal(event);
      return emit?.(presentedEvent(event, requiresAction));
    });
    return { response, isCut: options.signal.aborted && !isEnded };
  }

  async function streamResponse(id: string, after: number | undefined, caller: Caller): Promise<PreparedResponse> {
    // A stream may be open for long, and a request can be large.
    const { request, ...others } = await findResponse(id, caller);
    const record: RequestRecord = { ...others, request: undefined };
    const { background = false } = (request as StoredRequest).request;
    // The events may have been deleted before the response.
    const isStored = background && (record.status === 'in_progress' || (await store.streams.last(streamOf(id))) > 0);
    if (isStored) return followedResponse(record, after ?? -1, caller);
    if (after !== undefined) throw notStored();
    return {
      id,
      async run(listener, signal) {
        try {
          const { tenant, hold } = caller;
          const ended = await stored.ended({ tenant, hold, id }, signal, (interruption) =>
            interruptedError(id, interruption),
          );
          if (!ended) throw responseDeleted();
          return await replayRecord(ended, listener);
        } catch (error) {
          if (error instanceof ApiError) void listener.emit?.(errorEvent(error));
          throw error;
        }
      },
    };
  }

  return { followed: followedResponse, followStream, stream: streamResponse };
}

/** The stream of a background response. It is not the id, which is that of the run too: readers of one are not told of both. */
export function streamOf(id: string): string {
  return `events_${id}`;
}

/** The listener of a background response. Each reader gets the events in its own form. */
export interface StoredEvents {
  readonly sink: EventWriter;
  readonly listener: ResponseListener;
}

export function storedIn(sink: EventWriter): StoredEvents {
  return { sink, listener: { requiresAction: true, emit: sink.add } };
}

/** An event as one client sees it. */
function presentedEvent(event: ResponseEvent, requiresAction: boolean): ResponseEvent {
  const response = event['response'] as ResponseResource | undefined;
  return response ? { ...event, response: presentedResponse(response, requiresAction) } : event;
}

/** How often the events of a response contain its texts. */
const COPIES = 5;

/** Sends the events of a response that has ended, from its output. */
export async function replayRecord(record: RequestRecord, listener: ResponseListener): Promise<FinishedResponse> {
  const response = record.response as ResponseResource;
  if (listener.emit) listener.hold?.(COPIES * JSON.stringify(response.output).length);
  await replayResponse(response, listener);
  return { response };
}

function notStored(): ApiError {
  const message =
    "The events of this response are not stored: only those of a background response are. Leave 'starting_after' out to get them from the start.";
  return badRequest(message, 'starting_after', 'stream_not_stored');
}
