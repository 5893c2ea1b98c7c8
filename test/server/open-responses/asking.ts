import { eventIn } from '../streams/frames.ts';
import { problems } from './check.ts';
import { checkedStream } from './stream-rules.ts';

/** A response as it came over the wire. What it has beyond this, `check.ts` knows. */
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
  readonly arguments?: string;
  readonly response?: WireResponse;
  readonly [field: string]: unknown;
}

export interface Answer<T = unknown> {
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

export interface Streamed {
  readonly events: readonly StreamEvent[];
  /** As it ended. */
  readonly response: WireResponse;
  readonly headers: Headers;
}

export interface Begun {
  readonly id: string;
  readonly ended: Promise<Streamed>;
  /** The client goes away. */
  readonly leave: () => void;
}

type Body = Readonly<Record<string, unknown>>;
type Sent = Readonly<Record<string, string>>;

/** Talks to a server as any client would, and holds whatever comes back against the specification. */
export interface Asking {
  /** A response that is there when it has ended. Fails if the answer is an error. */
  respond(body: Body, headers?: Sent): Promise<WireResponse>;
  stream(body: Body, headers?: Sent): Promise<Streamed>;
  /** One of which the id is known, and that goes on. */
  begin(body: Body, headers?: Sent): Promise<Begun>;
  /** One that is refused. Fails if it is not. */
  refused(body: unknown, headers?: Sent): Promise<Answer<WireError>>;
  retrieve(id: string, headers?: Sent): Promise<WireResponse>;
  cancel(id: string): Promise<WireResponse>;
  inputItems(id: string, query?: string): Promise<{ readonly data: readonly Item[]; readonly has_more: boolean }>;
  /** Any request; `body` is sent as JSON unless it is a text, as it is then. An error must have the form of one. */
  send(method: string, path: string, body?: unknown, headers?: Sent): Promise<Answer>;
}

/** `url`: where the server is, without `/v1`; asked for each time, since it may have been started anew. */
export function asking(url: () => string, own: Sent = {}): Asking {
  async function raw(
    method: string,
    path: string,
    body?: unknown,
    headers: Sent = {},
    signal: AbortSignal | null = null,
  ): Promise<Response> {
    const sent = { ...own, ...(body !== undefined && { 'content-type': 'application/json' }), ...headers };
    const text = typeof body === 'string' ? body : JSON.stringify(body);
    return fetch(url() + path, { method, headers: sent, signal, ...(body !== undefined && { body: text }) });
  }

  async function begin(body: Body, headers?: Sent): Promise<Begun> {
    const gone = new AbortController();
    const answer = await raw('POST', '/v1/responses', { ...body, stream: true }, headers, gone.signal);
    if (answer.status !== 200) throw new Error(`The answer is ${answer.status}: ${await answer.text()}`);
    const first = Promise.withResolvers<string>();
    const ended = whole(answer, first.resolve);
    ended.catch(first.reject);
    return { id: await first.promise, ended, leave: () => gone.abort() };
  }

  async function send(method: string, path: string, body?: unknown, headers?: Sent): Promise<Answer> {
    const { status, headers: got, ...answer } = await read(await raw(method, path, body, headers));
    if (status >= 400) mustBe(problems('ErrorBody', answer.body), answer.body);
    return { status, headers: got, body: answer.body };
  }

  async function responseOf(answer: Promise<Answer>): Promise<WireResponse> {
    const { status, body } = await answer;
    if (status !== 200) throw new Error(`The answer is ${status}: ${JSON.stringify(body)}`);
    mustBe(problems('Response', body), body);
    return body as WireResponse;
  }

  return {
    send,
    respond: (body, headers) => responseOf(send('POST', '/v1/responses', body, headers)),
    begin,
    stream: async (body, headers) => (await begin(body, headers)).ended,
    async refused(body, headers) {
      const answer = await send('POST', '/v1/responses', body, headers);
      if (answer.status < 400) throw new Error(`It was not refused: ${JSON.stringify(answer.body)}`);
      return answer as Answer<WireError>;
    },
    retrieve: (id, headers) => responseOf(send('GET', `/v1/responses/${id}`, undefined, headers)),
    cancel: (id) => responseOf(send('POST', `/v1/responses/${id}/cancel`)),
    async inputItems(id, query = '') {
      const { status, body } = await send('GET', `/v1/responses/${id}/input_items${query}`);
      if (status !== 200) throw new Error(`The answer is ${status}: ${JSON.stringify(body)}`);
      const page = body as { readonly data: readonly Item[]; readonly has_more: boolean };
      mustBe(
        page.data.flatMap((item) => problems('Item', item)),
        page,
      );
      return page;
    },
  };
}

async function read(answer: Response): Promise<Answer> {
  const text = await answer.text();
  const isJson = answer.headers.get('content-type')?.startsWith('application/json');
  return { status: answer.status, headers: answer.headers, body: isJson ? (JSON.parse(text) as unknown) : text };
}

/** Reads a stream to its end; `begun` is told the response's id when that has come. */
async function whole(answer: Response, begun: (id: string) => void): Promise<Streamed> {
  let text = '';
  for await (const piece of answer.body!.pipeThrough(new TextDecoderStream())) {
    text += piece;
    const id = /"id":"(resp_\w+)"/.exec(text)?.[1];
    if (id !== undefined) begun(id);
  }
  const events = eventsIn(text);
  return { events, response: checkedStream(events), headers: answer.headers };
}

/** Frames of one event each, LF only, `[DONE]` at the end. */
function eventsIn(text: string): readonly StreamEvent[] {
  if (text.includes('\r')) throw new Error('There is a CR in the stream.');
  const frames = text.split('\n\n').filter((frame) => !frame.startsWith(':'));
  if (frames.pop() !== '' || frames.pop() !== 'data: [DONE]')
    throw new Error(`It does not end well: ${text.slice(-500)}`);
  return frames.map(eventIn);
}

function mustBe(found: readonly string[], of: unknown): void {
  if (found.length > 0) throw new Error(`${found.join('\n')}\nin ${JSON.stringify(of).slice(0, 2_000)}`);
}

/** Its words. */
export function textIn({ output }: Pick<WireResponse, 'output'>): string {
  return output
    .flatMap(({ type, content = [] }) => (type === 'message' ? content.map(({ text }) => text) : []))
    .join('');
}

export function callsIn({ output }: Pick<WireResponse, 'output'>): readonly (Item & { readonly call_id: string })[] {
  return output.filter((item) => item.type === 'function_call') as (Item & { readonly call_id: string })[];
}

/** What a client sends back for a call. */
export function outputFor(call: { readonly call_id: string } | string, output: string, more: object = {}): object {
  return { type: 'function_call_output', call_id: typeof call === 'string' ? call : call.call_id, output, ...more };
}
