import type { AssistantPart, Message, ReasoningPart, ToolCall, ToolResult, UserMessage } from '@treadle/core';
import { badRequest } from '../../api-error.ts';
import type { ConversationBefore } from '../../history/conversation.ts';
import { itemOrigin, toolUseIdFor } from '../../ids.ts';
import type { DecodedReasoning } from '../responses/reasoning-seal.ts';
import type {
  CallResult,
  ParsedInstruction,
  ParsedMessage,
  SaidCall,
  SaidPart,
  Thought,
  ToolChange,
  UserPart,
} from './parse-messages.ts';
import { modelToolName, type DeclaredTool } from './parse-tools.ts';

/** What the messages of a request mean. */
export interface MessageConversation {
  readonly messages: readonly Message[];
  /** The texts of system messages before all others. */
  readonly system: readonly string[];
}

export interface ConversationOptions {
  /** The conversation that the messages continue. */
  readonly before?: Pick<ConversationBefore, 'messages' | 'open'> | undefined;
  /** Undefined if this server did not sign the reasoning. */
  readonly openThought: (signature: string) => DecodedReasoning | undefined;
}

/**
 * The conversation that the messages of a request represent.
 *
 * 1. What the model said and called in one turn is one message, and the results of its calls are the next one, in call order.
 *    The results of calls that the server has executed are blocks of the assistant message: what follows them is the next turn.
 * 2. Results are bound to calls by id alone. Every call has exactly one, before the next turn; otherwise a 400 names the calls.
 * 3. Models have no messages of the role `system` within a conversation. What one says is said by the user, between tags, at its
 *    place: moved to the instructions, it would change the beginning of everything that the provider has cached.
 */
export function conversationOf(
  parsed: readonly ParsedMessage[],
  { before, openThought }: ConversationOptions,
): MessageConversation {
  const messages: Message[] = [...(before?.messages ?? [])];
  const system: string[] = [];
  let turn: OpenTurn | undefined = before?.open && pausedTurn(before.open);
  let last: ParsedMessage['role'] | undefined;
  /** What comes after the calls of a turn, until they have results. */
  let later: UserMessage[] = [];

  function closeTurn(): void {
    if (turn) messages.push(...closedTurn(turn));
    messages.push(...later);
    turn = undefined;
    later = [];
  }

  function addInstruction({ text }: ParsedInstruction): void {
    if (text.trim() === '') return;
    if (messages.length === 0 && !turn) return void system.push(text);
    later.push({ role: 'user', content: [{ type: 'text', text: tagged(text) }] });
  }

  function addUser(parts: readonly UserPart[], at: string): void {
    for (const [index, part] of parts.entries()) {
      if (part.type === 'result') addResult(turn, part, `${at}.content[${index}]`);
    }
    const said = parts.flatMap((part) => (part.type === 'said' ? part.blocks : []));
    const content = said.filter((block) => block.type !== 'text' || block.text !== '');
    if (content.length === 0 && parts.some(({ type }) => type === 'result')) return;
    closeTurn();
    messages.push({ role: 'user', content: content.length > 0 ? content : [{ type: 'text', text: '' }] });
  }

  function addReply(parts: readonly SaidPart[], at: string): void {
    // Consecutive messages of the model belong together.
    if (last !== 'assistant') closeTurn();
    for (const [index, part] of parts.entries()) {
      const path = `${at}.content[${index}]`;
      if (part.type === 'result') {
        addResult(turn, part, path);
        continue;
      }
      if (part.type === 'text' && part.text === '') continue;
      if (turn && isAnswered(turn)) closeTurn();
      turn ??= newTurn(at);
      const said =
        part.type === 'thought' ? thoughtPart(part, openThought, path) : part.type === 'call' ? callPart(part) : part;
      turn.parts.push(said);
      if (part.type === 'call') addCall(turn, part, path);
    }
  }

  const lastUser = parsed.findLastIndex(({ role }) => role === 'user');
  for (const [index, message] of parsed.entries()) {
    const at = `messages[${index}]`;
    if (message.role === 'assistant') addReply(message.content, at);
    else if (message.role === 'user') addUser(message.content, at);
    else if (!message.isPassing || index > lastUser) addInstruction(message);
    last = message.role;
  }
  closeTurn();
  return { messages: checkedEnd(messages, system, before !== undefined), system };
}

/** Claude Code writes such texts itself for models without system messages in a conversation. */
function tagged(text: string): string {
  return /^\s*<system-reminder>/.test(text) ? text : `<system-reminder>\n${text}\n</system-reminder>`;
}

/** Models need a message to reply to. */
function checkedEnd(messages: readonly Message[], system: string[], continues: boolean): readonly Message[] {
  const last = messages.at(-1);
  if (last?.role === 'assistant') {
    const message = continues
      ? "The reply before is complete, and 'messages' has nothing that follows it. Send at least one message of the user."
      : "The conversation must end with a user message: this server does not support assistant message prefill. Leave the last message out, or use 'output_config.format'.";
    throw badRequest(message, 'messages', 'invalid_value');
  }
  if (last) return messages;
  const text = system.pop();
  if (text !== undefined) return [{ role: 'user', content: [{ type: 'text', text }] }];
  throw badRequest('messages: at least one message is required.', 'messages', 'empty_input');
}

/** A turn whose calls may have no results yet. */
interface OpenTurn {
  /** The path of its message. */
  readonly at: string;
  readonly parts: AssistantPart[];
  /** By the id on the wire, in order. */
  readonly calls: Map<string, OpenCall>;
  /** The number of calls without a result. */
  unanswered: number;
}

interface OpenCall {
  readonly callId: string;
  readonly name: string;
  readonly isServers?: boolean;
  result?: ToolResult;
}

function newTurn(at: string): OpenTurn {
  return { at, parts: [], calls: new Map(), unanswered: 0 };
}

/** The turn that the run before has paused in. Its reply is in the conversation. */
function pausedTurn(open: NonNullable<ConversationBefore['open']>): OpenTurn {
  const turn = newTurn('thread');
  for (const { wireId, callId, name, result } of open.calls) {
    const { response, turn: number, number: index } = itemOrigin(wireId)!;
    turn.calls.set(toolUseIdFor(response, number, index), { callId, name, ...(result && { result }) });
    if (!result) turn.unanswered += 1;
  }
  return turn;
}

function addCall(turn: OpenTurn, { id, name, isServers }: SaidCall, path: string): void {
  if (turn.calls.has(id))
    throw badRequest(`'${path}.id': \`tool_use\` ids must be unique.`, `${path}.id`, 'duplicate_call');
  turn.calls.set(id, { callId: id, name: modelToolName(name), isServers });
  turn.unanswered += 1;
}

function addResult(turn: OpenTurn | undefined, { callId: id, content, isError }: CallResult, path: string): void {
  const call = turn?.calls.get(id);
  const param = `${path}.tool_use_id`;
  if (!turn || !call) {
    const message = `'${path}': unexpected \`tool_use_id\` found in \`tool_result\` blocks: ${id}. Each \`tool_result\` block must have a corresponding \`tool_use\` block in the previous message.`;
    throw badRequest(message, param, 'unknown_tool_call');
  }
  if (call.result) {
    const message = `'${path}': each \`tool_use\` must have a single result. Found multiple \`tool_result\` blocks with id: ${id}.`;
    throw badRequest(message, param, 'duplicate_tool_result');
  }
  const { callId, name } = call;
  call.result = { type: 'tool-result', callId, name, content, isError };
  turn.unanswered -= 1;
}

/** Whether the turn has calls, and all of them have results. */
function isAnswered({ calls, unanswered }: OpenTurn): boolean {
  return calls.size > 0 && unanswered === 0;
}

/** A call of a server that was never answered is left out: its run ended before that, and the client cannot answer it. */
function closedTurn({ at, parts, calls }: OpenTurn): readonly Message[] {
  const open = [...calls].filter(([, { result }]) => !result);
  const missing = open.flatMap(([id, { isServers }]) => (isServers ? [] : id));
  if (missing.length > 0) {
    const message = `'${at}': \`tool_use\` ids were found without \`tool_result\` blocks immediately after: ${missing.join(', ')}. Each \`tool_use\` block must have a corresponding \`tool_result\` block in the next message.`;
    throw badRequest(message, at === 'thread' ? 'messages' : `${at}.content`, 'missing_tool_result');
  }
  const lost = new Set(open.map(([id]) => id));
  const content = lost.size === 0 ? parts : parts.filter((part) => part.type !== 'tool-call' || !lost.has(part.id));
  const results = [...calls.values()].flatMap(({ result }) => result ?? []);
  return [
    ...(content.length > 0 ? [{ role: 'assistant', content } as const] : []),
    ...(results.length > 0 ? [{ role: 'tool', content: results } as const] : []),
  ];
}

function callPart({ id, name, arguments: json }: SaidCall): ToolCall {
  return { type: 'tool-call', id, name: modelToolName(name), arguments: json };
}

/** Claude Code removes all thoughts and sends its request again if it gets this error. */
function thoughtPart(
  { text, signature }: Thought,
  openThought: ConversationOptions['openThought'],
  path: string,
): ReasoningPart {
  const part = openThought(signature)?.part;
  if (part && (text === undefined || text === '' || text === part.text)) return part;
  const block = text === undefined ? 'redacted_thinking' : 'thinking';
  const message = `${path}: Invalid \`signature\` in \`${block}\` block. Only thoughts of this server can be sent back, unchanged: leave out those of others, such as of an earlier part of the session.`;
  throw badRequest(message, path, 'invalid_encrypted_content');
}

/** The tools at the end of a conversation that adds and removes some. */
export function toolsAfter(tools: readonly DeclaredTool[], parsed: readonly ParsedMessage[]): readonly DeclaredTool[] {
  const changes = parsed.flatMap((message): readonly ToolChange[] =>
    message.role === 'system' ? message.changes : [],
  );
  if (changes.length === 0) return tools;
  const all = new Map(tools.map((tool, index) => [keyOf(tool, index), tool]));
  const removed = new Set<string>();
  for (const change of changes) {
    const key = change.type === 'added' ? keyOf(change.tool, all.size) : change.name;
    if (change.type === 'added') all.set(key, change.tool);
    else if (!all.has(key)) {
      const message = `A system message refers to the tool '${key}', which is not declared. Declare it in 'tools', or add its definition.`;
      throw badRequest(message, 'messages', 'unknown_tool');
    }
    if (change.type === 'removed') removed.add(key);
    else removed.delete(key);
  }
  return [...all].flatMap(([key, tool]) => (removed.has(key) ? [] : tool));
}

/** No function has such a name as the others. */
function keyOf(tool: DeclaredTool, index: number): string {
  return tool.type === 'function' ? tool.name : ` ${index}`;
}
