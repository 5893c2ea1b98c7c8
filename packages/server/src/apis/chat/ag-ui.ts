import { agUiEvents, type AgUiIds } from '@treadle/core/web';
import type { ChatEvent } from './wire.ts';
import { openCalls, type FrontEndEncoder } from './front-ends.ts';

/** Encodes events as those of AG-UI. */
export function agUiEncoder(ids: AgUiIds): FrontEndEncoder {
  const calls = openCalls(['approval_request', 'question', 'client_call']);
  const events = agUiEvents(ids);
  /** The waits of calls that the client executes, with the ids of the calls. */
  const clientCalls = new Map<string, string>();
  let error: Extract<ChatEvent, { type: 'error' }> | undefined;
  let usage: Extract<ChatEvent, { type: 'usage' }> | undefined;

  function eventsOf(event: ChatEvent): readonly object[] {
    switch (event.type) {
      case 'conversation_meta': {
        const { type: _, ...meta } = event;
        return events.start(event.answer_id, meta);
      }
      case 'token_delta':
        return events.delta('text', event.id, event.delta);
      case 'reasoning_delta':
        return events.delta('reasoning', event.id, event.delta);
      case 'tool_call_start':
        return events.call(event.id, event.name, event.arguments);
      case 'tool_call_decision':
        // The client has sent it, or gets the denial as the result.
        return [];
      case 'tool_call_output':
        return events.progress(event.id, event.delta);
      case 'tool_call_result':
        return events.result(event.id, { text: event.content, isError: event.is_error });
      case 'approval_request':
        return events.approval(event.call_id, { ...event, expiresAt: event.expires_at });
      case 'question':
        return events.question(event.call_id, { ...event, expiresAt: event.expires_at });
      case 'client_call':
        clientCalls.set(event.id, event.call_id);
        return events.clientCall(event.call_id);
      case 'memory':
        return events.memory(event.values);
      case 'warning':
        return events.warning(event.code, event.message, event.item);
      case 'error':
        error = event;
        return [];
      case 'usage':
        usage = event;
        return [];
      case 'done':
        return endedWith(event);
      default:
        return event satisfies never;
    }
  }

  function endedWith({ status }: Extract<ChatEvent, { type: 'done' }>): readonly object[] {
    const { code = status, message = 'The run failed.' } = error ?? {};
    if (status === 'failed') return events.finish('error', { error: { code, message } });
    const { type: _, ...used } = usage ?? { type: 'usage' };
    const tokens = usage && {
      inputTokens: usage.input_tokens,
      outputTokens: usage.output_tokens,
      cachedTokens: usage.cached_tokens,
      reasoningTokens: usage.reasoning_tokens,
    };
    return events.finish(status === 'cancelled' ? 'other' : 'stop', {
      usage: tokens,
      result: { status, usage: usage ? used : null },
      warning: error && { code, message },
    });
  }

  return {
    encode(event) {
      calls.add(event);
      return eventsOf(event);
    },
    isWaiting: calls.isWaiting,
    endWaiting: () => events.finish('tool-calls'),
    continueAfter(answered) {
      calls.answered(answered);
      return events.continueAfter(new Set([...answered].map((id) => clientCalls.get(id) ?? id)));
    },
  };
}
