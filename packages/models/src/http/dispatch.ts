/// <reference path="../undici-parts.d.ts" />
import type { Dispatcher } from 'undici';
import { connections, type Connection, type Connections } from './connections.ts';
import type { Answer, Post, Send, Sent } from './send.ts';

let ready: Connections | undefined;
let loading: Promise<Connections> | undefined;

/** Undici, loaded with the first request. All models of a process share its connections. */
async function load(): Promise<Connections> {
  const [client, connect] = await Promise.all([
    import('undici/lib/dispatcher/client.js'),
    import('undici/lib/core/connect.js'),
  ]);
  ready = connections({ Client: client.default, buildConnector: connect.default as never });
  return ready;
}

export const dispatch: Send = (post, answer) => {
  const request = new Request(post, answer);
  if (ready !== undefined) request.begin(ready);
  else {
    (loading ??= load()).then(
      (connections) => request.begin(connections),
      (thrown: unknown) => request.onError(thrown),
    );
  }
  return request;
};

/**
 * A request under way, as undici's handler in its older form: the newer one is a wrapper around it that makes an object
 * of all headers, of which hardly any is looked at.
 */
class Request implements Dispatcher.DispatchHandler, Sent {
  readonly #post: Post;
  /** Undefined: it is over. */
  #answer: Answer | undefined;
  #connection: Connection | undefined;
  #resume: () => void = () => {};

  constructor(post: Post, answer: Answer) {
    this.#post = post;
    this.#answer = answer;
  }

  begin(connections: Connections): void {
    if (!this.#answer) return;
    try {
      this.#connection = connections.take(this.#post.to.origin);
      this.#connection.client.dispatch(requestOf(this.#post), this);
    } catch (thrown) {
      this.onError(thrown);
    }
  }

  hangUp(): void {
    if (!this.#answer) return;
    this.#answer = undefined;
    this.#connection?.drop();
  }

  onConnect(): void {}

  onHeaders(status: number, headers: readonly Buffer[], resume: () => void): boolean {
    this.#resume = resume;
    if (status >= 200) this.#answer?.head(status, (name) => headerIn(headers, name));
    return true;
  }

  onData(chunk: Buffer): boolean {
    const wait = this.#answer?.data(chunk);
    if (!wait) return true;
    void wait.then(() => this.#answer && this.#resume());
    return false;
  }

  onComplete(): void {
    const answer = this.#answer;
    if (!answer) return;
    this.#answer = undefined;
    this.#connection!.release();
    answer.end();
  }

  onError(thrown: unknown): void {
    const answer = this.#answer;
    this.hangUp();
    answer?.fail(thrown);
  }
}

function requestOf({ to: { path, rawHeaders }, body }: Post): Dispatcher.DispatchOptions {
  return { method: 'POST', path, headersTimeout: 0, bodyTimeout: 0, headers: rawHeaders as string[], body };
}

/** Names and values in turn, names as they were sent. The first one counts. */
function headerIn(headers: readonly Buffer[], name: string): string | undefined {
  for (let at = 0; at + 1 < headers.length; at += 2) {
    if (headers[at]!.length === name.length && headers[at]!.toString('latin1').toLowerCase() === name) {
      return headers[at + 1]!.toString('latin1');
    }
  }
  return undefined;
}
