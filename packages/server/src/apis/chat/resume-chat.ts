import { isPaused, waiting, type UserMessage } from '@treadle/core';
import type { RequestRecord } from '@treadle/store';
import type { ServerStore } from '../../engine/engine.ts';
import type {
  FailedEnding,
  ForkedRun,
  PlannedRequest,
  ReplayedRecord,
  Resumption,
  TakenRun,
} from '../../requests/requests.ts';
import { readRecord, type Reader } from '../../engine/stored-reads.ts';
import { newConversationId } from '../../ids.ts';
import { messageText } from './attachments.ts';
import { addToChain, recordIdOf, type StoredMessage } from '../../history/chain.ts';
import { attachmentWarnings, driveChat, endChat, firstEvents, planMessage, type ChatDriver } from './drive-chat.ts';
import { chatOutput } from './output.ts';
import { messageTitle } from './titles.ts';

/** Plans a run that is resumed: after an answer, at a deadline, or because its process died. */
export async function planResumedChat(
  driver: ChatDriver,
  { record, state, run, resume }: TakenRun,
  hold: Reader['hold'],
): Promise<PlannedRequest & Resumption> {
  const { engine, streams, histories } = driver;
  const { store } = engine;
  const { tenant } = record;
  const message = record.request as StoredMessage;
  const { conversation, onDisconnect, after } = message;
  const continues = onDisconnect === 'continue';
  const { messages, system } = resume
    ? { messages: [], system: [] }
    : await histories.forMessage({ id: conversation, tenant }, record.previous, message.message, { hold });
  const told = [...system, ...(message.instructions ?? [])];
  const { plan, input } = await planMessage(engine, message, { ...run, waits: true, messages, system: told });

  async function drive() {
    const sink = streams.storedSink(plan, conversation, await store.streams.last(conversation));
    const sent = continues ? await streams.eventsAfter(conversation, after, hold) : undefined;
    if (sent?.length === 0) {
      const { previous } = record;
      const head = previous === undefined ? undefined : await readRecord(store, previous, { tenant, hold });
      const warned = { ...message, input, head, messages: resume ? [message.message] : messages };
      const warnings = await attachmentWarnings(engine, warned);
      for (const event of firstEvents(engine, record, { title: null, warnings })) void sink.add(event);
    }
    const hasEnded = state.phase.type === 'ended';
    // The client of a run that was not paused has disconnected: its process died.
    const isAbandoned = !continues && !isPaused(state) && !hasEnded;
    const isCancelled = run.isCancelled || isAbandoned;
    return driveChat(driver, {
      plan: { ...plan, isCancelled },
      record,
      sink,
      isOver: hasEnded || isCancelled,
      ...(resume && { resume, waited: waiting(state) }),
      ...(sent && { sent }),
    });
  }
  return { plan, drive };
}

/** Stores that an answer has failed that cannot be resumed. */
export async function failChat(
  { engine: { store }, streams }: ChatDriver,
  { record, lease, items }: ReplayedRecord,
  ending: FailedEnding,
): Promise<void> {
  const { conversation } = record.request as StoredMessage;
  const sink = streams.storedSink({ id: record.runId, lease }, conversation, await store.streams.last(conversation));
  const out = chatOutput({ runId: record.runId });
  for (const item of items) void out.addItem(item);
  void sink.add({ type: 'error', ...ending.error });
  await endChat(store, { record, sink, parts: out.parts, ending, hasDone: false });
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
  const { conversations: chains } = store;
  const { tenant, previous } = original;
  // Another model may take what that of the original does not.
  const { warnings: _, ...before } = original.request as StoredMessage;
  const conversation = newConversationId();
  const createdAt = Date.now();
  const title = (await chains.get(tenant, before.conversation))?.title ?? '';
  const branchOf = previous !== undefined && { branchOf: { id: before.conversation, upTo: previous } };
  await chains.create({ id: conversation, tenant, title, createdAt, ...branchOf });
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
  const created = await chains.get(tenant, conversation);
  const named = { text: messageText(message.message), title: messageTitle(message.message) };
  await addToChain(store, { record, conversation, before: created, ...named });
  return record;
}

/** The first block of a message is its text, the others are its attachments. */
function withText({ role, content: [, ...attachments] }: UserMessage, text: string): UserMessage {
  return { role, content: [{ type: 'text', text }, ...attachments] };
}
