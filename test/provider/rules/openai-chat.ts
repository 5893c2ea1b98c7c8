import { firstProblem, isRecord, type RuleOptions, type Rules } from './rules.ts';

interface WireCall {
  readonly id?: unknown;
  readonly type?: unknown;
  readonly function?: { readonly name?: unknown; readonly arguments?: unknown };
}

interface WireMessage {
  readonly role?: unknown;
  readonly content?: unknown;
  readonly tool_calls?: readonly WireCall[];
  readonly tool_call_id?: unknown;
}

const FIELDS = new Set(
  `model messages tools tool_choice parallel_tool_calls stream stream_options temperature max_tokens
   max_completion_tokens top_p stop seed reasoning_effort response_format store user metadata
   service_tier prompt_cache_key verbosity safety_identifier presence_penalty frequency_penalty logit_bias logprobs
   top_logprobs`.split(/\s+/),
);
const NAME = '^[a-zA-Z0-9_-]+$';
const PARTS = ['text', 'image_url', 'file', 'input_audio'];

/** Why OpenAI would reject this body of its Chat Completions API with status 400; undefined if it would accept it. */
export const chatProblem: Rules = (body, options = {}) => {
  if (!isRecord(body)) return 'We could not parse the JSON body of your request. (It was not an object.)';
  const unknown = Object.keys(body).find((field) => !FIELDS.has(field));
  if (unknown !== undefined) return `Unrecognized request argument supplied: ${unknown}`;
  if (typeof body['model'] !== 'string') return 'you must provide a model parameter';
  const { messages } = body;
  if (!Array.isArray(messages)) return "Missing required parameter: 'messages'.";
  if (messages.length === 0)
    return "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.";
  return toolsProblem(body) ?? messagesProblem(messages as WireMessage[], options);
};

function toolsProblem(body: Readonly<Record<string, unknown>>): string | undefined {
  const { tools } = body;
  if (tools === undefined) {
    if (body['tool_choice'] !== undefined)
      return "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.";
    if (body['parallel_tool_calls'] !== undefined)
      return "Invalid value for 'parallel_tool_calls': 'parallel_tool_calls' is only allowed when 'tools' are specified.";
    return undefined;
  }
  if (!Array.isArray(tools) || tools.length === 0)
    return "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead.";
  return firstProblem(tools as WireCall[], ({ type, function: fn }, index) =>
    type === 'function' ? nameProblem(`tools[${index}].function.name`, fn?.name) : `Invalid value: '${String(type)}'.`,
  );
}

function messagesProblem(messages: readonly WireMessage[], { strict = true }: RuleOptions): string | undefined {
  let called = new Map<string, number | undefined>();
  const problem = firstProblem(messages, (message, index) => {
    const { role, content } = message;
    if (role === 'tool') return answerProblem(message, index, called);
    const problem = unanswered(called);
    if (problem !== undefined) return problem;
    called = new Map();
    const previous = messages[index - 1];
    if (strict && previous?.role === role && (role === 'user' || role === 'assistant'))
      return `This model does not support successive user or assistant messages (messages[${index - 1}] and messages[${index}] in your input). You should interleave the user/assistant messages in the message sequence.`;
    switch (role) {
      case 'user':
      case 'system':
      case 'developer':
        return contentProblem(content, index);
      case 'assistant':
        return assistantProblem(message, index, strict) ?? callsProblem(message.tool_calls ?? [], index, called);
      default:
        return `Invalid value: '${String(role)}'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'.`;
    }
  });
  return problem ?? unanswered(called);
}

function answerProblem(
  { tool_call_id: id, content }: WireMessage,
  index: number,
  called: Map<string, number | undefined>,
): string | undefined {
  if (typeof id !== 'string') return `Missing required parameter: 'messages[${index}].tool_call_id'.`;
  if (!called.has(id))
    return "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.";
  const answeredAt = called.get(id);
  if (answeredAt !== undefined)
    return `Invalid parameter: Duplicate value for 'tool_call_id' of '${id}', in messages[${answeredAt}] and messages[${index}].`;
  called.set(id, index);
  const isText = Array.isArray(content) && content.every((part) => isRecord(part) && part['type'] === 'text');
  return typeof content === 'string' || isText ? undefined : contentTypeProblem(content, index);
}

function unanswered(called: ReadonlyMap<string, number | undefined>): string | undefined {
  const ids = [...called].flatMap(([id, answer]) => (answer === undefined ? id : []));
  if (ids.length === 0) return undefined;
  return `An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: ${ids.join(', ')}`;
}

function assistantProblem({ content, tool_calls }: WireMessage, index: number, strict: boolean): string | undefined {
  if (tool_calls !== undefined) {
    if (!Array.isArray(tool_calls) || tool_calls.length === 0)
      return `Invalid 'messages[${index}].tool_calls': empty array. Expected an array with minimum length 1, but got an empty array instead.`;
    if (content == null) return undefined;
  } else if (content == null) {
    return `Invalid value for 'content': expected a string, got null.`;
  } else if (strict && (content as string).length === 0) {
    return `Invalid request: message at position ${index} with role 'assistant' must not be empty`;
  }
  return typeof content === 'string' ? undefined : contentProblem(content, index);
}

/** Adds the calls to `called`. */
function callsProblem(
  calls: readonly WireCall[],
  index: number,
  called: Map<string, number | undefined>,
): string | undefined {
  return firstProblem(calls, ({ id, type, function: fn }, at) => {
    const place = `messages[${index}].tool_calls[${at}]`;
    if (typeof id !== 'string') return `Missing required parameter: '${place}.id'.`;
    if (id === '')
      return `Invalid '${place}.id': empty string. Expected a string with minimum length 1, but got an empty string instead.`;
    if (id.length > 40)
      return `Invalid '${place}.id': string too long. Expected a string with maximum length 40, but got a string with length ${id.length} instead.`;
    if (called.has(id))
      return `Invalid parameter: Duplicate value for 'tool_calls.id' of '${id}' in messages[${index}].`;
    if (type !== 'function') return `Missing required parameter: '${place}.type'.`;
    if (typeof fn?.arguments !== 'string')
      return `Invalid type for '${place}.function.arguments': expected a string, but got an object instead.`;
    called.set(id, undefined);
    return nameProblem(`${place}.function.name`, fn.name);
  });
}

function nameProblem(place: string, name: unknown): string | undefined {
  if (typeof name !== 'string') return `Missing required parameter: '${place}'.`;
  if (name.length > 64)
    return `Invalid '${place}': string too long. Expected a string with maximum length 64, but got a string with length ${name.length} instead.`;
  if (new RegExp(NAME).test(name)) return undefined;
  return `Invalid '${place}': string does not match pattern. Expected a string that matches the pattern '${NAME}'.`;
}

function contentProblem(content: unknown, index: number): string | undefined {
  if (typeof content === 'string') return undefined;
  if (!Array.isArray(content)) return contentTypeProblem(content, index);
  if (content.length === 0)
    return `Invalid 'messages[${index}].content': empty array. Expected an array with minimum length 1, but got an empty array instead.`;
  return firstProblem(content as { readonly type?: unknown }[], ({ type }, at) =>
    PARTS.includes(String(type))
      ? undefined
      : `Invalid value: '${String(type)}'. Supported values are: 'text', 'image_url', 'input_audio', 'refusal', 'audio', and 'file'. (messages[${index}].content[${at}])`,
  );
}

function contentTypeProblem(content: unknown, index: number): string {
  const got = content === null ? 'null' : `an ${typeof content}`;
  return `Invalid type for 'messages[${index}].content': expected one of a string or array of objects, but got ${got} instead.`;
}
