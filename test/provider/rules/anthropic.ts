import { anthropicSettingsProblem } from './anthropic-settings.ts';
import { thinkingProblem } from './anthropic-thinking.ts';
import { firstProblem, isRecord, type RuleOptions, type Rules } from './rules.ts';

export interface WireBlock {
  readonly type?: unknown;
  readonly [field: string]: unknown;
}

export interface WireMessage {
  readonly role: 'user' | 'assistant';
  readonly content: readonly WireBlock[];
}

const IMAGES = ['image/jpeg', 'image/png', 'image/gif', 'image/webp'];
const ID = '^[a-zA-Z0-9_-]+$';

/** Why Anthropic would reject this body of its Messages API with status 400; undefined if it would accept it. */
export const anthropicProblem: Rules = (body, options = {}) => {
  if (!isRecord(body)) return 'The request body is not valid JSON';
  const settings = anthropicSettingsProblem(body);
  if (settings !== undefined) return settings;
  if (!Array.isArray(body['messages'])) return 'messages: Field required';
  if (body['messages'].length === 0) return 'messages: at least one message is required';
  const messages: WireMessage[] = [];
  const shapeProblem = firstProblem(body['messages'] as unknown[], (message, index) => {
    if (!isRecord(message) || (message['role'] !== 'user' && message['role'] !== 'assistant'))
      return `messages.${index}.role: Input should be 'user' or 'assistant'`;
    const { role, content } = message;
    if (typeof content !== 'string' && !Array.isArray(content))
      return `messages.${index}.content: Input should be a valid list`;
    const blocks = typeof content === 'string' ? (content === '' ? [] : [{ type: 'text', text: content }]) : content;
    messages.push({ role, content: blocks as WireBlock[] });
    return undefined;
  });
  return (
    shapeProblem ??
    orderProblem(messages, options) ??
    firstProblem(messages, ({ content }, at) =>
      firstProblem(content, (block, index) => blockProblem(block, `messages.${at}.content.${index}`)),
    ) ??
    pairsProblem(messages) ??
    thinkingProblem(body['thinking'], messages, options.issued)
  );
};

function orderProblem(messages: readonly WireMessage[], { strict = true }: RuleOptions): string | undefined {
  if (messages[0]!.role !== 'user') return 'messages: first message must use the "user" role';
  if (messages.at(-1)!.role === 'assistant')
    return 'This model does not support assistant message prefill. The conversation must end with a user message.';
  return firstProblem(messages, ({ role, content }, index) => {
    if (strict && messages[index - 1]?.role === role)
      return `messages: roles must alternate between "user" and "assistant", but found multiple "${role}" roles in a row`;
    return content.length > 0
      ? undefined
      : `messages.${index}: all messages must have non-empty content except for the optional final assistant message`;
  });
}

function blockProblem(block: WireBlock, place: string): string | undefined {
  switch (block.type) {
    case 'text':
      if (typeof block['text'] !== 'string') return `${place}.text.text: Field required`;
      if (block['text'] === '') return 'messages: text content blocks must be non-empty';
      return block['text'].trim() === '' ? 'messages: text content blocks must contain non-whitespace text' : undefined;
    case 'image':
    case 'document':
      return sourceProblem(block, place);
    case 'tool_use':
      return toolUseProblem(block, place);
    case 'tool_result':
      return toolResultProblem(block, place);
    case 'thinking':
      if (typeof block['thinking'] !== 'string') return `${place}.thinking.thinking: Field required`;
      return typeof block['signature'] === 'string' ? undefined : `${place}.thinking.signature: Field required`;
    case 'redacted_thinking':
      return typeof block['data'] === 'string' ? undefined : `${place}.redacted_thinking.data: Field required`;
    default:
      return `${place}: Input tag '${String(block.type)}' found using 'type' does not match any of the expected tags`;
  }
}

function sourceProblem({ type, source }: WireBlock, place: string): string | undefined {
  if (!isRecord(source)) return `${place}.${String(type)}.source: Field required`;
  if (source['type'] !== 'base64') return undefined;
  if (type === 'image' && !IMAGES.includes(String(source['media_type'])))
    return `${place}.image.source.base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'`;
  const isBase64 = /^[A-Za-z0-9+/]+={0,2}$/.test(String(source['data']));
  return isBase64 ? undefined : `${place}.${String(type)}.source.base64: invalid base64 data`;
}

function toolUseProblem({ id, name, input }: WireBlock, place: string): string | undefined {
  if (typeof id !== 'string') return `${place}.tool_use.id: Field required`;
  if (!new RegExp(ID).test(id)) return `${place}.tool_use.id: String should match pattern '${ID}'`;
  if (typeof name !== 'string' || name === '') return `${place}.tool_use.name: String should have at least 1 character`;
  if (!/^[a-zA-Z0-9_-]{1,128}$/.test(name))
    return `${place}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'`;
  return isRecord(input) ? undefined : `${place}.tool_use.input: Input should be a valid dictionary`;
}

function toolResultProblem({ tool_use_id, content, is_error }: WireBlock, place: string): string | undefined {
  if (typeof tool_use_id !== 'string') return `${place}.tool_result.tool_use_id: Field required`;
  if (is_error === true && (content === undefined || (content as string | []).length === 0))
    return `${place}.tool_result: content cannot be empty if \`is_error\` is true`;
  if (!Array.isArray(content)) return undefined;
  if (is_error === true && content.some((block) => !isRecord(block) || block['type'] !== 'text'))
    return `${place}.tool_result: all content must be type "text" if \`is_error\` is true`;
  return firstProblem(content as WireBlock[], (block, index) =>
    ['text', 'image', 'document', 'search_result'].includes(String(block.type))
      ? blockProblem(block, `${place}.tool_result.content.${index}`)
      : `${place}.tool_result.content.${index}: Input tag '${String(block.type)}' found using 'type' does not match any of the expected tags`,
  );
}

function pairsProblem(messages: readonly WireMessage[]): string | undefined {
  const used = new Set<unknown>();
  return firstProblem(messages, ({ role, content }, at) => {
    if (role === 'user') return resultsProblem(content, messages[at - 1], at);
    const problem = firstProblem(content, ({ type, id }, index) => {
      if (type === 'tool_result') return `messages.${at}: \`tool_result\` blocks can only be in \`user\` messages`;
      if (type !== 'tool_use') return undefined;
      if (used.has(id)) return `messages.${at}.content.${index}: \`tool_use\` ids must be unique`;
      used.add(id);
      return undefined;
    });
    if (problem !== undefined) return problem;
    const answers = leadingResults(messages[at + 1]?.content ?? []);
    const unanswered = idsOf(content).filter((id) => !answers.includes(id));
    if (unanswered.length === 0) return undefined;
    return `messages.${at}: \`tool_use\` ids were found without \`tool_result\` blocks immediately after: ${unanswered.join(', ')}. Each \`tool_use\` block must have a corresponding \`tool_result\` block in the next message.`;
  });
}

function resultsProblem(
  content: readonly WireBlock[],
  previous: WireMessage | undefined,
  at: number,
): string | undefined {
  const called = idsOf(previous?.content ?? []);
  const answered = new Set<unknown>();
  return firstProblem(content, ({ type, tool_use_id: id }, index) => {
    if (type === 'tool_use') return `messages.${at}: \`tool_use\` blocks can only be in \`assistant\` messages`;
    if (type !== 'tool_result') return undefined;
    if (!called.includes(id))
      return `messages.${at}.content.${index}: unexpected \`tool_use_id\` found in \`tool_result\` blocks: ${String(id)}. Each \`tool_result\` block must have a corresponding \`tool_use\` block in the previous message.`;
    if (answered.has(id))
      return `messages.${at}.content.${index}: each tool_use must have a single result. Found multiple \`tool_result\` blocks with id: ${String(id)}`;
    answered.add(id);
    return undefined;
  });
}

function idsOf(content: readonly WireBlock[]): unknown[] {
  return content.flatMap(({ type, id }) => (type === 'tool_use' ? [id] : []));
}

/** Only results before any other block count. */
function leadingResults(content: readonly WireBlock[]): unknown[] {
  const end = content.findIndex(({ type }) => type !== 'tool_result');
  return content.slice(0, end === -1 ? undefined : end).map((block) => block['tool_use_id']);
}
