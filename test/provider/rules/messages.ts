import type { AssistantMessage, Message, ToolCall, ToolMessage } from '@treadle/core';

const NAME = /^[a-zA-Z0-9_-]{1,64}$/;
/** The shortest limit: that of OpenAI's chat API. */
const LONGEST_ID = 40;

/**
 * The first problem of a history that is about to be sent to a model, with the index of its message; undefined if there is
 * none. A history without a problem can be sent in every wire form.
 *
 *     expect(historyProblem(result.messages)).toBeUndefined();
 *
 * 1. It starts with a user message.
 * 2. User and assistant alternate. `user` and `tool` are one side: a user message may follow the results (Anthropic's form
 *    merges the two, the others have both), but never another user message.
 * 3. Each call has exactly one result, in the next message, in the order of the calls. So a history that ends with calls
 *    has a problem too: a paused run must not call a model.
 * 4. Call ids are not empty, not too long, and unique in the history. Results name the tool that was called.
 * 5. Messages have content: no empty list, no empty text, no reply of reasoning only.
 */
export function historyProblem(messages: readonly Message[]): string | undefined {
  if (messages.length === 0) return 'the history is empty';
  const used = new Set<string>();
  let open: readonly ToolCall[] = [];
  for (const [index, message] of messages.entries()) {
    const previous = messages[index - 1]?.role;
    const problem =
      orderProblem(message, previous) ??
      (message.role === 'tool' ? resultsProblem(message, open) : unanswered(open)) ??
      contentProblem(message) ??
      (message.role === 'assistant' ? callsProblem(message, used) : undefined);
    if (problem !== undefined) return `message ${index}: ${problem}`;
    open = message.role === 'assistant' ? callsOf(message) : [];
  }
  const problem = unanswered(open);
  return problem && `message ${messages.length}: ${problem}`;
}

function orderProblem({ role }: Message, previous: Message['role'] | undefined): string | undefined {
  if (previous === undefined) return role === 'user' ? undefined : `the first message is of role "${role}", not "user"`;
  if (role === 'assistant') return previous === 'assistant' ? 'two assistant messages in a row' : undefined;
  if (role === 'user') return previous === 'user' ? 'two user messages in a row' : undefined;
  return previous === 'assistant' ? undefined : `results after a message of role "${previous}", which has no calls`;
}

/** Reported for the message that should contain the results. */
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
    if (!NAME.test(name)) return `no provider accepts the tool name "${name}"`;
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
