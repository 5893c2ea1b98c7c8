import { setTimeout as delay } from 'node:timers/promises';
import OpenAI, { APIConnectionError, APIError } from 'openai';
import type { Response, ResponseOutputItem, ResponseStreamEvent } from 'openai/resources/responses/responses';
import type { Fact } from '../../crash/power/told.ts';
import type { Random } from '../../random.ts';
import { lastText, taskOf } from './model.ts';

/** What a client does with its run. All send an `Idempotency-Key`, and send the request again if they were cut off. */
export type ClientKind =
  /** A background response, whose stream is continued after the last event, at whatever server. */
  | 'background'
  /** The same, and another client follows. */
  | 'followed'
  /** The same, and it is cancelled after some events. */
  | 'cancelled'
  /** A response that is streamed, and is not continued: the request is repeated, or the response is fetched. */
  | 'foreground'
  /** A streamed chat completion. */
  | 'completion';

export interface ChaosRun {
  readonly tag: string;
  readonly kind: ClientKind;
  readonly tools: readonly string[];
}

/** What the clients saw besides facts. */
export interface Seen {
  readonly facts: Fact[];
  /** Answers that no client should get. */
  readonly wrong: string[];
  /** How often each failure happened that a client has to expect. */
  readonly failures: Map<string, number>;
  /** Runs whose client is still waiting, with what it does. */
  readonly waiting: Map<string, string>;
}

export interface ClientContext {
  readonly baseURL: string;
  readonly seen: Seen;
  readonly random: Random;
  readonly isOver: () => boolean;
}

/** A stream without an event for so long is continued elsewhere: its server may be frozen. */
const SILENCE_MS = 6_000;
const ENDED = new Set(['completed', 'failed', 'incomplete', 'cancelled']);

/** Resolves to the last response that the client was told of; undefined if the test is over before. */
export async function performRun(run: ChaosRun, context: ClientContext): Promise<void> {
  const client = new OpenAI({ baseURL: context.baseURL, apiKey: 'any', maxRetries: 0, timeout: 2 * SILENCE_MS });
  const one = new ChaosClient(client, run, context);
  context.seen.waiting.set(run.tag, 'begins');
  if (run.kind === 'completion') await one.complete();
  else if (run.kind === 'foreground') await one.respond();
  else await one.follow();
  context.seen.waiting.delete(run.tag);
}

class ChaosClient {
  readonly #client: OpenAI;
  readonly #run: ChaosRun;
  readonly #context: ClientContext;
  #id: string | undefined;
  #last: number | undefined;
  #isTold = false;

  constructor(client: OpenAI, run: ChaosRun, context: ClientContext) {
    this.#client = client;
    this.#run = run;
    this.#context = context;
  }

  get #options(): { readonly headers: Readonly<Record<string, string>> } {
    return { headers: { 'Idempotency-Key': `key-${this.#run.tag}` } };
  }

  get #request(): { readonly model: string; readonly input: string } {
    const { tag, tools } = this.#run;
    return { model: 'main', input: taskOf(tag, tools) };
  }

  /** A background response. */
  async follow(): Promise<void> {
    const { kind } = this.#run;
    let others: Promise<void> | undefined;
    await this.#untilTold('follows', async (signal, alive) => {
      const create = () =>
        this.#client.responses.create(
          { ...this.#request, background: true, stream: true },
          { ...this.#options, signal },
        );
      const go = (id: string) =>
        this.#client.responses.retrieve(
          id,
          { stream: true, ...(this.#last !== undefined && { starting_after: this.#last }) },
          { signal },
        );
      const events = await (this.#id === undefined ? create() : go(this.#id));
      for await (const event of events as AsyncIterable<ResponseStreamEvent>) {
        alive();
        this.#noteEvent(event);
        if (kind === 'followed') others ??= this.#followToo();
        if (kind === 'cancelled' && event.sequence_number > 8) others ??= this.#cancel();
      }
    });
    await others;
  }

  /** Another client of the same response, which reads it from the beginning. */
  async #followToo(): Promise<void> {
    const other = new ChaosClient(this.#client, { ...this.#run, kind: 'background' }, this.#context);
    other.#id = this.#id;
    await other.follow();
  }

  async #cancel(): Promise<void> {
    await this.#attempts('cancels', async (signal) => {
      this.#noteResponse(await this.#client.responses.cancel(this.#id!, { signal }));
      return true;
    });
  }

  async respond(): Promise<void> {
    const { random } = this.#context;
    await this.#untilTold('responds', async (signal, alive) => {
      if (this.#id !== undefined && random() < 0.5) {
        return this.#noteResponse(await this.#client.responses.retrieve(this.#id, {}, { signal }));
      }
      const request = { ...this.#request, stream: true } as const;
      const events = await this.#client.responses.create(request, { ...this.#options, signal });
      for await (const event of events) {
        alive();
        if ('response' in event) this.#noteResponse(event.response);
        if (event.type === 'response.output_item.done') this.#noteItem(event.item);
      }
    });
  }

  async complete(): Promise<void> {
    const { tag, tools } = this.#run;
    const messages = [{ role: 'user' as const, content: taskOf(tag, tools) }];
    await this.#attempts('completes', async (signal, alive) => {
      const request = { model: 'main', messages, stream: true } as const;
      const chunks = await this.#client.chat.completions.create(request, { ...this.#options, signal });
      let text = '';
      let finish: string | null = null;
      for await (const { id, choices } of chunks) {
        alive();
        this.#noteId(id);
        text += choices[0]?.delta.content ?? '';
        finish = choices[0]?.finish_reason ?? finish;
      }
      if (finish === null) return false;
      if (finish !== 'stop' || !text.includes(lastText(tag))) this.#wrong(`ended with ${finish}: ${text}`);
      return true;
    });
  }

  #noteEvent(event: ResponseStreamEvent): void {
    const { seen } = this.#context;
    if ('response' in event) this.#noteResponse(event.response);
    const number = event.sequence_number;
    if (number !== (this.#last ?? -1) + 1) this.#wrong(`event ${number} follows ${this.#last}`);
    this.#last = number;
    seen.facts.push({ type: 'event', stream: `events_${this.#id}`, seq: number + 1, event });
  }

  #noteResponse(response: Response): void {
    const { id, status, output } = response;
    this.#noteId(id);
    if (!ENDED.has(status!)) return void this.#context.seen.facts.push({ type: 'response', id });
    this.#context.seen.facts.push({ type: 'response', id, status: status!, output });
    this.#isTold = true;
    const { kind, tag } = this.#run;
    const isExpected = status === 'completed' || (kind === 'cancelled' && status === 'cancelled');
    if (!isExpected)
      this.#wrong(`the response is ${status}: ${JSON.stringify(response.error ?? response.incomplete_details)}`);
    else if (status === 'completed' && !JSON.stringify(output).includes(lastText(tag)))
      this.#wrong('it ended without its text');
  }

  /** One that is incomplete has a part of a reply, which was lost with its process and is asked for again. */
  #noteItem(item: ResponseOutputItem): void {
    if ('status' in item && item.status === 'incomplete') return;
    const texts = item.type === 'message' ? item.content.map((part) => ('text' in part ? part.text : '')) : [];
    if (item.type === 'mcp_call') texts.push(item.arguments);
    for (const text of texts) this.#context.seen.facts.push({ type: 'item', run: this.#id!, text });
  }

  #noteId(id: string): void {
    if (this.#id === undefined && this.#run.kind !== 'completion') {
      this.#context.seen.facts.push({ type: 'key', key: `key-${this.#run.tag}`, id });
    }
    if (this.#id !== undefined && this.#id !== id) this.#wrong(`its key led to ${this.#id}, and then to ${id}`);
    this.#id = id;
  }

  #wrong(what: string): void {
    this.#context.seen.wrong.push(`${this.#run.tag} (${this.#run.kind}, ${this.#id}): ${what}`);
  }

  #untilTold(what: string, attempt: (signal: AbortSignal, alive: () => void) => Promise<void>): Promise<void> {
    return this.#attempts(what, async (signal, alive) => {
      await attempt(signal, alive);
      return this.#isTold;
    });
  }

  /** Tries until `attempt` resolves to true. Each ends after a time in which it was not `alive`. */
  async #attempts(what: string, attempt: (signal: AbortSignal, alive: () => void) => Promise<boolean>): Promise<void> {
    const { seen, random, isOver } = this.#context;
    const { tag } = this.#run;
    for (let tries = 1; !isOver(); tries++) {
      seen.waiting.set(tag, `${what} ${this.#id ?? ''} the ${tries}. time, after event ${this.#last}`);
      const silence = new AbortController();
      const abort = (): void => silence.abort(new Error('silent'));
      const timer = setTimeout(abort, SILENCE_MS);
      try {
        if (await attempt(silence.signal, () => timer.refresh())) return;
        count(seen.failures, `${what}: ended early`);
      } catch (error) {
        this.#noteFailure(what, error);
      } finally {
        clearTimeout(timer);
      }
      await delay(20 + random() * 400);
    }
  }

  #noteFailure(what: string, error: unknown): void {
    const { failures } = this.#context.seen;
    if (error instanceof APIConnectionError) return count(failures, `${what}: ${error.message}`);
    if (!(error instanceof APIError)) {
      // A stream that is cut.
      const { message, cause } = error as Error;
      return count(failures, `${what}: ${(cause as NodeJS.ErrnoException | undefined)?.code ?? message}`);
    }
    const { status, code, message } = error;
    count(failures, `${what}: ${status === undefined ? message : `${status} ${code}`}`);
    // The server that drives the response does not answer the one that was asked to cancel it.
    const isExpectedHere = what === 'cancels' && code === 'response_in_progress';
    // 408: a server was frozen, or had no processor, before it could read the request.
    const isExpected = status === undefined || status === 503 || status === 408 || isExpectedHere;
    if (!isExpected) this.#wrong(`${what} got ${status} ${code}: ${message}`);
  }
}

function count(counts: Map<string, number>, name: string): void {
  counts.set(name, (counts.get(name) ?? 0) + 1);
}
