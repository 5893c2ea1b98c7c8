import {
  carriedFrom,
  messagesOf,
  TreadleError,
  walkInSlices,
  type AssistantPart,
  type Carried,
  type Message,
  type ResultBlock,
  type SaidText,
  type State,
  type ToolResult,
  type UserBlock,
  type UserMessage,
} from '@treadle/core';
import { ApiError } from '../api-error.ts';
import { approvalIdFor, callIdFor } from '../ids.ts';
import { readEntries, type Reader, type StoredJournal } from '../engine/stored-reads.ts';
import type { FunctionTool } from '../engine/tools.ts';

/** What is sent to the model when a run starts. */
export interface Conversation {
  readonly messages: readonly Message[];
  /** Joined to the system prompt, in order; empty texts are ignored. */
  readonly instructions: readonly string[];
  /** Set if the last message is a reply with calls that the run begins with. */
  readonly open?: OpenTurn;
  /** What the run takes over of the last run of the conversation. */
  readonly carried?: Carried | undefined;
  /** The last run of the conversation, whose resources it takes over. */
  readonly after?: LastRun | undefined;
}

/** `hasProcesses`: its tools have started some, which may have survived the process that drove it. */
export interface LastRun {
  readonly id: string;
  readonly hasProcesses: boolean;
}

/** The most characters of a conversation, and of the input of a request. */
export const MAX_CONVERSATION_CHARS = 33_554_432;

/**
 * The characters of a conversation. Throws a 413 if it is too long. The request itself was measured before, but what it refers to can be
 * far larger, because it may refer to the same item many times.
 */
export function conversationSize({ messages, instructions }: Conversation): number {
  let remaining = instructions.reduce((size, text) => size - text.length, MAX_CONVERSATION_CHARS);
  for (const message of messages) {
    for (const part of partsOf(message)) {
      remaining -= sizeOf(part) + PART_OVERHEAD;
      if (remaining >= 0) continue;
      const most = MAX_CONVERSATION_CHARS.toLocaleString('en-US');
      throw new ApiError(
        413,
        'invalid_request_error',
        `The conversation has more than ${most} characters. Shorten it.`,
        { param: 'input', code: 'input_too_large' },
      );
    }
  }
  return MAX_CONVERSATION_CHARS - remaining;
}

/** The characters of the conversation of a run. */
export function historySize({ history }: State): number {
  let size = 0;
  for (const message of messagesOf(history)) for (const part of partsOf(message)) size += sizeOf(part) + PART_OVERHEAD;
  return size;
}

function partsOf(message: Message): readonly (AssistantPart | ResultBlock)[] {
  return message.role === 'tool' ? message.content.flatMap(({ content }) => content) : message.content;
}

/** An empty part needs memory too. */
const PART_OVERHEAD = 16;

function sizeOf(part: AssistantPart | ResultBlock): number {
  switch (part.type) {
    case 'image':
    case 'file':
      return part.source.type === 'data' ? part.source.data.length : part.source.url.length;
    case 'tool-call':
      return part.arguments.length;
    case 'reasoning':
      return part.text.length + (part.signature?.length ?? 0);
    default:
      return part.text.length;
  }
}

/**
 * Merges consecutive messages of the same role into one, as paragraphs. Clients may send several messages of one role,
 * and the chat templates of many models reject that.
 */
export function mergeSameRole<M extends Message>(messages: readonly M[]): readonly M[] {
  const merged: M[] = [];
  for (let from = 0; from < messages.length;) {
    const { role } = messages[from]!;
    let end = from + 1;
    while (role !== 'tool' && messages[end]?.role === role) end++;
    merged.push(end === from + 1 ? messages[from]! : mergedMessage(messages.slice(from, end)));
    from = end;
  }
  return merged;
}

/** Messages of one role as one message. */
function mergedMessage<M extends Message>(messages: readonly M[]): M {
  const content = joinedContent(messages.map((message) => message.content as readonly SaidPart[]));
  return { role: messages[0]!.role, content } as Message as M;
}

type SaidPart = UserBlock | AssistantPart;

/** Models read the texts of one message without a separator. */
function joinedContent(contents: readonly (readonly SaidPart[])[]): readonly SaidPart[] {
  const parts: SaidPart[] = [];
  /** The texts of the last part: joined once, because a part may consist of thousands. */
  let texts: string[] = [];
  const closeText = (): void => {
    // `join` makes a flat string. Reading the characters of a concatenation takes twice the time, and they are read often.
    if (texts.length > 1) parts.push({ ...(parts.pop() as SaidText), text: texts.join('\n\n') });
  };
  for (const content of contents) {
    for (const [index, part] of content.entries()) {
      const last = index === 0 ? parts.at(-1) : undefined;
      const isNextParagraph = isText(last) && isText(part);
      if (isNextParagraph) texts.push(last.phase === part.phase ? part.text : '');
      if (isNextParagraph && last.phase === part.phase) continue;
      closeText();
      parts.push(part);
      texts = isText(part) ? [part.text] : [];
    }
  }
  closeText();
  return parts;
}

function isText(part: SaidPart | undefined): part is SaidText {
  return part?.type === 'text';
}

/** What a conversation has besides its messages, for responses that continue from this one. */
export interface ConversationParts {
  /** The texts of all system and developer messages so far. */
  readonly system: readonly string[];
  /** The labels of other servers whose tools a response of the conversation has reported. */
  readonly reported?: readonly string[];
  /** The tools of the client that items of the conversation have declared. Those of a request are added to them. */
  readonly declared?: readonly FunctionTool[];
}

/** The conversation that a run ended or paused with. */
export interface ConversationBefore extends ConversationParts {
  /** If calls are open, the last message is the reply that made them. */
  readonly messages: readonly Message[];
  /** The calls of the paused turn, in order. */
  readonly open?: { readonly calls: readonly PausedCall[] };
  /** What the next run takes over: memory, grants and narrowing. */
  readonly carried?: Carried;
  readonly after?: LastRun;
}

/** The calls at the end of a conversation that its next run begins with. Plain JSON. */
export interface OpenTurn {
  /** The results of the calls that have one. */
  readonly answered: readonly ToolResult[];
  /** What the client decided about calls, by their index in the reply. */
  readonly approvals: readonly ApprovedCall[];
  /** What the user said after the calls. The model gets it with their results. */
  readonly followUp: readonly UserMessage[];
}

export interface ApprovedCall {
  readonly index: number;
  /** The id of the `mcp_approval_request` item. */
  readonly requestId: string;
  /** The server that the client was asked about, if the item in the request says that. */
  readonly label?: string;
  readonly approved: boolean;
  readonly reason?: string;
}

/** A call of the turn that a run paused in. */
export interface PausedCall {
  /** The `call_id` that the client uses. */
  readonly wireId: string;
  readonly callId: string;
  readonly name: string;
  /** Present if the server has answered it. */
  readonly result?: ToolResult;
  /** What a call without a result needs of the client; default: its output. */
  readonly needs?: 'approval' | 'nothing';
}

/** The state of a run, replayed from its journal; undefined if there is no such run. */
export async function storedState(runs: StoredJournal, runId: string, reader: Reader): Promise<State | undefined> {
  const entries = await readEntries(runs, runId, reader);
  if (entries.length === 0) return undefined;
  const replayed = await walkInSlices(entries);
  if (replayed.type === 'replayed') return replayed.state;
  throw new TreadleError('journal-damaged', `Run "${runId}", entry ${replayed.seq}: ${replayed.difference}.`);
}

/** At most this many conversations are read from the store at a time: each may need a hundred megabytes. */
const MOST_READS = 4;

/** Runs at most `MOST_READS` reads at a time; the others wait. */
function readsInTurn(): <T>(read: () => Promise<T>) => Promise<T> {
  const waiting: (() => void)[] = [];
  let reads = 0;
  return async (read) => {
    while (reads >= MOST_READS) await new Promise<void>((resolve) => void waiting.push(resolve));
    reads += 1;
    try {
      return await read();
    } finally {
      reads -= 1;
      waiting.shift()?.();
    }
  };
}

/**
 * Shares stored conversations. Requests that continue the same one get the same messages, while one of them reads it or
 * still holds it. The key names the conversation and its version.
 */
export function sharedConversations(): (
  key: string,
  read: () => Promise<ConversationBefore | undefined>,
) => Promise<ConversationBefore | undefined> {
  const reading = new Map<string, Promise<ConversationBefore | undefined>>();
  const known = new Map<string, WeakRef<ConversationBefore>>();
  const readInTurn = readsInTurn();

  async function readNext(
    key: string,
    read: () => Promise<ConversationBefore | undefined>,
  ): Promise<ConversationBefore | undefined> {
    try {
      const conversation = await readInTurn(read);
      for (const [old, ref] of known) if (!ref.deref()) known.delete(old);
      if (conversation) known.set(key, new WeakRef(conversation));
      return conversation;
    } finally {
      reading.delete(key);
    }
  }

  return async (key, read) => {
    const found = known.get(key)?.deref();
    if (found) return found;
    let one = reading.get(key);
    if (!one) reading.set(key, (one = readNext(key, read)));
    return one;
  };
}

/** The conversation that a request continues. `id` is the response's. */
export function conversationBefore(id: string, state: State, system: readonly string[]): ConversationBefore {
  const messages = messagesOf(state.history);
  const carried = carriedFrom(state);
  const after = { id: state.runId, hasProcesses: state.resources !== undefined };
  const before = { messages, system, after, ...(carried && { carried }) };
  if (state.phase.type !== 'tools') return before;
  const calls = state.phase.slots.map((slot) => ({
    wireId: (slot.type === 'asking' ? approvalIdFor : callIdFor)(id, slot.call.turn, slot.call.index),
    callId: slot.call.id,
    name: slot.call.name,
    ...(slot.type === 'settled' && { result: slot.result }),
    ...(slot.type === 'asking' && { needs: 'approval' as const }),
    ...(slot.type === 'queued' && { needs: 'nothing' as const }),
  }));
  return { ...before, open: { calls } };
}
