import type { Memory, UserMessage } from '@treadle/core';
import { PRIVATE_LABEL } from '@treadle/core/memory';
import type { ConversationRecord, RequestRecord } from '@treadle/store';
import type { Capacity, ServerStore } from '../../engine/engine.ts';
import { notDone, STORE_FAILED } from '../../requests/interruption.ts';
import type { ForkedRun, RecordToStore } from '../../requests/requests.ts';
import { storedCaller, type RunPlan } from '../../requests/run.ts';
import { readRecord } from '../../engine/stored-reads.ts';
import type { FunctionTool } from '../../engine/tools.ts';
import type { Caller } from '../../http/admission.ts';
import { unlistedDevice } from '../devices/calls.ts';
import { newConversationId, newResponseId } from '../../ids.ts';
import type { Runs } from '../runs/runs.ts';
import { messageText } from './attachments.ts';
import {
  addToConversation,
  conversationBusy,
  findConversation,
  headOf,
  recordIdOf,
  type AddedRecord,
  type StoredMessage,
} from '../../history/conversation-records.ts';
import { searchText } from '../../history/record-items.ts';
import type { Deliver } from './chat-streams.ts';
import { placeOfList, type ClientList, type ListPlace } from '../../history/client-list.ts';
import { recordOfItems } from './conversation-items.ts';
import { attachmentWarnings, driveChat, firstEvents, planMessage, type ChatDriver } from './drive-chat.ts';
import type { Attachment, MemorySwitch } from './wire.ts';
import { messageTitle } from './titles.ts';

/** What starts the runs of conversations. */
export interface ChatStarter extends ChatDriver {
  readonly runs: Runs;
}

/** A validated request for an answer. */
export interface ChatRequest {
  /** Absent: a new conversation. */
  readonly conversation?: string;
  /** Instead of `conversation`: this one, which is created if it does not exist. No other tenant can have it. */
  readonly createAs?: string;
  /** Its first block is the text, the others are the attachments. */
  readonly message: UserMessage;
  /** The id that the client has for the message. */
  readonly clientId?: string;
  /** The client does not show the message: it has asked to continue its last answer. */
  readonly continues?: true;
  /** The messages of the client before it. Absent: those of the conversation. */
  readonly list?: ClientList;
  /** For this message only. */
  readonly instructions?: readonly string[];
  /** Of a new conversation: what the model is told in all of it. */
  readonly told?: string;
  readonly attachments?: readonly Attachment[];
  readonly model?: string;
  /** Names of tools of the server. Absent: its default tools. */
  readonly tools?: readonly string[];
  /** Those that the client executes. */
  readonly functions?: readonly FunctionTool[];
  /** What the client says that tools remember. */
  readonly memory?: Memory;
  /** The device whose tools the model gets. */
  readonly device?: string;
  /** A person answers approvals: `Engine.askingPolicy` judges the calls, if the server has no keys. */
  readonly approvals?: 'ask';
  /** Sources of narrowings that do not apply any more. */
  readonly lift?: readonly string[];
  /** What the conversation uses of the memory of the server. Absent: the same as before. */
  readonly uses?: MemorySwitch;
  readonly onDisconnect: 'cancel' | 'continue';
}

export interface StartedChat {
  readonly conversation: string;
  /** Sends the events until the run has ended or the client has disconnected (`signal`). */
  run(deliver: Deliver, signal: AbortSignal): Promise<void>;
}

/** Validates everything and stores the message. Rejects with an `ApiError`. */
export async function startChat(starter: ChatStarter, request: ChatRequest, caller: Caller): Promise<StartedChat> {
  const { engine, stored, histories } = starter;
  const { store } = engine;
  const { tenant } = caller;
  const { createAs, message, clientId, continues, list, instructions = [] } = request;
  const { attachments, model, tools, functions, memory, device, approvals, lift, uses, onDisconnect } = request;
  let counted = 0;

  async function planNew(hold: Capacity['hold']) {
    const count = (bytes: number): void => {
      hold(bytes);
      counted += bytes;
    };
    const existing = createAs === undefined ? undefined : await store.conversations.get(tenant, createAs);
    const before =
      request.conversation === undefined ? existing : await findConversation(store, request.conversation, caller);
    const head = before && (await headOf(store, before));
    if (before && head?.status === 'in_progress') throw conversationBusy(before.id);
    const id = before?.id ?? createAs ?? newConversationId();
    const reader = { tenant, hold: count };
    const place = list ? await placeOfList(store, before, list, reader) : { after: head?.id, given: [] };
    const given = { hold: count, given: place.given };
    const history = await histories.forMessage({ id, tenant }, place.after, message, given);
    const { messages, system, carried, after } = history;
    const told = before ? before.instructions : request.told;
    const texts = [told ?? '', ...system, ...instructions];
    const labels = uses && { labels: { memory: uses === 'incognito' ? PRIVATE_LABEL.memory : uses } };
    const run = { id: newResponseId(), caller, session: id, messages, system: texts, carried, after, ...labels };
    const { plan, input } = await planMessage(engine, request, { ...run, waits: 'for-client' });
    // Without its tools, nobody could answer what the message asks of the device.
    const unlisted = device === undefined ? undefined : unlistedDevice(plan.toolset, device);
    if (unlisted) {
      await plan.toolset.close();
      throw unlisted;
    }
    const follows = before && head?.id !== place.after ? { after: place.after } : undefined;
    const at = { conversation: id, before, follows, instructions: told };
    return { plan, input, messages, system, place, at };
  }

  const { plan, title, record, releaseCapacity } = await stored.create({
    tenant,
    plan: planNew,
    async complete({ plan: planned, input, messages, system, place, at }, hold) {
      hold(Math.max(0, planned.size - counted));
      const { conversation, before } = at;
      const last =
        input && place.after !== undefined ? await readRecord(store, place.after, { tenant, hold }) : undefined;
      const named = model !== undefined && { model };
      const warnings = await attachmentWarnings(engine, { input, messages, last, ...named });
      const after = before ? await store.streams.last(conversation) : 0;
      const given = await addGiven(store, place, at, caller);
      const previous = given?.head ?? place.after;
      const now = Date.now();
      const chatRecord: RecordToStore<StoredMessage> = {
        id: recordIdOf(planned.id),
        kind: 'message',
        tenant,
        runId: planned.id,
        status: 'in_progress',
        createdAt: now,
        updatedAt: now,
        ...(previous !== undefined && { previous }),
        request: {
          conversation,
          message,
          ...(clientId !== undefined && { clientId }),
          ...(continues && { continues }),
          ...(attachments && attachments.length > 0 && { attachments }),
          ...named,
          ...(tools && { tools }),
          ...(functions && { functions }),
          ...(memory && { memory }),
          ...(device !== undefined && { device }),
          ...(system.length > 0 && { system }),
          ...(instructions.length > 0 && { instructions }),
          ...(warnings.length > 0 && { warnings }),
          ...(approvals && { approvals }),
          ...(lift && { lift }),
          onDisconnect,
          after,
          ...storedCaller(planned),
        },
      };
      const labels = { text: messageText(message), title: before?.title || messageTitle(message) };
      return {
        request: { plan: planned, title: labels.title },
        stored: { record: chatRecord, ...(given ? { conversation, before: given } : at), ...labels },
      };
    },
  });
  const run = { plan, record: record!, title: title || null, caller, releaseCapacity };
  const { conversation } = record!.request as StoredMessage;
  return { conversation, run: (deliver, signal) => runChat(starter, run, { deliver, signal }) };
}

/** Adds the messages that only the client had. Resolves to the conversation with them; undefined if there are none. */
async function addGiven(
  store: ServerStore,
  { after, given }: ListPlace,
  at: Pick<AddedRecord, 'conversation' | 'before' | 'follows' | 'instructions'>,
  caller: Caller,
): Promise<ConversationRecord | undefined> {
  if (given.length === 0) return undefined;
  const record = { ...recordOfItems(at.conversation, given, caller), ...(after !== undefined && { previous: after }) };
  // The message itself is a better title.
  await addToConversation(store, { record, ...at, text: searchText(given), title: '' });
  // Whoever has extended it since is first.
  return { ...(await findConversation(store, at.conversation, caller)), head: record.id };
}

interface ChatRun {
  readonly plan: RunPlan;
  readonly record: RequestRecord;
  readonly title: string | null;
  readonly caller: Caller;
  readonly releaseCapacity: () => void;
}

interface ChatClient {
  readonly deliver: Deliver;
  /** Aborts when the client disconnects. */
  readonly signal: AbortSignal;
}

/** Drives a new run and sends its events to the client. Rejects with a 503 if the store fails: the run is resumed much later. */
async function runChat(
  starter: ChatStarter,
  { plan, record, title, caller, releaseCapacity }: ChatRun,
  { deliver, signal }: ChatClient,
): Promise<void> {
  const { engine, streams } = starter;
  const { conversation: id, onDisconnect, after, warnings = [] } = record.request as StoredMessage;
  const continues = onDisconnect === 'continue';
  const sink = continues ? streams.storedSink(plan, id, after) : streams.directSink(id, after, deliver);
  for (const event of firstEvents(engine, record, { title, warnings })) void sink.add(event);
  const { finished } = driveChat(starter, { plan, record, sink });
  finished.then(releaseCapacity, releaseCapacity);
  if (continues) {
    const failed = new AbortController();
    finished.then(
      ({ interruption }) => interruption === STORE_FAILED && failed.abort(),
      () => {},
    );
    await streams.followChat(id, caller, { after, signal: AbortSignal.any([signal, failed.signal]), deliver });
    if (failed.signal.aborted && !signal.aborted) throw notDone(STORE_FAILED);
    return;
  }
  const cancel = (): void => void cancelAbandoned(starter, plan.id, caller);
  signal.addEventListener('abort', cancel, { once: true });
  if (signal.aborted) cancel();
  try {
    const { interruption } = await finished;
    if (interruption === STORE_FAILED) throw notDone(STORE_FAILED);
    // It waits for an answer. Who resumes it stores its events.
    if (interruption) await streams.followChat(id, caller, { after: sink.last, signal, deliver });
  } finally {
    signal.removeEventListener('abort', cancel);
  }
}

async function cancelAbandoned({ engine, runs }: ChatStarter, runId: string, caller: Caller): Promise<void> {
  const run = engine.driven.get(runId);
  if (run) return run.cancel();
  try {
    await runs.cancel(runId, caller);
  } catch (error) {
    engine.log.warn({ err: error, run: runId }, 'a chat was not cancelled after its client disconnected');
  }
}

/**
 * Stores a conversation for a fork of the run of a message: what was said before the message, and then the message itself with
 * the answer of the fork. The original conversation does not change. The events of the fork are stored, because nobody
 * waits for them yet.
 */
export async function createFork(
  store: ServerStore,
  original: RequestRecord,
  { runId, model, input }: ForkedRun,
): Promise<RequestRecord> {
  const { conversations } = store;
  const { tenant, previous } = original;
  // Another model may take what that of the original does not.
  const { warnings: _, ...before } = original.request as StoredMessage;
  const conversation = newConversationId();
  const createdAt = Date.now();
  const { title = '', instructions } = (await conversations.get(tenant, before.conversation)) ?? {};
  const branchOf = previous !== undefined && { branchOf: { id: before.conversation, upTo: previous } };
  const told = instructions !== undefined && { instructions };
  await conversations.create({ id: conversation, tenant, title, createdAt, ...told, ...branchOf });
  const message: StoredMessage = {
    ...before,
    conversation,
    ...(input !== undefined && { message: withText(before.message, input) }),
    ...(model !== undefined && { model }),
    onDisconnect: 'continue',
    after: 0,
  };
  const record: RequestRecord = {
    id: recordIdOf(runId),
    kind: original.kind,
    tenant,
    runId,
    status: 'in_progress',
    createdAt,
    updatedAt: createdAt,
    ...(previous !== undefined && { previous }),
    request: message,
  };
  const created = await conversations.get(tenant, conversation);
  const named = { text: messageText(message.message), title: messageTitle(message.message) };
  await addToConversation(store, { record, conversation, before: created, ...named });
  return record;
}

/** The first block of a message is its text, the others are its attachments. */
function withText({ role, content: [, ...attachments] }: UserMessage, text: string): UserMessage {
  return { role, content: [{ type: 'text', text }, ...attachments] };
}
