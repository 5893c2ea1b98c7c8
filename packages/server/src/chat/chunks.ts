import type { AssistantPart, Item, ModelError, Waiting } from '@treadle/core';
import { errorBody, type ApiError } from '../api-error.ts';
import type { CallKinds } from '../engine/call-kinds.ts';
import type { Ending } from '../engine/ending.ts';
import { completionOf, finishReasonOf, incompleteOf, usageOf, type Finished } from './completion.ts';
import { errorOf } from './failure.ts';
import { callIdOf } from './ids.ts';
import type { ChatChunk, ChatCompletion, ChatDelta, ChatHead } from './wire.ts';

export interface ChatOutputOptions {
  readonly head: ChatHead;
  readonly calls: CallKinds;
  /** A chunk with the usage comes last. */
  readonly includeUsage: boolean;
  /**
   * The content is what the last turn says, and comes when it is known to be the last. For answers of a demanded form,
   * which words beside the calls of earlier turns would spoil. Else the texts of all turns, with a blank line between.
   */
  readonly lastTextOnly: boolean;
  /** Absent: nobody wants chunks. */
  readonly emit?: (frame: ChatChunk | { readonly error: object }) => void | Promise<void>;
}

/**
 * Makes a completion of what a run says, in chunks and as a whole.
 *
 * 1. The first chunk has the role, the last but the usage has the finish reason; one that failed ends with an error.
 * 2. The chunks of a completion add up to the whole, except that calls of the client which were on their way when the run
 *    ended for another reason have been shown, and are not in the whole.
 * 3. Only calls of the client are shown, one after the other as they open; what the server executes or refuses never is.
 */
export interface ChatOutput {
  begin(): void;
  /** The promise that `emit` gave, if any. */
  hear(item: Item): void | Promise<void>;
  /** What it has come to; sends nothing. `failure`: of the model, if that ended it. */
  close(ending: Ending, failure?: ModelError): ChatCompletion | ApiError;
  /** Sends what is left, once what has to be kept is kept. */
  finish(): void;
}

interface ShownCall {
  readonly id: string;
  readonly name: string;
  arguments: string;
}

/** A call of the turn that goes on; without `shown` its pieces are dropped. */
interface OpenCall {
  readonly shown: ShownCall | undefined;
  readonly position: number;
}

export function chatOutput({ head, calls, includeUsage, lastTextOnly, emit }: ChatOutputOptions): ChatOutput {
  const shown: ShownCall[] = [];
  let content = '';
  let reasoning = '';
  let turn = { number: 0, text: '', reasoning: '', calls: [] as OpenCall[] };
  let left: (() => void) | undefined;
  let sent: void | Promise<void>;

  function send(delta: ChatDelta, ending?: Finished): void {
    if (!emit) return;
    const finish_reason = ending ? finishReasonOf(ending) : null;
    sent = emit({
      ...head,
      object: 'chat.completion.chunk',
      choices: [{ index: 0, delta, logprobs: null, finish_reason }],
      ...(includeUsage && { usage: null }),
      ...(ending && incompleteOf(ending)),
    });
  }

  function say(text: string): void {
    if (text === '') return;
    const piece = turn.text === '' && content !== '' ? GAP + text : text;
    turn.text += text;
    if (lastTextOnly) return;
    content += piece;
    send({ content: piece });
  }

  function think(text: string): void {
    if (text === '') return;
    const piece = turn.reasoning === '' && reasoning !== '' ? GAP + text : text;
    turn.reasoning += text;
    reasoning += piece;
    send({ reasoning_content: piece });
  }

  function call(index: number, name: string, piece: string): void {
    const open = turn.calls[index];
    if (!open) turn.calls[index] = opened(index, name, piece);
    else if (open.shown && piece !== '') {
      open.shown.arguments += piece;
      send({ tool_calls: [{ index: open.position, function: { arguments: piece } }] });
    }
  }

  function opened(index: number, name: string, piece: string): OpenCall {
    if (calls.kindOf(name, index) !== 'client') return { shown: undefined, position: -1 };
    const added: ShownCall = { id: callIdOf(head.id, turn.number, index), name, arguments: piece };
    const position = shown.push(added) - 1;
    show(added, position);
    return { shown: added, position };
  }

  function show({ id, name, arguments: text }: ShownCall, index: number): void {
    send({ tool_calls: [{ index, id, type: 'function', function: { name, arguments: text } }] });
  }

  /** The whole reply: of a model that does not stream it is the first that is heard. */
  function replied(parts: readonly AssistantPart[]): void {
    let index = 0;
    let [text, thoughts] = ['', ''];
    for (const part of parts) {
      if (part.type === 'text') say(restOf((text += part.text), turn.text));
      else if (part.type === 'reasoning') think(restOf((thoughts += part.text), turn.reasoning));
      else {
        const so = turn.calls[index]?.shown?.arguments ?? '';
        // Clients parse it.
        call(index++, part.name, restOf(part.arguments === '' ? '{}' : part.arguments, so));
      }
    }
  }

  /** Calls of the client of which it was not sure before that the loop lets them through. */
  function addLater({ call }: Waiting): void {
    const id = callIdOf(head.id, call.turn, call.index);
    if (shown.some((one) => one.id === id)) return;
    shown.push({ id, name: call.name, arguments: call.arguments === '' ? '{}' : call.arguments });
  }

  function whole(ending: Finished): ChatCompletion {
    const waiting = ending.type === 'pending' ? ending.waiting : [];
    const pending = new Set(waiting.map(({ call }) => callIdOf(head.id, call.turn, call.index)));
    const toolCalls = shown.flatMap(({ id, name, arguments: text }) =>
      pending.has(id) ? { id, type: 'function' as const, function: { name, arguments: text } } : [],
    );
    return completionOf(head, { content, reasoning, calls: toolCalls }, ending);
  }

  return {
    begin: () => send({ role: 'assistant', content: '', refusal: null }),

    hear(item) {
      sent = undefined;
      if (item.type === 'text-delta') say(item.text);
      else if (item.type === 'reasoning-delta') think(item.text);
      else if (item.type === 'call-delta') call(item.call, item.name, item.arguments);
      else if (item.type === 'turn-started') turn = { number: item.turn, text: '', reasoning: '', calls: [] };
      else if (item.type === 'fact' && item.event.type === 'model-replied') replied(item.event.content);
      return sent;
    },

    close(ending, failure) {
      if (ending.type === 'failed' || ending.type === 'cancelled') {
        const error = errorOf(ending, failure);
        left = () => void emit?.(errorBody(error));
        return error;
      }
      const live = shown.length;
      if (ending.type === 'pending') ending.waiting.forEach(addLater);
      if (lastTextOnly) content = turn.text;
      left = () => {
        if (lastTextOnly && content !== '') send({ content });
        for (const [index, added] of shown.entries()) if (index >= live) show(added, index);
        send({}, ending);
        if (includeUsage)
          emit?.({ ...head, object: 'chat.completion.chunk', choices: [], usage: usageOf(ending.usage) });
      };
      return whole(ending);
    },

    finish: () => left?.(),
  };
}

const GAP = '\n\n';

/** What of a text has not been said. What was said already cannot be taken back. */
function restOf(whole: string, said: string): string {
  return whole.startsWith(said) ? whole.slice(said.length) : '';
}
