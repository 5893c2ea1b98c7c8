import { firstProblem, isRecord, type Issued, type RuleOptions, type Rules } from './rules.ts';

interface WireItem {
  readonly type?: unknown;
  readonly [field: string]: unknown;
}

const FIELDS = new Set(
  `model input instructions tools tool_choice parallel_tool_calls stream stream_options temperature
   top_p max_output_tokens max_tool_calls reasoning text store include user metadata service_tier
   truncation previous_response_id prompt_cache_key safety_identifier top_logprobs`.split(/\s+/),
);
const NAME = '^[a-zA-Z0-9_-]+$';
const PREFIXES: Readonly<Record<string, string>> = {
  message: 'msg',
  reasoning: 'rs',
  function_call: 'fc',
  function_call_output: 'fc',
  custom_tool_call: 'ctc',
  custom_tool_call_output: 'ctc',
};

/** The type of the output that a call needs. */
const OUTPUTS: ReadonlyMap<unknown, string> = new Map([
  ['function_call', 'function_call_output'],
  ['custom_tool_call', 'custom_tool_call_output'],
]);

/** Why OpenAI would reject this body of its Responses API with status 400; undefined if it would accept it. */
export const responsesProblem: Rules = (body, options = {}) => {
  if (!isRecord(body)) return 'We could not parse the JSON body of your request. (It was not an object.)';
  const unknown = Object.keys(body).find((field) => !FIELDS.has(field));
  if (unknown !== undefined) return `Unknown parameter: '${unknown}'.`;
  if (typeof body['model'] !== 'string') return "Missing required parameter: 'model'.";
  const tools = toolsProblem(body);
  if (tools !== undefined) return tools;
  const { input } = body;
  if (typeof input === 'string') return undefined;
  if (!Array.isArray(input)) return "Missing required parameter: 'input'.";
  if (input.length === 0)
    return 'One of "input" or "previous_response_id" or \'prompt\' or \'conversation_id\' must be provided.';
  const items = (input as WireItem[]).map((item) => (item.type === undefined ? { ...item, type: 'message' } : item));
  return (
    firstProblem(items, (item, index) => itemProblem(item, `input[${index}]`, options)) ??
    repeatedIdProblem(items) ??
    pairsProblem(items) ??
    reasoningProblem(items, body['store'] !== false, options.issued) ??
    (options.strict === false ? undefined : orderProblem(items))
  );
};

function toolsProblem({ tools, tool_choice: choice }: Readonly<Record<string, unknown>>): string | undefined {
  const list = (tools ?? []) as WireItem[];
  if (list.length === 0 && choice !== undefined && choice !== 'auto' && choice !== 'none')
    return "Tool choice 'required' must be specified with 'tools' parameter.";
  return firstProblem(list, ({ type, name }, index) =>
    type === 'function' || type === 'custom'
      ? nameProblem(`tools[${index}].name`, name)
      : `Invalid value: '${String(type)}'.`,
  );
}

function itemProblem(item: WireItem, place: string, { strict = true }: RuleOptions): string | undefined {
  const { type, id } = item;
  const prefix = PREFIXES[String(type)];
  if (prefix === undefined) return `Invalid value: '${String(type)}'. (${place}.type)`;
  if (id !== undefined && !(typeof id === 'string' && id.startsWith(prefix)))
    return `Invalid '${place}.id': '${String(id)}'. Expected an ID that begins with '${prefix}'.`;
  switch (type) {
    case 'message':
      return messageProblem(item, place, strict);
    case 'reasoning':
      if (id === undefined) return `Missing required parameter: '${place}.id'.`;
      return Array.isArray(item['summary']) ? undefined : `Missing required parameter: '${place}.summary'.`;
    case 'function_call':
      if (typeof item['arguments'] !== 'string')
        return `Invalid type for '${place}.arguments': expected a string, but got an object instead.`;
      return callIdProblem(item['call_id'], place) ?? nameProblem(`${place}.name`, item['name']);
    case 'custom_tool_call':
      if (typeof item['input'] !== 'string') return `Missing required parameter: '${place}.input'.`;
      return callIdProblem(item['call_id'], place) ?? nameProblem(`${place}.name`, item['name']);
    default:
      if (typeof item['output'] !== 'string' && !Array.isArray(item['output']))
        return `Missing required parameter: '${place}.output'.`;
      return callIdProblem(item['call_id'], place);
  }
}

function messageProblem({ role, content }: WireItem, place: string, strict: boolean): string | undefined {
  if (!['user', 'assistant', 'system', 'developer'].includes(String(role)))
    return `Invalid value: '${String(role)}'. Supported values are: 'assistant', 'system', 'developer', and 'user'.`;
  if (typeof content !== 'string' && !Array.isArray(content)) return `Missing required parameter: '${place}.content'.`;
  const isEmpty = content.length === 0 || (Array.isArray(content) && content.every(isEmptyText));
  if (strict && isEmpty) return `Invalid '${place}.content': empty array. Expected an array with minimum length 1.`;
  if (typeof content === 'string') return undefined;
  const types = role === 'assistant' ? ['output_text', 'refusal'] : ['input_text', 'input_image', 'input_file'];
  return firstProblem(content as WireItem[], ({ type }, index) =>
    types.includes(String(type))
      ? undefined
      : `Invalid value: '${String(type)}'. Supported values are: ${types.map((one) => `'${one}'`).join(' and ')}. (${place}.content[${index}])`,
  );
}

function isEmptyText(part: unknown): boolean {
  return isRecord(part) && part['text'] === '';
}

function callIdProblem(id: unknown, place: string): string | undefined {
  if (typeof id !== 'string') return `Missing required parameter: '${place}.call_id'.`;
  if (id === '')
    return `Invalid '${place}.call_id': empty string. Expected a string with minimum length 1, but got an empty string instead.`;
  if (id.length <= 64) return undefined;
  return `Invalid '${place}.call_id': string too long. Expected a string with maximum length 64, but got a string with length ${id.length} instead.`;
}

function nameProblem(place: string, name: unknown): string | undefined {
  if (typeof name !== 'string') return `Missing required parameter: '${place}'.`;
  if (name.length <= 64 && new RegExp(NAME).test(name)) return undefined;
  return `Invalid '${place}': string does not match pattern. Expected a string that matches the pattern '${NAME}'.`;
}

function repeatedIdProblem(items: readonly WireItem[]): string | undefined {
  const ids = new Set<unknown>();
  return firstProblem(items, ({ id }) => {
    if (id === undefined) return undefined;
    if (ids.has(id))
      return `Duplicate item found with id ${String(id)}. Remove duplicate items from your input and try again.`;
    ids.add(id);
    return undefined;
  });
}

function pairsProblem(items: readonly WireItem[]): string | undefined {
  const open = new Map<unknown, { readonly needs: string; isOpen: boolean }>();
  const problem = firstProblem(items, ({ type, call_id: id }) => {
    const needs = OUTPUTS.get(type);
    if (needs !== undefined) {
      if (open.has(id)) return `Duplicate function call with call_id ${String(id)} in input.`;
      open.set(id, { needs, isOpen: true });
    } else if ([...OUTPUTS.values()].includes(String(type))) {
      const call = open.get(id);
      if (!call || call.needs !== type)
        return `No tool call found for function call output with call_id ${String(id)}.`;
      if (!call.isOpen) return `Duplicate function call output for call_id ${String(id)} in input.`;
      call.isOpen = false;
    }
    return undefined;
  });
  if (problem !== undefined) return problem;
  const unanswered = [...open].find(([, { isOpen }]) => isOpen);
  return unanswered && `No tool output found for function call ${String(unanswered[0])}.`;
}

function reasoningProblem(
  items: readonly WireItem[],
  isStored: boolean,
  issued: Issued | undefined,
): string | undefined {
  return firstProblem(items, ({ type, id, encrypted_content: encrypted }, index) => {
    const name = String(id);
    if (type === 'reasoning') {
      const next = items.slice(index + 1).find((item) => item.type !== 'reasoning');
      if (!OUTPUTS.has(next?.type) && !(next?.type === 'message' && next['role'] === 'assistant'))
        return `Item '${name}' of type 'reasoning' was provided without its required following item.`;
      if (encrypted == null && !isStored)
        return `Item with id '${name}' not found. Items are not persisted when \`store\` is set to false. Try again with \`store\` set to true, or remove this item from your input.`;
      if (encrypted == null || issued?.encrypted === undefined || issued.encrypted[name] === encrypted)
        return undefined;
      return `The encrypted content for item ${name} could not be verified. Reason: Encrypted content could not be decrypted or parsed.`;
    }
    const reasoning = id === undefined ? undefined : issued?.reasoningOf?.[name];
    if (reasoning === undefined || items.slice(0, index).some((item) => item['id'] === reasoning)) return undefined;
    return `Item '${name}' of type '${String(type)}' was provided without its required 'reasoning' item: '${reasoning}'.`;
  });
}

/** Our own rule: results follow their calls directly, and no two user messages follow each other. */
function orderProblem(items: readonly WireItem[]): string | undefined {
  let open = 0;
  return firstProblem(items, ({ type, role }, index) => {
    if (OUTPUTS.has(type)) open++;
    if ([...OUTPUTS.values()].includes(String(type))) open--;
    if (type !== 'message' || role !== 'user') return undefined;
    if (open > 0) return `A user message comes between a function call and its output (input[${index}]).`;
    const previous = items[index - 1];
    return previous?.type === 'message' && previous['role'] === 'user'
      ? `Successive user messages (input[${index - 1}] and input[${index}]).`
      : undefined;
  });
}
