import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout } from 'node:timers/promises';
import type { Random } from '../../random.ts';

/** A task names its run and the tools that the model calls, one in each turn: `r17: order look wire`. */
export function taskOf(tag: string, tools: readonly string[]): string {
  return `${tag}: ${tools.join(' ')}`;
}

/** The text that a run ends with. */
export function lastText(tag: string): string {
  return `Done with ${tag}.`;
}

interface ChatRequest {
  readonly messages: readonly { readonly role: string; readonly content?: unknown; readonly tool_calls?: unknown }[];
}

export interface ChaosModel extends AsyncDisposable {
  readonly baseURL: string;
  /** How many replies it has begun. */
  readonly replies: () => number;
}

/**
 * A server for OpenAI's streaming Chat Completions. A reply depends only on its request: so one that was lost is asked for again, and is
 * the same. Pieces of a reply come with pauses, so that a server can be killed between them.
 */
export async function startChaosModel(random: Random): Promise<ChaosModel> {
  let replies = 0;
  const server = createServer((request, response) => {
    response.on('error', () => {});
    void (async () => {
      let body = '';
      for await (const piece of request) body += String(piece);
      replies += 1;
      await reply(response, JSON.parse(body) as ChatRequest, random);
    })().catch(() => response.destroy());
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    baseURL: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    replies: () => replies,
    async [Symbol.asyncDispose]() {
      server.close();
      server.closeAllConnections();
      await once(server, 'close');
    },
  };
}

async function reply(response: ServerResponse, { messages }: ChatRequest, random: Random): Promise<void> {
  const [, tag, list] = /\b(r\d+): ([a-z ]+)/.exec(JSON.stringify(messages.find(({ role }) => role === 'user')))!;
  const step = messages.filter(({ tool_calls: calls }) => calls !== undefined).length;
  const name = list!.split(' ')[step];
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const send = async (delta: object, finish: string | null = null): Promise<void> => {
    const choices = [{ index: 0, delta, finish_reason: finish }];
    response.write(`data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', model: 'm', choices })}\n\n`);
    await setTimeout(random() * 40);
  };
  await send({ role: 'assistant', content: '' });
  for (const word of (name === undefined ? lastText(tag!) : `Step ${step} of ${tag}.`).split(/(?<= )/)) {
    await send({ content: word });
  }
  if (name !== undefined) {
    const call = { name, arguments: JSON.stringify({ run: tag, step }) };
    await send({ tool_calls: [{ index: 0, id: `call_${step}`, type: 'function', function: call }] });
  }
  await send({}, name === undefined ? 'stop' : 'tool_calls');
  const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 };
  response.write(
    `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', model: 'm', choices: [], usage })}\n\n`,
  );
  response.end('data: [DONE]\n\n');
}
