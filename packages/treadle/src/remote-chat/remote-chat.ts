import type { ChatConversation, ChatEvent, ServerInfo } from '@treadle/server/wire';
import { EXIT } from '../command-line/command.ts';
import type { Dialogue, Exchange } from '../chat/dialogue.ts';
import type { Io } from '../terminal/io.ts';
import { printable } from '../terminal/printable.ts';
import { ageText } from '../terminal/quantities.ts';
import { catchInterrupt } from '../terminal/signals.ts';
import { chatItems } from './chat-items.ts';
import type { ChatServer } from './chat-server.ts';
import { answerAsked, type Asked } from './remote-answers.ts';

/** A conversation of a server, driven by this terminal. Its tools, limits and policy are those of the server. */
export interface RemoteChat {
  readonly server: ChatServer;
  readonly info: ServerInfo;
  readonly dialogue: Dialogue;
  readonly io: Io;
  /** Whether a line is for the chat, and not for the model. */
  readonly isCommand: (line: string) => boolean;
  /** Undefined until the first message. */
  conversation: string | undefined;
  model: string | undefined;
  /** Whose tools the model has; those of the server otherwise. */
  readonly device: string | undefined;
  /** In this chat. */
  readonly used: { tokens: number; cost: number | undefined };
  /** Messages that the user entered when the answer could not accept them any more. */
  readonly unsent: string[];
}

/** Continues a conversation: shows how it ended, and the answer that is in progress. */
export async function openConversation(chat: RemoteChat, id: string): Promise<RemoteEnding> {
  const { server, dialogue } = chat;
  const found = await server.get(id);
  chat.conversation = id;
  const age = ageText(Date.now() - found.updated_at);
  dialogue.writeLine(`Continues "${printable(found.title ?? 'without a title')}", ${age} ago.`);
  const earlier = lastExchange(found);
  if (earlier) dialogue.showEarlier(earlier);
  const last = found.messages.at(-1);
  if (last?.role !== 'assistant' || (last.status !== 'in_progress' && last.status !== 'waiting')) return {};
  dialogue.writeLine('The answer is in progress.');
  return showAnswer(chat, (signal) => server.follow(id, last.events_after, signal));
}

/** How showing an answer ended. */
export interface RemoteEnding {
  /** Set if the user has left meanwhile, or the terminal was closed. */
  readonly exitCode?: number;
}

/**
 * Shows an answer while it arrives. Esc cancels it on the server. Leaving does not, and neither does a terminal that is closed: the
 * server goes on.
 */
export async function showAnswer(
  chat: RemoteChat,
  open: (signal: AbortSignal) => AsyncIterable<ChatEvent>,
): Promise<RemoteEnding> {
  const { server, dialogue, io } = chat;
  const interrupt = catchInterrupt(io);
  const leaving = new AbortController();
  const leave = (): void => leaving.abort();
  const cancel = (): void => {
    if (interrupt.isTerminated) leave();
    else if (chat.conversation !== undefined) void server.cancel(chat.conversation).catch(() => {});
  };
  interrupt.signal.addEventListener('abort', cancel);
  const steering: Promise<unknown>[] = [];
  const steer = async (text: string): Promise<void> => {
    if (chat.isCommand(text)) {
      chat.unsent.push(text);
      dialogue.writeLine('The command follows when the answer is done.');
      return;
    }
    const sent = chat.conversation === undefined ? Promise.reject(new Error()) : server.steer(chat.conversation, text);
    await sent.catch(() => chat.unsent.push(text));
  };
  const shown = dialogue.startRun({ interrupt, leave, steer: (text) => void steering.push(steer(text)) });
  const items = chatItems();
  const asked: Asked = { open: new Map(), isAsking: false };
  let isDone = false;
  try {
    for await (const event of open(leaving.signal)) {
      if (event.type === 'conversation_meta') chat.conversation = event.conversation_id;
      for (const item of items(event)) shown.onItem(item);
      answerAsked(event, asked, chat);
      noteEvent(event, chat);
      if (event.type === 'done') isDone = true;
    }
    shown.endReply();
    if (!isDone) dialogue.writeLine('The connection ended. The server may go on: /resume shows the answer.');
  } catch (error) {
    if (!leaving.signal.aborted) throw error;
  } finally {
    shown.end();
    interrupt.release();
    await Promise.all(steering);
  }
  if (!leaving.signal.aborted) return {};
  return { exitCode: interrupt.isTerminated ? EXIT.cancelled : EXIT.completed };
}

function noteEvent(event: ChatEvent, { dialogue, used }: RemoteChat): void {
  if (event.type === 'error' || event.type === 'warning') dialogue.writeLine(printable(event.message));
  if (event.type === 'tool_call_decision' && !event.approved && event.source !== 'person') {
    dialogue.writeLine(
      `Denied by the ${event.source} of the server${event.reason ? `: ${printable(event.reason)}` : ''}`,
    );
  }
  if (event.type !== 'usage') return;
  used.tokens += event.input_tokens + event.output_tokens;
  if (event.cost !== null) used.cost = (used.cost ?? 0) + event.cost;
}

function lastExchange({ messages }: ChatConversation): Exchange | undefined {
  const at = messages.findLastIndex(({ role }) => role === 'user');
  const asked = messages[at];
  if (asked?.role !== 'user') return undefined;
  const texts = messages.slice(at).flatMap((message) => {
    return message.role === 'assistant' ? message.parts.flatMap((part) => (part.type === 'text' ? part.text : [])) : [];
  });
  return { asked: asked.content, reply: texts.at(-1) ?? '' };
}
