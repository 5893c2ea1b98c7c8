import { readEvents, type EventsClient } from './chat-events.ts';
import type { StreamEvent } from './responses-client.ts';
import { parseEventFrame } from './sse-frames.ts';

export interface BackgroundEvents extends EventsClient<StreamEvent> {
  /** The stream ended with `[DONE]`. */
  readonly hasEndMark: boolean;
}

interface BackgroundOptions {
  readonly headers?: Readonly<Record<string, string>>;
  /** Called with each event as it arrives. */
  readonly onEvent?: (event: StreamEvent) => void;
}

/** Creates a background response and reads its events. */
export function postBackground(url: string, body: object, options?: BackgroundOptions): Promise<BackgroundEvents> {
  const request = {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ ...body, background: true, stream: true }),
  };
  return readBackground(`${url}/v1/responses`, request, options);
}

/** Continues to read a background response; `after`: the number of the last event that the client has. */
export function followBackground(
  url: string,
  id: string,
  { after, ...options }: BackgroundOptions & { readonly after?: number | undefined } = {},
): Promise<BackgroundEvents> {
  const start = after === undefined ? '' : `&starting_after=${after}`;
  return readBackground(`${url}/v1/responses/${id}?stream=true${start}`, {}, options);
}

async function readBackground(
  url: string,
  request: RequestInit,
  { headers = {}, onEvent }: BackgroundOptions = {},
): Promise<BackgroundEvents> {
  let hasEndMark = false;
  const client = await readEvents<StreamEvent>(
    url,
    { ...request, headers: { ...request.headers, ...headers } },
    {
      parse(frame) {
        if (hasEndMark) throw new Error(`A frame follows [DONE]: ${frame}`);
        hasEndMark = frame === 'data: [DONE]';
        if (hasEndMark) return undefined;
        const [id, ...lines] = frame.split('\n');
        const event = parseEventFrame(lines.join('\n'));
        if (id !== `id: ${event.sequence_number}`) throw new Error(`The id is not the number: ${frame}`);
        return event;
      },
      ...(onEvent && { onEvent }),
    },
  );
  return {
    ...client,
    get hasEndMark() {
      return hasEndMark;
    },
  };
}
