import type { ExecuteResult } from '../agents/result.ts';
import type { LoopResult } from '../driver/options.ts';
import { messageOf, outcomeProblem } from '../errors.ts';
import type { Item } from '../journal/items.ts';
import type { Event } from '../machine/events.ts';
import type { Memory } from '../machine/rules.ts';
import type { Outcome, Waiting } from '../machine/state.ts';
import type { AssistantPart } from '../messages.ts';
import type { Usage } from '../model.ts';
import type { Touch } from '../policy/port.ts';
import { shownResult, streamedResponse, type Live, type StreamInit } from './responses.ts';

/*
 * Runs in the protocols of front ends. A protocol is a set of frames; which of them a run sends, and when, is the same for all.
 */

/** A result as a front end shows it. `denied`: somebody has denied the call. */
export interface UiResult {
  readonly text: string;
  readonly isError: boolean;
  readonly denied?: boolean;
}

/** A call that somebody has to approve. The client sends `id` and `digest` back. */
export interface UiApproval {
  readonly id: string;
  readonly digest: string;
  readonly reason?: string | null | undefined;
  readonly tool: string;
  readonly arguments: string;
  readonly touches?: readonly Touch[] | undefined;
  readonly expiresAt?: number | null | undefined;
}

/** A question of a tool. */
export interface UiQuestion {
  readonly id: string;
  readonly tool: string;
  readonly prompt: string;
  readonly choices: readonly string[] | null;
  readonly schema: object | null;
  readonly expiresAt?: number | null | undefined;
}

export interface UiEnding {
  readonly usage?: Usage | undefined;
  /** What the client of the AI SDK gets with the message; default: the usage. */
  readonly metadata?: object | undefined;
  /** What the client of AG-UI gets as the result of the run. */
  readonly result?: object | undefined;
  /** Why the run failed. */
  readonly error?: { readonly code: string; readonly message: string } | undefined;
  /** Why the run ended early. */
  readonly warning?: { readonly code: string; readonly message: string } | undefined;
}

/** `tool-calls`: the run waits for answers, or for the results of calls that the client executes. `other`: it was cancelled. */
export type UiFinish = 'stop' | 'length' | 'tool-calls' | 'error' | 'other';

/** The frames of a protocol. Each method returns those that it adds. */
export interface FrontEndFrames {
  start(messageId: string, metadata?: object): readonly object[];
  /** A piece of the text with this id. */
  delta(type: 'text' | 'reasoning', id: string, delta: string): readonly object[];
  /** `input`: the JSON text of the model, also if it is invalid. */
  call(toolCallId: string, toolName: string, input: string): readonly object[];
  /** The client executes the call. */
  clientCall(toolCallId: string): readonly object[];
  progress(toolCallId: string, delta: string): readonly object[];
  result(toolCallId: string, result: UiResult): readonly object[];
  approval(toolCallId: string, asked: UiApproval): readonly object[];
  question(toolCallId: string, asked: UiQuestion): readonly object[];
  /** What the tools remember has changed: the new values by key. `null`: the key was removed. */
  memory(values: Memory): readonly object[];
  /** `item`: the text that it is about. */
  warning(code: string, message: string, item?: string): readonly object[];
  /** The model is called again for the current step, so what was sent of it is not part of the message. */
  resetStep(): readonly object[];
  finish(finishReason: UiFinish, ending?: UiEnding): readonly object[];
}

interface FrontEndStream {
  readonly frames: FrontEndFrames;
  readonly headers?: Readonly<Record<string, string>>;
  /** What follows the last frame. */
  readonly end?: string;
}

/** A run as a stream of frames. */
export function toFrontEndResponse(live: Live, init: StreamInit, stream: FrontEndStream): Response {
  const { frames, headers, end = '' } = stream;
  const items = frontEndItems(live, frames);
  return streamedResponse(live, init, {
    ...(headers && { headers }),
    frame: (item) => framesOf(items.add(item)) || undefined,
    async last() {
      try {
        return framesOf(items.end(await live.result)) + end;
      } catch (thrown) {
        const { code = 'failed' } = thrown as { readonly code?: string };
        return framesOf(items.fail({ code, message: messageOf(thrown) })) + end;
      }
    },
  });
}

function framesOf(frames: readonly object[]): string {
  return frames.map((frame) => `data: ${JSON.stringify(frame)}\n\n`).join('');
}

interface FrontEndItems {
  add(item: Item): readonly object[];
  end(result: LoopResult | ExecuteResult<unknown>): readonly object[];
  /** The result was rejected. */
  fail(error: NonNullable<UiEnding['error']>): readonly object[];
}

type TextType = 'text' | 'reasoning';

/** Translates the items of a run. */
function frontEndItems({ runId }: Live, frames: FrontEndFrames): FrontEndItems {
  let started: readonly object[] = frames.start(`${runId}_answer`, { runId });
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

  /** Adds the frames that begin the stream to the first others. */
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
    return frames.delta(type, last.id, delta);
  }

  /** The calls of a reply, and what its deltas did not contain; of a model that does not stream, everything. */
  function addReply(content: readonly AssistantPart[]): readonly object[] {
    const parts = content.filter((part) => part.type === 'tool-call' || part.text !== '');
    const texts = parts.filter((part) => part.type !== 'tool-call');
    const fits = sent.every(({ type, text }, at) => texts[at]?.type === type && texts[at].text.startsWith(text));
    const streamed = fits ? sent : [];
    const added = fits ? [] : [...frames.resetStep()];
    sent = [];
    callIds = [];
    isTextOpen = false;
    for (const part of parts) {
      if (part.type === 'tool-call') {
        callIds.push(part.id);
        added.push(...frames.call(part.id, part.name, part.arguments));
        continue;
      }
      const at = texts.indexOf(part);
      const { id, text } = streamed[at] ?? { id: `${runId}_${turn}_${at}${fits ? '' : '_again'}`, text: '' };
      const rest = part.text.slice(text.length);
      if (rest !== '') added.push(...frames.delta(part.type, id, rest));
    }
    return added;
  }

  function addFact(event: Event): readonly object[] {
    if (event.type === 'model-replied') return addReply(event.content);
    if (event.type === 'approval-given' && !event.approved) denied.push(indexIn(event.effect));
    if (event.type === 'run-started') return frames.memory(event.memory ?? {});
    if (event.type === 'tool-settled' && event.result.type === 'result')
      return frames.memory(event.result.memory ?? {});
    return [];
  }

  function framesFor(item: Item): readonly object[] {
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
        return isRepeated ? frames.resetStep() : [];
      }
      case 'call-answered': {
        const { call, index, result } = item;
        const shown = { text: shownResult(result.content), isError: result.isError, denied: denied.includes(index) };
        return frames.result(call.id, shown);
      }
      case 'tool-report':
        return frames.progress(item.call.id, progressText(item.progress));
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
    if (wait.type === 'client') return frames.clientCall(toolCallId);
    if (wait.type === 'approval') {
      const { digest, reason = null, touches, expiresAt } = wait;
      const asking = { id, digest, reason, tool: call.name, arguments: call.arguments, touches, expiresAt };
      return frames.approval(toolCallId, asking);
    }
    if (wait.type !== 'question') return [];
    const { prompt, choices = null, schema = null } = wait.question;
    const { expiresAt } = wait;
    return frames.question(toolCallId, { id, tool: call.name, prompt, choices, schema, expiresAt });
  }

  return {
    add: (item) => afterStart(framesFor(item)),
    end(result) {
      const used = 'usage' in result ? { usage: result.usage } : {};
      if (isWaiting) return afterStart(frames.finish('tool-calls', used));
      if (outcome) return afterStart(ended(outcome, used));
      // An execution may fail without a run.
      if ('error' in result) {
        const { code, message } = result.error;
        return afterStart(frames.finish('error', { ...used, error: { code, message } }));
      }
      return afterStart(frames.finish(finishReasonOf(result), used));
    },
    fail: (error) => afterStart(frames.finish('error', { error })),
  };

  function ended(how: Outcome, used: UiEnding): readonly object[] {
    const problem = outcomeProblem(how)!;
    if (how.type === 'failed') return frames.finish('error', { ...used, error: problem });
    return frames.finish(how.type === 'exhausted' ? 'length' : 'other', { ...used, warning: problem });
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
