import {
  systemClock,
  textOf,
  TreadleError,
  type AssistantMessage,
  type AssistantPart,
  type Attempt,
  type Clock,
  type Message,
  type Model,
  type ModelError,
  type ModelDelta,
  type ModelReply,
  type ModelRequest,
  type ToolResult,
  type ToolSpec,
  type UserBlock,
} from '@treadle/core';
import { allowedOf } from '../calls.ts';
import { singleAttemptOf, attemptsOf, setSingleAttempt } from '../http/retry.ts';
import type { Emit } from '../protocol.ts';
import type { Tools } from './call-forms.ts';
import { checkToolSupport, type ToolSupport } from './modes.ts';
import { toolsRefused } from './refusal.ts';
import { textCallReader, type TextCallReader } from './text-calls.ts';

/**
 * The same model, for a provider that may refuse tools. The first request has tools; after a refusal, none has any more
 * for as long as the returned model lives.
 */
export function withToolSupport(
  model: Model,
  mode: ToolSupport,
  { clock = systemClock }: { readonly clock?: Clock } = {},
): Model {
  if (typeof model?.reply !== 'function') {
    throw new TreadleError('invalid-options', 'withToolSupport: pass a model, such as ollama({ model }).');
  }
  checkToolSupport('withToolSupport', mode);
  let refusal: ModelError | undefined;

  const withFallback =
    (ask: Model['reply']): Model['reply'] =>
    async (request, emit, signal) => {
      const attempts: Attempt[] = [];
      if (refusal === undefined) {
        const startedAt = clock.now();
        const reply = await ask(request, emit, signal);
        if (reply.type === 'reply' || request.tools.length === 0) return reply;
        const error = toolsRefused(model.id, reply.error);
        if (error === undefined) return reply;
        const last = { model: model.id, ms: clock.now() - startedAt, ...reply.attempts?.at(-1), error };
        attempts.push(...(reply.attempts?.slice(0, -1) ?? []), last);
        if (mode === 'error') return { type: 'failure', error, ...(reply.attempts && { attempts }) };
        refusal = error;
      } else if (mode === 'degrade' && request.tools.length > 0) {
        attempts.push({ model: model.id, ms: 0, error: refusal });
      }
      const startedAt = clock.now();
      const reply = await askWithoutTools(ask, mode, request, emit, signal);
      if (attempts.length === 0) return reply;
      return { ...reply, attempts: [...attempts, ...attemptsOf(reply, model.id, clock.now() - startedAt)] };
    };

  const supported: Model = {
    id: model.id,
    ...(model.provider !== undefined && { provider: model.provider }),
    ...(model.priced !== undefined && { priced: model.priced }),
    ...(model.maxCost && { maxCost: (input: number, output: number) => model.maxCost!(input, output) }),
    ...(model.asks && { asks: model.asks }),
    ...(model.accepts && { accepts: model.accepts }),
    // Texts that may contain calls are cut anew, without their tokens.
    ...(model.takes && { takes: model.takes.filter((setting) => setting !== 'topLogprobs') }),
    ...(model.omits && { omits: model.omits }),
    reply: withFallback((request, emit, signal) => model.reply(request, emit, signal)),
  };
  return setSingleAttempt(supported, withFallback(singleAttemptOf(model)));
}

async function askWithoutTools(
  ask: Model['reply'],
  mode: ToolSupport,
  request: ModelRequest,
  emit: Emit,
  signal: AbortSignal,
): Promise<ModelReply> {
  const { allowedTools: _, output, ...rest } = request;
  const isPlain = mode === 'degrade' || request.tools.length === 0;
  const withoutTools: ModelRequest = {
    ...rest,
    messages: historyAsText(request.messages),
    tools: [],
    toolChoice: 'auto',
    // With a structured output the model could not write a call. The instructions require the output as well.
    ...(output && isPlain && { output }),
  };
  if (isPlain) return ask(withoutTools, emit, signal);
  const tools: Tools = new Map(request.tools.map((tool) => [tool.name, tool]));
  const deltas = deltasWithCalls(tools, emit);
  const reply = await ask({ ...withoutTools, instructions: instructionsWithTools(request) }, deltas.emit, signal);
  if (reply.type === 'failure') return reply;
  deltas.end();
  return replyWithCalls(tools, request.messages.length, reply);
}

// ── Calls in the reply ───────────────────────────────────────────────────────────────────────────────────────────────

/** Passes deltas on, with call deltas in place of the text of calls. */
function deltasWithCalls(tools: Tools, emit: Emit): { emit: Emit; end: () => void } {
  let calls = 0;
  let backpressure: unknown;
  const pass = (delta: ModelDelta): void => {
    backpressure = emit(delta);
  };
  const newReader = (): TextCallReader =>
    textCallReader(tools, {
      text: (text) => pass({ type: 'text-delta', text }),
      call: ({ name, arguments: json }) => pass({ type: 'call-delta', call: calls++, name, arguments: json }),
    });
  let reader = newReader();
  return {
    emit(delta) {
      backpressure = undefined;
      if (delta.type === 'text-delta') reader.feed(delta.text);
      else {
        reader.end();
        reader = newReader();
        pass(delta);
      }
      return backpressure;
    },
    end: () => reader.end(),
  };
}

function replyWithCalls(tools: Tools, turn: number, reply: Extract<ModelReply, { type: 'reply' }>): ModelReply {
  const content: AssistantPart[] = [];
  let pieces: string[] = [];
  let calls = 0;
  const addText = (): void => {
    if (pieces.length > 0) content.push({ type: 'text', text: pieces.join('') });
    pieces = [];
  };
  for (let index = 0; index < reply.content.length;) {
    const part = reply.content[index]!;
    if (part.type !== 'text') {
      content.push(part);
      index++;
      continue;
    }
    const reader = textCallReader(tools, {
      text: (piece) => pieces.push(piece),
      call({ name, arguments: json }) {
        addText();
        content.push({ type: 'tool-call', id: `call_${turn}_${calls++}`, name, arguments: json });
      },
    });
    for (let next = reply.content[index]; next?.type === 'text'; next = reply.content[++index]) reader.feed(next.text);
    reader.end();
    addText();
  }
  if (calls === 0) return { ...reply, content };
  return { ...reply, content, finish: reply.finish === 'stop' ? 'tool-calls' : reply.finish };
}

// ── Tools in the instructions ────────────────────────────────────────────────────────────────────────────────────────

const ANSWER_IN_WORDS = 'Answer in words now. Do not call a tool.';

function instructionsWithTools(request: ModelRequest): string {
  const { instructions, toolChoice } = request;
  const allowed = allowedOf(request);
  const text = toolChoice === 'none' || allowed.length === 0 ? ANSWER_IN_WORDS : howToCall(request, allowed);
  return instructions === undefined || instructions === '' ? text : `${instructions}\n\n${text}`;
}

function howToCall({ toolChoice, parallel }: ModelRequest, tools: readonly ToolSpec[]): string {
  return [
    'You have the following tools, each described by a line of JSON:',
    '<tools>',
    toolLines(tools),
    '</tools>',
    'To call a tool, write exactly this, with nothing after it:',
    '<tool_call>',
    '{"name": "the name of the tool", "arguments": {"parameter": "value"}}',
    '</tool_call>',
    ...(parallel ? ['For several calls, write several such blocks.'] : ['Call one tool at a time.']),
    'Then stop: the results come in the next message, each in <tool_response>. Never write a result yourself.',
    ...(typeof toolChoice === 'object' ? [`You must call the tool "${toolChoice.tool}" now.`] : []),
    ...(toolChoice === 'required' ? ['You must call a tool now.'] : []),
    ...(toolChoice === 'auto' ? ['If you need no tool, answer in words.'] : []),
  ].join('\n');
}

/** The lines of a list of tools that was described before: the list is the same in each turn. */
const describedTools = new WeakMap<readonly ToolSpec[], string>();

function toolLines(tools: readonly ToolSpec[]): string {
  let lines = describedTools.get(tools);
  if (lines === undefined) {
    lines = tools
      .map(({ name, description, parameters }) => JSON.stringify({ name, description, parameters }))
      .join('\n');
    describedTools.set(tools, lines);
  }
  return lines;
}

// ── Calls and results in the history ─────────────────────────────────────────────────────────────────────────────────

interface TextHistory {
  readonly messages: Message[];
  /** The last message of the original history. */
  last: Message | undefined;
}

const histories = new WeakMap<readonly Message[], TextHistory>();

/**
 * A history with its calls and results as text. It grows with the original, so that what a protocol caches for it stays
 * valid.
 */
function historyAsText(messages: readonly Message[]): readonly Message[] {
  let history = histories.get(messages);
  const count = history?.messages.length ?? 0;
  if (history === undefined || count > messages.length || (count > 0 && messages[count - 1] !== history.last)) {
    history = { messages: [], last: undefined };
    histories.set(messages, history);
  }
  while (history.messages.length < messages.length) {
    history.last = messages[history.messages.length]!;
    history.messages.push(messageAsText(history.last));
  }
  return history.messages;
}

function messageAsText(message: Message): Message {
  switch (message.role) {
    case 'user':
      return message;
    case 'assistant':
      return message.content.some(({ type }) => type === 'tool-call') ? assistantAsText(message) : message;
    case 'tool':
      return { role: 'user', content: message.content.flatMap(resultAsText) };
    default:
      return message satisfies never;
  }
}

/** Adjacent texts and calls become one text, as the model would have written them. */
function assistantAsText({ content }: AssistantMessage): AssistantMessage {
  const parts: AssistantPart[] = [];
  for (const part of content) {
    if (part.type === 'reasoning') {
      parts.push(part);
      continue;
    }
    const text = part.type === 'text' ? part.text : callAsText(part.name, part.arguments);
    const last = parts.at(-1);
    if (last?.type === 'text') parts[parts.length - 1] = { type: 'text', text: `${last.text}\n${text}` };
    else parts.push({ type: 'text', text });
  }
  return { role: 'assistant', content: parts };
}

/** The arguments are unchanged even if they are not valid JSON, so that the model sees its mistake. */
function callAsText(name: string, json: string): string {
  return `<tool_call>\n{"name": ${JSON.stringify(name)}, "arguments": ${json === '' ? '{}' : json}}\n</tool_call>`;
}

function resultAsText({ name, content, isError }: ToolResult): UserBlock[] {
  const error = isError ? ' error="true"' : '';
  const text = `<tool_response name=${JSON.stringify(name)}${error}>\n${textOf(content)}\n</tool_response>\n`;
  return [{ type: 'text', text }, ...content.filter((block) => block.type === 'image' || block.type === 'file')];
}
