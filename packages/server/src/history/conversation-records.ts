import type { StoredCaller } from '../requests/run.ts';
import { TreadleError, type Memory, type UserMessage } from '@treadle/core';
import type { ConversationRecord, IdempotencyKey, OwnedRequest, RequestRecord } from '@treadle/store';
import { ApiError } from '../api-error.ts';
import type { ServerStore } from '../engine/engine.ts';
import type { FunctionTool, RunCaller } from '../engine/tools.ts';
import { readRecord, type Reader } from '../engine/stored-reads.ts';
import { CONVERSATION_PREFIX, MESSAGE_PREFIX, newConversationId, RESPONSE_PREFIX } from '../ids.ts';
import type { AnswerPart, Attachment, ChatProblem, ChatUsage } from '../apis/chat/wire.ts';

/*
 * A conversation is a list of records: one for each message and its answer, which belong to one run, for each response of the
 * Responses API, and for each list of items that a client has added. It names the newest record, its head, and a new record
 * replaces the head by compare and set.
 */

/** The stored form of a request. The store's records contain it, so its fields must not change. */
export interface StoredMessage extends StoredCaller {
  readonly conversation: string;
  readonly message: UserMessage;
  /** The id that its client has for the message. Absent: it has none. */
  readonly clientId?: string;
  /** Its client does not show the message, and adds the answer to that before it. */
  readonly continues?: true;
  readonly attachments?: readonly Attachment[];
  readonly model?: string;
  readonly tools?: readonly string[];
  /** Those that the client executes. */
  readonly functions?: readonly FunctionTool[];
  /** What the client says that tools remember. */
  readonly memory?: Memory;
  /** The device whose tools the model gets. */
  readonly device?: string;
  /** The texts of the system and developer messages of the conversation so far. */
  readonly system?: readonly string[];
  /** The instructions of this message only. */
  readonly instructions?: readonly string[];
  /** About the message. Absent: there are none. */
  readonly warnings?: readonly ChatProblem[];
  /** A person answers approvals. */
  readonly approvals?: 'ask';
  /** Sources of narrowings that do not apply any more. */
  readonly lift?: readonly string[];
  readonly onDisconnect: 'cancel' | 'continue';
  /** The number of the last event before those of this message. */
  readonly after: number;
}

/** The stored form of an answer. The store's records contain it, so its fields must not change. */
export interface StoredAnswer {
  readonly parts: readonly AnswerPart[];
  readonly error: { readonly code: string; readonly message: string } | null;
  readonly usage: ChatUsage;
  /** The sources of what narrows the next answer. Absent: there are none. */
  readonly narrowedBy?: readonly string[];
}

/** The id of the record of a run. */
export function recordIdOf(runId: string): string {
  return MESSAGE_PREFIX + runId.slice(RESPONSE_PREFIX.length);
}

export function runIdOf(recordId: string): string {
  return isChatRecord(recordId) ? RESPONSE_PREFIX + recordId.slice(MESSAGE_PREFIX.length) : recordId;
}

/** Whether a record is that of a message and its answer. The others are responses, and items that a client has added. */
export function isChatRecord(recordId: string): boolean {
  return recordId.startsWith(MESSAGE_PREFIX);
}

/** The ids of a message and its answer. They belong to one run. */
export function messageIds(runId: string): { readonly message: string; readonly answer: string } {
  const hex = runId.slice(RESPONSE_PREFIX.length);
  return { message: `msg_${hex}_user`, answer: `msg_${hex}_answer` };
}

/** The run that the id of a message or of an answer names. Undefined for an id that this server did not make. */
export function runOfMessage(id: string, end: 'user' | 'answer'): string | undefined {
  const [, hex, found] = /^msg_([0-9a-f]{32})_(user|answer)$/.exec(id) ?? [];
  return found === end ? RESPONSE_PREFIX + hex : undefined;
}

/** Rejects with a 404 for a conversation of another tenant. */
export async function findConversation(
  { conversations }: ServerStore,
  id: string,
  { tenant }: RunCaller,
  param = 'conversation_id',
): Promise<ConversationRecord> {
  const found = id.startsWith(CONVERSATION_PREFIX) ? await conversations.get(tenant, id) : undefined;
  if (found) return found;
  const message = `There is no conversation ${JSON.stringify(id)}. It was deleted, or never existed.`;
  throw new ApiError(404, 'not_found_error', message, { param, code: 'conversation_not_found' });
}

/**
 * What `take` returns for each record of a conversation, oldest first. The records themselves are not held together, because
 * their attachments may be large.
 */
export async function fromRecords<T>(
  store: ServerStore,
  { id }: Pick<ConversationRecord, 'id'>,
  reader: Reader,
  take: (record: RequestRecord) => T | Promise<T>,
): Promise<readonly T[]> {
  const taken: T[] = [];
  for (const response of await store.conversations.responses(id)) {
    const one = await fromRecord(store, response, reader, take);
    if (one !== undefined) taken.push(one);
  }
  return taken;
}

/** What `take` returns for one record; undefined if there is no such record. The record is counted until then. */
export async function fromRecord<T>(
  store: Pick<ServerStore, 'requests'>,
  id: string,
  { tenant, hold }: Reader,
  take: (record: RequestRecord) => T | Promise<T>,
): Promise<T | undefined> {
  let counted = 0;
  const count = (bytes: number): void => {
    hold?.(bytes);
    counted += bytes;
  };
  const record = await readRecord(store, id, { tenant, hold: hold && count });
  const one = record && (await take(record));
  if (counted === 0) return one;
  hold!(-counted);
  // A part of it is held longer.
  if (one !== undefined) hold!(JSON.stringify(one).length);
  return one;
}

/** The summaries of the records of a conversation, without requests and responses, oldest first. */
export async function summariesOf(
  { conversations, requests: records }: ServerStore,
  { id, tenant }: Pick<ConversationRecord, 'id' | 'tenant'>,
): Promise<readonly OwnedRequest[]> {
  const summaries: OwnedRequest[] = [];
  for (const response of await conversations.responses(id)) {
    const summary = await records.head(tenant, response);
    if (summary) summaries.push({ ...summary, tenant });
  }
  return summaries;
}

/** The summary of the newest record; undefined if there is none. Rejects with a 409 while it is being created. */
export async function headOf(
  store: ServerStore,
  { id, tenant, head }: ConversationRecord,
  param?: string,
): Promise<OwnedRequest | undefined> {
  if (head === undefined) return undefined;
  const record = await store.requests.head(tenant, head);
  if (record) return { ...record, tenant };
  // It is being created, or the process died before it was.
  if (await store.isDriven(runIdOf(head))) throw conversationBusy(id, param);
  return (await summariesOf(store, { id, tenant })).at(-1);
}

/** A record that becomes the newest of a conversation. */
export interface AddedRecord {
  readonly record: RequestRecord;
  readonly conversation: string;
  /** The conversation as it was read. Absent: it is new. */
  readonly before: ConversationRecord | undefined;
  /** The record follows an earlier one, or none. A branch keeps the records so far. Absent: it follows the newest one. */
  readonly follows?: { readonly after: string | undefined } | undefined;
  /** The text by which the record is found. */
  readonly text: string;
  /** The title of the conversation, if it has none. */
  readonly title: string;
  readonly metadata?: Readonly<Record<string, string>>;
  /** The instructions of a new conversation. */
  readonly instructions?: string | undefined;
  readonly keys?: readonly IdempotencyKey[];
  /** The list in the request, as `create` of the store takes it. */
  readonly input?: readonly unknown[];
}

/**
 * Stores a record of a new conversation, or of one that nobody has extended since it was read. Otherwise rejects with a 409,
 * and the record does not exist.
 */
export async function addToConversation(store: ServerStore, added: AddedRecord): Promise<void> {
  try {
    await writeRecord(store, added);
  } catch (error) {
    await store.requests.delete(added.record.tenant, added.record.id).catch(() => false);
    throw isTaken(error) && !added.before ? conversationBusy(added.conversation) : error;
  }
}

async function writeRecord(
  store: ServerStore,
  { record, conversation, before, follows, text, title, metadata, instructions, keys, input }: AddedRecord,
): Promise<void> {
  const { id: response, tenant, createdAt } = record;
  const head = before?.head !== undefined && { head: before.head };
  const after = follows?.after !== undefined && { after: follows.after };
  const branch = follows && { branch: { id: newConversationId(), ...after } };
  const given = { ...(metadata && { metadata }), ...(instructions && { instructions }) };
  const created = { id: conversation, tenant, title: '', createdAt, ...given };
  const { conversations, requests: records } = store;
  const [, isExtended] = await store.together(() =>
    Promise.all([
      before ? undefined : conversations.create(created),
      conversations.extend(conversation, { response, ...head, ...branch, text, title, at: createdAt }),
      records.create(record, keys, input),
    ]),
  );
  if (isExtended) return;
  // Another process must not resume it.
  await records.finish(response, { status: 'failed', response: null, at: createdAt, releaseKey: true });
  throw conversationBusy(conversation);
}

/** Another process has created the conversation since. */
function isTaken(error: unknown): boolean {
  return error instanceof TreadleError && error.code === 'run-exists';
}

export function conversationBusy(id: string, param = 'conversation_id'): ApiError {
  const message = `The conversation ${JSON.stringify(id)} has an answer in progress. Wait for its end, cancel it, or add a message to it with POST /v1/chat/{id}/messages.`;
  return new ApiError(409, 'invalid_request_error', message, { param, code: 'conversation_busy' });
}

export function isBusy(error: unknown): boolean {
  return error instanceof ApiError && error.code === 'conversation_busy';
}
