import { Client } from 'undici';
import {
  PARAMETERS,
  PROMPT,
  TOOL_DESCRIPTION,
  TOOL_NAME,
  type Contender,
  type StepInput,
  type Task,
} from './contender.ts';

/**
 * The fastest hand-written loop that still parses, executes and appends: its own connections and the bare dispatch of
 * undici, events found by `indexOf`, and a history that is one growing buffer of the bytes to send.
 */
export const contender: Contender = {
  prepare({ baseURL, model, stream, onDelta, step }) {
    const { origin, pathname } = new URL(baseURL);
    const send = sender(origin, `${pathname}/chat/completions`, stream ? () => new Events(onDelta) : () => new Whole());
    const tools = [
      { type: 'function', function: { name: TOOL_NAME, description: TOOL_DESCRIPTION, parameters: PARAMETERS } },
    ];
    const options = { model, tools, ...(stream && { stream, stream_options: { include_usage: true } }) };
    const start = `${JSON.stringify(options).slice(0, -1)},"messages":[${JSON.stringify({ role: 'user', content: PROMPT })}`;
    return () => run(start, send, step);
  },
};

async function run(start: string, send: (body: Buffer) => Promise<Reply>, step: Task['step']): Promise<string> {
  const history = new History(start);
  for (;;) {
    const { content, calls } = await send(history.body());
    if (calls.length === 0) return content;
    const pending: (string | Promise<string>)[] = [];
    let asked = `,{"role":"assistant","content":${content === '' ? 'null' : JSON.stringify(content)},"tool_calls":[`;
    let awaited = false;
    for (let i = 0; i < calls.length; i++) {
      const { id, name, arguments: text } = calls[i]!;
      const separator = i === 0 ? '' : ',';
      asked += `${separator}{"id":${JSON.stringify(id)},"type":"function","function":{"name":${JSON.stringify(name)},"arguments":${JSON.stringify(text)}}}`;
      const result = step(JSON.parse(text) as StepInput);
      awaited ||= typeof result !== 'string';
      pending.push(result);
    }
    asked += ']}';
    const results = awaited ? await Promise.all(pending) : (pending as string[]);
    for (let i = 0; i < calls.length; i++) {
      asked += `,{"role":"tool","tool_call_id":${JSON.stringify(calls[i]!.id)},"content":${JSON.stringify(results[i])}}`;
    }
    history.append(asked);
  }
}

/** Doubles its size when full; written bytes are never read or written again. */
class History {
  #bytes = Buffer.allocUnsafeSlow(2_048);
  #size = 0;

  constructor(start: string) {
    this.append(start);
  }

  append(text: string): void {
    const most = this.#size + text.length * 3 + 2;
    if (most > this.#bytes.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(most, this.#bytes.length * 2));
      this.#bytes.copy(larger, 0, 0, this.#size);
      this.#bytes = larger;
    }
    this.#size += this.#bytes.write(text, this.#size);
  }

  /** Includes the end of the request; valid until the next append. */
  body(): Buffer {
    return this.#bytes.subarray(0, this.#size + this.#bytes.write(']}', this.#size, 'latin1'));
  }
}

interface Call {
  id: string;
  name: string;
  arguments: string;
}

interface Reply {
  content: string;
  calls: Call[];
}

interface Reader {
  feed(chunk: Buffer): void;
  end(): Reply;
}

const HEADERS = ['content-type', 'application/json', 'authorization', 'Bearer key'];
/** Shared by all models of a process, like a pool. */
const idle = new Map<string, Client[]>();

function sender(origin: string, path: string, reader: () => Reader): (body: Buffer) => Promise<Reply> {
  const free = idle.get(origin) ?? [];
  idle.set(origin, free);
  return (body) =>
    new Promise((resolve, reject) => {
      const client = free.pop() ?? new Client(origin, { headersTimeout: 0, bodyTimeout: 0 });
      client.dispatch(
        { path, method: 'POST', headers: HEADERS, body },
        new Answer(client, free, reader(), resolve, reject),
      );
    });
}

/** The older handler interface of undici: the newer one is a wrapper that parses every header. */
class Answer {
  #status = 0;
  readonly client: Client;
  readonly free: Client[];
  readonly reader: Reader;
  readonly resolve: (reply: Reply) => void;
  readonly reject: (error: Error) => void;

  constructor(
    client: Client,
    free: Client[],
    reader: Reader,
    resolve: (reply: Reply) => void,
    reject: (error: Error) => void,
  ) {
    this.client = client;
    this.free = free;
    this.reader = reader;
    this.resolve = resolve;
    this.reject = reject;
  }

  onConnect(): void {}

  onHeaders(status: number): boolean {
    this.#status = status;
    return true;
  }

  onData(chunk: Buffer): boolean {
    this.reader.feed(chunk);
    return true;
  }

  onComplete(): void {
    this.free.push(this.client);
    if (this.#status === 200) this.resolve(this.reader.end());
    else this.reject(new Error(`status ${this.#status}`));
  }

  onError(error: Error): void {
    this.reject(error);
  }
}

class Whole implements Reader {
  #bytes: Buffer | undefined;

  feed(chunk: Buffer): void {
    this.#bytes = this.#bytes ? Buffer.concat([this.#bytes, chunk]) : chunk;
  }

  end(): Reply {
    const { content, tool_calls } = (JSON.parse(this.#bytes!.toString()) as Completion).choices[0]!.message;
    const calls: Call[] = [];
    if (tool_calls) {
      for (const { id, function: called } of tool_calls)
        calls.push({ id, name: called.name, arguments: called.arguments });
    }
    return { content: content ?? '', calls };
  }
}

interface Completion {
  choices: { message: { content: string | null; tool_calls?: { id: string; function: Call }[] } }[];
}

interface Chunk {
  choices: {
    delta: {
      content?: string | null;
      tool_calls?: { index: number; id?: string; function: { name?: string; arguments?: string } }[];
    };
  }[];
}

/** Decodes whole lines only, because a line never ends inside a character. */
class Events implements Reader {
  readonly onDelta: (text: string) => void;
  #rest: Buffer | undefined;
  #content = '';
  readonly #calls: Call[] = [];

  constructor(onDelta: (text: string) => void) {
    this.onDelta = onDelta;
  }

  feed(chunk: Buffer): void {
    const bytes = this.#rest ? Buffer.concat([this.#rest, chunk]) : chunk;
    const end = bytes.lastIndexOf(10) + 1;
    this.#rest = end === bytes.length ? undefined : bytes.subarray(end);
    if (end > 0) this.#read(bytes.toString('utf8', 0, end));
  }

  #read(text: string): void {
    for (let from = 0, end = text.indexOf('\n'); end !== -1; from = end + 1, end = text.indexOf('\n', from)) {
      // `data:` and an object, with or without a space; skips empty lines, `[DONE]` and comments.
      if (text.charCodeAt(from) !== 100) continue;
      const at = text.charCodeAt(from + 5) === 32 ? from + 6 : from + 5;
      if (text.charCodeAt(at) !== 123) continue;
      const delta = (JSON.parse(text.slice(at, end)) as Chunk).choices[0]?.delta;
      if (delta === undefined) continue;
      const { content, tool_calls } = delta;
      if (content) {
        this.#content += content;
        this.onDelta(content);
      }
      if (tool_calls) for (const part of tool_calls) this.#take(part);
    }
  }

  #take({ index, id, function: part }: NonNullable<Chunk['choices'][number]['delta']['tool_calls']>[number]): void {
    const call = this.#calls[index];
    if (call) call.arguments += part.arguments ?? '';
    else this.#calls[index] = { id: id!, name: part.name!, arguments: part.arguments ?? '' };
  }

  end(): Reply {
    return { content: this.#content, calls: this.#calls };
  }
}
