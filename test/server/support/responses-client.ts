import { setTimeout } from 'node:timers/promises';
import { schemaProblems } from './schema-check.ts';
import { parseEventFrame } from './sse-frames.ts';
import { validateStream } from './stream-rules.ts';

/** The fields of a response that tests use. `schema-check.ts` validates all of them. */
export interface WireResponse {
  readonly id: string;
  readonly status: string;
  readonly output: readonly Item[];
  readonly error: { readonly code: string; readonly message: string } | null;
  readonly incomplete_details: { readonly reason: string } | null;
  readonly usage: {
    readonly input_tokens: number;
    readonly output_tokens: number;
    readonly total_tokens: number;
  } | null;
  readonly pending_call_ids?: readonly string[];
  readonly [field: string]: unknown;
}

export interface Item {
  readonly type: string;
  readonly id: string;
  readonly status?: string;
  readonly call_id?: string;
  readonly name?: string;
  readonly arguments?: string;
  readonly phase?: string;
  readonly output?: unknown;
  readonly error?: { readonly message: string } | null;
  readonly content?: readonly { readonly type: string; readonly text: string }[];
  readonly summary?: readonly { readonly type: string; readonly text: string }[];
  readonly [field: string]: unknown;
}

export interface StreamEvent {
  readonly type: string;
  readonly sequence_number: number;
  readonly output_index?: number;
  readonly item_id?: string;
  readonly item?: Item;
  readonly delta?: string;
  readonly text?: string;
  readonly refusal?: string;
  readonly arguments?: string;
  readonly response?: WireResponse;
  readonly [field: string]: unknown;
}

export interface HttpResult<T = unknown> {
  readonly status: number;
  readonly headers: Headers;
  readonly body: T;
}

export interface WireError {
  readonly error: {
    readonly message: string;
    readonly type: string;
    readonly param: string | null;
    readonly code: string | null;
  };
}

export interface StreamedResponse {
  readonly events: readonly StreamEvent[];
  /** The response of the terminal event. */
  readonly response: WireResponse;
  readonly headers: Headers;
}

export interface StartedStream {
  readonly id: string;
  readonly ended: Promise<StreamedResponse>;
  /** The client closes the connection. */
  readonly disconnect: () => void;
}

type RequestBody = Readonly<Record<string, unknown>>;
type RequestHeaders = Readonly<Record<string, string>>;

/** An HTTP client that validates every response and every stream against the specification. */
export interface ResponsesClient {
  /** Creates a response without streaming. Fails if the server returns an error. */
  respond(body: RequestBody, headers?: RequestHeaders): Promise<WireResponse>;
  /** Creates a streamed response and reads the whole stream. */
  stream(body: RequestBody, headers?: RequestHeaders): Promise<StreamedResponse>;
  /** Creates a streamed response; resolves when its id is known. */
  startStream(body: RequestBody, headers?: RequestHeaders): Promise<StartedStream>;
  /** Sends a request that the server must reject. Fails if it does not. */
  expectError(body: unknown, headers?: RequestHeaders): Promise<HttpResult<WireError>>;
  retrieve(id: string, headers?: RequestHeaders): Promise<WireResponse>;
  /** Fetches the response until it is no longer in progress. */
  retrieveEnded(id: string): Promise<WireResponse>;
  cancel(id: string): Promise<WireResponse>;
  inputItems(id: string, query?: string): Promise<{ readonly data: readonly Item[]; readonly has_more: boolean }>;
  /** Sends any request. A string body is sent unchanged, any other as JSON. Validates the body of an error. */
  send(method: string, path: string, body?: unknown, headers?: RequestHeaders): Promise<HttpResult>;
}

/** `url` is the address without `/v1`. It is a function because the server may be restarted. */
export function responsesClient(url: () => string, commonHeaders: RequestHeaders = {}): ResponsesClient {
  async function fetchRaw(
    method: string,
    path: string,
    body?: unknown,
    headers: RequestHeaders = {},
    signal: AbortSignal | null = null,
  ): Promise<Response> {
    const allHeaders = {
      ...commonHeaders,
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...headers,
    };
    const text = typeof body === 'string' ? body : JSON.stringify(body);
    return fetch(url() + path, { method, headers: allHeaders, signal, ...(body !== undefined && { body: text }) });
  }

  async function startStream(body: RequestBody, headers?: RequestHeaders): Promise<StartedStream> {
    const connection = new AbortController();
    const answer = await fetchRaw('POST', '/v1/responses', { ...body, stream: true }, headers, connection.signal);
    if (answer.status !== 200) throw new Error(`The response is ${answer.status}: ${await answer.text()}`);
    const firstId = Promise.withResolvers<string>();
    const ended = readStream(answer, firstId.resolve);
    ended.catch(firstId.reject);
    return { id: await firstId.promise, ended, disconnect: () => connection.abort() };
  }

  async function send(method: string, path: string, body?: unknown, headers?: RequestHeaders): Promise<HttpResult> {
    const result = await readResult(await fetchRaw(method, path, body, headers));
    // Errors of the Messages API have a form of their own.
    const isMessages = result.headers.has('request-id');
    if (result.status >= 400 && !isMessages) expectNoProblems(schemaProblems('ErrorBody', result.body), result.body);
    return result;
  }

  async function responseOf(result: Promise<HttpResult>): Promise<WireResponse> {
    const { status, body } = await result;
    if (status !== 200) throw new Error(`The response is ${status}: ${JSON.stringify(body)}`);
    expectNoProblems(schemaProblems('Response', body), body);
    return body as WireResponse;
  }

  const retrieve: ResponsesClient['retrieve'] = (id, headers) =>
    responseOf(send('GET', `/v1/responses/${id}`, undefined, headers));

  return {
    send,
    respond: (body, headers) => responseOf(send('POST', '/v1/responses', body, headers)),
    startStream,
    stream: async (body, headers) => (await startStream(body, headers)).ended,
    async expectError(body, headers) {
      const result = await send('POST', '/v1/responses', body, headers);
      if (result.status < 400) throw new Error(`The request was not rejected: ${JSON.stringify(result.body)}`);
      return result as HttpResult<WireError>;
    },
    retrieve,
    async retrieveEnded(id) {
      let response = await retrieve(id);
      while (response.status === 'in_progress') {
        // Requests without a pause would slow down the server.
        await setTimeout(5);
        response = await retrieve(id);
      }
      return response;
    },
    cancel: (id) => responseOf(send('POST', `/v1/responses/${id}/cancel`)),
    async inputItems(id, query = '') {
      const { status, body } = await send('GET', `/v1/responses/${id}/input_items${query}`);
      if (status !== 200) throw new Error(`The response is ${status}: ${JSON.stringify(body)}`);
      const page = body as { readonly data: readonly Item[]; readonly has_more: boolean };
      expectNoProblems(
        page.data.flatMap((item) => schemaProblems('Item', item)),
        page,
      );
      return page;
    },
  };
}

async function readResult(answer: Response): Promise<HttpResult> {
  const text = await answer.text();
  const isJson = answer.headers.get('content-type')?.startsWith('application/json');
  return { status: answer.status, headers: answer.headers, body: isJson ? (JSON.parse(text) as unknown) : text };
}

/** Reads a stream to its end. Calls `onId` when the id of the response has arrived. */
async function readStream(answer: Response, onId: (id: string) => void): Promise<StreamedResponse> {
  let text = '';
  for await (const chunk of answer.body!.pipeThrough(new TextDecoderStream())) {
    text += chunk;
    const id = /"id":"(resp_\w+)"/.exec(text)?.[1];
    if (id !== undefined) onId(id);
  }
  const events = parseStream(text);
  return { events, response: validateStream(events), headers: answer.headers };
}

/** Requires one event per frame, LF only, and `[DONE]` at the end. */
function parseStream(text: string): readonly StreamEvent[] {
  if (text.includes('\r')) throw new Error('The stream contains a CR.');
  const frames = text.split('\n\n').filter((frame) => !frame.startsWith(':'));
  if (frames.pop() !== '' || frames.pop() !== 'data: [DONE]')
    throw new Error(`The stream does not end with [DONE]: ${text.slice(-500)}`);
  return frames.map(parseEventFrame);
}

function expectNoProblems(problems: readonly string[], value: unknown): void {
  if (problems.length > 0) throw new Error(`${problems.join('\n')}\nin ${JSON.stringify(value).slice(0, 2_000)}`);
}

/** The text of all messages. */
export function textIn({ output }: Pick<WireResponse, 'output'>): string {
  return output
    .flatMap(({ type, content = [] }) => (type === 'message' ? content.map(({ text }) => text) : []))
    .join('');
}

export function callsIn({ output }: Pick<WireResponse, 'output'>): readonly (Item & { readonly call_id: string })[] {
  return output.filter((item) => item.type === 'function_call') as (Item & { readonly call_id: string })[];
}

/** The item with which a client answers a call. */
export function outputFor(call: { readonly call_id: string } | string, output: string, more: object = {}): object {
  return { type: 'function_call_output', call_id: typeof call === 'string' ? call : call.call_id, output, ...more };
}
