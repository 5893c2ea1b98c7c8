import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** The answer of the server to one request, in the order of the script. */
export type Step =
  /** Reasoning, text in the given pieces, then calls. */
  | {
      readonly reasoning?: string;
      readonly text?: readonly string[];
      readonly calls?: readonly ScriptedCall[];
      readonly finish?: string;
    }
  | { readonly status: number; readonly message: string }
  /** Sends this text, and ends the answer when `resume` is called. */
  | { readonly hang: string };

export interface ScriptedCall {
  readonly name: string;
  readonly arguments: string;
}

export interface ChatRequest {
  readonly model: string;
  readonly messages: readonly { readonly role: string; readonly content?: unknown; readonly tool_calls?: unknown }[];
  readonly tools?: readonly { readonly function: { readonly name: string; readonly description?: string } }[];
}

export interface ScriptedOpenAi {
  readonly baseURL: string;
  readonly requests: readonly ChatRequest[];
  readonly keys: readonly (string | undefined)[];
  /** The header `traceparent` of each request. */
  readonly traces: readonly (string | undefined)[];
  /** Resolves when that many requests have been answered, or hang. */
  answered(count: number): Promise<void>;
  /** Ends the hanging answers. */
  resume(): void;
  close(): Promise<void>;
}

/**
 * A server for OpenAI's streaming Chat Completions that follows a script. A step may depend on its request. Rejects requests
 * beyond the script.
 */
export async function scriptedOpenAi(
  steps: readonly (Step | ((request: ChatRequest) => Step))[],
): Promise<ScriptedOpenAi> {
  const requests: ChatRequest[] = [];
  const keys: (string | undefined)[] = [];
  const traces: (string | undefined)[] = [];
  let answered = 0;
  const watchers = new Set<() => void>();
  const hanging: (() => void)[] = [];

  const server = createServer(async (request, response) => {
    let body = '';
    for await (const piece of request) body += String(piece);
    const parsed = JSON.parse(body) as ChatRequest;
    requests.push(parsed);
    keys.push(request.headers.authorization);
    traces.push(request.headers['traceparent'] as string | undefined);
    const step = steps[requests.length - 1] ?? { status: 400, message: 'beyond the script' };
    const hangs = answer(response, typeof step === 'function' ? step(parsed) : step);
    if (hangs) hanging.push(hangs);
    answered++;
    for (const watcher of watchers) watcher();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');

  return {
    baseURL: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    requests,
    keys,
    traces,
    answered: (count) =>
      new Promise((resolve) => {
        const watcher = (): void => {
          if (answered < count) return;
          watchers.delete(watcher);
          resolve();
        };
        watchers.add(watcher);
        watcher();
      }),
    resume() {
      for (const end of hanging.splice(0)) end();
    },
    async close() {
      const closed = once(server, 'close');
      server.close();
      // After `close`, because a connection may be accepted until then.
      server.closeAllConnections();
      await closed;
    },
  };
}

/** Returns the function that ends the answer, if it hangs. */
function answer(response: ServerResponse, step: Step): (() => void) | undefined {
  if ('status' in step) {
    response.writeHead(step.status, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ error: { message: step.message, type: 'invalid_request_error' } }));
    return undefined;
  }
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const send = (delta: object, finish: string | null = null): void => {
    const choice = { index: 0, delta, finish_reason: finish };
    response.write(
      `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', model: 'scripted', choices: [choice] })}\n\n`,
    );
  };
  send({ role: 'assistant', content: '' });
  if ('hang' in step) {
    send({ content: step.hang });
    return () => {
      send({}, 'stop');
      response.end('data: [DONE]\n\n');
    };
  }
  if (step.reasoning !== undefined) send({ reasoning_content: step.reasoning });
  for (const piece of step.text ?? []) send({ content: piece });
  const calls = step.calls ?? [];
  calls.forEach((call, index) => {
    send({
      tool_calls: [{ index, id: `call_${index}`, type: 'function', function: { name: call.name, arguments: '' } }],
    });
    send({ tool_calls: [{ index, function: { arguments: call.arguments } }] });
  });
  send({}, step.finish ?? (calls.length > 0 ? 'tool_calls' : 'stop'));
  const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 };
  response.write(
    `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', model: 'scripted', choices: [], usage })}\n\n`,
  );
  response.end('data: [DONE]\n\n');
  return undefined;
}
