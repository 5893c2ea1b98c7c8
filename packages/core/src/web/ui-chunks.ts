import { toFrontEndResponse, type FrontEndFrames } from './front-ends.ts';
import type { Live, StreamInit } from './responses.ts';

/** Headers of a UI message stream of the AI SDK. */
export const UI_MESSAGE_STREAM_HEADERS: Readonly<Record<string, string>> = {
  'content-type': 'text/event-stream; charset=utf-8',
  'x-vercel-ai-ui-message-stream': 'v1',
};

/** The line that ends a UI message stream. */
const UI_MESSAGE_STREAM_END = 'data: [DONE]\n\n';

/** Separates the id of an approval from its digest in an `approvalId`: the client sends back nothing else. */
const SEPARATOR = '~';

/** The id and the digest in an `approvalId`. */
export function approvalOf(approvalId: string): { readonly id: string; readonly digest: string } {
  const at = approvalId.lastIndexOf(SEPARATOR);
  return { id: approvalId.slice(0, Math.max(at, 0)), digest: approvalId.slice(at + 1) };
}

/**
 * A run as a UI message stream of the AI SDK, for `useChat`. A client that disconnects cancels the run. If the run pauses, the
 * stream ends with the approvals and questions that it waits for. The `approvalId` of an approval has its `effect` and `digest`:
 * see `approvalOf`.
 */
export function toUIMessageStreamResponse(live: Live, init: StreamInit = {}): Response {
  const stream = { frames: uiChunks(), headers: UI_MESSAGE_STREAM_HEADERS, end: UI_MESSAGE_STREAM_END };
  return toFrontEndResponse(live, init, stream);
}

/**
 * Chunks of a UI message stream of the AI SDK. A turn of the run is a step, and every text is closed before something else begins.
 */
export interface UiChunks extends FrontEndFrames {
  /** The stream after answers: it continues the message that an earlier stream has sent. */
  continueMessage(): readonly object[];
}

export function uiChunks(): UiChunks {
  /** Calls without a result. */
  const open = new Set<string>();
  let messageId = '';
  let isInStep = false;
  /** Results have arrived, so the next reply is another step. */
  let hasResults = false;
  let text: { readonly type: 'text' | 'reasoning'; readonly id: string } | undefined;

  function* closeText(): Generator<object> {
    if (text) yield { type: `${text.type}-end`, id: text.id };
    text = undefined;
  }

  function* endStep(): Generator<object> {
    yield* closeText();
    if (isInStep) yield { type: 'finish-step' };
    isInStep = false;
    hasResults = false;
  }

  function* beginStep(): Generator<object> {
    if (hasResults && open.size === 0) yield* endStep();
    if (!isInStep) yield { type: 'start-step' };
    isInStep = true;
  }

  function* addDelta(type: 'text' | 'reasoning', id: string, delta: string): Generator<object> {
    yield* beginStep();
    if (text?.id !== id) {
      yield* closeText();
      yield { type: `${type}-start`, id };
      text = { type, id };
    }
    yield { type: `${type}-delta`, id, delta };
  }

  return {
    start(id, messageMetadata) {
      messageId = id;
      return [{ type: 'start', messageId, ...(messageMetadata && { messageMetadata }) }];
    },
    delta: (...delta) => [...addDelta(...delta)],
    call(toolCallId, toolName, input) {
      const before = [...beginStep(), ...closeText()];
      open.add(toolCallId);
      const call = { toolCallId, toolName, input: parsedArguments(input), dynamic: true };
      return [...before, { type: 'tool-input-available', ...call }];
    },
    // It is a call without a result.
    clientCall: () => [],
    progress: (toolCallId, delta) => [{ type: 'data-tool-output', data: { toolCallId, delta }, transient: true }],
    result(toolCallId, { text: output, isError, denied = false }) {
      hasResults = true;
      open.delete(toolCallId);
      if (denied) return [{ type: 'tool-output-denied', toolCallId }];
      if (isError) return [{ type: 'tool-output-error', toolCallId, errorText: output, dynamic: true }];
      return [{ type: 'tool-output-available', toolCallId, output, dynamic: true }];
    },
    approval(toolCallId, { id, digest, reason }) {
      const approvalId = id + SEPARATOR + digest;
      return [{ type: 'tool-approval-request', approvalId, toolCallId, ...(reason != null && { reason }) }];
    },
    question: (toolCallId, data) => [{ type: 'data-question', id: data.id, data: { ...data, toolCallId } }],
    memory: () => [],
    warning: (code, message) => [warningChunk(code, message)],
    resetStep() {
      text = undefined;
      return [{ type: 'reset-step' }];
    },
    finish(finishReason, { usage, metadata = usage && { usage }, error, warning } = {}) {
      return [
        ...endStep(),
        ...(error === undefined ? [] : [{ type: 'error', errorText: error.message }]),
        ...(warning ? [warningChunk(warning.code, warning.message)] : []),
        { type: 'finish', finishReason, ...(metadata && { messageMetadata: metadata }) },
      ];
    },
    continueMessage() {
      isInStep = false;
      text = undefined;
      return [{ type: 'start', messageId }];
    },
  };
}

function warningChunk(code: string, message: string): object {
  return { type: 'data-warning', data: { code, message } };
}

function parsedArguments(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
