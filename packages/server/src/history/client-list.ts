import type { ConversationRecord, RequestRecord } from '@treadle/store';
import type { ServerStore } from '../engine/engine.ts';
import { readRecord, type Reader } from '../engine/stored-reads.ts';
import { withIds } from '../apis/responses/parse-input.ts';
import type { InputItem } from '../apis/responses/wire.ts';
import {
  conversationBusy,
  fromRecord,
  isChatRecord,
  recordIdOf,
  type StoredAnswer,
  type StoredMessage,
} from './conversation-records.ts';
import {
  askedMessage,
  inputOfRecord,
  isItemsRecord,
  messagesOfItems,
  outputOfRecord,
  type StoredItems,
} from './record-items.ts';

/*
 * A front end sends all messages that it shows, and the model gets these: no message that the client has deleted, and none
 * twice. So the list and the records of the conversation are compared from the beginning.
 *
 * 1. What both have stays as it is. The server's record counts, whatever the client says about its content.
 * 2. The records after that leave the conversation.
 * 3. The messages after that become items of the conversation. For those of a run of the tenant the record counts. The others
 *    are what the client says, as in an API without stored conversations. They have the same ids when they are sent again, so
 *    they are found.
 */

/** A message of the list of a client, or an answer that is several messages there. */
export interface ListedMessage {
  readonly role: 'user' | 'answer';
  /** Of the client or the server. Absent: it has none. */
  readonly id: string | undefined;
  /** The run that it belongs to, if its id is one of the server. The run may not exist. */
  readonly runId: string | undefined;
  /** The client read it from the stream of an answer in progress, and may not have what was before. */
  readonly isResumed?: boolean;
  /** What the client says about its content. The ids are for `withIds`. Throws a 400. */
  readonly items: () => readonly InputItem[];
}

/** The messages of a client before the new one. */
export interface ClientList {
  readonly messages: readonly ListedMessage[];
  /** The user has edited the message, or wants another answer to it. */
  readonly replaces: boolean;
}

/** What a new message of a conversation follows. */
export interface ListPlace {
  /** The id of the last record that the list has too. Absent: there is none. */
  readonly after: string | undefined;
  /** The messages of the list after it. */
  readonly given: readonly InputItem[];
}

/** Compares the list of a client with a conversation. `conversation`: undefined if there is no such conversation. */
export async function placeOfList(
  store: ServerStore,
  conversation: ConversationRecord | undefined,
  { messages }: ClientList,
  reader: Reader,
): Promise<ListPlace> {
  const listed = withoutRepeated(messages);
  const records = conversation ? await store.conversations.responses(conversation.id) : [];
  const resumed = records.findIndex((id) => listed[0]?.isResumed && isRecordOf(id, listed[0].runId));
  let after = records[resumed];
  let next = resumed === -1 ? 0 : 1;
  for (const id of records.slice(resumed + 1)) {
    const from = { listed, next, previous: after };
    const count = await fromRecord(store, id, reader, (record) =>
      isItemsRecord(id) ? countOfItems(store, record, from, reader) : countOfRun(record, from),
    );
    // The process died before it created the record.
    if (count === undefined) continue;
    if (count === -1) break;
    after = id;
    next += count;
  }
  const given = await itemsOfList(store, listed.slice(next), reader);
  return { after, given: withIds(given, after) };
}

function isRecordOf(id: string, runId: string | undefined): boolean {
  return runId !== undefined && (id === recordIdOf(runId) || id === runId);
}

/** The ids of the items of a conversation are unique. */
function withoutRepeated(messages: readonly ListedMessage[]): readonly ListedMessage[] {
  const seen = new Set<string>();
  return messages.filter(({ role, runId }, index) => {
    if (runId === undefined) return !isInput(messages, index);
    const key = `${role} ${runId}`;
    return !seen.has(key) && seen.add(key);
  });
}

/** Whether a message was sent while a run was in progress, which answers it. */
function isInput(messages: readonly ListedMessage[], index: number): boolean {
  const before = messages[index - 1]?.runId;
  return messages[index]!.role === 'user' && before !== undefined && before === messages[index + 1]?.runId;
}

/** A list of which the first messages were found. */
interface ListRest {
  readonly listed: readonly ListedMessage[];
  /** The index of the first one of the others. */
  readonly next: number;
  /** The record that they follow. */
  readonly previous: string | undefined;
}

/** How many of the next messages are those of a run; -1 if they are others. */
function countOfRun(record: RequestRecord, { listed, next }: ListRest): number {
  const [first, second] = [listed[next], listed[next + 1]];
  const isAnswer = (message: ListedMessage | undefined): boolean =>
    message?.role === 'answer' && isRecordOf(record.id, message.runId);
  const { continues } = record.request as Partial<StoredMessage>;
  // The client has the answer as a part of that before, or has read it from a stream, or both messages from the server.
  if (continues && isAnswer(first)) return 1;
  if (continues && !isRecordOf(record.id, first?.runId)) return next === 0 ? -1 : 0;
  if (first?.role !== 'user') return isAnswer(first) && !hasMessage(record) ? 1 : -1;
  if (!isMessageOf(record, first)) return -1;
  if (isAnswer(second)) return 2;
  return hasNoAnswer(record) ? 1 : -1;
}

function hasMessage(record: RequestRecord): boolean {
  return isChatRecord(record.id) || askedMessage(record) !== undefined;
}

/** The client of a message without an id of its own may have any. */
function isMessageOf(record: RequestRecord, { id, runId }: ListedMessage): boolean {
  if (runId !== undefined) return isRecordOf(record.id, runId);
  const { clientId } = record.request as Partial<StoredMessage>;
  return hasMessage(record) && (clientId === undefined || clientId === id);
}

/** Nothing of the answer was shown, so the client may not have it. */
function hasNoAnswer({ id, status, response }: RequestRecord): boolean {
  if (!isChatRecord(id) || status === 'in_progress') return false;
  return ((response ?? { parts: [] }) as StoredAnswer).parts.length === 0;
}

/** How many of the next messages are items that were added; -1 if they are others. */
async function countOfItems(
  store: ServerStore,
  record: RequestRecord,
  { listed, next, previous }: ListRest,
  reader: Reader,
): Promise<number> {
  const shown = messagesOfItems(record);
  if (shown.every(({ id }, index) => listed[next + index]?.id === id)) return shown.length;
  const { items } = record.response as StoredItems;
  const sent: InputItem[] = [];
  let count = 0;
  while (sent.length < items.length && next + count < listed.length) {
    for (const item of await itemsOfList(store, [listed[next + count]!], reader)) sent.push(item);
    count += 1;
  }
  const known = withIds(sent, previous);
  return known.length === items.length && known.every(({ id }, index) => id === items[index]!.id) ? count : -1;
}

async function itemsOfList(
  store: ServerStore,
  messages: readonly ListedMessage[],
  reader: Reader,
): Promise<readonly InputItem[]> {
  const items: InputItem[] = [];
  for (const { role, runId, items: sent } of messages) {
    const record = runId === undefined ? undefined : await recordOfRun(store, runId, reader);
    if (record?.status === 'in_progress') {
      const { conversation = record.id } = record.request as Partial<StoredMessage>;
      throw conversationBusy(conversation);
    }
    const known = record && (role === 'user' ? inputOfRecord(record) : outputOfRecord(record).filter(isComplete));
    for (const item of known ?? sent()) items.push(item);
  }
  return items;
}

/** The model does not get a text that it did not complete. */
function isComplete(item: InputItem): boolean {
  return (item.type !== 'message' && item.type !== 'reasoning') || item.status !== 'incomplete';
}

async function recordOfRun(store: ServerStore, runId: string, reader: Reader): Promise<RequestRecord | undefined> {
  return (await readRecord(store, recordIdOf(runId), reader)) ?? (await readRecord(store, runId, reader));
}
