import { messagesOf, type Message, type UserMessage } from '@treadle/core';
import type { ConversationRecord, OwnedResponse, ResponseRecord } from '@treadle/store';
import { ApiError } from '../api-error.ts';
import { storedState } from '../engine/conversation.ts';
import type { ServerStore } from '../engine/engine.ts';
import type { RunCaller } from '../engine/tools.ts';
import { readRecord, type Reader } from '../engine/stored-reads.ts';
import { CONVERSATION_PREFIX, MESSAGE_PREFIX, RESPONSE_PREFIX } from '../ids.ts';
import { messageText, type Attachment } from './attachments.ts';
import type { AnswerPart, ChatUsage } from './events.ts';

/*
 * The chain of a conversation: one record for each message and its answer, which belong to one run. The conversation names the
 * newest record, its head, and a message replaces the head by compare and set.
 */

/** The stored form of a request. The store's records contain it, so its fields must not change. */
export interface StoredMessage {
  readonly conversation: string;
  readonly message: UserMessage;
  readonly attachments?: readonly Attachment[];
  readonly model?: string;
  readonly tools?: readonly string[];
  readonly onDisconnect: 'cancel' | 'continue';
  /** The number of the last event before those of this message. */
  readonly after: number;
  readonly key: string;
  readonly scopes: readonly string[];
}

/** The stored form of an answer. The store's records contain it, so its fields must not change. */
export interface StoredAnswer {
  readonly parts: readonly AnswerPart[];
  readonly error: { readonly code: string; readonly message: string } | null;
  readonly usage: ChatUsage;
}

/** The id of the record of a run. */
export function recordIdOf(runId: string): string {
  return MESSAGE_PREFIX + runId.slice(RESPONSE_PREFIX.length);
}

function runIdOf(recordId: string): string {
  return RESPONSE_PREFIX + recordId.slice(MESSAGE_PREFIX.length);
}

/** The ids of a message and its answer. They belong to one run. */
export function messageIds(runId: string): { readonly message: string; readonly answer: string } {
  const hex = runId.slice(RESPONSE_PREFIX.length);
  return { message: `msg_${hex}_user`, answer: `msg_${hex}_answer` };
}

/** Rejects with a 404 for a conversation of another tenant. */
export async function findConversation(
  { conversations: chains }: ServerStore,
  id: string,
  { tenant }: RunCaller,
): Promise<ConversationRecord> {
  const found = id.startsWith(CONVERSATION_PREFIX) ? await chains.get(tenant, id) : undefined;
  if (found) return found;
  const message = `There is no conversation ${JSON.stringify(id)}. It was deleted, or never existed.`;
  throw new ApiError(404, 'not_found_error', message, { param: 'conversation_id', code: 'conversation_not_found' });
}

/**
 * What `take` returns for each record of a conversation, oldest first. The records themselves are not held together, because
 * their attachments may be large.
 */
export async function fromRecords<T>(
  store: ServerStore,
  { id }: Pick<ConversationRecord, 'id'>,
  { tenant, hold }: Reader,
  take: (record: ResponseRecord) => T | Promise<T>,
): Promise<readonly T[]> {
  const taken: T[] = [];
  for (const response of await store.conversations.responses(id)) {
    let counted = 0;
    const count = (bytes: number): void => {
      hold?.(bytes);
      counted += bytes;
    };
    const record = await readRecord(store, response, { tenant, hold: hold && count });
    const one = record && (await take(record));
    if (one !== undefined) taken.push(one);
    if (counted === 0) continue;
    hold!(-counted);
    // A part of it is held longer.
    hold!(JSON.stringify(one).length);
  }
  return taken;
}

/** The records of a conversation without requests and responses, oldest first. */
export async function headsOf(
  { conversations: chains, responses: records }: ServerStore,
  { id, tenant }: Pick<ConversationRecord, 'id' | 'tenant'>,
): Promise<readonly OwnedResponse[]> {
  const heads: OwnedResponse[] = [];
  for (const response of await chains.responses(id)) {
    const head = await records.head(tenant, response);
    if (head) heads.push({ ...head, tenant });
  }
  return heads;
}

/** The newest record, without request and response; undefined if there is none. Rejects with a 409 while it is being created. */
export async function headOf(
  store: ServerStore,
  { id, tenant, head }: ConversationRecord,
): Promise<OwnedResponse | undefined> {
  if (head === undefined) return undefined;
  const record = await store.responses.head(tenant, head);
  if (record) return { ...record, tenant };
  // It is being created, or the process died before it was.
  if (await store.isDriven(runIdOf(head))) throw conversationBusy(id);
  return (await headsOf(store, { id, tenant })).at(-1);
}

/** The messages that the model gets before a new one. */
export async function historyOf(
  store: ServerStore,
  conversation: ConversationRecord,
  head: Pick<ResponseRecord, 'runId'> | undefined,
  reader: Reader,
): Promise<Message[]> {
  if (!head) return [];
  const last = await storedState(store, head.runId, reader);
  if (last) return [...messagesOf(last.history)];
  // A run that never started has no history of its own.
  const unstarted: Message[] = [];
  const chain = await headsOf(store, conversation);
  for (const { id, runId } of chain.toReversed()) {
    const state = await storedState(store, runId, reader);
    if (state) return [...messagesOf(state.history), ...unstarted];
    const record = await readRecord(store, id, reader);
    if (record) unstarted.unshift((record.request as StoredMessage).message);
  }
  return unstarted;
}

/** The messages of a run that has not started. */
export async function messagesOfUnstarted(
  store: ServerStore,
  { tenant, previous, request }: ResponseRecord,
  hold: Reader['hold'],
): Promise<readonly Message[]> {
  const { conversation, message } = request as StoredMessage;
  const chain = await store.conversations.get(tenant, conversation);
  const head = previous === undefined ? undefined : await store.responses.head(tenant, previous);
  return [...(chain && head ? await historyOf(store, chain, head, { tenant, hold }) : []), message];
}

/**
 * Stores a message of a new conversation, or of one that nobody has extended since it was read. Otherwise rejects with a 409.
 */
export async function createMessage(
  { conversations: chains, responses: records }: ServerStore,
  record: ResponseRecord,
  before: ConversationRecord | undefined,
): Promise<void> {
  const { id: response, tenant, createdAt } = record;
  const { conversation, message } = record.request as StoredMessage;
  const text = messageText(message);
  const head = before?.head !== undefined && { head: before.head };
  // They are written in this order, and together.
  const [, isExtended] = await Promise.all([
    before ? undefined : chains.create({ id: conversation, tenant, title: '', createdAt }),
    chains.extend(conversation, { response, ...head, text, at: createdAt }),
    records.create(record),
  ]);
  if (isExtended) return;
  // Another process must not resume it.
  await records.finish(response, { status: 'failed', response: null, at: createdAt });
  throw conversationBusy(conversation);
}

export function conversationBusy(id: string): ApiError {
  const message = `The conversation ${JSON.stringify(id)} has an answer in progress. Wait for its end, cancel it, or add a message to it with POST /v1/chat/{id}/messages.`;
  return new ApiError(409, 'invalid_request_error', message, { param: 'conversation_id', code: 'conversation_busy' });
}
