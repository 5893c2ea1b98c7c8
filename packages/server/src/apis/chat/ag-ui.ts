import type { LiveRun } from '@treadle/core';
import type { ChatEvent } from './wire.ts';
import { frontEndResponse, openCalls, type FrontEndEncoder } from './front-ends.ts';

/** Streams a run as events of AG-UI, for an `HttpAgent` with a server of your own. */
export function toAgUiResponse(live: LiveRun, ids: Partial<AgUiIds> = {}): Response {
  const encoder = agUiEncoder({ threadId: live.runId, runId: live.runId, ...ids });
  return frontEndResponse(live, { encoder, headers: { 'content-type': 'text/event-stream; charset=utf-8' } });
}

/** What the client calls the conversation and its request. All events of the request belong to them. */
export interface AgUiIds {
  readonly threadId: string;
  readonly runId: string;
}

type Ask = Extract<ChatEvent, { type: 'approval_request' | 'question' }>;

/**
 * Encodes events as those of AG-UI. The first is `RUN_STARTED`, the last `RUN_FINISHED` or `RUN_ERROR`, and every message and
 * call is closed before the next one begins.
 */
export function agUiEncoder({ threadId, runId }: AgUiIds): FrontEndEncoder {
  const calls = openCalls(['approval_request', 'question']);
  const asked = new Map<string, Ask>();
  const ids = { threadId, runId };
  let open: { readonly type: 'text' | 'reasoning'; readonly id: string } | undefined;
  let error: Extract<ChatEvent, { type: 'error' }> | undefined;
  let usage: object | undefined;

  function* closeText(): Generator<object> {
    if (open?.type === 'text') yield { type: 'TEXT_MESSAGE_END', messageId: open.id };
    if (open?.type === 'reasoning') {
      yield { type: 'REASONING_MESSAGE_END', messageId: open.id };
      yield { type: 'REASONING_END', messageId: open.id };
    }
    open = undefined;
  }

  function* addText(messageId: string, delta: string): Generator<object> {
    if (open?.id !== messageId) {
      yield* closeText();
      yield { type: 'TEXT_MESSAGE_START', messageId, role: 'assistant' };
      open = { type: 'text', id: messageId };
    }
    yield { type: 'TEXT_MESSAGE_CONTENT', messageId, delta };
  }

  function* addReasoning(messageId: string, delta: string): Generator<object> {
    if (open?.id !== messageId) {
      yield* closeText();
      yield { type: 'REASONING_START', messageId };
      yield { type: 'REASONING_MESSAGE_START', messageId, role: 'reasoning' };
      open = { type: 'reasoning', id: messageId };
    }
    yield { type: 'REASONING_MESSAGE_CONTENT', messageId, delta };
  }

  function* eventsOf(event: ChatEvent): Generator<object> {
    switch (event.type) {
      case 'conversation_meta': {
        yield { type: 'RUN_STARTED', ...ids };
        const { type: _, ...value } = event;
        yield { type: 'CUSTOM', name: 'conversation_meta', value };
        break;
      }
      case 'token_delta':
        yield* addText(event.id, event.delta);
        break;
      case 'reasoning_delta':
        yield* addReasoning(event.id, event.delta);
        break;
      case 'tool_call_start':
        yield* closeText();
        yield { type: 'TOOL_CALL_START', toolCallId: event.id, toolCallName: event.name };
        if (event.arguments !== '') yield { type: 'TOOL_CALL_ARGS', toolCallId: event.id, delta: event.arguments };
        yield { type: 'TOOL_CALL_END', toolCallId: event.id };
        break;
      case 'tool_call_decision':
        // The client has sent it, or gets the denial as the result.
        break;
      case 'tool_call_output':
        yield { type: 'CUSTOM', name: event.type, value: { toolCallId: event.id, delta: event.delta } };
        break;
      case 'tool_call_result':
        yield {
          type: 'TOOL_CALL_RESULT',
          messageId: `${event.id}_result`,
          toolCallId: event.id,
          content: event.content,
          role: 'tool',
        };
        for (const [id, ask] of asked) if (ask.call_id === event.id) asked.delete(id);
        break;
      case 'approval_request':
      case 'question':
        asked.set(event.id, event);
        break;
      case 'warning': {
        const { type: name, ...value } = event;
        yield* closeText();
        yield { type: 'CUSTOM', name, value };
        break;
      }
      case 'error':
        error = event;
        break;
      case 'usage': {
        const { type: _, ...used } = event;
        usage = used;
        break;
      }
      case 'done':
        yield* closeText();
        if (event.status === 'failed' || event.status === 'cancelled') {
          yield { type: 'RUN_ERROR', message: error?.message ?? 'The run failed.', code: error?.code ?? event.status };
          break;
        }
        if (error) yield { type: 'CUSTOM', name: 'warning', value: { code: error.code, message: error.message } };
        yield {
          type: 'RUN_FINISHED',
          ...ids,
          result: { status: event.status, usage: usage ?? null },
          outcome: { type: 'success' },
        };
        break;
      default:
        event satisfies never;
    }
  }

  return {
    encode(event) {
      calls.add(event);
      return [...eventsOf(event)];
    },
    isWaiting: calls.isWaiting,
    endWaiting: () => [
      ...closeText(),
      {
        type: 'RUN_FINISHED',
        ...ids,
        outcome: { type: 'interrupt', interrupts: [...asked.values()].map(interruptOf) },
      },
    ],
    continueAfter(answered) {
      calls.answered(answered);
      for (const id of answered) asked.delete(id);
      open = undefined;
      return [{ type: 'RUN_STARTED', ...ids }];
    },
  };
}

/** `metadata` contains the digest, which the client sends back with an approval. */
function interruptOf(ask: Ask): object {
  const { id, call_id: toolCallId, tool } = ask;
  const expires = ask.expires_at !== null && { expiresAt: new Date(ask.expires_at).toISOString() };
  if (ask.type === 'question') {
    const { prompt, choices, schema } = ask;
    const responseSchema = schema ?? (choices ? { enum: choices } : { type: 'string' });
    return { id, reason: 'input_required', message: prompt, toolCallId, responseSchema, ...expires };
  }
  const { arguments: text, digest, touches, reason } = ask;
  return {
    id,
    reason: 'tool_call',
    message: reason ?? `Approve the call of ${tool}?`,
    toolCallId,
    responseSchema: {
      type: 'object',
      properties: { approved: { type: 'boolean' }, digest: { const: digest }, reason: { type: 'string' } },
      required: ['approved', 'digest'],
    },
    ...expires,
    metadata: { tool, arguments: text, digest, touches },
  };
}
