import { isPaused, NEW, waiting, type State } from '@treadle/core';
import type { Ending } from '../engine/run.ts';
import { unresumableReason } from '../engine/interruption.ts';
import {
  cancelIfReadable,
  replayItems,
  type ResumeOptions,
  type StoredEnd,
  type TakenRecord,
} from '../engine/stored-runs.ts';
import { readRecord } from '../engine/stored-reads.ts';
import type { StoredMessage } from './chain.ts';
import { attachmentWarnings, driveChat, endChat, firstEvents, planMessage, type ChatDriver } from './drive-chat.ts';
import { chatOutput } from './output.ts';

/** Resumes a run: after an answer, at a deadline, or because its process died. Rejects if it cannot be resumed. */
export async function resumeChat(
  driver: ChatDriver,
  { record, lease }: TakenRecord,
  { answers, signal, hold }: ResumeOptions,
): Promise<{ readonly finished: Promise<StoredEnd> }> {
  const { engine, streams, histories } = driver;
  const { store } = engine;
  const { tenant, runId } = record;
  const message = record.request as StoredMessage;
  const { conversation, key, scopes, onDisconnect, after } = message;
  const caller = { tenant, key, scopes };
  const { items, state } = await replayItems(store, runId, { tenant });
  const continues = onDisconnect === 'continue';
  const isNew = state === NEW;
  const chain = { id: conversation, tenant };
  const { messages, system } = isNew
    ? await histories.forMessage(chain, record.previous, message.message, { hold })
    : { messages: [], system: [] };
  const told = [...system, ...(message.instructions ?? [])];
  const run = { message, id: runId, caller, journal: store, lease, waits: true, messages, system: told };
  return planMessage(engine, run, async ({ plan, input }) => {
    const sink = streams.storedSink(plan, conversation, await store.streams.last(conversation));
    const sent = continues ? await streams.eventsAfter(conversation, after, hold) : undefined;
    if (sent?.length === 0) {
      const { previous } = record;
      const head = previous === undefined ? undefined : await readRecord(store, previous, { tenant, hold });
      const warned = { ...message, input, head, messages: isNew ? messages : [message.message] };
      const warnings = await attachmentWarnings(engine, warned);
      for (const event of firstEvents(engine, record, { title: null, warnings })) void sink.add(event);
    }
    const resume = { items, usedTokens: state.usage.outputTokens, ...(answers && { answers }) };
    const hasEnded = state.phase.type === 'ended';
    // The client of a run that was not paused has disconnected: its process died.
    const isAbandoned = !continues && !isPaused(state) && !hasEnded;
    const isCancelled = signal?.aborted || isAbandoned;
    const { finished } = driveChat(driver, {
      plan,
      record,
      sink,
      isOver: hasEnded || isCancelled,
      ...(!isNew && { resume, waited: waiting(state) }),
      ...(sent && { sent }),
    });
    if (isCancelled) engine.driven.get(runId)?.cancel();
    return { finished };
  });
}

/** Ends a chat that cannot be resumed. Its output so far is preserved. */
export async function failChat(
  { engine: { store }, streams }: ChatDriver,
  taken: TakenRecord,
  error: unknown,
): Promise<StoredEnd> {
  const { record, lease } = taken;
  const { conversation } = record.request as StoredMessage;
  try {
    const { items, state } = await replayItems(store, record.runId, record).catch(() => ({
      items: [],
      state: NEW as State,
    }));
    await cancelIfReadable(store, taken);
    const sink = streams.storedSink({ id: record.runId, lease }, conversation, await store.streams.last(conversation));
    const out = chatOutput({ runId: record.runId });
    for (const item of items) void out.addItem(item);
    const failure = { code: 'server_error', message: unresumableReason(error) };
    const ending: Ending = { type: 'failed', error: failure, at: Date.now(), usage: state.usage };
    void sink.add({ type: 'error', ...failure });
    await endChat(store, { record, sink, parts: out.parts, ending, hasDone: false });
    return {};
  } finally {
    await lease.release();
    streams.wakeReaders(conversation);
  }
}
