import type { Limit, Limits, ModelErrorCode, Rules, ToolChoice, ToolFacts, TurnDecision } from '@treadle/core';
import { expiryOf, isAnswered } from './answered.ts';
import type { Disposition } from './disposition.ts';
import { shorteningOf } from './epochs.ts';
import { cancelPhaseOf, type Expected } from './expected.ts';
import { cutIn, estimateOf } from './length.ts';
import { spendingOf } from './spending.ts';
import { streakOf } from './streak.ts';
import { messagesOf, type Moment, type Trace } from './trace.ts';
import { capOf, resultsOf, type CallRecord, type Turn } from './turns.ts';

export interface Reference {
  /** One for each moment; undefined for what must not be taken. */
  readonly expected: readonly (Expected | undefined)[];
  /** How many tokens the conversation is taken to have after each moment. */
  readonly lengths: readonly number[];
  readonly dispositions: ReadonlyMap<CallRecord, Disposition>;
  /** What was left of the limits when the reply of a turn came. */
  readonly left: ReadonlyMap<Turn, Limits>;
}

const NOTHING: Expected = { type: 'nothing' };

/**
 * The design's table "What the loop decides", written a second time: over what is in a trace, with none of the states'
 * counters. It only reads results from the history, because the sentences in them are the loop's own.
 */
export function referenceOf({ moments }: Trace, turns: readonly Turn[]): Reference {
  const dispositions = new Map<CallRecord, Disposition>();
  const left = new Map<Turn, Limits>();
  let rules!: Rules;
  let tools: readonly ToolFacts[] = [];
  let instructions = 'none';
  let standing: ToolChoice = 'auto';
  /** `given`: messages of the task. `length`: tokens that the conversation is taken to have. */
  let [asked, admitted, errors, spentReplies, pending, given, length] = [0, 0, 0, 0, 0, 0, 0];
  let closing: Limit | undefined;
  let decision: TurnDecision | undefined;
  let lacked: 'call' | 'content' | 'output' | undefined;
  let confirmed = false;
  /** Why the model refused the conversation that is being made shorter; and that it was, in this turn. */
  let refused: ModelErrorCode | undefined;
  let shortened = false;
  const streak = streakOf();
  const spending = spendingOf();
  let turn: Turn | undefined;
  /** Calls of the turn that may run and have no result. */
  let unanswered = new Set<CallRecord>();

  const choice = (): ToolChoice =>
    closing !== undefined || spentReplies > 0 ? 'none' : (decision?.toolChoice ?? standing);
  const end = (...words: readonly unknown[]): Expected => ({ type: 'end', outcome: words.join(' ') });
  const isKnown = (name: string): boolean => tools.some((tool) => tool.name === name);
  const isPolling = ({ part: { name } }: CallRecord): boolean =>
    tools.some((tool) => tool.polling && tool.name === name);
  const isDecided = (name: string): boolean => decision?.tools?.includes(name) ?? true;
  const isAllowed = (name: string): boolean =>
    isKnown(name) && isDecided(name) && (rules.allowedTools?.includes(name) ?? true);

  function ask(): Expected {
    return {
      type: 'ask',
      choice: choice(),
      tools: tools.map(({ name }) => name).filter(isDecided),
      instructions: decision?.instructions ?? instructions,
      model: decision?.model,
    };
  }

  function begin(): Expected {
    asked++;
    decision = undefined;
    shortened = false;
    return rules.prepared && closing === undefined ? { type: 'prepare' } : ask();
  }

  function meet(limit: Limit): Expected {
    pending = 0;
    if (!rules.closingTurn || closing !== undefined || spending.isOver(rules.limits))
      return end('exhausted', closing ?? limit);
    closing = limit;
    return begin();
  }

  function limited(): Expected | undefined {
    if (asked >= rules.maxTurns) return meet('turns');
    const met = spending.met(rules.limits);
    return met === 'tokens-unknown' || met === 'cost-unknown' ? end('failed', met) : met && meet(met);
  }

  function goOn(moment: Moment): Expected {
    pending = 0;
    const crowded = length >= (rules.compaction?.tokens ?? Infinity);
    return limited() ?? (crowded ? shorten(moment) : undefined) ?? begin();
  }

  function shorten({ after }: Moment): Expected | undefined {
    if (!rules.compaction) return undefined;
    const to = cutIn(messagesOf(after), given, rules.compaction.keepTurns);
    return to === undefined ? undefined : { type: 'compact', to };
  }

  function failed(code: ModelErrorCode, moment: Moment): Expected {
    const shorter = code === 'context-length' && !shortened && closing === undefined ? shorten(moment) : undefined;
    if (shorter) refused = code;
    else pending = 0;
    return shorter ?? (closing === undefined ? end('failed', code) : end('exhausted', closing));
  }

  function compacted(moment: Moment): Expected {
    const shortening = shorteningOf(moment);
    const again = refused;
    refused = undefined;
    if (shortening) {
      spending.charge(shortening.usage);
      length = shortening.kept.map(estimateOf).reduce((sum, one) => sum + one, 0);
      shortened = again !== undefined;
      if (shortened) return ask();
    }
    pending = 0;
    return again === undefined ? (limited() ?? begin()) : end('failed', again);
  }

  function isMet(calls: readonly CallRecord[]): boolean {
    const demanded = choice();
    if (demanded === 'auto' || demanded === 'none') return true;
    return calls.some(({ part: { name } }) => isAllowed(name) && (demanded === 'required' || demanded.tool === name));
  }

  function lack(what: keyof typeof LACKING, moment: Moment): Expected {
    if (lacked === what) return end('failed', LACKING[what]);
    lacked = what;
    return goOn(moment);
  }

  function replied(now: Turn, moment: Moment): Expected {
    const { reply, calls } = now;
    turn = now;
    spending.charge(reply.usage);
    const { inputTokens, outputTokens } = reply.usage;
    length = inputTokens + outputTokens || length + estimateOf({ role: 'assistant', content: reply.content });
    left.set(now, spending.left(rules.limits, admitted, moment.books.after.activeMs));
    if (reply.finish === 'content-filter') return end('failed', 'content-filter');
    return calls.length === 0 ? answered(now, moment) : called(now, moment);
  }

  function answered({ reply }: Turn, moment: Moment): Expected {
    const text = reply.content.flatMap((part) => (part.type === 'text' ? part.text : [])).join('');
    if (closing !== undefined) return end('exhausted', closing);
    if (!isMet([])) return lack('call', moment);
    if (text.trim() === '') return lack('content', moment);
    if (lacked !== 'output') lacked = undefined;
    if (pending > 0) return goOn(moment);
    if (rules.finish === 'confirm' && !confirmed) {
      confirmed = true;
      return goOn(moment);
    }
    return rules.output ? { type: 'validate', text } : completed(reply);
  }

  function completed({ finish }: Turn['reply']): Expected {
    return end('completed', ...(finish === 'length' ? ['truncated'] : []));
  }

  function checked(valid: boolean, moment: Moment): Expected {
    if (valid) return completed(turn!.reply);
    if (pending === 0) return lack('output', moment);
    lacked = undefined;
    return goOn(moment);
  }

  function called({ calls }: Turn, moment: Moment): Expected {
    let inReply = 0;
    for (const call of calls) {
      const disposition = dispositionOf(call, inReply, calls);
      if (disposition === 'runs') inReply++;
      dispositions.set(call, disposition);
    }
    if (!isMet(calls)) {
      if (lacked === 'call') return end('failed', LACKING.call);
      lacked = 'call';
    } else {
      lacked = undefined;
      if (choice() !== 'none' && decision?.toolChoice === undefined) standing = 'auto';
    }
    unanswered = new Set(calls.filter((call) => dispositions.get(call) === 'runs'));
    if (!rules.judged) admitted += inReply;
    return unanswered.size === 0 ? finished(moment) : NOTHING;
  }

  function dispositionOf(call: CallRecord, inReply: number, calls: readonly CallRecord[]): Disposition {
    const { index, part, facts, check } = call;
    if (index >= capOf(rules) || closing !== undefined) return 'capped';
    if (spentReplies > 0) return 'spent';
    const demanded = choice();
    if (demanded === 'none' || (typeof demanded === 'object' && demanded.tool !== part.name)) return 'refused';
    if (!facts || !isAllowed(part.name) || !check || check.problem !== undefined) return 'refused';
    if (admitted + inReply >= (rules.limits.calls ?? Infinity)) return 'spent';
    const onlySuch = calls.slice(0, index).every((before) => dispositions.get(before) === 'repeated');
    return onlySuch && !facts.polling && streak.isFull(call, rules.repeatLimit) ? 'repeated' : 'runs';
  }

  /** The turn's results are all there. */
  function finished(moment: Moment): Expected {
    const { calls, number } = turn!;
    const results = resultsOf(turn!, moment);
    if (!results) return { type: 'end', outcome: `the results of turn ${number}` };
    length += estimateOf({ role: 'tool', content: results });
    for (const call of calls) streak.follow(call, dispositions.get(call)!, results[call.index]!, isPolling(call));
    const counted = calls.filter((call) => ['runs', 'refused', 'repeated'].includes(dispositions.get(call)!));
    if (counted.some(({ index }) => !results[index]!.isError)) errors = 0;
    else if (counted.length > 0) errors++;
    if (calls.some((call) => dispositions.get(call) === 'spent')) spentReplies++;

    if (closing !== undefined) return end('exhausted', closing);
    if (streak.refusals() >= 2) return meet('repetition');
    if (rules.errorLimit > 0 && errors >= rules.errorLimit) return meet('errors');
    return spentReplies > 1 ? meet('calls') : goOn(moment);
  }

  function judged(moment: Moment, at: number): Expected {
    for (const call of unanswered) {
      if (isAnswered(call, at)) unanswered.delete(call);
      else if (expiryOf(call) === undefined) admitted++;
    }
    return unanswered.size === 0 ? finished(moment) : NOTHING;
  }

  function onCall(effect: string, moment: Moment, at: number): Expected {
    const call = turn?.calls.find(({ story }) =>
      story.some((one) => one.type === 'issued' && one.effect.id === effect),
    );
    if (!call || !isAnswered(call, at)) {
      if (moment.event.type === 'approval-given') admitted++;
      return NOTHING;
    }
    unanswered.delete(call);
    return unanswered.size === 0 ? finished(moment) : NOTHING;
  }

  function lost(effect: string, moment: Moment, at: number): Expected {
    const { open, failed: ended } = moment.books.before;
    const gone = open.get(effect)?.effect;
    switch (gone?.type) {
      case 'prepare-turn':
        return { type: 'prepare' };
      case 'call-model':
        return ask();
      case 'compact-history':
        return { type: 'compact', to: gone.to };
      case 'validate-output':
        return { type: 'validate', text: gone.text };
      case 'judge-calls':
        return NOTHING;
      default:
        return effect === ended ? ask() : onCall(effect, moment, at);
    }
  }

  function on(moment: Moment, at: number): Expected {
    const { event } = moment;
    switch (event.type) {
      case 'run-started':
        ({ rules, tools, instructions = 'none' } = event);
        standing = rules.toolChoice;
        given = event.input.length;
        return goOn(moment);
      case 'run-forked':
        ({ tools = tools, instructions = instructions } = event);
        return NOTHING;
      case 'input-added':
        pending += event.messages.length;
        return NOTHING;
      case 'tools-changed':
        ({ tools } = event);
        return NOTHING;
      case 'turn-prepared':
        ({ decision } = event);
        return event.problem === undefined ? ask() : end('failed', 'prepare-failed');
      case 'model-replied':
        return replied(
          turns.find(({ repliedAt }) => repliedAt === at)!,
          moment,
        );
      case 'model-failed':
        return failed(event.error.code, moment);
      case 'history-compacted':
        return compacted(moment);
      case 'output-checked':
        return checked(event.result.type === 'valid', moment);
      case 'calls-judged':
        return judged(moment, at);
      case 'cancel-requested':
        return end('cancelled', cancelPhaseOf(moment.books.before));
      case 'deadline-passed':
        return event.effect === undefined ? end('exhausted', 'duration') : onCall(event.effect, moment, at);
      case 'effect-lost':
        return lost(event.effect, moment, at);
      case 'tool-settled':
        if (event.result.type === 'result' && event.result.usage) spending.charge(event.result.usage);
        return onCall(event.effect, moment, at);
      case 'tool-parked':
      case 'approval-given':
      case 'client-result-given':
        return onCall(event.effect, moment, at);
      default:
        return event satisfies never;
    }
  }

  const lengths: number[] = [];
  const expected = moments.map((moment, at) => {
    const next = moment.taken ? on(moment, at) : undefined;
    lengths.push(length);
    return next;
  });
  return { expected, lengths, dispositions, left };
}

const LACKING = { call: 'tool-choice-unmet', content: 'empty-reply', output: 'output-invalid' } as const;
