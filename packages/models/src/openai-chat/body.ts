import type { Message, ModelRequest, ToolSpec } from '@treadle/core';
import { fragments } from '../fragments.ts';
import { systemMessage, wireMessage } from './messages.ts';

export interface ChatBody {
  readonly model: string;
  readonly stream: boolean;
  /** OpenAI has renamed it, others have not. */
  readonly maxTokensField: 'max_tokens' | 'max_completion_tokens';
}

const history = fragments(wireMessage);
const toolLists = new WeakMap<readonly ToolSpec[], Uint8Array>();

/** `{"model":…,"messages":[` and the system message, the history, the tools, the rest: only the rest is made each time. */
export function chatBody(body: ChatBody): (request: ModelRequest) => readonly Uint8Array[] {
  const opening = `{"model":${JSON.stringify(body.model)},"messages":[`;
  const heads = new WeakMap<readonly Message[], { instructions: string | undefined; bytes: Uint8Array }>();

  const headOf = ({ messages, instructions }: ModelRequest): Uint8Array => {
    let head = heads.get(messages);
    if (head === undefined || head.instructions !== instructions) {
      head = { instructions, bytes: Buffer.from(opening + (instructions ? systemMessage(instructions) : '')) };
      heads.set(messages, head);
    }
    return head.bytes;
  };

  return (request) => {
    const messages = history(request.messages);
    const rest = JSON.stringify(restOf(body, request)).slice(1);
    return [
      headOf(request),
      request.instructions ? messages : messages.subarray(1),
      toolsOf(request.tools),
      Buffer.from(rest),
    ];
  };
}

function toolsOf(tools: readonly ToolSpec[]): Uint8Array {
  let bytes = toolLists.get(tools);
  if (bytes === undefined) {
    const wire = tools.map(({ name, description, parameters }) => ({
      type: 'function',
      function: { name, description, parameters },
    }));
    bytes = Buffer.from(tools.length === 0 ? '],' : `],"tools":${JSON.stringify(wire)},`);
    toolLists.set(tools, bytes);
  }
  return bytes;
}

/** What is absent is not sent: hosts refuse fields that they do not know. */
function restOf({ stream, maxTokensField }: ChatBody, request: ModelRequest): Record<string, unknown> {
  const { settings, tools, parallel, output } = request;
  return {
    stream,
    stream_options: stream ? { include_usage: true } : undefined,
    tool_choice: tools.length === 0 ? undefined : toolChoice(request),
    parallel_tool_calls: tools.length === 0 || parallel ? undefined : false,
    temperature: settings.temperature,
    [maxTokensField]: settings.maxOutputTokens,
    top_p: settings.topP,
    stop: settings.stop,
    seed: settings.seed,
    reasoning_effort: settings.reasoning,
    response_format: output && { type: 'json_schema', json_schema: { name: 'answer', schema: output } },
  };
}

/** `auto` is what a host does when nothing is said. */
function toolChoice({ toolChoice, allowedTools, tools }: ModelRequest): unknown {
  if (toolChoice === 'none') return 'none';
  if (typeof toolChoice === 'object') return { type: 'function', function: { name: toolChoice.tool } };
  const allowed = allowedTools === undefined ? tools : tools.filter(({ name }) => allowedTools.includes(name));
  if (allowed.length === 0) return 'none';
  if (allowed.length === tools.length) return toolChoice === 'auto' ? undefined : toolChoice;
  return {
    type: 'allowed_tools',
    allowed_tools: { mode: toolChoice, tools: allowed.map(({ name }) => ({ type: 'function', function: { name } })) },
  };
}
