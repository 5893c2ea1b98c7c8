import { uiChunks } from '@treadle/core/web';
import type { ChatEvent, ChatStatus } from './wire.ts';
import { openCalls, type FrontEndEncoder } from './front-ends.ts';

export { approvalOf, UI_MESSAGE_STREAM_HEADERS as UI_HEADERS } from '@treadle/core/web';

export interface UiEncoderOptions {
  /** The ids of the approvals that the client has denied. */
  readonly denied?: ReadonlySet<string>;
  /** The id of the answer of the client that the chunks are added to. Absent: a new one. */
  readonly continues?: string;
  /** The client has asked for an answer in progress. It sends the metadata of a message back. */
  readonly isResumed?: boolean;
}

/** Encodes events as chunks of the UI message stream. A turn of the run is a step. */
export function uiEncoder(options: UiEncoderOptions = {}): FrontEndEncoder {
  const { denied = new Set(), continues, isResumed = false } = options;
  const calls = openCalls(['approval_request']);
  const chunks = uiChunks();
  const deniedCalls = new Set<string>();
  let error: Extract<ChatEvent, { type: 'error' }> | undefined;
  let metadata: object | undefined;

  function chunksOf(event: ChatEvent): readonly object[] {
    switch (event.type) {
      case 'conversation_meta': {
        const { conversation_id, run_id, model } = event;
        const resumed = isResumed && { resumed: true };
        return chunks.start(continues ?? event.answer_id, { conversation_id, run_id, model, ...resumed });
      }
      case 'token_delta':
        return chunks.delta('text', event.id, event.delta);
      case 'reasoning_delta':
        return chunks.delta('reasoning', event.id, event.delta);
      case 'tool_call_start':
        return chunks.call(event.id, event.name, event.arguments);
      case 'tool_call_decision':
        // The client has sent it, or gets the denial as the result.
        return [];
      case 'tool_call_output':
        return chunks.progress(event.id, event.delta);
      case 'tool_call_result': {
        const { id, content: text, is_error: isError } = event;
        return chunks.result(id, { text, isError, denied: deniedCalls.has(id) });
      }
      case 'approval_request':
        if (denied.has(event.id)) deniedCalls.add(event.call_id);
        return chunks.approval(event.call_id, event);
      case 'question': {
        const { type: _, ...data } = event;
        return chunks.question(event.call_id, data);
      }
      case 'client_call':
      case 'memory':
        return [];
      case 'warning':
        // What the model did not complete is the current step.
        return event.code === 'item_incomplete' ? chunks.resetStep() : chunks.warning(event.code, event.message);
      case 'error':
        error = event;
        return [];
      case 'usage': {
        const { type: _, ...usage } = event;
        metadata = { usage };
        return [];
      }
      case 'done':
        if (error && event.status === 'failed') return chunks.finish('error', { metadata, error });
        return chunks.finish(REASONS[event.status], { metadata, warning: error });
      default:
        return event satisfies never;
    }
  }

  return {
    encode(event) {
      calls.add(event);
      return chunksOf(event);
    },
    isWaiting: calls.isWaiting,
    endWaiting: () => chunks.finish('tool-calls'),
    continueAfter(answered) {
      calls.answered(answered);
      return chunks.continueMessage();
    },
  };
}

const REASONS = {
  completed: 'stop',
  incomplete: 'length',
  failed: 'error',
  cancelled: 'other',
} as const satisfies Readonly<Record<ChatStatus, string>>;
