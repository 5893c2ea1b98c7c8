import {
  isPaused,
  messagesOf,
  NEW,
  TreadleError,
  waiting,
  type Answer,
  type Item,
  type Message,
  type State,
  type UserMessage,
  type Waiting,
} from '@treadle/core';
import type { ConversationFilter, ConversationRecord, ResponseRecord } from '@treadle/store';
import { ApiError, badRequest } from '../api-error.ts';
import { storedState } from '../engine/conversation.ts';
import type { Engine } from '../engine/engine.ts';
import { eventWriter, follow, type EventSource, type FollowOptions } from '../engine/event-log.ts';
import { OWN_LABEL } from '../engine/executors.ts';
import { driveRequest, planRun, type Ending, type ResumedRun, type RunPlan, type RunRequest } from '../engine/run.ts';
import {
  cancelRun,
  isDrivenElsewhere,
  isStoreFailure,
  replayItems,
  unresumableReason,
  type FinalEnd,
  type ResumeOptions,
  type StoredEnd,
  type StoredRuns,
  type TakenRecord,
} from '../engine/stored-runs.ts';
import type { RunCaller } from '../engine/tools.ts';
import type { Caller } from '../http/admission.ts';
import { CONVERSATION_PREFIX, MESSAGE_PREFIX, newConversationId, newResponseId, RESPONSE_PREFIX } from '../ids.ts';
import type { Runs } from '../runs/runs.ts';
import type { AnswerPart, ApprovalRequest, ChatEvent, ChatStatus, ChatUsage, QuestionRequest } from './events.ts';
import { attachmentBytes, attachmentId, attachmentIn, messageText, type Attachment } from './attachments.ts';
import { chatUsage } from './events.ts';
import { textInputFor, type TextInput } from './text-input.ts';
import { askedIn, askRequest, chatOutput, endError, statusOf } from './output.ts';

/*
 * Conversations: chains of runs with the events of all of them in one stream.
 *
 * 1. A conversation has one run at a time. The newest record of its chain is replaced by compare and set, so of two messages
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
  list(filter: Omit<ConversationFilter, 'tenant'>, caller: Caller): Promise<readonly ConversationRecord[]>;
  /** Rejects with a 404 for a conversation of another tenant, like all that follow. */
  find(id: string, caller: Caller): Promise<ConversationRecord>;
  messages(id: string, caller: Caller): Promise<readonly ChatMessage[]>;
  /** Rejects with a 404 if the conversation has no such attachment. */
  attachment(id: string, attachment: string, caller: Caller): Promise<Attachment & { readonly bytes: Buffer }>;
  rename(id: string, title: string, caller: Caller): Promise<void>;
  /** Cancels the run that is in progress. */
  delete(id: string, caller: Caller): Promise<void>;
  /** A new conversation with the messages up to an answer, or with those before a message. Resolves to its id. */
  branch(id: string, messageId: string, caller: Caller): Promise<string>;
  /** Answers approvals and questions. Rejects with a 409 that says why if an answer cannot be used. */
  answer(id: string, answers: readonly ChatAnswer[], caller: Caller): Promise<void>;
  /** Adds a message to the run in progress. It takes effect at the next turn. */
  steer(id: string, text: string, caller: Caller): Promise<void>;
  /** Resolves when the run has ended. */
  cancel(id: string, caller: Caller): Promise<void>;
  /**
   * The answer in progress, with its events so far. Undefined if there is none. `includeEnded`: the last answer, also if it has
   * ended.
   */
  progress(id: string, caller: Caller, options?: ProgressOptions): Promise<ChatProgress | undefined>;
  /** The events of a conversation, which is not checked: call `find` first. Live while a run is in progress. */
  events(id: string, caller: Caller): EventSource<NumberedEvent>;
}

/** A validated request for an answer. */
export interface ChatRequest {
  /** Absent: a new conversation. */
  readonly conversation?: string;
  /** Instead of `conversation`: this one, which is created if it does not exist. */
  readonly createAs?: string;
  /** Its first block is the text, the others are the attachments. */
  readonly message: UserMessage;
  readonly attachments?: readonly Attachment[];
  readonly model?: string;
  /** Names of tools of the server. Absent: its default tools. */
  readonly tools?: readonly string[];
  readonly onDisconnect: 'cancel' | 'continue';
}

export interface StartedChat {
  readonly conversation: string;
  /** Sends the events until the run has ended or the client has disconnected (`signal`). */
  run(deliver: (event: NumberedEvent) => void | Promise<void>, signal: AbortSignal): Promise<void>;
}

export interface ProgressOptions {
  readonly includeEnded?: boolean;
}

export interface ChatProgress {
  readonly events: readonly NumberedEvent[];
  /** The number of the last event before them. */
  readonly after: number;
}

export type NumberedEvent = ChatEvent & { readonly seq: number };

export type ChatAnswer =
  | { readonly id: string; readonly approved: boolean; readonly digest: string; readonly reason?: string }
  | { readonly id: string; readonly answer: unknown };

/** A message of a conversation, as clients see it. */
export type ChatMessage =
  | {
      readonly id: string;
      readonly role: 'user';
      readonly created_at: number;
      readonly content: string;
      readonly attachments: readonly (Attachment & { readonly id: string })[];
    }
  | {
      readonly id: string;
      readonly role: 'assistant';
      readonly created_at: number;
      readonly run_id: string;
      readonly status: ChatStatus | 'in_progress' | 'waiting';
      readonly parts: readonly AnswerPart[];
      readonly error: { readonly code: string; readonly message: string } | null;
      readonly usage: ChatUsage | null;
      /** Open approvals and questions. */
      readonly waiting: readonly (ApprovalRequest | QuestionRequest)[];
    };

/** The stored form of a request. The store's records contain it, so its fields must not change. */
interface StoredMessage {
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
interface StoredAnswer {
  readonly parts: readonly AnswerPart[];
  readonly error: { readonly code: string; readonly message: string } | null;
  readonly usage: ChatUsage;
}

/** A conversation that needs a title. */
export interface Untitled {
  readonly conversation: ConversationRecord;
  /** Its latest message. */
  readonly message: UserMessage;
  /** The name of the model that has answered. */
  readonly model?: string;
}

export interface ConversationsOptions {
  readonly engine: Engine;
  readonly stored: StoredRuns;
  readonly runs: Runs;
  /** Aborts when the server shuts down. Readers can continue at another process, or after the restart. */
  readonly stopping: AbortSignal;
  /** Called when the first answer of a conversation without a title has ended. */
  readonly onUntitled?: (untitled: Untitled) => void;
}

export function conversations({ engine, stored, runs, stopping, onUntitled }: ConversationsOptions): Conversations {
  const { store, log } = engine;
  const { responses: records, conversations: chains, streams } = store;
  /** Readers that wait for the end of a run, which does not change the stream. */
  const readers = new Map<string, Set<() => void>>();
  stored.handle(MESSAGE_PREFIX, resumeChat, { waits: true });

  async function findConversation(id: string, { tenant }: RunCaller): Promise<ConversationRecord> {
    const found = id.startsWith(CONVERSATION_PREFIX) ? await chains.get(tenant, id) : undefined;
    if (found) return found;
    const message = `There is no conversation ${JSON.stringify(id)}. It was deleted, or never existed.`;
    throw new ApiError(404, 'not_found_error', message, { param: 'conversation_id', code: 'conversation_not_found' });
  }

  /** The records of a conversation, oldest first. */
  async function recordsOf({ id, tenant }: ConversationRecord): Promise<readonly ResponseRecord[]> {
    const found: ResponseRecord[] = [];
    for (const response of await chains.responses(id)) {
      const record = await records.get(tenant, response);
      if (record) found.push(record);
    }
    return found;
  }

  /** The newest record; undefined if there is none. */
  async function headOf({ id, tenant, head }: ConversationRecord): Promise<ResponseRecord | undefined> {
    if (head === undefined) return undefined;
    const record = await records.get(tenant, head);
    if (record) return record;
    // It is being created, or the process died before it was.
    if (await store.isDriven(runIdOf(head))) throw busy(id);
    return (await recordsOf({ id, tenant } as ConversationRecord)).at(-1);
  }

  /** The messages that the model gets before a new one. */
  async function historyOf(conversation: ConversationRecord, head: ResponseRecord | undefined): Promise<Message[]> {
    if (!head) return [];
    const last = await storedState(store, head.runId);
    if (last) return [...messagesOf(last.history)];
    // A run that never started has no history of its own.
    const unstarted: Message[] = [];
    for (const { runId, request } of (await recordsOf(conversation)).toReversed()) {
      const state = await storedState(store, runId);
      if (state) return [...messagesOf(state.history), ...unstarted];
      unstarted.unshift((request as StoredMessage).message);
    }
    return unstarted;
  }

  async function startChat(request: ChatRequest, caller: Caller): Promise<StartedChat> {
    const release = engine.runs.reserve(caller.tenant);
    try {
      const { conversation, createAs, message, attachments, model, tools, onDisconnect } = request;
      const existing = createAs === undefined ? undefined : await chains.get(caller.tenant, createAs);
      const before = conversation === undefined ? existing : await findConversation(conversation, caller);
      const head = before && (await headOf(before));
      if (before && head?.status === 'in_progress') throw busy(before.id);
      const runId = newResponseId();
      const id = before?.id ?? createAs ?? newConversationId();
      const messages = before ? await historyOf(before, head) : [];
      const planned = await planMessage(request, { id: runId, caller }, [...messages, message]);
      const warnings = (await planned.input?.warnings(message)) ?? [];
      const after = before ? await streams.last(id) : 0;
      const now = Date.now();
      const record: ResponseRecord = {
        id: recordIdOf(runId),
        tenant: caller.tenant,
        runId,
        status: 'in_progress',
        createdAt: now,
        updatedAt: now,
        ...(head && { previous: head.id }),
        request: {
          conversation: id,
          message,
          ...(attachments && attachments.length > 0 && { attachments }),
          ...(model !== undefined && { model }),
          ...(tools && { tools }),
          onDisconnect,
          after,
          key: caller.key,
          scopes: caller.scopes,
        } satisfies StoredMessage,
      };
      const lease = await store.acquire(runId);
      try {
        await createMessage(record, before);
      } catch (error) {
        await lease.release();
        await records.delete(caller.tenant, record.id).catch(() => false);
        throw isTaken(error) ? busy(id) : error;
      }
      const plan: RunPlan = { ...planned.plan, journal: store, lease, waits: true };
      const run = { plan, record, title: before?.title || null, warnings, caller, release };
      return { conversation: id, run: (deliver, signal) => runChat(run, deliver, signal) };
    } catch (error) {
      release();
      throw error;
    }
  }

  /** Stores a message of a new conversation, or of one that nobody has extended since it was read. */
  async function createMessage(record: ResponseRecord, before: ConversationRecord | undefined): Promise<void> {
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
    throw busy(conversation);
  }

  async function planMessage(
    { model, tools }: Pick<StoredMessage, 'model' | 'tools'>,
    run: Pick<RunPlan, 'id' | 'caller' | 'journal' | 'lease' | 'waits'>,
    messages: readonly Message[],
  ): Promise<{ readonly plan: RunPlan; readonly input: TextInput | undefined }> {
    const named = tools && { ...engine, serverTools: { ...engine.serverTools, defaultTools: [] } };
    const request: RunRequest = {
      functions: [],
      otherTools: tools && tools.length > 0 ? [{ type: 'mcp', server_label: OWN_LABEL, allowed_tools: tools }] : [],
      toolChoice: 'auto',
      parallel: true,
      settings: {},
      truncation: 'auto',
      ...(model !== undefined && { model }),
    };
    const conversation = { messages, instructions: [] };
    const plan = await planRun(named ?? engine, request, conversation, { ...run, closingTurn: true });
    const input = textInputFor(plan.model, model ?? engine.models.default);
    return { plan: input ? { ...plan, model: input.model } : plan, input };
  }

  interface ChatRun {
    readonly plan: RunPlan;
    readonly record: ResponseRecord;
    readonly title: string | null;
    /** About the message. They follow the first event. */
    readonly warnings: readonly ChatEvent[];
    readonly caller: Caller;
    /** Releases the capacity of the run. */
    readonly release: () => void;
  }

  /** Drives a new run and sends its events to the client. */
  async function runChat(
    { plan, record, title, warnings, caller, release }: ChatRun,
    deliver: (event: NumberedEvent) => void | Promise<void>,
    signal: AbortSignal,
  ): Promise<void> {
    const { conversation: id, onDisconnect, after } = record.request as StoredMessage;
    const continues = onDisconnect === 'continue';
    const sink = continues ? storedSink(plan, id, after) : directSink(id, after, deliver);
    for (const event of [metaOf(record, title), ...warnings]) void sink.add(event);
    const { finished } = driveChat({ plan, record, sink });
    finished.then(release, release);
    if (continues) return followChat(id, caller, { after, signal }, deliver);
    const cancel = (): void => void cancelAbandoned(plan.id, caller);
    signal.addEventListener('abort', cancel, { once: true });
    if (signal.aborted) cancel();
    try {
      const { interruption } = await finished;
      // It waits for an answer. Who resumes it stores its events.
      if (interruption) await followChat(id, caller, { after: sink.last, signal }, deliver);
    } finally {
      signal.removeEventListener('abort', cancel);
    }
  }

  async function followChat(
    id: string,
    caller: Caller,
    { after, signal }: FollowOptions,
    deliver: (event: NumberedEvent) => void | Promise<void>,
  ): Promise<void> {
    await follow(events(id, caller), { after, signal: AbortSignal.any([signal, stopping]) }, deliver);
  }

  async function cancelAbandoned(runId: string, caller: Caller): Promise<void> {
    const run = engine.driven.get(runId);
    if (run) return run.cancel();
    try {
      await runs.cancel(runId, caller);
    } catch (error) {
      log.warn({ err: error, run: runId }, 'a chat was not cancelled after its client disconnected');
    }
  }

  function metaOf({ runId, request }: ResponseRecord, title: string | null): ChatEvent {
    const { conversation, model = engine.models.default } = request as StoredMessage;
    const { message: message_id, answer: answer_id } = messageIds(runId);
    return {
      type: 'conversation_meta',
      conversation_id: conversation,
      title,
      message_id,
      answer_id,
      run_id: runId,
      model,
    };
  }

  /** Where the events of a run go. */
  interface Sink {
    /** Returns a promise if the client or the store is slow. */
    add(event: ChatEvent): void | Promise<void>;
    /** Stores what has to be stored. `last`: the last event of the run. */
    flush(last?: ChatEvent): Promise<void>;
    /** Called when the end of the run is stored. */
    ended(): void;
    readonly last: number;
  }

  /** Sends events to a client and stores only how many they are. */
  function directSink(id: string, after: number, deliver: (event: NumberedEvent) => void | Promise<void>): Sink {
    let last = after;
    let final: NumberedEvent | undefined;
    return {
      get last() {
        return last;
      },
      add: (event) => deliver({ ...event, seq: ++last }),
      async flush(event) {
        if (event) final = { ...event, seq: ++last };
        await streams.append(id, final ? last : last + 1, final ? [final] : []);
      },
      ended() {
        if (final) void deliver(final);
      },
    };
  }

  /** Stores events. Readers follow the stream. */
  function storedSink({ id: runId, lease }: RunPlan, id: string, after: number): Sink {
    const writer = eventWriter({
      streams,
      stream: id,
      last: after,
      ...(lease && { lease }),
      onFailure: (error) => {
        log.error({ err: error, run: runId }, 'the events of a chat could not be stored');
        void engine.driven.get(runId)?.detach();
      },
    });
    const add = (event: ChatEvent): void | Promise<void> => writer.add({ ...event, seq: writer.last + 1 });
    return {
      get last() {
        return writer.last;
      },
      add,
      async flush(event) {
        if (event) void add(event);
        await writer.flush();
      },
      ended() {},
    };
  }

  interface DrivenChat {
    readonly plan: RunPlan;
    readonly record: ResponseRecord;
    readonly sink: Sink;
    readonly resume?: ResumedRun;
    /** What the run waited for when it was resumed. */
    readonly waited?: readonly Waiting[];
    /** The events that were sent before the process died. Absent: all events so far were sent. */
    readonly sent?: readonly ChatEvent[];
  }

  /** Starts or resumes a run. Releases the lease of the plan at the end. */
  function driveChat({ plan, record, sink, resume, waited = [], sent }: DrivenChat): {
    readonly finished: Promise<StoredEnd>;
  } {
    const { id: runId, lease, caller } = plan;
    const { conversation: id, onDisconnect } = record.request as StoredMessage;
    let isReplaying = resume !== undefined && !sent;
    const out = chatOutput({
      runId,
      emit: (event) => (isReplaying ? undefined : sink.add(event)),
      ...(sent && { sent }),
    });
    for (const item of resume?.items ?? []) void out.addItem(item);
    if (resume) out.closeTexts();
    out.announce(waited);
    isReplaying = false;
    let announcing = Promise.resolve();

    function listen(item: Item): void | Promise<void> {
      const room = out.addItem(item);
      if (!asksSomething(item)) return room;
      // What the run waits for follows from its state, not from the item alone.
      announcing = announcing.then(announceWaiting);
      return announcing;
    }

    async function announceWaiting(): Promise<void> {
      try {
        const state = await storedState(store, runId);
        if (state) out.announce(waiting(state));
      } catch (error) {
        // Announced again when the run pauses.
        log.warn({ err: error, run: runId }, 'what a chat waits for could not be read');
      }
    }

    const run = driveRequest(plan, engine, listen, resume);
    const ended = run.ended.then(async (end) => {
      await announcing;
      if (end.ending) return end;
      if (end.waiting) out.announce(end.waiting);
      await sink.flush();
      return end;
    });

    async function finishChat({ ending }: FinalEnd, release: () => Promise<void>): Promise<StoredEnd> {
      out.end(ending);
      await endChat({ record, sink, parts: out.parts, ending, hasDone: sent?.at(-1)?.type === 'done' });
      await release();
      wakeReaders(id);
      sink.ended();
      void titleChat(record, caller);
      return {};
    }

    const finished = stored.awaitEnd(ended, {
      id: record.id,
      lease,
      finish: finishChat,
      interrupt: (interruption) => ({ interruption }),
    });
    // Without its client, nobody would get the events that are not stored.
    const detach = (): void => (onDisconnect === 'continue' ? void run.detach() : run.cancel());
    engine.runs.add({ detach, finished });
    return { finished };
  }

  interface EndedChat {
    readonly record: ResponseRecord;
    readonly sink: Sink;
    readonly parts: readonly AnswerPart[];
    readonly ending: Ending;
    /** The stream already ends with `done`. */
    readonly hasDone: boolean;
  }

  /** Stores the end of a run. Another process may have been first. */
  async function endChat({ record, sink, parts, ending, hasDone }: EndedChat): Promise<void> {
    const status = statusOf(ending);
    const { conversation, message } = record.request as StoredMessage;
    if (!hasDone) await sink.flush({ type: 'done', status });
    const response: StoredAnswer = { parts, error: endError(ending) ?? null, usage: chatUsage(ending.usage) };
    const texts = parts.flatMap((part) => (part.type === 'text' || part.type === 'input' ? part.text : []));
    await Promise.all([
      records.finish(record.id, { status, response, at: ending.at }),
      chains.setText(conversation, record.id, [messageText(message), ...texts].join('\n')),
    ]);
  }

  async function titleChat(record: ResponseRecord, { tenant }: RunCaller): Promise<void> {
    if (!onUntitled) return;
    const { conversation, message, model } = record.request as StoredMessage;
    const found = await chains.get(tenant, conversation).catch(() => undefined);
    if (found?.title === '') onUntitled({ conversation: found, message, ...(model !== undefined && { model }) });
  }

  function wakeReaders(id: string): void {
    for (const wake of readers.get(id) ?? []) wake();
  }

  /** Resumes a run: after an answer, at a deadline, or because its process died. One that cannot be resumed fails. */
  async function resumeChat(
    taken: TakenRecord,
    { answers, signal }: ResumeOptions = {},
  ): Promise<{ readonly finished: Promise<StoredEnd> }> {
    const { record, lease } = taken;
    const { tenant, runId } = record;
    const message = record.request as StoredMessage;
    const { conversation, key, scopes, onDisconnect, after } = message;
    const caller = { tenant, key, scopes };
    try {
      const { items, state } = await replayItems(store, runId);
      const continues = onDisconnect === 'continue';
      const isNew = state === NEW;
      const messages = isNew ? await messagesBefore(record) : [];
      const run = { id: runId, caller, journal: store, lease, waits: true };
      const { plan, input } = await planMessage(message, run, messages);
      const sink = storedSink(plan, conversation, await streams.last(conversation));
      const sent = continues ? await eventsAfter(conversation, after) : undefined;
      if (sent?.length === 0) {
        const warnings = (await input?.warnings(message.message)) ?? [];
        for (const event of [metaOf(record, null), ...warnings]) void sink.add(event);
      }
      const resume = { items, usedTokens: state.usage.outputTokens, ...(answers && { answers }) };
      const { finished } = driveChat({
        plan,
        record,
        sink,
        ...(!isNew && { resume, waited: waiting(state) }),
        ...(sent && { sent }),
      });
      // The client of a run that was not paused has disconnected: its process died.
      const isAbandoned = !continues && !isPaused(state) && state.phase.type !== 'ended';
      if (signal?.aborted || isAbandoned) engine.driven.get(runId)?.cancel();
      return { finished };
    } catch (error) {
      if (isStoreFailure(error)) {
        await lease.release();
        throw error;
      }
      log.warn({ err: error, response: record.id }, 'a chat cannot be resumed');
      return { finished: failUnresumable(taken, error) };
    }
  }

  /** The messages of a run that has not started. */
  async function messagesBefore({ tenant, previous, request }: ResponseRecord): Promise<readonly Message[]> {
    const { conversation, message } = request as StoredMessage;
    const chain = await chains.get(tenant, conversation);
    const head = previous === undefined ? undefined : await records.get(tenant, previous);
    return [...(chain && head ? await historyOf(chain, head) : []), message];
  }

  async function eventsAfter(id: string, after: number): Promise<readonly NumberedEvent[]> {
    const events: NumberedEvent[] = [];
    for (let last = after; ;) {
      const page = await streams.read(id, last);
      if (page.length === 0) return events;
      for (const { event } of page) events.push(event as NumberedEvent);
      last = page.at(-1)!.seq;
    }
  }

  async function failUnresumable(taken: TakenRecord, error: unknown): Promise<StoredEnd> {
    const { record, lease } = taken;
    const { conversation } = record.request as StoredMessage;
    try {
      const { items, state } = await replayItems(store, record.runId).catch(() => ({ items: [], state: NEW as State }));
      await cancelRun(store, taken).catch((failure: unknown) => {
        if (isStoreFailure(failure)) throw failure;
      });
      const sink = storedSink({ id: record.runId, lease } as RunPlan, conversation, await streams.last(conversation));
      const out = chatOutput({ runId: record.runId });
      for (const item of items) void out.addItem(item);
      const failure = { code: 'server_error', message: unresumableReason(error) };
      const ending: Ending = { type: 'failed', error: failure, at: Date.now(), usage: state.usage };
      void sink.add({ type: 'error', ...failure });
      await endChat({ record, sink, parts: out.parts, ending, hasDone: false });
      return {};
    } finally {
      await lease.release();
      wakeReaders(conversation);
    }
  }

  function events(id: string, { tenant }: Pick<Caller, 'tenant'>): EventSource<NumberedEvent> {
    let isLive = false;
    let wake: (() => void) | undefined;
    let timer: NodeJS.Timeout | undefined;
    return {
      async isLive() {
        const chain = await chains.get(tenant, id);
        const head = chain?.head === undefined ? undefined : await records.get(tenant, chain.head);
        isLive = head?.status === 'in_progress';
        return isLive;
      },
      async read(after) {
        const page = await streams.read(id, after);
        const found = page.map(({ event }) => event as NumberedEvent);
        if (isLive && found.at(-1)?.type === 'done') {
          // The end of the run is not stored yet. It does not change the stream, so no other process is told about it.
          found.pop();
          clearTimeout(timer);
          if (wake) timer = setTimeout(wake, END_POLL_MS).unref();
        }
        return found;
      },
      watch(listener) {
        wake = listener;
        const some = readers.get(id) ?? new Set();
        readers.set(id, some.add(listener));
        const stopWatching = streams.watch(id, listener);
        return () => {
          wake = undefined;
          clearTimeout(timer);
          stopWatching();
          some.delete(listener);
          if (some.size === 0 && readers.get(id) === some) readers.delete(id);
        };
      },
    };
  }

  async function messagesIn(id: string, caller: Caller): Promise<readonly ChatMessage[]> {
    const messages: ChatMessage[] = [];
    for (const record of await recordsOf(await findConversation(id, caller))) {
      messages.push(...(await messagesOfRecord(record)));
    }
    return messages;
  }

  async function messagesOfRecord(record: ResponseRecord): Promise<readonly ChatMessage[]> {
    const { runId, createdAt, status, request, response } = record;
    const { message, attachments = [] } = request as StoredMessage;
    const ids = messageIds(runId);
    const asked: ChatMessage = {
      id: ids.message,
      role: 'user',
      created_at: createdAt,
      content: messageText(message),
      attachments: attachments.map((attachment, index) => ({ id: attachmentId(runId, index), ...attachment })),
    };
    const answer = { id: ids.answer, role: 'assistant', created_at: createdAt, run_id: runId } as const;
    if (status !== 'in_progress') {
      const { parts = [], error = null, usage = null } = (response ?? {}) as Partial<StoredAnswer>;
      return [asked, { ...answer, status: status as ChatStatus, parts, error, usage, waiting: [] }];
    }
    const { items, state } = await replayItems(store, runId);
    const out = chatOutput({ runId });
    for (const item of items) void out.addItem(item);
    const open = waiting(state).flatMap((wait) => askRequest(runId, wait) ?? []);
    const current = isPaused(state) && open.length > 0 ? 'waiting' : 'in_progress';
    return [
      asked,
      { ...answer, status: current, parts: out.parts, error: null, usage: chatUsage(state.usage), waiting: open },
    ];
  }

  async function findAttachment(
    id: string,
    attachment: string,
    caller: Caller,
  ): Promise<Attachment & { readonly bytes: Buffer }> {
    const { id: found } = await findConversation(id, caller);
    const { runId, index } = attachmentIn(attachment) ?? { runId: '', index: -1 };
    const record = (await chains.responses(found)).includes(recordIdOf(runId))
      ? await records.get(caller.tenant, recordIdOf(runId))
      : undefined;
    const { message, attachments = [] } = (record?.request ?? {}) as Partial<StoredMessage>;
    const described = attachments[index];
    if (message && described) return { ...described, bytes: attachmentBytes(message, described, index) };
    const problem = `This conversation has no attachment ${JSON.stringify(attachment)}.`;
    throw new ApiError(404, 'not_found_error', problem, { param: 'attachment_id', code: 'attachment_not_found' });
  }

  /** The run that a conversation waits for. */
  async function currentRun(id: string, caller: Caller): Promise<string> {
    const head = await headOf(await findConversation(id, caller));
    if (head?.status === 'in_progress') return head.runId;
    const message = `The conversation ${JSON.stringify(id)} has no answer in progress. Send a message with POST /v1/chat.`;
    throw new ApiError(409, 'invalid_request_error', message, { param: 'conversation_id', code: 'conversation_idle' });
  }

  async function progressOf(
    id: string,
    { tenant }: Caller,
    { includeEnded = false }: ProgressOptions = {},
  ): Promise<ChatProgress | undefined> {
    const found = await chains.get(tenant, id);
    const head = found && (await headOf(found));
    if (!head || (head.status !== 'in_progress' && !includeEnded)) return undefined;
    const { after } = head.request as StoredMessage;
    return { events: await eventsAfter(id, after), after };
  }

  async function answerChat(id: string, answers: readonly ChatAnswer[], caller: Caller): Promise<void> {
    const { id: found } = await findConversation(id, caller);
    const known = new Set(await chains.responses(found));
    const byRun = new Map<string, Answer[]>();
    for (const [index, answer] of answers.entries()) {
      const asked = askedIn(answer.id);
      if (!asked || !known.has(recordIdOf(asked.runId))) throw unknownAsk(answer.id, index);
      byRun.set(asked.runId, [...(byRun.get(asked.runId) ?? []), answerOf(answer, asked.effect)]);
    }
    for (const [runId, some] of byRun) await runs.answer(runId, some, caller);
  }

  async function deleteConversation(id: string, caller: Caller): Promise<void> {
    const found = await findConversation(id, caller);
    const head = await headOf(found).catch(() => undefined);
    if (head?.status === 'in_progress') {
      await runs.cancel(head.runId, caller);
      await stored.whenEnded(head.id);
    }
    try {
      await chains.delete(caller.tenant, id);
    } catch (error) {
      throw isDrivenElsewhere(error) ? busy(id) : error;
    }
    wakeReaders(id);
  }

  async function branchFrom(id: string, messageId: string, caller: Caller): Promise<string> {
    const found = await findConversation(id, caller);
    const chain = await recordsOf(found);
    const at = chain.findIndex(({ runId }) => Object.values(messageIds(runId)).includes(messageId));
    if (at === -1) {
      throw badRequest(
        `The conversation ${JSON.stringify(id)} has no message ${JSON.stringify(messageId)}.`,
        'message_id',
        'message_not_found',
      );
    }
    const isAnswer = messageIds(chain[at]!.runId).answer === messageId;
    if (isAnswer && chain[at]!.status === 'in_progress') throw busy(id);
    const last = chain[isAnswer ? at : at - 1];
    const branch = newConversationId();
    const { tenant, title } = found;
    await chains.create({
      id: branch,
      tenant,
      title,
      createdAt: Date.now(),
      ...(last && { branchOf: { id, upTo: last.id } }),
    });
    return branch;
  }

  return {
    start: startChat,
    list: (filter, { tenant }) => chains.list({ ...filter, tenant }),
    find: findConversation,
    messages: messagesIn,
    attachment: findAttachment,
    async rename(id, title, caller) {
      await findConversation(id, caller);
      await chains.rename(caller.tenant, id, title);
    },
    delete: deleteConversation,
    branch: branchFrom,
    answer: answerChat,
    steer: async (id, text, caller) => runs.send(await currentRun(id, caller), text, caller),
    progress: progressOf,
    cancel: async (id, caller) => runs.cancel(await currentRun(id, caller), caller),
    events,
  };
}

/** How often a reader that has everything but `done` looks whether the end of the run is stored. */
const END_POLL_MS = 50;

/** Another process has created the conversation since. */
function isTaken(error: unknown): boolean {
  return error instanceof TreadleError && error.code === 'run-exists';
}

function recordIdOf(runId: string): string {
  return MESSAGE_PREFIX + runId.slice(RESPONSE_PREFIX.length);
}

function runIdOf(recordId: string): string {
  return RESPONSE_PREFIX + recordId.slice(MESSAGE_PREFIX.length);
}

/** The ids of a message and its answer. They belong to one run. */
function messageIds(runId: string): { readonly message: string; readonly answer: string } {
  const hex = runId.slice(RESPONSE_PREFIX.length);
  return { message: `msg_${hex}_user`, answer: `msg_${hex}_answer` };
}

/** Whether the run may wait for something new after an item. */
function asksSomething(item: Item): boolean {
  if (item.type !== 'fact') return false;
  const { event } = item;
  switch (event.type) {
    case 'calls-judged':
      return event.verdicts.some(({ type }) => type === 'ask');
    case 'policy-changed':
      return Object.values(event.verdicts ?? {}).some(({ type }) => type === 'ask');
    case 'questions-asked':
    case 'tool-parked':
      return true;
    default:
      return false;
  }
}

function answerOf(answer: ChatAnswer, effect: string): Answer {
  if ('answer' in answer) return { type: 'answer', effect, value: answer.answer };
  const { approved, digest, reason } = answer;
  return { type: 'approval', effect, digest, approved, ...(reason !== undefined && { reason }) };
}

function unknownAsk(id: string, index: number): ApiError {
  const message = `This conversation has no approval or question ${JSON.stringify(id)}. Use the id of its event.`;
  return new ApiError(404, 'not_found_error', message, { param: `answers[${index}].id`, code: 'request_not_found' });
}

function busy(id: string): ApiError {
  const message = `The conversation ${JSON.stringify(id)} has an answer in progress. Wait for its end, cancel it, or add a message to it with POST /v1/chat/{id}/messages.`;
  return new ApiError(409, 'invalid_request_error', message, { param: 'conversation_id', code: 'conversation_busy' });
}
