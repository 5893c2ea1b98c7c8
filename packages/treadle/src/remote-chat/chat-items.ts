import { NO_USAGE, type Item, type ToolCall } from '@treadle/core';
import type { ChatEvent } from '@treadle/server/wire';

/** Makes the items of a run, as the screen takes them, from the events of a conversation. */
export function chatItems(): (event: ChatEvent) => readonly Item[] {
  const calls = new Map<string, { readonly call: ToolCall; readonly index: number }>();
  let seq = 0;
  let turn = 0;
  const fact = (event: Extract<Item, { type: 'fact' }>['event']): Item => ({ type: 'fact', seq: seq++, event });
  /** Of a text that the model has begun. */
  let textId: string | undefined;
  const nextText = (id: string): readonly Item[] => {
    const before = textId;
    textId = id;
    // The call that is between two texts has ended the first.
    return before === id ? [] : [{ type: 'turn-started', turn: ++turn }];
  };
  const endText = (): Item => ({ type: 'call-delta', call: calls.size, name: '', arguments: '' });
  return (event) => {
    switch (event.type) {
      case 'conversation_meta':
        return [{ type: 'turn-started', turn: ++turn }];
      case 'token_delta':
        return [...nextText(event.id), { type: 'text-delta', text: event.delta }];
      case 'reasoning_delta':
        return [{ type: 'reasoning-delta', text: event.delta }];
      case 'tool_call_start': {
        const call: ToolCall = { type: 'tool-call', id: event.id, name: event.name, arguments: event.arguments };
        const index = calls.size;
        calls.set(event.id, { call, index });
        return [endText(), { type: 'call-started', index, call }];
      }
      case 'tool_call_output': {
        const found = calls.get(event.id);
        return found ? [{ type: 'tool-report', call: found.call, progress: event.delta }] : [];
      }
      case 'tool_call_result': {
        const found = calls.get(event.id);
        if (!found) return [];
        const { call, index } = found;
        const content = [{ type: 'text', text: event.content }] as const;
        const result = {
          type: 'tool-result',
          callId: call.id,
          name: call.name,
          content,
          isError: event.is_error,
        } as const;
        return [{ type: 'call-answered', index, call, result }];
      }
      case 'memory': {
        const result = { type: 'result', content: [], isError: false, memory: event.values } as const;
        return [fact({ type: 'tool-settled', at: 0, effect: event.id, result })];
      }
      case 'usage': {
        const { input_tokens, output_tokens, cost } = event;
        const usage = { ...NO_USAGE, inputTokens: input_tokens, outputTokens: output_tokens, cost: cost ?? undefined };
        const reply = { type: 'model-replied', at: 0, effect: 'usage', content: [], finish: 'stop' } as const;
        return [fact({ ...reply, usage, model: '', checks: [] } as never)];
      }
      default:
        return [];
    }
  };
}
