/** A JSON-RPC error that a handler throws. */
export class RpcError extends Error {
  readonly code: number;
  readonly data: unknown;

  constructor(code: number, message: string, data?: unknown) {
    super(message);
    this.code = code;
    this.data = data;
  }
}

export interface Received {
  readonly method: string;
  readonly params: Readonly<Record<string, unknown>>;
  readonly headers: Headers;
  readonly signal: AbortSignal;
  /** Sends a notification or a request to the client before the result, in the stream of this request. */
  readonly send: (message: object) => void;
  /** Sends a request to the client, and resolves with its answer. */
  readonly ask: (method: string, params: object) => Promise<Answer>;
}

export interface Answer {
  readonly result?: Readonly<Record<string, unknown>>;
  readonly error?: { readonly code: number; readonly message: string };
}

export type Handler = (received: Received) => unknown;

export interface ScriptedServer {
  readonly fetch: typeof fetch;
  /** The methods of all requests and notifications, in order. */
  readonly methods: string[];
  readonly received: Received[];
}

/** An MCP server behind a `fetch`, without a socket. It speaks the older version unless it handles `server/discover`. */
export function scriptedServer(handlers: Record<string, Handler>): ScriptedServer {
  const methods: string[] = [];
  const received: Received[] = [];
  const asked = new Map<string | number, (answer: Answer) => void>();
  const all: Record<string, Handler> = {
    initialize: ({ params }) => ({
      protocolVersion: params['protocolVersion'],
      capabilities: { tools: { listChanged: true } },
      serverInfo: { name: 'scripted', version: '1' },
    }),
    ...handlers,
  };
  async function respond(_: unknown, init: RequestInit = {}): Promise<Response> {
    if (init.method !== 'POST') return new Response(null, { status: 405 });
    const message = JSON.parse(String(init.body)) as {
      id?: string | number;
      method?: string;
      params?: Record<string, unknown>;
    };
    const { id, method, params = {} } = message;
    if (method === undefined) {
      asked.get(id!)?.(message as Answer);
      return new Response(null, { status: 202 });
    }
    methods.push(method);
    const chunks = new TransformStream<string, string>();
    const writer = chunks.writable.getWriter();
    writer.closed.catch(() => {});
    const send = (one: object): void => {
      writer.write(`data: ${JSON.stringify({ jsonrpc: '2.0', ...one })}\n\n`).catch(() => {});
    };
    const ask: Received['ask'] = (asks, about) => {
      const answer = Promise.withResolvers<Answer>();
      const askedId = `ask ${asked.size}`;
      asked.set(askedId, answer.resolve);
      send({ id: askedId, method: asks, params: about });
      return answer.promise;
    };
    const signal = init.signal ?? new AbortController().signal;
    const one: Received = { method, params, headers: new Headers(init.headers), signal, send, ask };
    received.push(one);
    if (id === undefined) {
      await all[method]?.(one);
      return new Response(null, { status: 202 });
    }
    const handle = async (): Promise<void> => {
      try {
        const handler = all[method];
        if (!handler) throw new RpcError(-32601, `Method not found: ${method}`);
        send({ id, result: await handler(one) });
      } catch (error) {
        const { code = -32603, message: text, data } = error as RpcError;
        send({ id, error: { code, message: text, ...(data !== undefined && { data }) } });
      }
      writer.close().catch(() => {});
    };
    void handle();
    signal.addEventListener('abort', () => void writer.abort(signal.reason).catch(() => {}));
    return new Response(chunks.readable.pipeThrough(new TextEncoderStream()), {
      headers: { 'content-type': 'text/event-stream', ...(method === 'initialize' && { 'mcp-session-id': 's1' }) },
    });
  }
  return { fetch: respond as typeof fetch, methods, received };
}

/** For `server/discover`: a server of the newer version. */
export function discovered(): object {
  return {
    resultType: 'complete',
    supportedVersions: ['2026-07-28'],
    capabilities: { tools: { listChanged: true } },
    ttlMs: 0,
    cacheScope: 'private',
  };
}

export function listed(...names: readonly string[]): object {
  const tools = names.map((name) => ({ name, description: `Does ${name}`, inputSchema: { type: 'object' } }));
  return { resultType: 'complete', ttlMs: 0, cacheScope: 'private', tools };
}
