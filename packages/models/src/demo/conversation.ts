import { textOf, type Message, type ToolResult } from '@treadle/core';

/** A call that was made and what came of it. */
export interface Done {
  readonly name: string;
  readonly arguments: string;
  readonly result: ToolResult;
}

/** What is still to be answered: everything after the last reply without calls. */
export interface Conversation {
  /** What the user has said since, and the loop in the user's name. */
  readonly asked: readonly string[];
  readonly done: readonly Done[];
  /** The reply before. */
  readonly answered: string | undefined;
  /** Calls from before, the newest last: what "it" and "the first one" may mean. */
  readonly earlier: readonly Done[];
}

/** Of one message; rules are no good at long texts. */
const MAX_ASKED = 2_000;

export function conversationOf(messages: readonly Message[]): Conversation {
  const start = messages.findLastIndex(({ role, content }) => role === 'assistant' && !content.some(isCall)) + 1;
  const open = messages.slice(start);
  const last = messages[start - 1];
  return {
    asked: open.filter(({ role }) => role === 'user').map(({ content }) => textOf(content).slice(0, MAX_ASKED)),
    done: doneIn(open),
    answered: last === undefined ? undefined : textOf(last.content),
    earlier: doneIn(messages.slice(0, start)),
  };
}

function doneIn(messages: readonly Message[]): Done[] {
  const calls = new Map<string, string>();
  const done: Done[] = [];
  for (const message of messages) {
    if (message.role === 'assistant') {
      for (const part of message.content) if (part.type === 'tool-call') calls.set(part.id, part.arguments);
    } else if (message.role === 'tool') {
      for (const result of message.content) {
        done.push({ name: result.name, arguments: calls.get(result.callId) ?? '', result });
      }
    }
  }
  return done;
}

function isCall({ type }: { readonly type: string }): boolean {
  return type === 'tool-call';
}

/** The question of the finish strategy `confirm`, in whatever words: is all done, then say it again. */
export function asksToConfirm(text: string): boolean {
  return (
    /\b(?:verify|verified|confirm|check it|final answer|restate)\b/i.test(text) &&
    /\b(?:done|complete|completed|finished)\b/i.test(text)
  );
}
