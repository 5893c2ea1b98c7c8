import type { ExecuteResult } from '../agents/result.ts';
import type { LoopResult } from '../driver/options.ts';
import { messageOf, outcomeProblem } from '../errors.ts';
import type { Item } from '../journal/items.ts';
import type { Event } from '../machine/events.ts';
import type { Outcome, Waiting } from '../machine/state.ts';
import type { AssistantPart } from '../messages.ts';
import { shownResult, streamedResponse, type Live, type StreamInit } from './responses.ts';
import { uiChunks, UI_MESSAGE_STREAM_END, UI_MESSAGE_STREAM_HEADERS, type UiFinish } from './ui-chunks.ts';

/**
 * A run as a UI message stream of the AI SDK, for `useChat`. A client that disconnects cancels the run. If the run pauses, the
 * stream ends with the approvals and questions that it waits for. The `approvalId` of an approval has its `effect` and `digest`:
 * see `approvalOf`.
 */
export function toUIMessageStreamResponse(live: Live, init: StreamInit = {}): Response {
  const items = uiItems(live);
  return streamedResponse(live, init, {
    headers: UI_MESSAGE_STREAM_HEADERS,
    frame: (item) => framesOf(items.add(item)) || undefined,
    async last() {
      try {
        return framesOf(items.end(await live.result)) + UI_MESSAGE_STREAM_END;
      } catch (thrown) {
        return framesOf(items.fail(messageOf(thrown))) + UI_MESSAGE_STREAM_END;
      }
    },
  });
}

function framesOf(chunks: readonly object[]): string {
  return chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join('');
}

interface UiItems {
  add(item: Item): readonly object[];
  end(result: LoopResult | ExecuteResult<unknown>): readonly object[];
  /** The result was rejected. */
  fail(message: string): readonly object[];
}

type TextType = 'text' | 'reasoning';

/** Translates the items of a run to chunks. */
function uiItems({ runId }: Live): UiItems {
  const chunks = uiChunks();
  let started: readonly object[] = chunks.start(`${runId}_answer`, { runId });
  let turn = 0;
  /** The texts of the current reply that were sent, or a part of each. */
  let sent: { readonly type: TextType; readonly id: string; text: string }[] = [];
  let isTextOpen = false;
  /** The ids of the calls of the turn, by their position. */
  let callIds: string[] = [];
  /** The positions of the calls of the turn that somebody has denied. */
  let denied: number[] = [];
  let isWaiting = false;
  let outcome: Outcome | undefined;

  /** Adds the chunk that begins the stream to the first others. */
  function afterStart(added: readonly object[]): readonly object[] {
    const all = [...started, ...added];
    started = [];
    return all;
  }

  function addDelta(type: TextType, delta: string): readonly object[] {
    if (delta === '') return [];
    let last = sent.at(-1);
    if (!isTextOpen || last?.type !== type) {
      last = { type, id: `${runId}_${turn}_${sent.length}`, text: '' };
      sent.push(last);
    }
    isTextOpen = true;
    last.text += delta;
    return chunks.delta(type, last.id, delta);
  }

  /** The calls of a reply, and what its deltas did not contain; of a model that does not stream, everything. */
  function addReply(content: readonly AssistantPart[]): readonly object[] {
    const parts = content.filter((part) => part.type === 'tool-call' || part.text !== '');
    const texts = parts.filter((part) => part.type !== 'tool-call');
    const fits = sent.every(({ type, text }, at) => texts[at]?.type === type && texts[at].text.startsWith(text));
    const streamed = fits ? sent : [];
    const added = fits ? [] : [...chunks.resetStep()];
    sent = [];
    callIds = [];
    isTextOpen = false;
    for (const part of parts) {
      if (part.type === 'tool-call') {
        callIds.push(part.id);
        added.push(...chunks.call(part.id, part.name, part.arguments));
        continue;
      }
      const at = texts.indexOf(part);
      const { id, text } = streamed[at] ?? { id: `${runId}_${turn}_${at}${fits ? '' : '_again'}`, text: '' };
      const rest = part.text.slice(text.length);
      if (rest !== '') added.push(...chunks.delta(part.type, id, rest));
    }
    return added;
  }

  function addFact(event: Event): readonly object[] {
    if (event.type === 'model-replied') return addReply(event.content);
    if (event.type === 'approval-given' && !event.approved) {
      denied.push(indexIn(event.effect));
    }
    return [];
  }

  function chunksOf(item: Item): readonly object[] {
    switch (item.type) {
      case 'text-delta':
        return addDelta('text', item.text);
      case 'reasoning-delta':
        return addDelta('reasoning', item.text);
      case 'call-delta':
        isTextOpen = false;
        return [];
      case 'turn-started': {
        const isRepeated = sent.length > 0;
        ({ turn } = item);
        sent = [];
        denied = [];
        isTextOpen = false;
        return isRepeated ? chunks.resetStep() : [];
      }
      case 'call-answered': {
        const { call, index, result } = item;
        const shown = { text: shownResult(result.content), isError: result.isError, denied: denied.includes(index) };
        return chunks.result(call.id, shown);
      }
      case 'tool-report':
        return chunks.progress(item.call.id, progressText(item.progress));
      case 'fact':
        return addFact(item.event);
      case 'waiting':
        isWaiting = true;
        return item.waiting.flatMap(asked);
      case 'run-failed':
        ({ outcome } = item);
        return [];
      case 'call-started':
        callIds[item.index] = item.call.id;
        return [];
      case 'resource-problem':
      case 'budget-warning':
        return [];
      default:
        return item satisfies never;
    }
  }

  function asked(wait: Waiting): readonly object[] {
    const { effect: id, call } = wait;
    // The client knows the call of the child run only as the call that has it.
    const [own = '', inChild] = id.split('/', 2);
    const toolCallId = inChild === undefined ? call.id : callIds[indexIn(own)];
    if (toolCallId === undefined) return [];
    if (wait.type === 'approval') {
      const { digest, reason = null } = wait;
      return chunks.approval(toolCallId, { id, digest, reason });
    }
    if (wait.type !== 'question') return [];
    const { prompt, choices = null, schema = null } = wait.question;
    return chunks.question({ id, toolCallId, tool: call.name, prompt, choices, schema });
  }

  return {
    add: (item) => afterStart(chunksOf(item)),
    end(result) {
      const metadata = 'usage' in result ? { usage: result.usage } : undefined;
      if (isWaiting) return afterStart(chunks.finish('tool-calls', { metadata }));
      if (outcome) return afterStart(ended(outcome, metadata));
      // An execution may fail without a run.
      if ('error' in result) return afterStart(chunks.finish('error', { metadata, error: result.error.message }));
      return afterStart(chunks.finish(finishReasonOf(result), { metadata }));
    },
    fail: (message) => afterStart(chunks.finish('error', { error: message })),
  };

  function ended(how: Outcome, metadata: object | undefined): readonly object[] {
    const warning = outcomeProblem(how)!;
    if (how.type === 'failed') return chunks.finish('error', { metadata, error: warning.message });
    return chunks.finish(how.type === 'exhausted' ? 'length' : 'other', { metadata, warning });
  }
}

/** Of a result without an error. */
function finishReasonOf(result: object): UiFinish {
  const { outcome, detached } = result as Partial<LoopResult>;
  if (detached) return 'other';
  return outcome?.type === 'completed' && outcome.truncated ? 'length' : 'stop';
}

/** The position of the call that an effect belongs to, such as 2 in `t3.tool.2`. */
function indexIn(effect: string): number {
  return Number(effect.slice(effect.lastIndexOf('.') + 1));
}

function progressText(progress: unknown): string {
  return typeof progress === 'string' ? progress : (JSON.stringify(progress) ?? '');
}
