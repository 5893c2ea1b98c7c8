import { isPaused, NEW, waiting } from '@treadle/core';
import type { FailedEnding, PlannedRequest, ResumeOptions, Resumption, TakenRun } from '../../requests/requests.ts';
import { readRecord } from '../../engine/stored-reads.ts';
import type { StoredMessage } from '../../history/chain.ts';
import { attachmentWarnings, driveChat, endChat, firstEvents, planMessage, type ChatDriver } from './drive-chat.ts';
import { chatOutput } from './output.ts';

/** Plans a run that is resumed: after an answer, at a deadline, or because its process died. */
export async function planResumedChat(
  driver: ChatDriver,
  { record, lease, items, state }: TakenRun,
  { answers, signal, hold }: ResumeOptions,
): Promise<PlannedRequest & Resumption> {
  const { engine, streams, histories } = driver;
  const { store } = engine;
  const { tenant, runId } = record;
  const message = record.request as StoredMessage;
  const { conversation, key, scopes, onDisconnect, after } = message;
  const continues = onDisconnect === 'continue';
  const isNew = state === NEW;
  const { messages, system } = isNew
    ? await histories.forMessage({ id: conversation, tenant }, record.previous, message.message, { hold })
    : { messages: [], system: [] };
  const caller = { tenant, key, scopes };
  const told = [...system, ...(message.instructions ?? [])];
  const run = { id: runId, caller, journal: store, lease, waits: true, messages, system: told };
  const { plan, input } = await planMessage(engine, message, run);

  async function drive() {
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
    return driveChat(driver, {
      plan,
      record,
      sink,
      signal: isAbandoned ? AbortSignal.abort() : signal,
      isOver: hasEnded || isCancelled,
      ...(!isNew && { resume, waited: waiting(state) }),
      ...(sent && { sent }),
    });
  }
  return { plan, drive };
}

/** Stores that an answer has failed that cannot be resumed. */
export async function failChat(
  { engine: { store }, streams }: ChatDriver,
  { record, lease, items }: TakenRun,
  ending: FailedEnding,
): Promise<void> {
  const { conversation } = record.request as StoredMessage;
  const sink = streams.storedSink({ id: record.runId, lease }, conversation, await store.streams.last(conversation));
  const out = chatOutput({ runId: record.runId });
  for (const item of items) void out.addItem(item);
  void sink.add({ type: 'error', ...ending.error });
  await endChat(store, { record, sink, parts: out.parts, ending, hasDone: false });
}
