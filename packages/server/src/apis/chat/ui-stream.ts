import type { LiveRun } from '@treadle/core';
import type { ChatEvent, ChatStatus } from './wire.ts';
import { frontEndResponse, openCalls, type FrontEndEncoder } from './front-ends.ts';

/** Headers of the UI message stream of the AI SDK. */
export const UI_HEADERS = {
  'content-type': 'text/event-stream; charset=utf-8',
  'x-vercel-ai-ui-message-stream': 'v1',
} as const;

/** Streams a run as a UI message stream of the AI SDK, for `useChat` with a server of your own. */
export function toUIMessageStreamResponse(live: LiveRun): Response {
  return frontEndResponse(live, { encoder: uiEncoder(), headers: UI_HEADERS, endMark: '[DONE]' });
}

/** Separates the id of an approval from its digest in an `approvalId`: the client sends back nothing else. */
const SEPARATOR = '~';

/** The id and the digest in an `approvalId`. */
export function approvalOf(approvalId: string): { readonly id: string; readonly digest: string } {
  const at = approvalId.lastIndexOf(SEPARATOR);
  return { id: approvalId.slice(0, Math.max(at, 0)), digest: approvalId.slice(at + 1) };
}

export interface UiEncoderOptions {
  /** The ids of the approvals that the client has denied. */
  readonly denied?: ReadonlySet<string>;
  /** The client has asked for an answer in progress. It sends the metadata of a message back. */
  readonly isResumed?: boolean;
}

/** Encodes events as chunks of the UI message stream. A turn of the run is a step. */
export function uiEncoder({ denied = new Set(), isResumed = false }: UiEncoderOptions = {}): FrontEndEncoder {
  const calls = openCalls(['approval_request']);
  const deniedCalls = new Set<string>();
  let messageId = '';
  let isInStep = false;
  /** Results have arrived, so the next reply is another step. */
  let hasResults = false;
  let open: { readonly type: 'text' | 'reasoning'; readonly id: string } | undefined;
  let error: Extract<ChatEvent, { type: 'error' }> | undefined;
  let usage: object | undefined;

  function* closeText(): Generator<object> {
    if (open) yield { type: `${open.type}-end`, id: open.id };
    open = undefined;
  }

  function* endStep(): Generator<object> {
    yield* closeText();
    if (isInStep) yield { type: 'finish-step' };
    isInStep = false;
    hasResults = false;
  }

  function* beginStep(): Generator<object> {
    if (hasResults && calls.isEmpty()) yield* endStep();
    if (!isInStep) yield { type: 'start-step' };
    isInStep = true;
  }

  function* addDelta(type: 'text' | 'reasoning', id: string, delta: string): Generator<object> {
    yield* beginStep();
    if (open?.id !== id) {
      yield* closeText();
      yield { type: `${type}-start`, id };
      open = { type, id };
    }
    yield { type: `${type}-delta`, id, delta };
  }

  function* chunksOf(event: ChatEvent): Generator<object> {
    switch (event.type) {
      case 'conversation_meta': {
        messageId = event.answer_id;
        const { conversation_id, run_id, model } = event;
        const resumed = isResumed && { resumed: true };
        yield { type: 'start', messageId, messageMetadata: { conversation_id, run_id, model, ...resumed } };
        break;
      }
      case 'token_delta':
        yield* addDelta('text', event.id, event.delta);
        break;
      case 'reasoning_delta':
        yield* addDelta('reasoning', event.id, event.delta);
        break;
      case 'tool_call_start':
        yield* beginStep();
        yield* closeText();
        yield {
          type: 'tool-input-available',
          toolCallId: event.id,
          toolName: event.name,
          input: parsedArguments(event.arguments),
          dynamic: true,
        };
        break;
      case 'tool_call_decision':
        // The client has sent it, or gets the denial as the result.
        break;
      case 'tool_call_output':
        yield { type: 'data-tool-output', data: { toolCallId: event.id, delta: event.delta }, transient: true };
        break;
      case 'tool_call_result':
        hasResults = true;
        if (deniedCalls.has(event.id)) yield { type: 'tool-output-denied', toolCallId: event.id };
        else if (event.is_error) {
          yield { type: 'tool-output-error', toolCallId: event.id, errorText: event.content, dynamic: true };
        } else yield { type: 'tool-output-available', toolCallId: event.id, output: event.content, dynamic: true };
        break;
      case 'approval_request': {
        const approvalId = event.id + SEPARATOR + event.digest;
        if (denied.has(event.id)) deniedCalls.add(event.call_id);
        const reason = event.reason !== null && { reason: event.reason };
        yield { type: 'tool-approval-request', approvalId, toolCallId: event.call_id, ...reason };
        break;
      }
      case 'question': {
        const { type: _, id, ...data } = event;
        yield { type: 'data-question', id, data: { id, ...data } };
        break;
      }
      case 'warning':
        // What the model did not complete is the current step.
        if (event.code === 'item_incomplete') {
          open = undefined;
          yield { type: 'reset-step' };
        } else yield { type: 'data-warning', data: { code: event.code, message: event.message } };
        break;
      case 'error':
        error = event;
        break;
      case 'usage': {
        const { type: _, ...used } = event;
        usage = used;
        break;
      }
      case 'done':
        yield* endStep();
        if (error && event.status === 'failed') yield { type: 'error', errorText: error.message };
        else if (error) yield { type: 'data-warning', data: { code: error.code, message: error.message } };
        yield { type: 'finish', finishReason: REASONS[event.status], ...(usage && { messageMetadata: { usage } }) };
        break;
      default:
        event satisfies never;
    }
  }

  return {
    encode(event) {
      calls.add(event);
      return [...chunksOf(event)];
    },
    isWaiting: calls.isWaiting,
    endWaiting: () => [...endStep(), { type: 'finish', finishReason: 'tool-calls' }],
    continueAfter(answered) {
      calls.answered(answered);
      isInStep = false;
      open = undefined;
      return [{ type: 'start', messageId }];
    },
  };
}

const REASONS: Readonly<Record<ChatStatus, string>> = {
  completed: 'stop',
  incomplete: 'length',
  failed: 'error',
  cancelled: 'other',
};

function parsedArguments(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
