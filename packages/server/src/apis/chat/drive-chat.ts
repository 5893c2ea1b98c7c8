import { isPaused, waiting, type Item, type Message, type RunFacts } from '@treadle/core';
import { requestedSkills, withSkillText, type Skill } from '@treadle/core/skills';
import type { RequestRecord } from '@treadle/store';
import { badRequest } from '../../api-error.ts';
import { storedState, type Conversation } from '../../history/conversation.ts';
import type { Engine, ServerStore } from '../../engine/engine.ts';
import { OWN_LABEL } from '../../engine/executors.ts';
import { principalOf } from '../../engine/tools.ts';
import { projected, walkRun } from '../../requests/projection.ts';
import type { Ending } from '../../requests/ending.ts';
import {
  planRun,
  type ResumedRun,
  type RunEnd,
  type RunPlan,
  type RunRequest,
  type StoredRunPlan,
} from '../../requests/run.ts';
import type {
  DrivenRequest,
  FailedEnding,
  PlannedRequest,
  ReplayedRecord,
  Requests,
  Resumption,
  StoredEnd,
  TakenRun,
} from '../../requests/requests.ts';
import { readRecord, type Reader } from '../../engine/stored-reads.ts';
import { messageText, sentMessage } from './attachments.ts';
import { messageIds, type StoredAnswer, type StoredMessage } from '../../history/conversation-records.ts';
import type { ConversationHistories } from '../../history/conversation-history.ts';
import type { ChatSink, ChatStreams } from './chat-streams.ts';
import { chatUsage, type AnswerPart, type ChatEvent, type ChatProblem } from './wire.ts';
import { chatProjection, endError, statusOf } from './projection.ts';
import { textInputFor, type TextInput } from './text-input.ts';
import { messageTitle, type Untitled } from './titles.ts';

/*
 * The run that answers a message, from its plan to its stored end. A new message (start-chat.ts) and a stored one are driven
 * in the same way.
 */

/** What drives the runs of conversations. */
export interface ChatDriver {
  readonly engine: Engine;
  readonly stored: Requests;
  readonly streams: ChatStreams;
  readonly histories: ConversationHistories;
  /** Called when an answer has ended whose conversation has no title, or the first words of its message as its title. */
  readonly onUntitled?: (untitled: Untitled) => void;
}

interface PlannedMessage extends StoredRunPlan, Pick<RunPlan, 'waits'> {
  /** The conversation, if the run is new. */
  readonly session?: string;
  readonly labels?: RunFacts['labels'];
  readonly carried: Conversation['carried'];
  readonly after: Conversation['after'];
  readonly messages: readonly Message[];
  /** The texts of system and developer messages. */
  readonly system?: readonly string[];
}

/** `input`: what the model gets instead of images and files that it does not take. Undefined if it takes everything. */
export async function planMessage(
  current: Engine,
  {
    model,
    tools: given,
    functions = [],
    memory,
    device,
    approvals,
    lift,
  }: Pick<StoredMessage, 'model' | 'tools' | 'functions' | 'memory' | 'device' | 'approvals' | 'lift'>,
  { messages, system = [], carried, after, ...run }: PlannedMessage,
): Promise<{ readonly plan: RunPlan; readonly input: TextInput | undefined }> {
  const engine = judgedFor(current, { approvals, key: run.caller.key });
  const tools = given ?? (device === undefined ? undefined : []);
  const named = tools && { ...engine, serverTools: { ...engine.serverTools, defaultTools: [] } };
  const request: RunRequest = {
    functions,
    otherTools: [
      ...(tools && tools.length > 0 ? [{ type: 'mcp', server_label: OWN_LABEL, allowed_tools: tools }] : []),
      ...(device === undefined ? [] : [{ type: 'mcp', server_label: `device:${device}` }]),
    ],
    toolChoice: 'auto',
    parallel: true,
    settings: {},
    truncation: 'auto',
    ...(model !== undefined && { model }),
  };
  const { skills = [] } = engine;
  const taken = memory ? { ...carried, memory: { ...carried?.memory, ...memory } } : carried;
  const said = withChatSkills({ messages, carried: taken }, skills);
  const conversation = {
    messages: said.messages.map(sentMessage),
    instructions: system,
    carried: said.carried,
    after,
  };
  const plan = await planRun(named ?? engine, request, conversation, { ...run, closingTurn: true, keeps: true });
  const input = textInputFor(plan.model, model ?? engine.models.default);
  const lifted = lift ? { ...plan, lift } : plan;
  return { plan: input ? { ...lifted, model: input.model } : lifted, input };
}

/** What a new message is answered with. */
interface ChatInput {
  readonly messages: readonly Message[];
  readonly carried: Conversation['carried'];
}

/**
 * A message that begins with a slash and the name of a skill activates it: the model gets its text with the message, and the
 * conversation is narrowed from then on. Rejects with a 400 if the user may not activate the skill.
 */
function withChatSkills({ messages, carried }: ChatInput, skills: readonly Skill[]): ChatInput {
  const told = { messages, carried };
  const last = messages.at(-1);
  if (last?.role !== 'user') return told;
  const [, name, task = ''] = /^\/([a-z0-9-]+)(?:\s+(.*))?$/s.exec(messageText(last).trim()) ?? [];
  if (name === undefined || !skills.some((skill) => skill.name === name)) return told;
  const activation = requestedSkills(skills, [name], task);
  if (activation.type === 'refused') throw badRequest(activation.reason, 'message');
  return {
    messages: [...messages.slice(0, -1), withSkillText(last, activation.text)],
    carried: { ...carried, narrow: [...(carried?.narrow ?? []), ...activation.narrow] },
  };
}

/**
 * The engine with the policy for a message. With keys, who sends a message could approve its own calls, so what the policy asks
 * about is decided by the server's setting alone.
 */
function judgedFor(
  engine: Engine,
  { approvals, key }: { readonly approvals: StoredMessage['approvals'] | undefined; readonly key: string },
): Engine {
  const { askingPolicy } = engine;
  return approvals === 'ask' && key === '' && askingPolicy ? { ...engine, policy: askingPolicy } : engine;
}

interface WarnedChat {
  /** Absent: the model takes everything. */
  readonly input: TextInput | undefined;
  /** The last one is new. */
  readonly messages: readonly Message[];
  readonly model?: string;
  /** The record before. */
  readonly last: Pick<RequestRecord, 'request'> | undefined;
}

/** Warnings about the attachments that are replaced: of the new message, and of all if another model has answered before. */
export async function attachmentWarnings(
  { models }: Pick<Engine, 'models'>,
  { input, messages, model = models.default, last }: WarnedChat,
): Promise<readonly ChatProblem[]> {
  const { model: before = models.default } = (last?.request ?? { model }) as Partial<StoredMessage>;
  return (await input?.warnings(before === model ? messages.slice(-1) : messages)) ?? [];
}

/** The first events of an answer. */
export function firstEvents(
  { models }: Engine,
  { runId, request }: RequestRecord,
  { title, warnings }: { readonly title: string | null; readonly warnings: readonly ChatProblem[] },
): readonly ChatEvent[] {
  const { conversation, model = models.default } = request as StoredMessage;
  const { message: message_id, answer: answer_id } = messageIds(runId);
  const ids = { conversation_id: conversation, message_id, answer_id, run_id: runId };
  return [
    { type: 'conversation_meta', ...ids, title, model },
    ...warnings.map((warning) => ({ type: 'warning' as const, ...warning })),
  ];
}

interface DrivenChat {
  readonly plan: RunPlan;
  readonly record: RequestRecord;
  readonly sink: ChatSink;
  readonly resume?: ResumedRun;
  /** The events that were sent before the process died. Absent: all events so far were sent. */
  readonly sent?: readonly ChatEvent[];
}

/** Starts or resumes a run. Releases the lease of the plan at the end. */
export function driveChat(
  { engine, stored, streams, onUntitled }: ChatDriver,
  { plan, record, sink, resume, sent }: DrivenChat,
): DrivenRequest<StoredEnd> {
  const { store, log } = engine;
  const { id: runId } = plan;
  const { conversation: id, onDisconnect } = record.request as StoredMessage;
  const out = walkRun(chatProjection(runId), { emit: sink.add, sent });
  let announcing = Promise.resolve();

  function addItem(item: Item): void | Promise<void> {
    const room = out.add(item);
    if (!asksSomething(item)) return room;
    // What the run waits for follows from its state, not from the item alone.
    announcing = announcing.then(announceWaiting);
    return announcing;
  }

  async function announceWaiting(): Promise<void> {
    try {
      const state = await storedState(store, runId, { tenant: record.tenant });
      if (state) void out.add({ type: 'waiting', waiting: waiting(state) });
    } catch (error) {
      // Announced again when the run pauses.
      log.warn({ err: error, run: runId }, 'what a chat waits for could not be read');
    }
  }

  return stored.drive<StoredEnd>(plan, {
    id: record.id,
    output: { ...out, add: addItem },
    resume,
    // Without its client, nobody would get the events that are not stored.
    endsWithServer: onDisconnect !== 'continue',
    async flush(end) {
      await announcing;
      if (!end.ending) await sink.flush();
    },
    async finish(end, releaseLease) {
      const { ending, narrowedBy } = end;
      const hasDone = sent?.at(-1)?.type === 'done';
      await endChat(store, { record, sink, parts: out.end(end), ending, narrowedBy, hasDone });
      await releaseLease();
      streams.wakeReaders(id);
      sink.ended();
      if (onUntitled) void titleChat(store, record, onUntitled);
      return {};
    },
    interrupt: (interruption) => ({ interruption }),
  });
}

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
  const {
    messages,
    system,
    carried,
    after: last,
  } = resume
    ? { messages: [], system: [], carried: undefined, after: undefined }
    : await histories.forMessage({ id: conversation, tenant }, record.previous, message.message, { hold });
  // Those of a run that has started are in its journal.
  const { instructions = '' } = (!resume && (await store.conversations.get(tenant, conversation))) || {};
  const told = [instructions, ...system, ...(message.instructions ?? [])];
  const planned = { ...run, waits: 'for-client' as const, messages, system: told, carried, after: last };
  const { plan, input } = await planMessage(engine, message, planned);

  async function drive() {
    const sink = streams.storedSink(plan, conversation, await store.streams.last(conversation));
    const sent = continues ? await streams.eventsAfter(conversation, after, hold) : undefined;
    if (sent?.length === 0) {
      const { previous } = record;
      const last = previous === undefined ? undefined : await readRecord(store, previous, { tenant, hold });
      const warned = { ...message, input, last, messages: resume ? [message.message] : messages };
      const warnings = await attachmentWarnings(engine, warned);
      for (const event of firstEvents(engine, record, { title: null, warnings })) void sink.add(event);
    }
    const hasEnded = state.phase.type === 'ended';
    // The client of a run that was not paused has disconnected: its process died.
    const isAbandoned = !continues && !isPaused(state) && !hasEnded;
    const isCancelled = run.isCancelled || isAbandoned;
    const replayed = resume && {
      ...resume,
      items: [...resume.items, { type: 'waiting', waiting: waiting(state) } as const],
      isOver: hasEnded || isCancelled,
    };
    return driveChat(driver, {
      plan: { ...plan, isCancelled },
      record,
      sink,
      ...(replayed && { resume: replayed }),
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
  const parts = projected(chatProjection(record.runId), items);
  void sink.add({ type: 'error', ...ending.error });
  await endChat(store, { record, sink, parts, ending, hasDone: false });
}

interface EndedChat {
  readonly record: RequestRecord;
  readonly sink: ChatSink;
  readonly parts: readonly AnswerPart[];
  readonly ending: Ending;
  readonly narrowedBy?: RunEnd['narrowedBy'];
  /** The stream already ends with `done`. */
  readonly hasDone: boolean;
}

/** Stores the end of a run. Another process may have been first. */
async function endChat(
  { requests: records, conversations }: ServerStore,
  { record, sink, parts, ending, narrowedBy, hasDone }: EndedChat,
): Promise<void> {
  const status = statusOf(ending);
  const { conversation, message } = record.request as StoredMessage;
  if (!hasDone) await sink.flush({ type: 'done', status, ...(narrowedBy && { narrowed_by: narrowedBy }) });
  const response: StoredAnswer = {
    parts,
    error: endError(ending) ?? null,
    usage: chatUsage(ending.usage),
    ...(narrowedBy && { narrowedBy }),
  };
  const texts = parts.flatMap((part) => (part.type === 'text' || part.type === 'input' ? part.text : []));
  await Promise.all([
    records.finish(record.id, { status, response, at: ending.at }),
    conversations.setText(conversation, record.id, [messageText(message), ...texts].join('\n')),
  ]);
}

async function titleChat(
  { conversations }: ServerStore,
  { tenant, request }: RequestRecord,
  onUntitled: NonNullable<ChatDriver['onUntitled']>,
): Promise<void> {
  const { conversation, message, model, key, scopes } = request as StoredMessage;
  const found = await conversations.get(tenant, conversation).catch(() => undefined);
  const isUntitled = found?.title === '' || found?.title === messageTitle(message);
  if (!found || !isUntitled) return;
  const caller = principalOf({ tenant, key, scopes });
  onUntitled({ conversation: found, message, caller, ...(model !== undefined && { model }) });
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
    case 'call-rejudged':
      return event.verdict?.type === 'ask' || event.effect.includes('.approval.');
    case 'questions-asked':
    case 'tool-parked':
      return true;
    default:
      return false;
  }
}
