import {
  systemClock,
  type AssistantPart,
  type Attempt,
  type Clock,
  type Model,
  type ModelError,
  type ModelDelta,
  type ModelReply,
  type ModelRequest,
} from '@treadle/core';
import { askOnce, attemptsOf, retrying } from '../http/retry.ts';
import type { Emit } from '../protocol.ts';
import type { WrittenCall } from './call-forms.ts';
import { instructionsWithTools } from './describe.ts';
import { checkToolSupport, type ToolSupport } from './modes.ts';
import { toolsRefused } from './refusal.ts';
import { textCalls } from './text-calls.ts';
import { writtenHistory } from './written-history.ts';

/**
 * The same model, for a provider that may refuse tools. It is asked with them until it refuses; that is learned once, for
 * as long as the returned model lives.
 */
export function withToolSupport(
  model: Model,
  mode: ToolSupport,
  { clock = systemClock }: { readonly clock?: Clock } = {},
): Model {
  checkToolSupport('withToolSupport', mode);
  let refusal: ModelError | undefined;

  const asking =
    (ask: Model['reply']): Model['reply'] =>
    async (request, emit, signal) => {
      const attempts: Attempt[] = [];
      if (refusal === undefined) {
        const began = clock.now();
        const reply = await ask(request, emit, signal);
        if (reply.type === 'reply' || request.tools.length === 0) return reply;
        const error = toolsRefused(model.id, reply.error);
        if (error === undefined) return reply;
        const last = { model: model.id, ms: clock.now() - began, ...reply.attempts?.at(-1), error };
        attempts.push(...(reply.attempts?.slice(0, -1) ?? []), last);
        if (mode === 'error') return { type: 'failure', error, ...(reply.attempts && { attempts }) };
        refusal = error;
      } else if (mode === 'degrade' && request.tools.length > 0) {
        attempts.push({ model: model.id, ms: 0, error: refusal });
      }
      const began = clock.now();
      const reply = await askWithoutTools(ask, mode, request, emit, signal);
      if (attempts.length === 0) return reply;
      return { ...reply, attempts: [...attempts, ...attemptsOf(reply, model.id, clock.now() - began)] };
    };

  const made: Model = {
    id: model.id,
    ...(model.priced !== undefined && { priced: model.priced }),
    ...(model.asks && { asks: model.asks }),
    reply: asking((request, emit, signal) => model.reply(request, emit, signal)),
  };
  return retrying(made, asking(askOnce(model)));
}

async function askWithoutTools(
  ask: Model['reply'],
  mode: ToolSupport,
  request: ModelRequest,
  emit: Emit,
  signal: AbortSignal,
): Promise<ModelReply> {
  const { allowedTools: _, output, ...rest } = request;
  const without: ModelRequest = {
    ...rest,
    messages: writtenHistory(request.messages),
    tools: [],
    toolChoice: 'auto',
    // A model that is held to the form of an answer cannot call; the instructions demand it too.
    ...(output && (mode === 'degrade' || request.tools.length === 0) && { output }),
  };
  if (mode === 'degrade' || request.tools.length === 0) return ask(without, emit, signal);
  const reading = readingCalls(request, emit);
  const reply = await ask({ ...without, instructions: instructionsWithTools(request) }, reading.delta, signal);
  if (reply.type === 'failure') return reply;
  reading.end();
  return withCalls(request, reply);
}

/** Passes deltas on, with calls instead of the text that stands for them. */
function readingCalls({ tools }: ModelRequest, pass: Emit): { delta: Emit; end: () => void } {
  const known = byName(tools);
  let calls = 0;
  let wait: unknown;
  const emit = (delta: ModelDelta): void => {
    wait = pass(delta);
  };
  const start = (): ReturnType<typeof textCalls> =>
    textCalls(known, {
      text: (text) => emit({ type: 'text-delta', text }),
      call: ({ name, arguments: json }) => emit({ type: 'call-delta', call: calls++, name, arguments: json }),
    });
  let text = start();
  return {
    delta(delta) {
      wait = undefined;
      if (delta.type === 'text-delta') text.feed(delta.text);
      else {
        text.end();
        text = start();
        emit(delta);
      }
      return wait;
    },
    end: () => text.end(),
  };
}

function withCalls({ tools, messages }: ModelRequest, reply: Extract<ModelReply, { type: 'reply' }>): ModelReply {
  const known = byName(tools);
  const content: AssistantPart[] = [];
  let found = 0;
  const call = ({ name, arguments: json }: WrittenCall): void => {
    content.push({ type: 'tool-call', id: `call_${messages.length}_${found++}`, name, arguments: json });
  };
  for (let index = 0; index < reply.content.length;) {
    const part = reply.content[index]!;
    if (part.type !== 'text') {
      content.push(part);
      index++;
      continue;
    }
    const pieces: string[] = [];
    const text = textCalls(known, {
      text: (piece) => pieces.push(piece),
      call(each) {
        flush(content, pieces);
        call(each);
      },
    });
    for (let next = reply.content[index]; next?.type === 'text'; next = reply.content[++index]) text.feed(next.text);
    text.end();
    flush(content, pieces);
  }
  if (found === 0) return { ...reply, content };
  return { ...reply, content, finish: reply.finish === 'stop' ? 'tool-calls' : reply.finish };
}

function flush(content: AssistantPart[], pieces: string[]): void {
  if (pieces.length > 0) content.push({ type: 'text', text: pieces.join('') });
  pieces.length = 0;
}

function byName(tools: ModelRequest['tools']): ReadonlyMap<string, ModelRequest['tools'][number]> {
  return new Map(tools.map((tool) => [tool.name, tool]));
}
