import type { Memory } from '../machine/rules.ts';
import type { Usage } from '../model.ts';
import { toFrontEndResponse, type FrontEndFrames } from './front-ends.ts';
import type { Live, StreamInit } from './responses.ts';

/** What the client calls the conversation and its request. All events of the request belong to them. */
export interface AgUiIds {
  readonly threadId: string;
  readonly runId: string;
}

/**
 * A run as events of AG-UI, for an `HttpAgent`. A client that disconnects cancels the run. If the run pauses, the stream ends with
 * interrupts for approvals and questions, whose ids are the effects that it waits for, and with the ids of calls for the client.
 */
export function toAgUiResponse(live: Live, { threadId, runId, ...init }: Partial<AgUiIds> & StreamInit = {}): Response {
  const frames = agUiEvents({ threadId: threadId ?? live.runId, runId: runId ?? live.runId });
  return toFrontEndResponse(live, init, { frames });
}

/**
 * Events of AG-UI. The first is `RUN_STARTED`, the last `RUN_FINISHED` or
 * `RUN_ERROR`, and every message and call is closed before the next one begins.
 */
export interface AgUiEvents extends FrontEndFrames {
  /** An event that AG-UI does not have. */
  custom(name: string, value: unknown): readonly object[];
  /** The stream after answers: those of these approvals and questions, and the results of these calls. */
  continueAfter(answered: ReadonlySet<string>): readonly object[];
}

export function agUiEvents({ threadId, runId }: AgUiIds): AgUiEvents {
  const ids = { threadId, runId };
  /** The interrupts by their ids, and the calls that they are about. */
  const interrupts = new Map<string, { readonly toolCallId: string; readonly interrupt: object }>();
  /** The calls that the client executes. */
  const pending = new Set<string>();
  /** Those whose results the client has sent. */
  const answeredCalls = new Set<string>();
  /** The keys of the state that the client has. Undefined: it has none. */
  let known: Set<string> | undefined;
  let open: { readonly type: 'text' | 'reasoning'; readonly id: string } | undefined;

  function* closeText(): Generator<object> {
    if (open?.type === 'text') yield { type: 'TEXT_MESSAGE_END', messageId: open.id };
    if (open?.type === 'reasoning') {
      yield { type: 'REASONING_MESSAGE_END', messageId: open.id };
      yield { type: 'REASONING_END', messageId: open.id };
    }
    open = undefined;
  }

  function* addDelta(type: 'text' | 'reasoning', messageId: string, delta: string): Generator<object> {
    const name = type === 'text' ? 'TEXT_MESSAGE' : 'REASONING_MESSAGE';
    if (open?.id !== messageId) {
      yield* closeText();
      if (type === 'reasoning') yield { type: 'REASONING_START', messageId };
      yield { type: `${name}_START`, messageId, role: type === 'text' ? 'assistant' : 'reasoning' };
      open = { type, id: messageId };
    }
    yield { type: `${name}_CONTENT`, messageId, delta };
  }

  /** The state is what tools remember. Keys with a colon, such as `files_read:PATH`, are notes of tools for themselves. */
  function addMemory(values: Memory): readonly object[] {
    const shown = Object.entries(values).filter(([key]) => !key.includes(':'));
    if (shown.length === 0) return [];
    if (!known) {
      const kept = shown.filter(([, value]) => value !== null);
      known = new Set(kept.map(([key]) => key));
      return [{ type: 'STATE_SNAPSHOT', snapshot: Object.fromEntries(kept) }];
    }
    const delta = shown.flatMap(([key, value]) => {
      const path = `/${key.replaceAll('~', '~0').replaceAll('/', '~1')}`;
      if (value === null) return known!.delete(key) ? { op: 'remove', path } : [];
      known!.add(key);
      return { op: 'add', path, value };
    });
    return delta.length === 0 ? [] : [{ type: 'STATE_DELTA', delta }];
  }

  const custom = (name: string, value: unknown): object => ({ type: 'CUSTOM', name, value });

  function pausedOutcome(): object {
    if (interrupts.size > 0) {
      return { type: 'interrupt', interrupts: [...interrupts.values()].map(({ interrupt }) => interrupt) };
    }
    return { type: 'success', ...(pending.size > 0 && { pendingToolCallIds: [...pending] }) };
  }

  return {
    start(_, metadata) {
      return [{ type: 'RUN_STARTED', ...ids }, ...(metadata ? [custom('conversation_meta', metadata)] : [])];
    },
    delta: (...delta) => [...addDelta(...delta)],
    call: (toolCallId, toolCallName, input) => [
      ...closeText(),
      { type: 'TOOL_CALL_START', toolCallId, toolCallName },
      ...(input === '' ? [] : [{ type: 'TOOL_CALL_ARGS', toolCallId, delta: input }]),
      { type: 'TOOL_CALL_END', toolCallId },
    ],
    clientCall(toolCallId) {
      pending.add(toolCallId);
      return [];
    },
    progress: (toolCallId, delta) => [custom('tool_call_output', { toolCallId, delta })],
    result(toolCallId, { text: content }) {
      for (const [id, asked] of interrupts) if (asked.toolCallId === toolCallId) interrupts.delete(id);
      pending.delete(toolCallId);
      if (answeredCalls.delete(toolCallId)) return [];
      return [{ type: 'TOOL_CALL_RESULT', messageId: `${toolCallId}_result`, toolCallId, content, role: 'tool' }];
    },
    approval(toolCallId, { id, digest, reason, tool, arguments: text, touches = [], expiresAt }) {
      const properties = { approved: { type: 'boolean' }, digest: { const: digest }, reason: { type: 'string' } };
      const interrupt = {
        id,
        reason: 'tool_call',
        message: reason ?? `Approve the call of ${tool}?`,
        toolCallId,
        responseSchema: { type: 'object', properties, required: ['approved', 'digest'] },
        ...expiryOf(expiresAt),
        metadata: { tool, arguments: text, digest, touches },
      };
      interrupts.set(id, { toolCallId, interrupt });
      return [];
    },
    question(toolCallId, { id, prompt, choices, schema, expiresAt }) {
      const responseSchema = schema ?? (choices ? { enum: choices } : { type: 'string' });
      const asked = { id, reason: 'input_required', message: prompt, toolCallId, responseSchema };
      interrupts.set(id, { toolCallId, interrupt: { ...asked, ...expiryOf(expiresAt) } });
      return [];
    },
    memory: addMemory,
    warning: (code, message, item) => [
      ...closeText(),
      custom('warning', { code, message, ...(item !== undefined && { item }) }),
    ],
    resetStep() {
      const item = open?.id;
      const message = 'The model did not complete this text, so it is not part of the answer. Remove it.';
      return [...closeText(), custom('warning', { code: 'item_incomplete', message, ...(item && { item }) })];
    },
    finish(reason, { error, usage, warning, result } = {}) {
      const last = [...closeText()];
      if (error !== undefined) return [...last, { type: 'RUN_ERROR', message: error.message, code: error.code }];
      if (warning) last.push(custom('warning', warning));
      const outcome = reason === 'other' ? { type: 'cancelled' } : pausedOutcome();
      const used = usage && { usage: [tokensOf(usage)] };
      return [...last, { type: 'RUN_FINISHED', ...ids, ...(result && { result }), outcome, ...used }];
    },
    custom: (name, value) => [custom(name, value)],
    continueAfter(answered) {
      for (const id of answered) {
        interrupts.delete(id);
        if (pending.delete(id)) answeredCalls.add(id);
      }
      open = undefined;
      return [{ type: 'RUN_STARTED', ...ids }];
    },
  };
}

function expiryOf(expiresAt: number | null | undefined): object {
  return expiresAt == null ? {} : { expiresAt: new Date(expiresAt).toISOString() };
}

function tokensOf({ inputTokens, outputTokens, cachedTokens, reasoningTokens }: Usage): object {
  return {
    inputTokens,
    outputTokens,
    totalTokens: inputTokens + outputTokens,
    ...(cachedTokens !== undefined && { cachedInputTokens: cachedTokens }),
    ...(reasoningTokens !== undefined && { reasoningTokens }),
  };
}
