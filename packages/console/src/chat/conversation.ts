import { batch, computed, signal, type ReadonlySignal, type Signal } from '@preact/signals';
import type {
  AskRequest,
  CallDecision,
  CallResult,
  ChatAnswer,
  ChatAnswerMessage,
  ChatConversation,
  ChatEvent,
  ChatMessage,
  ChatProblem,
  ChatUsage,
  MemorySwitch,
  StoredAttachment,
} from '@treadle/server/wire';
import { ConnectionError, followEvents, RequestError } from '../api/client.ts';
import { serverInfo } from '../api/server-info.ts';
import { announce, notify } from '../shell/announce.tsx';
import * as api from './api.ts';

/*
 * The conversation that is shown. Its answer in progress is built from the events of its stream:
 *
 * 1. Each event is applied once, in order. `seq` of the last one is where the stream continues after a lost connection.
 * 2. What `GET /v1/chat/{id}` returns is shown first. The stream of an answer in progress starts again before its first event,
 *    which replaces the parts: the stream has more than they do, such as text that is not complete.
 * 3. Texts are signals, and deltas are collected until the next frame, so a delta renders one block and nothing else.
 */

export interface TextPart {
  readonly type: 'text' | 'reasoning';
  readonly id: string;
  readonly text: Signal<string>;
  /** The answer ended before the model completed it. */
  readonly isStopped: Signal<boolean>;
}

export interface CallPart {
  readonly type: 'call';
  readonly id: string;
  readonly name: string;
  readonly arguments: string;
  readonly output: Signal<string>;
  readonly result: Signal<CallResult | null>;
  readonly decision: Signal<CallDecision | undefined>;
  /** When the model called it; undefined if that is not known. */
  readonly startedAt: number | undefined;
}

/** A message that was sent while the answer was in progress. The stream does not have it. */
export interface InputPart {
  readonly type: 'input';
  readonly id: string;
  readonly text: string;
  /** How many of the other parts are before it. */
  readonly after: number;
}

export type Part = TextPart | CallPart | InputPart;

export interface UserMessage {
  readonly role: 'user';
  readonly id: string;
  readonly text: string;
  readonly attachments: readonly ShownAttachment[];
}

/** An attachment of a stored message, or one that was just sent. */
export interface ShownAttachment {
  readonly name: string;
  readonly media_type: string;
  readonly size: number;
  /** The id of a stored one. */
  readonly id?: string;
  /** The content of one that was just sent, in base64. */
  readonly data?: string;
}

export interface AnswerMessage {
  readonly role: 'assistant';
  readonly id: string;
  readonly run: string | undefined;
  readonly model: string | null;
  readonly status: Signal<ChatAnswerMessage['status']>;
  readonly parts: Signal<readonly Part[]>;
  readonly waiting: Signal<readonly AskRequest[]>;
  readonly warnings: Signal<readonly string[]>;
  readonly error: Signal<ChatProblem | null>;
  readonly usage: Signal<ChatUsage | null>;
  /** The sources of what narrows the next answer. */
  readonly narrowedBy: Signal<readonly string[]>;
}

export type Message = UserMessage | AnswerMessage;

export interface Conversation {
  /** Undefined until the server has named it. */
  readonly id: ReadonlySignal<string | undefined>;
  readonly title: Signal<string | null>;
  /** What the model is told in the conversation. A new one is created with it. Empty: nothing. */
  readonly instructions: ReadonlySignal<string>;
  readonly messages: ReadonlySignal<readonly Message[]>;
  readonly state: ReadonlySignal<'loading' | 'ready' | 'missing' | 'failed'>;
  readonly problem: ReadonlySignal<string | undefined>;
  /** An answer is in progress, or waits for an answer of the user. */
  readonly isBusy: ReadonlySignal<boolean>;
  /** The sources of what narrows the next answer. */
  readonly narrowedBy: ReadonlySignal<readonly string[]>;
  /** Those of them that the next message lifts. */
  readonly lifted: Signal<readonly string[]>;
  /** What it uses of the memory of the server, from the next message on. */
  readonly memory: Signal<MemorySwitch>;
  /** Whether what it says is never remembered. That stays. */
  readonly isIncognito: ReadonlySignal<boolean>;
  load(): Promise<void>;
  /** For the next messages. Resolves when the server has them, or, before the first message, at once. */
  instruct(instructions: string): Promise<void>;
  /** Shows what others have done since: messages that they sent, and approvals that they gave. */
  refresh(): Promise<void>;
  /** Resolves when the server has the message. Rejects if it was refused, or may not have arrived; also after `close`. */
  send(text: string, options: SendOptions): Promise<void>;
  steer(text: string): Promise<void>;
  stop(): Promise<void>;
  answer(ask: AskRequest, answer: ChatAnswer): Promise<void>;
  /** Stops reading. The answer goes on. */
  close(): void;
}

export interface SendOptions {
  readonly attachments?: readonly api.NewAttachment[];
  readonly model?: string | undefined;
  /** The model has the tools of this device, and not those of the server. */
  readonly device?: string | undefined;
}

export interface ConversationEvents {
  /** The server has named a new conversation. */
  readonly onCreated: (id: string) => void;
  /** The list has to be read again: an answer has begun or ended. */
  readonly onChanged: () => void;
}

export function openConversation(
  given: string | undefined,
  { onCreated, onChanged }: ConversationEvents,
): Conversation {
  const id = signal(given);
  const title = signal<string | null>(null);
  const instructions = signal('');
  const messages = signal<readonly Message[]>([]);
  const state = signal<'loading' | 'ready' | 'missing' | 'failed'>(given === undefined ? 'ready' : 'loading');
  const problem = signal<string | undefined>(undefined);
  const isBusy = computed(() => {
    const last = messages.value.at(-1);
    return last?.role === 'assistant' && isOpen(last);
  });
  const narrowedBy = computed(() => {
    const last = messages.value.findLast((message) => message.role === 'assistant');
    return last?.narrowedBy.value ?? [];
  });
  const lifted = signal<readonly string[]>([]);
  const memory = signal<MemorySwitch>('on');
  /** As the server has it. */
  const storedMemory = signal<MemorySwitch>('on');
  const isIncognito = computed(() => storedMemory.value === 'incognito');
  const closed = new AbortController();
  const deltas = deltaBuffer();
  let lastSeq = 0;
  /** The events are those of the last answer. A stream may begin with those of answers before it. */
  let isStreaming = false;
  let hasSteered = false;
  /** Changes when a message is sent and when an answer is followed. */
  let follows = 0;
  /** Resolves when the server has begun the answer to the last message, or does not have it. */
  let begun = Promise.resolve();
  let begin = (): void => {};
  /** The ids of what waited when the answer was loaded. Undefined: all of its events were seen here. */
  let loadedAsks: ReadonlySet<string> | undefined;
  let loads = 0;
  /** The last load. */
  let loading = Promise.resolve();

  function currentAnswer(): AnswerMessage {
    return messages.value.at(-1) as AnswerMessage;
  }

  function replaceLast(count: number, ...by: readonly Message[]): void {
    messages.value = [...messages.value.slice(0, -count), ...by];
  }

  /** Returns true if it is the last event of the answer. */
  function apply(event: ChatEvent): boolean {
    if (event.seq <= lastSeq) return false;
    lastSeq = event.seq;
    const answer = currentAnswer();
    if (event.type === 'conversation_meta') isStreaming = answer.id === NEW_ANSWER || answer.run === event.run_id;
    if (!isStreaming) return false;
    switch (event.type) {
      case 'conversation_meta': {
        const user = messages.value.at(-2) as UserMessage;
        const isNew = id.value === undefined;
        const begun = newAnswer({ id: event.answer_id, run: event.run_id, model: namedModel(event.model) });
        begun.parts.value = answer.parts.value.filter((part) => part.type === 'input');
        hasSteered ||= begun.parts.value.length > 0;
        batch(() => {
          if (event.title !== null) title.value = event.title;
          replaceLast(2, { ...user, id: event.message_id }, begun);
          id.value = event.conversation_id;
        });
        begin();
        if (isNew) onCreated(event.conversation_id);
        onChanged();
        return false;
      }
      case 'token_delta':
      case 'reasoning_delta': {
        const type = event.type === 'token_delta' ? 'text' : 'reasoning';
        deltas.add(textPart(answer, event.id, type).text, event.delta);
        return false;
      }
      case 'tool_call_start':
        deltas.flush();
        // The clock of the server is only needed for calls of before.
        addPart(answer, newCall({ ...event, startedAt: loadedAsks ? event.called_at : Date.now() }));
        return false;
      case 'tool_call_decision': {
        const call = callPart(answer, event.id);
        if (call) call.decision.value = event;
        settle(answer, (ask) => 'digest' in ask && ask.call_id === event.id);
        return false;
      }
      case 'tool_call_output': {
        const call = callPart(answer, event.id);
        if (call) deltas.add(call.output, event.delta);
        return false;
      }
      case 'tool_call_result': {
        const call = callPart(answer, event.id);
        if (call) call.result.value = event;
        settle(answer, ({ call_id }) => call_id === event.id);
        return false;
      }
      case 'approval_request':
      case 'question':
        // The stream of an answer that was loaded has those that were answered before, too.
        if (loadedAsks && !loadedAsks.has(event.id)) void checkAsk(answer, event).catch(() => {});
        else addAsk(answer, event);
        return false;
      case 'warning':
        if (event.item === undefined) answer.warnings.value = [...answer.warnings.value, event.message];
        else if (event.code === 'item_stopped') stopText(answer, event.item);
        else answer.parts.value = answer.parts.value.filter((part) => part.id !== event.item);
        return false;
      case 'error':
        answer.error.value = event;
        return false;
      case 'usage':
        answer.usage.value = event;
        return false;
      case 'done':
        deltas.flush();
        batch(() => {
          answer.waiting.value = [];
          answer.status.value = event.status;
          answer.narrowedBy.value = event.narrowed_by ?? [];
        });
        announce(event.status === 'completed' ? 'The answer is complete' : `The answer has ended: ${event.status}`);
        return true;
      default:
        // An event of a newer server.
        return false;
    }
  }

  function addAsk(answer: AnswerMessage, ask: AskRequest): void {
    answer.waiting.value = [...answer.waiting.value.filter((one) => one.id !== ask.id), ask];
    answer.status.value = 'waiting';
    announce('prompt' in ask ? `Question: ${ask.prompt}` : `Approval needed: ${ask.tool}`);
  }

  /** Adds an ask if it is open. */
  async function checkAsk(answer: AnswerMessage, ask: AskRequest): Promise<void> {
    const last = (await api.getConversation(id.value!, closed.signal)).messages.at(-1);
    const open = last?.role === 'assistant' ? last.waiting.find((one) => one.id === ask.id) : undefined;
    if (open && isOpen(answer)) addAsk(answer, open);
  }

  function settle({ waiting, status }: AnswerMessage, isSettled: (ask: AskRequest) => boolean): void {
    if (waiting.value.length === 0) return;
    waiting.value = waiting.value.filter((ask) => !isSettled(ask));
    if (waiting.value.length === 0 && status.value === 'waiting') status.value = 'in_progress';
  }

  const openStream = (): Promise<Response> => api.openStream(id.value!, lastSeq, closed.signal);

  /** Reads the events of the answer until its end. `first`: opens the stream the first time. Undefined: it was lost. */
  async function follow(first: (() => Promise<Response>) | undefined): Promise<void> {
    const own = ++follows;
    const before = messages.value.at(-3)?.id;
    let open = first;
    await followEvents({
      signal: closed.signal,
      async open() {
        const now = open;
        open = undefined;
        if (now) return now();
        return (await catchUp(before)) ? openStream() : undefined;
      },
      onEvent: ({ data }) => apply(JSON.parse(data) as ChatEvent),
    });
    if (closed.signal.aborted) return;
    // Where the messages of the user took effect is known only now. If the next message was sent meanwhile, its answer is
    // followed first.
    if (hasSteered && own === follows) {
      hasSteered = false;
      await load();
    }
    onChanged();
  }

  /**
   * Reads the conversation again, because the stream has ended early: the connection was lost, or the answer is a response of the
   * API, whose events are elsewhere. Returns whether the answer is in progress. `before`: the last message before the one that
   * was sent. Whether that has arrived may not be known, so it is not sent again.
   */
  async function catchUp(before: string | undefined): Promise<boolean> {
    if (id.value === undefined) throw new RequestError(0, NOT_SENT);
    const found = await api.getConversation(id.value, closed.signal);
    const last = found.messages.at(-1);
    const answer = currentAnswer();
    if (answer.id === NEW_ANSWER && last?.id === before) throw new RequestError(0, NOT_SENT);
    const isWhole = isStreaming && last?.role === 'assistant' && last.id === answer.id;
    if (!isWhole || (last.status !== 'in_progress' && last.status !== 'waiting')) showFound(found);
    return isBusy.value;
  }

  function showFound(found: ChatConversation): void {
    const last = found.messages.at(-1);
    if (last?.role === 'assistant') {
      if (isStreaming || last.id !== messages.value.at(-1)?.id) lastSeq = last.events_after;
      loadedAsks = new Set(last.waiting.map((ask) => ask.id));
    }
    isStreaming = false;
    batch(() => {
      title.value = found.title;
      instructions.value = found.instructions ?? '';
      memory.value = storedMemory.value = found.memory ?? 'on';
      const before = messages.value;
      messages.value = found.messages.map((message, index) => {
        const known = before[index];
        const isLast = index >= found.messages.length - 2;
        return known && !isLast && isSame(known, message) ? known : shownMessage(message);
      });
      state.value = 'ready';
    });
    begin();
  }

  function load(): Promise<void> {
    return (loading = loadNow(++loads));
  }

  /** What an older request finds is ignored: it may not have a message that was sent since. */
  async function loadNow(own: number): Promise<void> {
    if (id.value === undefined) return;
    try {
      const found = await api.getConversation(id.value, closed.signal);
      if (own !== loads) return await loading;
      showFound(found);
    } catch (error) {
      if (closed.signal.aborted) return;
      if (own !== loads) return await loading;
      const isMissing = error instanceof RequestError && error.status === 404;
      problem.value = error instanceof Error ? error.message : String(error);
      state.value = isMissing ? 'missing' : 'failed';
      return;
    }
    // It ends when the answer does.
    if (isBusy.value) void follow(openStream).catch((error: unknown) => failAnswer(error));
  }

  /**
   * Sends a message that is shown already. Opening another conversation does not abort it. Undefined: the connection was lost,
   * and whether the message has arrived is not known.
   */
  async function postShown(body: api.NewMessage): Promise<Response | undefined> {
    try {
      return await api.postMessage(body);
    } catch (error) {
      if (!(error instanceof ConnectionError)) throw error;
      // A conversation without an id cannot be looked for, and one that is closed is not.
      if (id.value === undefined || closed.signal.aborted) throw new RequestError(0, NOT_SENT);
      return undefined;
    }
  }

  /** Follows the answer to a message until its end. Rejects if the message may not have arrived. */
  async function followShown(posted: Response | undefined): Promise<void> {
    if (closed.signal.aborted) void posted?.body?.cancel();
    try {
      await follow(posted && (() => Promise.resolve(posted)));
    } catch (error) {
      if (currentAnswer().id === NEW_ANSWER) throw error;
      failAnswer(error);
    }
    if (!closed.signal.aborted) return;
    if (!posted && currentAnswer().id === NEW_ANSWER) throw new RequestError(0, NOT_SENT);
    onChanged();
  }

  function failAnswer(error: unknown): void {
    if (closed.signal.aborted) return;
    const answer = currentAnswer();
    const code = (error instanceof RequestError && error.code) || 'failed';
    answer.error.value = { code, message: error instanceof Error ? error.message : String(error) };
    answer.status.value = 'failed';
  }

  return {
    id,
    title,
    instructions,
    messages,
    state,
    problem,
    isBusy,
    narrowedBy,
    lifted,
    memory,
    isIncognito,
    load,
    async instruct(text) {
      if (id.value !== undefined) await api.changeConversation(id.value, { instructions: text });
      instructions.value = text;
    },
    async refresh() {
      const last = messages.value.at(-1);
      if (id.value === undefined || state.value !== 'ready' || last?.role !== 'assistant') return;
      const asked = new Set(last.waiting.value.map((ask) => ask.id));
      const now = (await api.getConversation(id.value, closed.signal)).messages.at(-1);
      if (last !== messages.value.at(-1)) return;
      if (isBusy.value && now?.id === last.id) {
        const open = new Set(now.role === 'assistant' ? now.waiting.map((ask) => ask.id) : []);
        settle(last, (ask) => asked.has(ask.id) && !open.has(ask.id));
      } else if (!isBusy.value && now?.id !== last.id) await load();
    },
    async send(text, { attachments = [], model, device }) {
      // The message comes after those that are being read.
      await loading;
      if (closed.signal.aborted) throw new Error('Another conversation was opened. Send the message again.');
      if (isBusy.value) throw new Error('The answer before is in progress. Send the message again to add to it.');
      const before = messages.value;
      const shown = attachments.map((one) => ({ ...one, size: Math.floor((one.data.length * 3) / 4) }));
      const user: UserMessage = { role: 'user', id: 'new', text, attachments: shown };
      messages.value = [...before, user, newAnswer({ id: NEW_ANSWER, run: undefined, model: model ?? null })];
      follows += 1;
      const beginning = Promise.withResolvers<void>();
      begin = beginning.resolve;
      begun = beginning.promise.catch(() => {});
      loadedAsks = undefined;
      isStreaming = false;
      const { tools: all = [], agents = [] } = serverInfo.value ?? {};
      // An agent has its own, and so has a device.
      const tools = device !== undefined || agents.some((agent) => agent.model === model) ? [] : all;
      const names = tools.map(({ name }) => name);
      const body: api.NewMessage = {
        ...(id.value !== undefined && { conversation_id: id.value }),
        ...(id.value === undefined && instructions.value !== '' && { instructions: instructions.value }),
        message: text,
        ...(attachments.length > 0 && { attachments }),
        ...(model !== undefined && { model }),
        ...(device !== undefined && { device }),
        // Without default tools a message that names none would get none.
        ...(!tools.some((tool) => tool.is_default) && names.length > 0 && { tools: names }),
        ...(lifted.value.length > 0 && { lift_narrowing: lifted.value }),
        ...(memory.value !== storedMemory.value && { memory: memory.value }),
      };
      // Not `begin`: the next message may have been sent before the stream of this one has ended.
      void postShown(body).then(followShown).then(beginning.resolve, beginning.reject);
      try {
        await beginning.promise;
        lifted.value = [];
        storedMemory.value = body.memory ?? storedMemory.value;
      } catch (error) {
        messages.value = before;
        // Somebody else has sent a message.
        if (error instanceof RequestError && error.code === 'conversation_busy') void load();
        throw error;
      }
    },
    async steer(text) {
      await begun;
      if (!isBusy.value || id.value === undefined) throw new Error('The answer has ended. Send the message again.');
      const answer = currentAnswer();
      hasSteered = true;
      await api.steer(id.value, text);
      if (answer !== currentAnswer() || !isOpen(answer)) return load();
      addPart(answer, { type: 'input', id: `input-${answer.parts.value.length}`, text, after: Infinity });
    },
    async stop() {
      await begun;
      if (isBusy.value && id.value !== undefined) await api.cancel(id.value);
    },
    async answer(ask, answer) {
      await api.sendAnswer(id.value!, answer);
      const message = currentAnswer();
      settle(message, (one) => one.id === ask.id);
      // Others may have to approve it too.
      if ('digest' in ask && ask.required !== undefined) await checkAsk(message, ask);
    },
    close() {
      closed.abort();
      deltas.flush();
    },
  };
}

/** Null for the default model, as `GET /v1/chat/{id}` has it. */
function namedModel(name: string): string | null {
  return serverInfo.value?.models.find(({ id }) => id === name)?.is_default ? null : name;
}

/** The id of an answer that the server has not begun. */
const NEW_ANSWER = 'new-answer';
const NOT_SENT = 'The server could not be reached. Your message may not have arrived. It is a draft again.';

/** Whether the answer is in progress, or waits for the user. What waits without asking waits for a program. */
export function isOpen({ status, waiting }: AnswerMessage): boolean {
  return status.value === 'in_progress' || waiting.value.length > 0;
}

/** Whether a message is shown as it is now. It need not be rendered again. */
function isSame(shown: Message, message: ChatMessage): boolean {
  if (shown.id !== message.id) return false;
  return shown.role === 'user' || (message.role === 'assistant' && shown.status.value === message.status);
}

function shownMessage(message: ChatMessage): Message {
  if (message.role === 'user') {
    return {
      role: 'user',
      id: message.id,
      text: message.content,
      attachments: message.attachments.map(shownAttachment),
    };
  }
  const { id, run_id: run, model, status, parts, warnings, waiting, error, usage, narrowed_by = [] } = message;
  const answer = newAnswer({ id, run: run ?? undefined, model });
  answer.status.value = status;
  let inputs = 0;
  answer.parts.value = parts.map((part, index): Part => {
    if (part.type === 'tool_call') return newCall({ ...part, startedAt: part.called_at });
    if (part.type === 'input') return { type: 'input', id: `input-${index}`, text: part.text, after: index - inputs++ };
    return newText({ type: part.type, id: `${part.type}-${index}` }, part.text, part.stopped);
  });
  answer.warnings.value = warnings.map((warning) => warning.message);
  answer.waiting.value = waiting;
  answer.error.value = error;
  answer.usage.value = usage;
  answer.narrowedBy.value = narrowed_by;
  return answer;
}

function newAnswer({ id, run, model }: Pick<AnswerMessage, 'id' | 'run' | 'model'>): AnswerMessage {
  return {
    role: 'assistant',
    id,
    run,
    model,
    status: signal('in_progress'),
    parts: signal([]),
    waiting: signal([]),
    warnings: signal([]),
    error: signal(null),
    usage: signal(null),
    narrowedBy: signal([]),
  };
}

export function shownAttachment({ name, ...rest }: StoredAttachment): ShownAttachment {
  return { ...rest, name: name ?? 'file' };
}

interface NewCall extends Pick<CallPart, 'id' | 'name' | 'arguments' | 'startedAt'> {
  readonly result?: CallResult | null;
  readonly decision?: CallDecision | undefined;
}

function newCall({ id, name, arguments: text, startedAt, result = null, decision }: NewCall): CallPart {
  return {
    type: 'call',
    id,
    name,
    arguments: text,
    startedAt,
    output: signal(''),
    result: signal(result),
    decision: signal(decision),
  };
}

function textPart(answer: AnswerMessage, id: string, type: TextPart['type']): TextPart {
  const found = answer.parts.value.findLast((part) => part.id === id);
  if (found) return found as TextPart;
  const begun = newText({ type, id });
  addPart(answer, begun);
  return begun;
}

function newText(named: Pick<TextPart, 'type' | 'id'>, text = '', isStopped = false): TextPart {
  return { ...named, text: signal(text), isStopped: signal(isStopped) };
}

function stopText({ parts }: AnswerMessage, id: string): void {
  const found = parts.value.find((part) => part.id === id);
  if (found && 'isStopped' in found) found.isStopped.value = true;
}

/** Adds the next part, before the input that comes after it. */
function addPart({ parts }: AnswerMessage, part: Part): void {
  const all = [...parts.value, part];
  const ordered = all.filter(({ type }) => type !== 'input');
  const count = ordered.length;
  for (const input of all.filter(({ type }) => type === 'input').toReversed() as InputPart[])
    ordered.splice(Math.min(input.after, count), 0, input);
  parts.value = ordered;
}

function callPart({ parts }: AnswerMessage, id: string): CallPart | undefined {
  const found = parts.value.find((part) => part.id === id);
  return found?.type === 'call' ? found : undefined;
}

/** Collects deltas until the next frame. */
function deltaBuffer(): { add(to: Signal<string>, delta: string): void; flush(): void } {
  const waiting = new Map<Signal<string>, string>();
  let isScheduled = false;
  function flush(): void {
    isScheduled = false;
    if (waiting.size === 0) return;
    batch(() => {
      for (const [to, text] of waiting) to.value += text;
      waiting.clear();
    });
  }
  return {
    flush,
    add(to, delta) {
      waiting.set(to, (waiting.get(to) ?? '') + delta);
      if (isScheduled) return;
      isScheduled = true;
      requestAnimationFrame(flush);
      // A page in the background has no frames.
      setTimeout(flush, 100);
    },
  };
}

/** Shows why an action of the user failed. */
export function report(error: unknown): void {
  notify(error instanceof Error ? error.message : String(error));
}
