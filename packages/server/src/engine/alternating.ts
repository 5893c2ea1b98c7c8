import type { AssistantMessage, Message, TextBlock, UserMessage } from '@treadle/core';

/**
 * A conversation in which nobody speaks twice in a row. Clients may send several messages of one role, and go on after a
 * response that has said nothing; templates of many models refuse that. Such messages are one, in paragraphs.
 */
export function alternating(messages: readonly Message[]): readonly Message[] {
  const merged: Message[] = [];
  for (const message of messages) {
    const last = merged.at(-1);
    if (last?.role === 'user' && message.role === 'user') merged[merged.length - 1] = bothUser(last, message);
    else if (last?.role === 'assistant' && message.role === 'assistant')
      merged[merged.length - 1] = bothAssistant(last, message);
    else merged.push(message);
  }
  return merged;
}

function bothUser(one: UserMessage, other: UserMessage): UserMessage {
  return { role: 'user', content: joined(one.content, other.content) };
}

function bothAssistant(one: AssistantMessage, other: AssistantMessage): AssistantMessage {
  return { role: 'assistant', content: joined(one.content, other.content) };
}

/** Texts of one message are read without anything between them. */
function joined<Part extends { readonly type: string }>(
  one: readonly (Part | TextBlock)[],
  other: readonly (Part | TextBlock)[],
): readonly (Part | TextBlock)[] {
  const last = one.at(-1);
  const [first] = other;
  if (last?.type !== 'text' || first?.type !== 'text') return [...one, ...other];
  const text = `${(last as TextBlock).text}\n\n${(first as TextBlock).text}`;
  return [...one.slice(0, -1), { type: 'text', text }, ...other.slice(1)];
}
