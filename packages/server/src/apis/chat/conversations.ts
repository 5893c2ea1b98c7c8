import { isPaused, TreadleError, waiting, type Answer, type ResultBlock } from '@treadle/core';
import { memoryLabel, OFF_LABEL, PRIVATE_LABEL } from '@treadle/core/memory';
import type { ConversationFilter, ConversationRecord, OwnedRequest, RequestRecord } from '@treadle/store';
import { ApiError, badRequest } from '../../api-error.ts';
import type { ServerStore } from '../../engine/engine.ts';
import type { EventSource } from '../../requests/event-log.ts';
import type { Numbered } from '../../requests/stored-streams.ts';
import { readRecord, type Reader } from '../../engine/stored-reads.ts';
import { isDrivenElsewhere } from '../../requests/interruption.ts';
import { whenLetGo } from '../../requests/let-go.ts';
import { checkMayActOn, sourcesOf, type StoredCaller } from '../../requests/run.ts';
import { projected } from '../../requests/projection.ts';
import { replayItems } from '../../requests/requests.ts';
import type { Caller } from '../../http/admission.ts';
import { inTurn } from '../../http/large-work.ts';
import { CONVERSATION_PREFIX, derivedConversationId, newConversationId, RESPONSE_PREFIX } from '../../ids.ts';
import {
  attachmentBytes,
  attachmentId,
  attachmentIn,
  messageText,
  resultAttachment,
  type AttachmentPlace,
} from './attachments.ts';
import {
  conversationBusy,
  findConversation,
  fromRecords,
  headOf,
  summariesOf,
  isChatRecord,
  messageIds,
  recordIdOf,
  runIdOf,
  type StoredAnswer,
  type StoredMessage,
} from '../../history/conversation-records.ts';
import {
  askedMessage,
  inputOfRecord,
  isItemsRecord,
  messagesOfItems,
  resultsIn,
  withDecisions,
  withResults,
} from '../../history/record-items.ts';
import type { ClientList } from '../../history/client-list.ts';
import { chatStreams } from './chat-streams.ts';
import {
  chatUsage,
  type Attachment,
  type ChatAnswer,
  type ChatAnswerMessage,
  type ChatMessage,
  type ChatStatus,
  type MemorySwitch,
  type NumberedEvent,
  type ToolCallPart,
} from './wire.ts';
import { askedIn, askRequest, chatProjection } from './projection.ts';
import { failChat, planResumedChat } from './drive-chat.ts';
import { createFork, startChat, type ChatRequest, type ChatStarter, type StartedChat } from './start-chat.ts';

/*
 * Conversations: lists of records (history/conversation-records.ts), with the events of all chats among them in one stream
 * (chat-streams.ts). A message starts a run (start-chat.ts), which is driven to its end (drive-chat.ts), if necessary by another
 * process. This file has what else can be done with a conversation.
 *
 * 1. A conversation has one run at a time. Its head is replaced by compare and set, so of two messages
 *    that are sent at the same time, one is rejected.
 * 2. Events are numbered per conversation. With `on_disconnect: "continue"` they are stored before anybody gets them, and
 *    every client follows the store. Otherwise they go to the client directly, and only their numbers are stored, until the
 *    run waits for an answer: what follows may come from another process, so it is stored.
 * 3. `done` is sent when the end of the run is stored and its lease is released: the next message can be sent at once, to any
 *    process. It is in the stream before that, so that a crash does not lose it, and readers wait for the end.
 */
export interface Conversations {
  /** Validates everything and stores the message. Rejects with an `ApiError`. */
  start(request: ChatRequest, caller: Caller): Promise<StartedChat>;
  /** The id of the conversation that a front end calls `chat`. It may not exist yet. */
  idOf(chat: string, caller: Caller): Promise<string>;
  list(filter: Omit<ConversationFilter, 'tenant'>, caller: Caller): Promise<readonly ConversationRecord[]>;
  /** Rejects with a 404 for a conversation of another tenant, like all that follow. */
  find(id: string, caller: Caller): Promise<ConversationRecord>;
  /** What its newest record says about memory; null if the server has none. */
  memoryOf(conversation: ConversationRecord): Promise<MemorySwitch | null>;
  messages(id: string, caller: Caller): Promise<readonly ChatMessage[]>;
  /** Rejects with a 404 if the conversation has no such attachment. */
  attachment(id: string, attachment: string, caller: Caller): Promise<Attachment & { readonly bytes: Buffer }>;
  /** Instructions apply from the next message on. An empty text removes them. */
  update(id: string, changes: ConversationChanges, caller: Caller): Promise<void>;
  /** Cancels the run that is in progress. */
  delete(id: string, caller: Caller): Promise<void>;
  /** A new conversation with the messages up to an answer, or with those before a message. Resolves to its id. */
  branch(id: string, messageId: string, caller: Caller): Promise<string>;
  /** Answers approvals and questions, and gives the results of calls of the client. `input`: a message that the model gets with them. Rejects with a 409 that says why if an answer cannot be used. */
  answer(id: string, answers: readonly (ChatAnswer | ClientResult)[], caller: Caller, input?: string): Promise<void>;
  /** Adds a message to the run in progress. It takes effect at the next turn. */
  steer(id: string, text: string, caller: Caller): Promise<void>;
  /** Resolves when the run has ended. */
  cancel(id: string, caller: Caller): Promise<void>;
  /**
   * The answer in progress, with its events so far. Undefined if there is none. `includeEnded`: the last answer, also if it has
   * ended.
   */
  progress(id: string, caller: Caller, options?: ProgressOptions): Promise<ChatProgress | undefined>;
  /**
   * The events of a conversation, which is not checked: call `find` first. Live while a run is in progress. A run whose process
   * has died is resumed.
   */
  events(id: string, caller: Caller): EventSource<Numbered<NumberedEvent>>;
}

/** The result of a call that the client has executed. `id`: of its `client_call`. */
export interface ClientResult {
  readonly id: string;
  readonly result: readonly ResultBlock[];
  readonly isError: boolean;
}

export interface ConversationChanges {
  readonly title?: string | undefined;
  readonly instructions?: string | undefined;
}

export interface ProgressOptions {
  readonly includeEnded?: boolean;
}

export interface ChatProgress {
  readonly runId: string;
  readonly events: readonly NumberedEvent[];
  /** The number of the last event before them. */
  readonly after: number;
}

export interface ConversationsOptions extends Omit<ChatStarter, 'streams'> {
  /** Aborts when the server shuts down. Readers can continue at another process, or after the restart. */
  readonly stopping: AbortSignal;
  /** A response of the Responses API was deleted with its conversation. */
  readonly onResponseDeleted: (response: string, tenant: string) => Promise<void>;
}

export function conversations({ stopping, ...options }: ConversationsOptions): Conversations {
  const { engine, stored, runs } = options;
  const { store } = engine;
  const { requests: records, conversations } = store;
  const streams = chatStreams(engine, stopping);
  const starter: ChatStarter = { ...options, streams };
  stored.register('message', {
    waits: 'for-client',
    plan: (taken, how) => planResumedChat(starter, taken, how),
    fail: (taken, ending) => failChat(starter, taken, ending),
    failed: ({ request }) => streams.wakeReaders((request as StoredMessage).conversation),
    createFork: (record, fork) => createFork(store, record, fork),
  });

  async function messagesIn(id: string, caller: Caller): Promise<readonly ChatMessage[]> {
    const found = await findConversation(store, id, caller);
    const taken = await fromRecords(store, found, caller, async (record) => ({
      messages: await messagesOfRecord(store, record, caller),
      results: isChatRecord(record.id) ? [] : resultsIn(inputOfRecord(record)),
    }));
    const messages = taken.map((one) => one.messages);
    const results = new Map(taken.flatMap((one) => one.results));
    // What is followed by another record waits no more.
    return withResults([...messages.slice(0, -1).flat().map(continuedMessage), ...(messages.at(-1) ?? [])], results);
  }

  async function findAttachment(
    id: string,
    attachment: string,
    caller: Caller,
  ): Promise<Attachment & { readonly bytes: Buffer }> {
    const { id: found } = await findConversation(store, id, caller);
    const place = attachmentIn(attachment);
    const records = place ? await conversations.responses(found) : [];
    // The record of a response has the id of its run.
    const record = records.find((one) => one === recordIdOf(place!.runId) || one === place!.runId);
    const content = record === undefined ? undefined : await attachmentAt(store, record, place!, caller);
    if (content) return content;
    const problem = `This conversation has no attachment ${JSON.stringify(attachment)}.`;
    throw new ApiError(404, 'not_found_error', problem, { param: 'attachment_id', code: 'attachment_not_found' });
  }

  /** The run that a conversation waits for. */
  async function currentRun(id: string, caller: Caller): Promise<string> {
    const head = await headOf(store, await findConversation(store, id, caller));
    if (head?.status === 'in_progress') return head.runId;
    const message = `The conversation ${JSON.stringify(id)} has no answer in progress. Send a message with POST /v1/chat.`;
    throw new ApiError(409, 'invalid_request_error', message, { param: 'conversation_id', code: 'conversation_idle' });
  }

  async function progressOf(
    id: string,
    caller: Caller,
    { includeEnded = false }: ProgressOptions = {},
  ): Promise<ChatProgress | undefined> {
    const found = await conversations.get(caller.tenant, id);
    const head = found && (await headOf(store, found));
    if (!head || !isChatRecord(head.id) || (head.status !== 'in_progress' && !includeEnded)) return undefined;
    const record = await readRecord(store, head.id, caller);
    if (!record) return undefined;
    const { after } = record.request as StoredMessage;
    return { runId: head.runId, events: await streams.eventsAfter(id, after, caller.hold), after };
  }

  /**
   * An edit or another answer replaces the answer in progress, unless the client still shows it. So does any message if the
   * client has deleted an answer that waits for people: nobody could answer it there.
   */
  async function stopReplaced({ createAs = '', list }: ChatRequest, caller: Caller): Promise<void> {
    if (!list) return;
    const found = await conversations.get(caller.tenant, createAs);
    const head = found && (await headOf(store, found));
    if (head?.status !== 'in_progress' || !isChatRecord(head.id)) return;
    if (list.messages.some(({ role, runId }) => runId === head.runId && (list.replaces || role === 'answer'))) return;
    if (list.replaces || (await hasDeletedAnswer(list, head, caller))) await stopRun(head, caller);
  }

  async function hasDeletedAnswer({ messages }: ClientList, head: OwnedRequest, caller: Caller): Promise<boolean> {
    const [run] = await store.list({ runId: head.runId, limit: 1 });
    if (run?.status !== 'paused') return false;
    const record = await readRecord(store, head.id, caller);
    const { clientId } = (record?.request ?? {}) as Partial<StoredMessage>;
    return messages.some(
      ({ role, id, runId }) => role === 'user' && (runId === head.runId || (clientId !== undefined && id === clientId)),
    );
  }

  async function stopRun({ id, runId }: Pick<RequestRecord, 'id' | 'runId'>, caller: Caller): Promise<void> {
    await runs.cancel(runId, caller);
    await stored.whenEnded(id);
  }

  /** Its client should not have to wait until this server looks for such runs. */
  async function resumeLost(id: string, { tenant }: Caller): Promise<void> {
    const found = await conversations.get(tenant, id);
    const head = found && (await headOf(store, found));
    if (head?.status === 'in_progress') await stored.recoverRecord(head);
  }

  async function answerChat(
    id: string,
    answers: readonly (ChatAnswer | ClientResult)[],
    caller: Caller,
    input?: string,
  ): Promise<void> {
    const { id: found } = await findConversation(store, id, caller);
    const known = new Set(await conversations.responses(found));
    const byRun = new Map<string, Answer[]>();
    for (const [index, answer] of answers.entries()) {
      const asked = askedIn(answer.id);
      // The record of a response has the id of its run.
      const isKnown = asked && (known.has(recordIdOf(asked.runId)) || known.has(asked.runId));
      if (!isKnown) throw unknownAsk(answer.id, index);
      byRun.set(asked.runId, [...(byRun.get(asked.runId) ?? []), answerOf(answer, asked.effect)]);
    }
    for (const [runId, some] of byRun) await runs.answer(runId, some, caller, input);
  }

  /** Throws a 403 if the key may not act on a run of a conversation. Items that were added to it have none. */
  async function checkDeletable(response: string, caller: Caller): Promise<void> {
    if (isItemsRecord(response)) return;
    await checkMayActOn(store, runIdOf(response), caller);
  }

  async function deleteConversation(id: string, caller: Caller): Promise<void> {
    const found = await findConversation(store, id, caller);
    const all = await conversations.responses(id);
    for (const response of all) await checkDeletable(response, caller);
    const head = await headOf(store, found).catch(() => undefined);
    if (head?.status === 'in_progress') await stopRun(head, caller);
    const hasEnded = async (): Promise<boolean> => {
      const heads = await Promise.all(all.map((response) => records.head(caller.tenant, response)));
      return heads.every((one) => one?.status !== 'in_progress');
    };
    try {
      await whenLetGo(hasEnded, () => conversations.delete(caller.tenant, id));
    } catch (error) {
      throw isDrivenElsewhere(error) ? conversationBusy(id) : error;
    }
    streams.wakeReaders(id);
    for (const response of all) {
      // A branch may have it too.
      if (await records.head(caller.tenant, response)) continue;
      if (response.startsWith(RESPONSE_PREFIX)) await options.onResponseDeleted(response, caller.tenant);
      else await engine.kept?.drop(runIdOf(response));
    }
  }

  async function branchFrom(id: string, messageId: string, caller: Caller): Promise<string> {
    const found = await findConversation(store, id, caller);
    const all = await summariesOf(store, found);
    const at = all.findIndex(({ runId }) => Object.values(messageIds(runId)).includes(messageId));
    if (at === -1) {
      throw badRequest(
        `The conversation ${JSON.stringify(id)} has no message ${JSON.stringify(messageId)}.`,
        'message_id',
        'message_not_found',
      );
    }
    const isAnswer = messageIds(all[at]!.runId).answer === messageId;
    if (isAnswer && all[at]!.status === 'in_progress') throw conversationBusy(id);
    const last = all[isAnswer ? at : at - 1];
    const branch = newConversationId();
    const { tenant, title, instructions } = found;
    await conversations.create({
      id: branch,
      tenant,
      title,
      createdAt: Date.now(),
      ...(instructions !== undefined && { instructions }),
      ...(last && { branchOf: { id, upTo: last.id } }),
    });
    return branch;
  }

  return {
    async start(request, caller) {
      await stopReplaced(request, caller);
      return startChat(starter, request, caller);
    },
    async idOf(chat, { tenant }) {
      const isOwn = chat.startsWith(CONVERSATION_PREFIX) && (await conversations.get(tenant, chat)) !== undefined;
      return isOwn ? chat : derivedConversationId(tenant, chat);
    },
    list: (filter, { tenant }) => conversations.list({ ...filter, tenant }),
    find: (id, caller) => findConversation(store, id, caller),
    async memoryOf({ tenant, head }) {
      if (!engine.memory) return null;
      const record = head === undefined ? undefined : await readRecord(store, head, { tenant });
      const { facts } = (record?.request ?? {}) as Partial<StoredCaller>;
      const label = memoryLabel(facts?.labels);
      return label === PRIVATE_LABEL.memory ? 'incognito' : label === OFF_LABEL.memory ? 'off' : 'on';
    },
    messages: messagesIn,
    attachment: findAttachment,
    async update(id, { title, instructions }, caller) {
      await findConversation(store, id, caller);
      if (title !== undefined) await conversations.rename(caller.tenant, id, title);
      if (instructions !== undefined) await conversations.setInstructions(caller.tenant, id, instructions);
    },
    delete: deleteConversation,
    branch: branchFrom,
    answer: answerChat,
    steer: async (id, text, caller) => runs.send(await currentRun(id, caller), text, caller),
    progress: progressOf,
    cancel: async (id, caller) => void (await runs.cancel(await currentRun(id, caller), caller)),
    events(id, caller) {
      // If it cannot be resumed now, it is later.
      resumeLost(id, caller).catch((error: unknown) => caller.log.debug({ err: error }, 'an answer was not resumed'));
      return streams.events(id, caller);
    },
  };
}

/** A message and its answer, as far as it exists. */
async function messagesOfRecord(
  store: ServerStore,
  record: RequestRecord,
  reader: Reader,
): Promise<readonly ChatMessage[]> {
  const { runId, createdAt, status, response } = record;
  const isChat = isChatRecord(record.id);
  if (!isChat && status !== 'in_progress') {
    return withDecisions(messagesOfItems(record), await decidedCalls(store, record, reader));
  }
  const ids = messageIds(runId);
  const asked = (isChat ? messageOfChat(record) : askedMessage(record)) ?? [];
  const { model = null, after = 0, warnings = [] } = record.request as Partial<StoredMessage>;
  const common = { created_at: createdAt, run_id: runId, model, events_after: after, warnings };
  const answer = { id: ids.answer, role: 'assistant', ...common } as const;
  if (status !== 'in_progress') {
    const { parts = [], error = null, usage = null, narrowedBy = [] } = (response ?? {}) as Partial<StoredAnswer>;
    const ended = { ...answer, status: status as ChatStatus, parts, error, usage, waiting: [] };
    return [asked, { ...ended, ...narrowed(narrowedBy) }].flat();
  }
  const { items, state } = await replayItems(store, runId, reader);
  const parts = projected(chatProjection(runId), items);
  const all = waiting(state).flatMap((wait) => askRequest(runId, wait) ?? []);
  const open = all.filter((one) => one.type !== 'client_call');
  const current = isPaused(state) && all.length > 0 ? 'waiting' : 'in_progress';
  const usage = chatUsage(state.usage);
  const begun = { ...answer, status: current, parts, error: null, usage, waiting: open } as const;
  return [asked, { ...begun, ...narrowed(sourcesOf(state.narrowing)) }].flat();
}

function narrowed(by: readonly string[]): Pick<ChatAnswerMessage, 'narrowed_by'> {
  return by.length > 0 ? { narrowed_by: by } : {};
}

/** The calls of a response that has ended; empty if people were asked about none of them and the policy denied none. */
async function decidedCalls(
  store: ServerStore,
  { id, runId }: RequestRecord,
  { tenant, hold }: Reader,
): Promise<readonly ToolCallPart[]> {
  if (isItemsRecord(id)) return [];
  const found = [await store.entriesWith(runId, 'type', 'ask'), await store.entriesWith(runId, 'type', 'deny')];
  // The first entry may have the rules of the policy.
  if (!found.flat().some((seq) => seq > 0)) return [];
  let counted = 0;
  const count = (bytes: number): void => {
    hold!(bytes);
    counted += bytes;
  };
  try {
    const { items } = await replayItems(store, runId, { tenant, hold: hold && count });
    return projected(chatProjection(runId), items).filter((part) => part.type === 'tool_call');
  } catch (error) {
    // The response is stored apart from its run.
    if (!(error instanceof TreadleError && error.code === 'journal-damaged')) throw error;
    return [];
  } finally {
    if (counted > 0) hold!(-counted);
  }
}

async function attachmentAt(
  store: ServerStore,
  recordId: string,
  place: AttachmentPlace,
  reader: Reader,
): Promise<(Attachment & { readonly bytes: Buffer }) | undefined> {
  if (place.in) return resultAttachment(await storedResult(store, place.runId, place.in, reader), place.index);
  const record = await readRecord(store, recordId, reader);
  const { message, attachments = [] } = (record?.request ?? {}) as Partial<StoredMessage>;
  const described = attachments[place.index];
  return message && described && { ...described, bytes: attachmentBytes(message, described, place.index) };
}

/** The content of the result of a call. Only its entry is read, and those that share a page with it. */
async function storedResult(
  store: ServerStore,
  runId: string,
  { turn, call }: NonNullable<AttachmentPlace['in']>,
  { tenant, hold }: Reader,
): Promise<readonly ResultBlock[]> {
  for (const kind of ['tool', 'verify']) {
    const found = await store.entriesWith(runId, 'effect', `t${turn}.${kind}.${call}`);
    // A call has at most one result, after what else is recorded about it.
    for (const seq of found.toReversed()) {
      hold?.(await store.pageSize(runId, seq));
      const [{ event } = {}] = await inTurn(() => store.readPage(runId, seq), tenant);
      if (event?.type === 'client-result-given') return event.content;
      if (event?.type === 'tool-settled' && event.result.type === 'result') return event.result.content;
    }
  }
  return [];
}

function messageOfChat({ runId, createdAt, request }: RequestRecord): ChatMessage {
  const { message, attachments = [] } = request as StoredMessage;
  return {
    id: messageIds(runId).message,
    role: 'user',
    created_at: createdAt,
    content: messageText(message),
    attachments: attachments.map((attachment, index) => ({ id: attachmentId({ runId, index }), ...attachment })),
  };
}

function continuedMessage(message: ChatMessage): ChatMessage {
  return message.role === 'assistant' && message.status === 'waiting' ? { ...message, status: 'completed' } : message;
}

function answerOf(answer: ChatAnswer | ClientResult, effect: string): Answer {
  if ('result' in answer) return { type: 'result', effect, content: answer.result, isError: answer.isError };
  const signed = { effect, ...(answer.signature !== undefined && { signature: answer.signature }) };
  if ('answer' in answer) return { type: 'answer', ...signed, value: answer.answer };
  const { approved, digest, reason, for_run: forRun } = answer;
  const optional = { ...(reason !== undefined && { reason }), ...(forRun !== undefined && { forRun }) };
  return { type: 'approval', ...signed, digest, approved, ...optional };
}

function unknownAsk(id: string, index: number): ApiError {
  const message = `This conversation has no approval or question ${JSON.stringify(id)}. Use the id of its event.`;
  return new ApiError(404, 'not_found_error', message, { param: `answers[${index}].id`, code: 'request_not_found' });
}
