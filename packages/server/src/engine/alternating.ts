import type { AssistantMessage, Message, SaidText, UserMessage } from '@treadle/core';

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
  one: readonly (Part | SaidText)[],
  other: readonly (Part | SaidText)[],
): readonly (Part | SaidText)[] {
  const last = one.at(-1);
  const [first] = other;
  if (!isText(last) || !isText(first)) return [...one, ...other];
  const { text, phase } = first;
  if (last.phase !== phase) return [...one.slice(0, -1), { ...last, text: `${last.text}\n\n` }, ...other];
  return [...one.slice(0, -1), { ...last, text: `${last.text}\n\n${text}` }, ...other.slice(1)];
}

function isText(part: { readonly type: string } | undefined): part is SaidText {
  return part?.type === 'text';
}
