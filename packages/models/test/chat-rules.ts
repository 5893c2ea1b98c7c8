interface WireMessage {
  readonly role?: string;
  readonly content?: unknown;
  readonly tool_calls?: readonly { id: string; type: string; function: { name: string; arguments: unknown } }[];
  readonly tool_call_id?: string;
}

interface WireBody {
  readonly model?: unknown;
  readonly messages?: readonly WireMessage[];
  readonly tools?: readonly { type: string; function: { name: string; parameters: unknown } }[];
  readonly tool_choice?: unknown;
  readonly parallel_tool_calls?: unknown;
}

const FIELDS = new Set([
  'model',
  'messages',
  'tools',
  'tool_choice',
  'parallel_tool_calls',
  'stream',
  'stream_options',
  'temperature',
  'max_tokens',
  'max_completion_tokens',
  'top_p',
  'stop',
  'seed',
  'reasoning_effort',
]);

/** Why OpenAI would refuse this body with status 400, if it would. */
export function chatProblem(body: unknown): string | undefined {
  const { model, messages, tools, tool_choice, parallel_tool_calls } = body as WireBody;
  const unknown = Object.keys(body as object).find((field) => !FIELDS.has(field));
  if (unknown !== undefined) return `Unrecognized request argument supplied: ${unknown}`;
  if (typeof model !== 'string') return 'you must provide a model parameter';
  if (!Array.isArray(messages) || messages.length === 0) return "[] is too short - 'messages'";
  if (tools !== undefined && tools.length === 0) return "[] is too short - 'tools'";
  if (tools?.some((tool) => tool.type !== 'function' || !/^[\w-]{1,64}$/.test(tool.function.name))) return 'bad tool';
  if (tool_choice !== undefined && tools === undefined)
    return "'tool_choice' is only allowed when 'tools' are specified.";
  if (parallel_tool_calls !== undefined && tools === undefined)
    return "'parallel_tool_calls' is only allowed with 'tools'";
  return messageProblem(messages);
}

function messageProblem(messages: readonly WireMessage[]): string | undefined {
  let open = new Set<string>();
  for (const { role, content, tool_calls, tool_call_id } of messages) {
    if (role === 'tool') {
      if (!open.delete(tool_call_id!))
        return "messages with role 'tool' must be a response to a preceding message with 'tool_calls'";
      if (typeof content !== 'string') return "Invalid type for 'content'";
      continue;
    }
    if (open.size > 0)
      return `An assistant message with 'tool_calls' must be followed by tool messages: ${[...open].join()}`;
    if (role === 'assistant') {
      open = new Set(tool_calls?.map(({ id }) => id));
      if (tool_calls?.some((call) => typeof call.function.arguments !== 'string'))
        return "Invalid type for 'arguments'";
      if (content === null && open.size === 0) return "Invalid value for 'content': expected a string, got null.";
    } else if (role !== 'user' && role !== 'system') {
      return `Invalid value: '${String(role)}'`;
    }
  }
  return open.size > 0 ? 'unanswered tool calls' : undefined;
}
