import { textOf, type AssistantPart, type Model, type ModelRequest, type ToolSpec, type Usage } from '@treadle/core';
import { answerOf } from './answer.ts';
import { asksToConfirm, conversationOf, type Conversation } from './conversation.ts';
import { forcedCall, mentionIn } from './mentions.ts';
import { plan, type PlannedCall } from './plan.ts';

/** What the demo replies with: calls, or words. */
type Move =
  | { readonly type: 'calls'; readonly calls: readonly PlannedCall[] }
  | { readonly type: 'text'; readonly text: string };

/**
 * A stand-in for a model, so that everything can be tried without a key or a network. It follows fixed rules, drives the
 * loop with whatever tools there are, quotes what they return and says that it is a demo. The same request always gives
 * the same reply.
 */
export function demo(): Model {
  return {
    id: 'demo',
    priced: true,
    async reply(request, emit, signal) {
      const move = moveFor(request);
      const content: AssistantPart[] = [];
      if (move.type === 'calls') {
        for (const [index, call] of move.calls.entries()) {
          content.push({ type: 'tool-call', id: `demo_${request.messages.length}_${index}`, ...call });
          emit({ type: 'call-delta', call: index, ...call });
        }
      } else {
        content.push({ type: 'text', text: move.text });
        for (const [word] of move.text.matchAll(/\s*\S+\s*?/g)) {
          if (signal.aborted) break;
          emit({ type: 'text-delta', text: word });
        }
      }
      if (signal.aborted) {
        return {
          type: 'failure',
          error: { code: 'cancelled', message: 'The request was cancelled.', retryable: false },
        };
      }
      return {
        type: 'reply',
        content,
        finish: move.type === 'calls' ? 'tool-calls' : 'stop',
        usage: usageOf(request, content),
        model: 'demo',
      };
    },
  };
}

function moveFor(request: ModelRequest): Move {
  const { toolChoice, parallel } = request;
  const tools = request.tools.filter(({ name }) => request.allowedTools?.includes(name) ?? true);
  const conversation = conversationOf(request.messages);
  const { answered, asked, done } = conversation;
  const demands = toolChoice !== 'auto' && toolChoice !== 'none';
  if (answered !== undefined && !demands && done.length === 0 && asksToConfirm(asked.at(-1) ?? '')) {
    return { type: 'text', text: answered };
  }

  const { calls, told } = plan(conversation, tools, toolChoice !== 'none');
  const demanded = typeof toolChoice === 'object' ? calls.filter(({ name }) => name === toolChoice.tool) : calls;
  const wanted = demanded.length > 0 ? demanded : forced(request, conversation, tools);
  if (wanted.length > 0) return { type: 'calls', calls: parallel ? wanted : wanted.slice(0, 1) };
  return { type: 'text', text: answerOf(told, tools) };
}

/** The call that a tool choice demands where the words ask for none. */
function forced({ toolChoice }: ModelRequest, { asked }: Conversation, tools: readonly ToolSpec[]): PlannedCall[] {
  if (toolChoice === 'auto' || toolChoice === 'none') return [];
  const words = asked.at(0) ?? '';
  const tool =
    typeof toolChoice === 'object'
      ? tools.find(({ name }) => name === toolChoice.tool)
      : (mentionIn(words, tools)?.tool ?? tools[0]);
  if (tool === undefined) return [];
  const { given } = forcedCall(tool, words);
  return [{ name: tool.name, arguments: JSON.stringify(given) }];
}

/** About four characters to a token; and it really costs nothing. */
function usageOf({ instructions = '', messages, tools }: ModelRequest, reply: readonly AssistantPart[]): Usage {
  let read = instructions.length;
  for (const { content } of messages) for (const part of content) read += lengthOf(part);
  for (const { name, description } of tools) read += name.length + description.length;
  const written = reply.reduce((sum, part) => sum + lengthOf(part), 0);
  return { inputTokens: Math.ceil(read / 4), outputTokens: Math.ceil(written / 4), cost: 0 };
}

function lengthOf(part: ModelRequest['messages'][number]['content'][number]): number {
  switch (part.type) {
    case 'tool-call':
      return part.name.length + part.arguments.length;
    case 'tool-result':
      return textOf(part.content).length;
    case 'text':
    case 'reasoning':
      return part.text.length;
    default:
      return 0;
  }
}
