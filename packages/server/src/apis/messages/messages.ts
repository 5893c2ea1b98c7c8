import { requestTokens, type Message, type Model } from '@treadle/core';
import type { AnthropicContextManagement, AnthropicEvent, AnthropicMessage } from '@treadle/models/anthropic-wire';
import { ApiError, badRequest } from '../../api-error.ts';
import { mayInvoke, modelNames, servedName, type Capacity, type Engine } from '../../engine/engine.ts';
import { acceptsMedia, checkSettings, notTaken, takesSetting } from '../../engine/request-model.ts';
import { readRecord, type Reader } from '../../engine/stored-reads.ts';
import { isLeftOut, type RequestTool, type ServerList } from '../../engine/executors.ts';
import type { RequestToolChoice, Toolset } from '../../engine/tools.ts';
import { restoreKeptTurns, type KeptTurn } from '../../history/kept-turns.ts';
import type { Conversation } from '../../history/conversation.ts';
import type { Caller } from '../../http/admission.ts';
import { keptTurnsId, newResponseId, wireMessageId } from '../../ids.ts';
import { withoutSecrets } from '../../parse/tools.ts';
import type { RepeatedRequest } from '../../requests/follow.ts';
import type { RequestKey } from '../../requests/idempotency.ts';
import { isDrivenElsewhere, retryLater, TAKEN_OVER, type Interruption } from '../../requests/interruption.ts';
import { walkRun } from '../../requests/projection.ts';
import type {
  DrivenRequest,
  FailedEnding,
  NewRecord,
  PlannedRequest,
  RecordToStore,
  ReplayedRecord,
  RequestKind,
  Requests,
  Resumption,
  StoredEnd,
  TakenRun,
} from '../../requests/requests.ts';
import {
  planRun,
  storedCaller,
  type ResumedRun,
  type RunPlan,
  type RunRequest,
  type StoredCaller,
} from '../../requests/run.ts';
import { reasoningSeal, tenantSeals, type ReasoningSeal } from '../responses/reasoning-seal.ts';
import { editedConversation } from './context-edits.ts';
import { conversationOf, toolsAfter } from './conversation.ts';
import { unknownModel } from './errors.ts';
import type { MessageRequest, ThinkingDisplay } from './parse-request.ts';
import { runTools, type DeclaredFunction } from './parse-tools.ts';
import { messageProjection, replayedEvents, shownResult } from './projection.ts';
import {
  checkContinuable,
  claimOf,
  continuationKey,
  fingerprintsOf,
  readThread,
  type StoredThread,
} from './threads.ts';

/** Runs the requests of the Messages API. */
export interface Messages {
  /**
   * Validates everything, and stores the request. Rejects with an `ApiError`. For a key that was used before, the prepared message
   * is that of the first request.
   */
  prepare(request: MessageRequest, caller: Caller, options?: MessageOptions): Promise<PreparedMessage>;
  /** An estimate of the tokens that the model would receive. */
  countTokens(request: MessageRequest, caller: Caller): Promise<TokenCount>;
}

export interface MessageOptions {
  readonly key?: RequestKey | undefined;
  /** The session of the client. Absent: that of its thread, if there is one. */
  readonly session?: string | undefined;
}

export interface TokenCount {
  readonly input_tokens: number;
  readonly context_management: { readonly original_input_tokens: number } | null;
}

export type EmitMessage = (event: AnthropicEvent) => void | Promise<void>;

export interface PreparedMessage {
  readonly id: string;
  /**
   * Rejects if the store fails. `signal` aborts when the client disconnects: the run is cancelled, unless it has a key, because the
   * client can ask for it again.
   */
  run(emit: EmitMessage | undefined, signal: AbortSignal): Promise<AnthropicMessage | ApiError>;
}

interface MessageRun extends RunRequest {
  readonly model: string;
  readonly functions: readonly DeclaredFunction[];
}

/** What a run and its client need of a request. With a key it is stored, so its fields must not change. */
interface RunnableMessage {
  readonly request: MessageRun;
  readonly messages: readonly Message[];
  readonly system: readonly string[];
  readonly thinking?: ThinkingDisplay;
  readonly edited: AnthropicContextManagement | null;
}

/** The stored form of a request. The store's records contain it, so its fields must not change. */
interface StoredMessageRequest extends StoredCaller {
  readonly model: string;
  /** Absent: the request has no key, so that nobody gets the message if the process dies. */
  readonly message?: RunnableMessage;
  /** The tools of MCP servers that it was started with, if it has a key. */
  readonly lists?: readonly ServerList[];
  /** Absent: the client holds the conversation. */
  readonly thread?: StoredThread;
}

/** The end of a request with a key; of others it is empty. Stored as JSON, so its fields must not change. */
interface StoredMessageEnd {
  readonly message?: AnthropicMessage;
  readonly error?: Pick<ApiError, 'status' | 'type' | 'message' | 'param' | 'code' | 'headers'>;
}

interface PlannedMessage extends PlannedRequest {
  readonly plan: RunPlan;
  readonly message: RunnableMessage;
  readonly thread: StoredThread | undefined;
  readonly seal: ReasoningSeal;
  readonly createdAt: number;
}

/**
 * Every message is stored with its run, as a response is. Without a key its run ends with the connection of its client, and with
 * its process, because the API has no way to ask for a message again.
 */
export function messages(engine: Engine, all: Requests): Messages {
  const { store } = engine;
  const records = store.requests;
  const sealFor = tenantSeals(store, 'reasoning', reasoningSeal);
  all.register('anthropic-message', { plan: planStored, fail: failMessage });

  /** The turns of earlier messages that the client does not have in full. */
  function keptTurns(reader: Reader): (runId: string) => Promise<readonly KeptTurn[]> {
    const known = new Map<string, readonly KeptTurn[]>();
    return async (runId) => {
      const found = known.get(runId);
      if (found) return found;
      const record = await readRecord(store, keptTurnsId(runId), reader);
      const { turns = [] } = (record?.response ?? {}) as { readonly turns?: readonly KeptTurn[] };
      known.set(runId, turns);
      return turns;
    };
  }

  interface ReadRequest {
    readonly message: RunnableMessage;
    readonly conversation: Conversation;
    readonly thread: StoredThread | undefined;
    /** Signs the reasoning that the client gets. */
    readonly seal: ReasoningSeal;
    /** The messages before some were edited. */
    readonly original: readonly Message[];
  }

  /** What a request means, with the thread that it continues. `id`: of its run. */
  async function readRequest(
    given: MessageRequest,
    id: string,
    reader: Reader & Pick<Caller, 'scopes'>,
  ): Promise<ReadRequest> {
    const {
      messages: parsed,
      system: told,
      tools: declared,
      servers,
      thread: threading,
      thinking,
      edits,
      ...run
    } = given;
    const name = modelOf(run.model, reader.scopes);
    const continued =
      threading?.type === 'continue' ? await readThread(store, threading.previous, given, reader) : undefined;
    const tools = toolsAfter(continued?.tools ?? declared ?? [], parsed);
    const seal = await sealFor(reader.tenant);
    const said = conversationOf(parsed, { before: continued?.before, openThought: seal.open });
    const system = [...(continued?.instructions ?? told ?? []), ...said.system];
    const original = await restoreKeptTurns(said.messages, keptTurns(reader), shownResult);
    const offered = runTools(tools, servers);
    const others = edits ? requestTokens([], 0, system.join('\n\n'), offered.functions.map(specOf)) : 0;
    const { messages: sent, applied } = editedConversation(original, edits ?? [], others);
    const model = engine.models.models.get(name)!;
    const message: RunnableMessage = {
      request: {
        ...run,
        ...offered,
        settings: takenSettings(model, run.settings),
        toolChoice: knownChoice(run.toolChoice, offered.otherTools, engine.serverTools),
      },
      messages: sent,
      system,
      ...(thinking && { thinking }),
      edited: edits ? { applied_edits: applied } : null,
    };
    checkSupport(model, message);
    const { carried, after } = continued?.before ?? {};
    return {
      message,
      conversation: { messages: sent, instructions: system, carried, after },
      thread: threading && {
        first: continued?.first ?? wireMessageId(id),
        fingerprints: continued?.fingerprints ?? fingerprintsOf(given),
        instructions: system,
        tools,
      },
      seal,
      original,
    };
  }

  function modelOf(name: string, scopes: readonly string[]): string {
    try {
      return servedName(engine, name, scopes);
    } catch {
      const { default: standard, models } = engine.models;
      if (!mayInvoke(scopes)) throw unknownModel(name, modelNames(engine, scopes));
      throw unknownModel(name, [standard, ...[...models.keys()].filter((one) => one !== standard)], standard);
    }
  }

  async function planMessage(
    given: MessageRequest,
    caller: Caller,
    { session, hold }: Pick<MessageOptions, 'session'> & Pick<Capacity, 'hold'>,
  ): Promise<PlannedMessage> {
    const id = newResponseId();
    const { tenant, scopes } = caller;
    const { message, conversation, thread, seal } = await readRequest(given, id, { tenant, scopes, hold });
    const plan = await planRun(engine, message.request, conversation, {
      id,
      caller,
      keeps: thread !== undefined,
      session: session ?? thread?.first,
    }).catch(inWordsOfApi);
    return { plan, message, thread, seal, createdAt: Date.now() };
  }

  async function prepareMessage(
    given: MessageRequest,
    caller: Caller,
    options: MessageOptions = {},
  ): Promise<PreparedMessage> {
    const { tenant, hold } = caller;
    const { key } = options;
    const { thread } = given;
    const previous = thread?.type === 'continue' ? thread.previous : undefined;
    const once = await all.createOnce(
      {
        tenant,
        plan: (count) => planMessage(given, caller, { ...options, hold: count }),
        complete(planned, count) {
          checkServers(planned.plan.toolset);
          count(planned.plan.size);
          return { request: planned, stored: recordOf(planned, key, previous) };
        },
      },
      key,
      previous === undefined
        ? undefined
        : (): Promise<PreparedMessage | undefined> => checkContinuable(store, previous, tenant),
    );
    if (once.type === 'claimed') return once.claimed;
    if (once.type === 'repeated') {
      const prepareAgain = (): Promise<PreparedMessage> => prepareMessage(given, caller, options);
      return repeatedMessage({ tenant, hold, key: key!, id: once.id }, prepareAgain);
    }
    const { plan, message, seal, releaseCapacity } = once.created;
    return {
      id: wireMessageId(plan.id),
      async run(emit, signal) {
        const running = {
          message,
          seal,
          isKeyed: key !== undefined,
          previous,
          ...(emit && { emit }),
          ...(!key && { signal }),
        };
        try {
          return (await runMessage(plan, running).finished).result;
        } catch (error) {
          if (!isDrivenElsewhere(error)) throw error;
          return key ? retryLater(TAKEN_OVER) : interrupted(TAKEN_OVER);
        } finally {
          releaseCapacity();
        }
      },
    };
  }

  function recordOf(
    { plan, message, thread, createdAt }: PlannedMessage,
    key: RequestKey | undefined,
    previous: string | undefined,
  ): NewRecord {
    const { id, caller } = plan;
    const { request } = message;
    const stored = { ...message, request: { ...request, otherTools: request.otherTools.map(withoutSecrets) } };
    const record: RecordToStore<StoredMessageRequest> = {
      id: wireMessageId(id),
      kind: 'anthropic-message',
      tenant: caller.tenant,
      runId: id,
      status: 'in_progress',
      createdAt,
      updatedAt: createdAt,
      ...(previous !== undefined && { previous }),
      request: {
        model: request.model,
        ...(key && { message: stored, lists: plan.toolset.lists }),
        ...(thread && { thread }),
        ...storedCaller(plan),
      },
    };
    const keys = [
      ...(key ? [all.keyToStore(key, createdAt)] : []),
      ...(previous === undefined ? [] : [claimOf(previous, createdAt)]),
    ];
    return { record, keys, ...(key && { input: message.messages }) };
  }

  /** The message of an earlier request with the same key. `prepareAgain` is called if that request released the key. */
  function repeatedMessage(repeated: RepeatedRequest, prepareAgain: () => Promise<PreparedMessage>): PreparedMessage {
    return {
      id: repeated.id,
      async run(emit, signal) {
        const record = await all.follow(repeated, signal);
        if (!record) return (await prepareAgain()).run(emit, signal);
        const { message, error } = record.response as StoredMessageEnd;
        if (message) {
          for (const event of emit ? replayedEvents(message) : []) await emit!(event);
          return message;
        }
        const { status, type, message: text, param, code, headers } = error!;
        return new ApiError(status, type, text, {
          ...(param !== null && { param }),
          ...(code !== null && { code }),
          headers,
        });
      },
    };
  }

  interface RunningMessage {
    readonly message: RunnableMessage;
    readonly seal: ReasoningSeal;
    readonly isKeyed: boolean;
    /** The message that it continues. */
    readonly previous?: string | undefined;
    readonly emit?: EmitMessage;
    /** Set if the run has started before. */
    readonly resume?: ResumedRun;
    /** Cancels the run. */
    readonly signal?: AbortSignal;
  }

  interface EndedMessage extends StoredEnd {
    readonly result: AnthropicMessage | ApiError;
  }

  /** Drives the run of a message. What the next request needs is stored before the client receives the end. */
  function runMessage(
    plan: RunPlan,
    { message, seal, isKeyed, previous, emit, resume, signal }: RunningMessage,
  ): DrivenRequest<EndedMessage> {
    const { request, thinking, edited } = message;
    const id = wireMessageId(plan.id);
    const { toolset, caller } = plan;
    const projection = messageProjection({
      runId: plan.id,
      model: request.model,
      calls: toolset.kinds,
      names: new Map(
        request.functions.flatMap(({ name, wireName }) => (wireName === undefined ? [] : [[name, wireName]])),
      ),
      thinking: thinking && { display: thinking, seal },
      edited,
      stops: request.settings.stop ?? [],
      answerOnly: request.format !== undefined && toolset.tools.some(({ execute }) => execute),
    });
    const out = walkRun(projection, { emit });
    return all.drive<EndedMessage>(plan, {
      id,
      output: out,
      resume,
      signal,
      endsWithServer: !isKeyed,
      async finish(end, releaseLease) {
        const { message: result, kept } = out.end(end);
        if (kept.length > 0) await storeKeptTurns(plan, kept);
        await storeEnd(id, result, { isKeyed, releaseKey: end.isUntouched ?? false });
        if (previous !== undefined && result instanceof ApiError) {
          await records.removeKeys({ id, tenant: caller.tenant }, [continuationKey(previous)]);
        }
        await releaseLease();
        out.last();
        return { result };
      },
      interrupt(interruption) {
        return { result: isKeyed ? retryLater(interruption) : interrupted(interruption), interruption };
      },
    });
  }

  async function storeKeptTurns({ id: runId, caller }: RunPlan, turns: readonly KeptTurn[]): Promise<void> {
    const id = keptTurnsId(runId);
    // They were stored before if the process died before the end was stored.
    if (await records.head(caller.tenant, id)) return;
    const now = Date.now();
    await records.create({
      id,
      kind: 'turns' satisfies RequestKind,
      tenant: caller.tenant,
      // The turns do not need the run.
      runId: id,
      status: 'completed',
      createdAt: now,
      updatedAt: now,
      request: { key: caller.key },
      response: { turns },
    });
  }

  async function storeEnd(
    id: string,
    result: AnthropicMessage | ApiError,
    { isKeyed, releaseKey }: { readonly isKeyed: boolean; readonly releaseKey: boolean },
  ): Promise<void> {
    const isError = result instanceof ApiError;
    const end: StoredMessageEnd = isError
      ? { error: { ...result, message: result.message } }
      : { ...(isKeyed && { message: result }) };
    await records.finish(id, { status: isError ? 'failed' : 'completed', response: end, at: Date.now(), releaseKey });
  }

  /** Plans a message again: one with a key for a client that sends its request again, any other one to be cancelled. */
  async function planStored({ record, run, resume }: TakenRun): Promise<PlannedRequest & Resumption> {
    const { message: stored, lists = [], model } = record.request as StoredMessageRequest;
    if (!stored && !resume) throw new ApiError(503, 'server_error', ABANDONED, { code: 'cancelled' });
    const message = stored ?? { ...NOTHING, request: { ...NOTHING.request, model } };
    const conversation = resume
      ? { messages: [], instructions: [] }
      : { messages: message.messages, instructions: message.system };
    const seal = await sealFor(record.tenant);
    const planned = await planRun(engine, message.request, conversation, { ...run, lists });
    const plan = { ...planned, isCancelled: planned.isCancelled || !stored };
    const { previous } = record;
    const running = { message, seal, isKeyed: stored !== undefined, previous, ...(resume && { resume }) };
    return { plan, drive: () => runMessage(plan, running) };
  }

  function failMessage({ record }: ReplayedRecord, { error: { code, message } }: FailedEnding): Promise<void> {
    const isKeyed = (record.request as StoredMessageRequest).message !== undefined;
    return storeEnd(record.id, new ApiError(502, 'server_error', message, { code }), { isKeyed, releaseKey: false });
  }

  return {
    prepare: prepareMessage,
    async countTokens(given, caller) {
      const { tenant, scopes, hold } = caller;
      const id = newResponseId();
      const { message, conversation, original } = await readRequest(given, id, { tenant, scopes, hold });
      const plan = await planRun(engine, message.request, conversation, { id, caller }).catch(inWordsOfApi);
      const { instructions, toolset } = plan;
      await toolset.close();
      const tokensOf = (sent: readonly Message[]): number =>
        requestTokens(sent, sent.length, instructions, toolset.tools);
      return {
        input_tokens: tokensOf(plan.messages),
        context_management: given.edits ? { original_input_tokens: tokensOf(original) } : null,
      };
    },
  };
}

/** The 503 for a message that nobody gets any more: without a key it is not resumed. */
function interrupted({ code }: Interruption): ApiError {
  const message = 'The server could not complete the message. Send the request again.';
  return new ApiError(503, 'server_error', message, { code, headers: { 'Retry-After': '1' } });
}

const ABANDONED = 'The server stopped before the run of this message had started, and its client has gone.';

/** What is left of a request without a key: its run is only cancelled. */
const NOTHING: Omit<RunnableMessage, 'request'> & { readonly request: Omit<MessageRun, 'model'> } = {
  request: { functions: [], otherTools: [], toolChoice: 'auto', parallel: true, settings: {}, truncation: 'disabled' },
  messages: [],
  system: [],
  edited: null,
};

function specOf({ name, description, parameters }: DeclaredFunction) {
  return { name, description: description ?? '', parameters: parameters ?? {} };
}

/** A choice may name a tool of the server. One that the model does not get is not called: Claude Code asks for its own search so. */
function knownChoice(
  choice: RequestToolChoice,
  others: readonly RequestTool[],
  served: Engine['serverTools'],
): RequestToolChoice {
  if (typeof choice === 'string' || choice.type !== 'function') return choice;
  const named = others.find((tool) => tool.type !== 'mcp' && tool['name'] === choice.name);
  if (!named) return choice;
  return isLeftOut(named, served) ? 'auto' : { type: 'allowed_tools', mode: 'required', tools: [{ type: named.type }] };
}

/** How much to think is a hint: models that do not take it decide themselves. */
function takenSettings(model: Model, settings: RunRequest['settings']): RunRequest['settings'] {
  if (settings.reasoning === undefined || takesSetting(model, 'reasoning', settings)) return settings;
  const { reasoning: _, ...others } = settings;
  return others;
}

/** Throws a 400 for what the model of a request does not take. */
function checkSupport(model: Model, { request, messages: sent }: RunnableMessage): void {
  checkSettings(model, request.model, request.settings, {
    reasoning: 'thinking',
    topLogprobs: 'logprobs',
    stop: 'stop_sequences',
  });
  for (const { role, content } of sent) {
    if (role === 'assistant') continue;
    const blocks = role === 'user' ? content : content.flatMap((result) => result.content);
    for (const block of blocks) {
      if (block.type !== 'file' || acceptsMedia(model, block)) continue;
      throw notTaken(request.model, 'source.url', "Send the document itself, with the type 'base64'");
    }
  }
}

/** The API has no message that goes on without a server that is down. */
function checkServers({ lists }: Toolset): void {
  const down = lists.find(({ error }) => error !== undefined);
  if (!down) return;
  throw badRequest(
    `The MCP server '${down.label}' does not list its tools: ${down.error}`,
    'mcp_servers',
    'unsupported_tool',
  );
}

/** Errors about tools have the words of the Responses API. */
function inWordsOfApi(error: unknown): never {
  if (!(error instanceof ApiError) || error.code !== 'unsupported_tool') throw error;
  const message = `${error.message.split('. ')[0]}. Declare a tool of your own with 'name' and 'input_schema', or a server in 'mcp_servers'. The tools of this server are those of {"type": "mcp_toolset", "mcp_server_name": "treadle"}.`;
  throw badRequest(message, 'tools', 'unsupported_tool');
}
