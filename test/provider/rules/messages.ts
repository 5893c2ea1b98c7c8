import type { AssistantMessage, Message, ToolCall, ToolMessage } from '@treadle/core';

const NAME = /^[a-zA-Z0-9_-]{1,64}$/;
/** The shortest limit: that of OpenAI's chat API. */
const LONGEST_ID = 40;

/**
 * What is wrong with a history that is to go to a model, if anything is: the first problem, in words that name the
 * message by its index. Every wire form can carry a history without a problem.
 *
 *     expect(historyProblem(result.messages)).toBeUndefined();
 *
 * 1. It begins with a user message.
 * 2. The user's side and the assistant's alternate. `user` and `tool` are one side: a user message may follow the
 *    results (Anthropic's form merges the two, the others have both), but never another user message.
 * 3. Each call is answered exactly once, by the very next message, in the order of the calls. So a history that ends in
 *    calls has a problem too: a run that is paused is not to be asked of a model.
 * 4. Call ids are there, sendable, and used once in the whole history. Results name the tool that was called.
 * 5. A message says something: no empty content, no empty text, no reply that is only empty.
 */
export function historyProblem(messages: readonly Message[]): string | undefined {
  if (messages.length === 0) return 'the history is empty';
  const used = new Set<string>();
  let open: readonly ToolCall[] = [];
  for (const [index, message] of messages.entries()) {
    const before = messages[index - 1]?.role;
    const problem =
      orderProblem(message, before) ??
      (message.role === 'tool' ? resultsProblem(message, open) : unanswered(open)) ??
      contentProblem(message) ??
      (message.role === 'assistant' ? callsProblem(message, used) : undefined);
    if (problem !== undefined) return `message ${index}: ${problem}`;
    open = message.role === 'assistant' ? callsOf(message) : [];
  }
  const left = unanswered(open);
  return left && `message ${messages.length}: ${left}`;
}

function orderProblem({ role }: Message, before: Message['role'] | undefined): string | undefined {
  if (before === undefined) return role === 'user' ? undefined : `the first message is of role "${role}", not "user"`;
  if (role === 'assistant') return before === 'assistant' ? 'two assistant messages in a row' : undefined;
  if (role === 'user') return before === 'user' ? 'two user messages in a row' : undefined;
  return before === 'assistant' ? undefined : `results after a message of role "${before}", which has no calls`;
}

/** Said of the message where the answers should be. */
function unanswered(open: readonly ToolCall[]): string | undefined {
  if (open.length === 0) return undefined;
  return `no answer to ${open.map(({ name, id }) => `${name} (${id})`).join(', ')}`;
}

function resultsProblem({ content }: ToolMessage, calls: readonly ToolCall[]): string | undefined {
  const answered = new Set<string>();
  for (const { callId, name } of content) {
    const call = calls.find(({ id }) => id === callId);
    if (call === undefined) return `a result for "${callId}", which the message before does not call`;
    if (answered.has(callId)) return `${call.name} (${callId}) is answered twice`;
    if (name !== call.name) return `the result for ${call.name} (${callId}) is named "${name}"`;
    answered.add(callId);
  }
  const missing = unanswered(calls.filter(({ id }) => !answered.has(id)));
  if (missing !== undefined) return missing;
  const inOrder = calls.every(({ id }, at) => content[at]!.callId === id);
  return inOrder ? undefined : `the results are not in the order of the calls: ${calls.map(({ id }) => id).join(', ')}`;
}

function callsProblem(message: AssistantMessage, used: Set<string>): string | undefined {
  for (const { id, name } of callsOf(message)) {
    if (id === '' || id.length > LONGEST_ID) return `the id of a call of "${name}" has ${id.length} characters`;
    if (used.has(id)) return `the call id "${id}" is used a second time`;
    if (!NAME.test(name)) return `no provider takes the tool name "${name}"`;
    used.add(id);
  }
  return undefined;
}

function contentProblem({ role, content }: Message): string | undefined {
  if (content.length === 0) return `a message of role "${role}" without content`;
  if (role === 'tool') return undefined;
  if (content.some((part) => part.type === 'text' && part.text === '')) return 'an empty text';
  return content.every((part) => part.type === 'reasoning') ? 'a reply of nothing but reasoning' : undefined;
}

function callsOf({ content }: AssistantMessage): readonly ToolCall[] {
  return content.filter((part) => part.type === 'tool-call');
}
