import {
  isJSONRPCRequest,
  isJSONRPCResponse,
  WebStandardStreamableHTTPServerTransport,
  type JSONRPCMessage,
  type JSONRPCNotification,
  type McpServer,
  type RequestId,
  type WebStandardStreamableHTTPServerTransportOptions,
} from '@modelcontextprotocol/server';
import { randomUUID } from 'node:crypto';
import type { SessionEvent, ToldEvent } from './session-events.ts';

/** The transport of a session that other servers may have too. */
export interface SessionTransport {
  readonly transport: WebStandardStreamableHTTPServerTransport;
  connect(server: McpServer): Promise<void>;
  /** The stream of the session is open here. */
  setListening(isListening: boolean): void;
  /** Does what another server has told. */
  apply(event: SessionEvent): void;
  /** Does again what has changed the session. */
  repeat(event: SessionEvent): void;
}

export interface SessionTransportOptions {
  /** Names the server: the numbers of the requests that it sends begin there. It is a multiple of `NUMBERS`. */
  readonly by: number;
  /** Tells the other servers. */
  readonly tell: (event: ToldEvent) => Promise<void>;
  readonly options: WebStandardStreamableHTTPServerTransportOptions;
}

/** Requests that a server can send in a session. */
export const NUMBERS = 1_048_576;
/** Requests that change the session. */
const CHANGING: ReadonlySet<string> = new Set(['logging/setLevel', 'resources/subscribe', 'resources/unsubscribe']);
/** Requests that are repeated have such ids. Nobody gets their results. */
const REPEATED = 'treadle-repeated-';

/**
 * Only the server that has sent a request to the client, or is handling one, can use its answer or its cancellation. So each
 * server numbers its requests from a number of its own, and tells the others of what it cannot use.
 */
export function sessionTransport({ by, tell, options }: SessionTransportOptions): SessionTransport {
  const transport = new WebStandardStreamableHTTPServerTransport(options);
  const send = transport.send.bind(transport);
  /** Requests of the client that are being handled here. */
  const handled = new Set<RequestId>();
  /** Updates of resources that were not sent, because the client has no stream here, by address. It gets them with the next one. */
  const missed = new Map<unknown, JSONRPCNotification>();
  let isListening = false;
  let receive: NonNullable<typeof transport.onmessage> = () => {};

  transport.send = async (message, how) => {
    if (isJSONRPCResponse(message)) {
      if (message.id !== undefined) handled.delete(message.id);
      return isRepeated(message) ? undefined : send(message, how);
    }
    if (isUpdate(message) && !isListening) return void missed.set(message.params?.['uri'], message);
    const numbered = withNumbers(message, by);
    // Each server finds out by itself what has changed, so notifications are not for others.
    const isForOthers = how?.relatedRequestId === undefined && !isListening && numbered !== message;
    return isForOthers ? tell({ type: 'sending', message: numbered }) : send(numbered, how);
  };

  /** Does what the client has sent, unless only another server can. */
  function receiveHere(...[message, extra]: Parameters<typeof receive>): boolean {
    if (isJSONRPCResponse(message)) {
      if (serverOf(message.id) !== by) return false;
      receive({ ...message, id: Number(message.id) - by }, extra);
      return true;
    }
    const cancelled = cancelledBy(message);
    if (cancelled !== undefined && !handled.delete(cancelled)) return false;
    if (isJSONRPCRequest(message)) handled.add(message.id);
    receive(message, extra);
    return true;
  }

  function repeat(event: SessionEvent): void {
    if (event.type !== 'received' || !isJSONRPCRequest(event.message)) return;
    receive({ ...event.message, id: REPEATED + randomUUID() });
  }

  return {
    transport,
    async connect(server) {
      await server.connect(transport);
      const onMessage = transport.onmessage!;
      receive = (message, extra) => {
        if ('method' in message && message.method === 'resources/unsubscribe') missed.delete(message.params?.['uri']);
        onMessage(message, extra);
      };
      // The SDK has no other way.
      // oxlint-disable-next-line unicorn/prefer-add-event-listener
      transport.onmessage = (message, extra) => {
        const isHere = receiveHere(message, extra);
        const isForOthers = isHere ? 'method' in message && CHANGING.has(message.method) : concernsServer(message);
        // Whoever waits for this waits for `written` too.
        if (isForOthers) void tell({ type: 'received', message }).catch(() => {});
      };
    },
    setListening(is) {
      isListening = is;
      if (!is) return;
      for (const message of missed.values()) void send(message).catch(() => {});
      missed.clear();
    },
    apply(event) {
      if (event.type === 'sending' && isListening) void send(event.message).catch(() => {});
      if (event.type !== 'received') return;
      if (isJSONRPCRequest(event.message)) repeat(event);
      else receiveHere(event.message);
    },
    repeat,
  };
}

/** The request whose id is in a cancellation. */
function cancelledBy(message: JSONRPCMessage): RequestId | undefined {
  if (!('method' in message) || message.method !== 'notifications/cancelled') return undefined;
  return message.params?.['requestId'] as RequestId | undefined;
}

/** Requests to the client, and their cancellations, with the numbers of a server. */
function withNumbers(message: JSONRPCMessage, by: number): JSONRPCMessage {
  if (isJSONRPCRequest(message)) return { ...message, id: by + Number(message.id) };
  const cancelled = cancelledBy(message);
  if (cancelled === undefined || !('params' in message)) return message;
  return { ...message, params: { ...message.params, requestId: by + Number(cancelled) } } as JSONRPCMessage;
}

/** The server that has sent the request with this id. 0: none. */
function serverOf(id: RequestId | undefined): number {
  return typeof id === 'number' && Number.isSafeInteger(id) && id > 0 ? id - (id % NUMBERS) : 0;
}

/** A message that is not for this server may be for another one. */
function concernsServer(message: JSONRPCMessage): boolean {
  return !isJSONRPCResponse(message) || serverOf(message.id) > 0;
}

function isUpdate(message: JSONRPCMessage): message is JSONRPCNotification {
  return 'method' in message && message.method === 'notifications/resources/updated';
}

/** Whether a request was handled before, perhaps by another server. */
export function isRepeated({ id }: { readonly id?: RequestId | undefined }): boolean {
  return typeof id === 'string' && id.startsWith(REPEATED);
}
