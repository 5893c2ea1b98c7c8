import { firstProblem, isRecord, type RuleOptions, type Rules } from './rules.ts';

interface WireCall {
  readonly id?: unknown;
  readonly function?: { readonly name?: unknown; readonly arguments?: unknown };
}

interface WireMessage {
  readonly role?: unknown;
  readonly content?: unknown;
  readonly thinking?: unknown;
  readonly images?: unknown;
  readonly tool_calls?: readonly WireCall[];
  readonly tool_name?: unknown;
  readonly tool_call_id?: unknown;
}

const FIELDS = new Set(
  'model messages tools stream format think options keep_alive logprobs top_logprobs truncate shift'.split(' '),
);
const THINK = [true, false, 'high', 'medium', 'low', 'max'];
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;

/**
 * Why Ollama would reject this body of its chat API; undefined if it would accept it. The server validates only types and
 * renders even a broken conversation into a prompt, so the rules on order are ours.
 */
export const ollamaProblem: Rules = (body, options = {}) => {
  if (!isRecord(body)) return 'json: cannot unmarshal array into Go value of type api.ChatRequest';
  const unknown = Object.keys(body).find((field) => !FIELDS.has(field));
  if (unknown !== undefined) return `json: unknown field "${unknown}"`;
  if (typeof body['model'] !== 'string' || body['model'] === '') return 'model is required';
  if (body['think'] !== undefined && !THINK.includes(body['think'] as boolean))
    return `invalid think value: "${String(body['think'])}" (must be "high", "medium", "low", true, or false)`;
  if (!Array.isArray(body['messages']) || body['messages'].length === 0) return 'messages is required';
  const messages = body['messages'] as WireMessage[];
  return (
    firstProblem((body['tools'] ?? []) as WireCall[], (tool, index) => nameProblem(tool, `tools[${index}]`)) ??
    firstProblem(messages, (message, index) => formProblem(message, index)) ??
    orderProblem(messages, options)
  );
};

function formProblem({ role, content, images, tool_calls }: WireMessage, index: number): string | undefined {
  if (!['system', 'user', 'assistant', 'tool'].includes(String(role)))
    return `invalid role: "${String(role)}", must be one of [system, user, assistant, tool]`;
  if (content !== undefined && typeof content !== 'string')
    return cannotUnmarshal(content, 'messages.content', 'string');
  if (images !== undefined && !(Array.isArray(images) && images.every((image) => BASE64.test(String(image)))))
    return 'illegal base64 data at input byte 0';
  return firstProblem(tool_calls ?? [], (call, at) => {
    const input = call.function?.arguments;
    return isRecord(input)
      ? nameProblem(call, `messages[${index}].tool_calls[${at}]`)
      : cannotUnmarshal(input, 'messages.tool_calls.function.arguments', 'api.ToolCallFunctionArguments');
  });
}

function cannotUnmarshal(value: unknown, field: string, type: string): string {
  const kind = Array.isArray(value) ? 'array' : value === null ? 'null' : typeof value;
  return `json: cannot unmarshal ${kind} into Go struct field ChatRequest.${field} of type ${type}`;
}

function nameProblem(call: WireCall, place: string): string | undefined {
  const name = call.function?.name;
  return /^[a-zA-Z0-9_-]{1,64}$/.test(String(name)) ? undefined : `invalid tool name "${String(name)}" (${place})`;
}

function orderProblem(messages: readonly WireMessage[], { strict = true }: RuleOptions): string | undefined {
  let open: WireCall[] = [];
  const problem = firstProblem(messages, (message, index) => {
    const { role, content, tool_calls: calls = [], images } = message;
    if (role === 'tool') return answerProblem(message, index, open);
    const problem = unanswered(open);
    if (problem !== undefined) return problem;
    const previous = messages[index - 1]?.role;
    if (strict && (previous === role || (role === 'system' && index > 0)))
      return `After the optional system message, conversation roles must alternate user and assistant roles except for tool calls and results. (messages[${index}])`;
    if (strict && (content === undefined || content === '') && calls.length === 0 && images === undefined)
      return `message of role ${String(role)} without content (messages[${index}])`;
    const ids = calls.flatMap(({ id }) => id ?? []);
    if (new Set(ids).size < ids.length) return `duplicate tool call id (messages[${index}])`;
    if (ids.includes('')) return `empty tool call id (messages[${index}])`;
    open = [...calls];
    return undefined;
  });
  return problem ?? unanswered(open);
}

function answerProblem(
  { tool_name: name, tool_call_id: id }: WireMessage,
  index: number,
  open: WireCall[],
): string | undefined {
  const call = open.shift();
  if (call === undefined) return `tool message without a tool call before it (messages[${index}])`;
  const called = call.function?.name;
  if (name !== undefined && name !== called)
    return `tool message of "${String(name)}" where the call of "${String(called)}" is to be answered (messages[${index}])`;
  if (name === undefined && id === undefined) return `tool message without a tool_name (messages[${index}])`;
  return id === undefined || call.id === undefined || id === call.id
    ? undefined
    : `tool message for id "${String(id)}" where "${String(call.id)}" is to be answered (messages[${index}])`;
}

function unanswered(open: readonly WireCall[]): string | undefined {
  if (open.length === 0) return undefined;
  return `tool calls without a tool message after them: ${open.map((call) => String(call.function?.name)).join(', ')}`;
}
