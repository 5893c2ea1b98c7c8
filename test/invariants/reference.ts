import type { Limit, Limits, ModelErrorCode, Rules, ToolChoice, ToolFacts, TurnDecision } from '@treadle/core';
import { expiryOf, isAnswered } from './answered.ts';
import { attemptsOf, type Attempts, type Checked, type Claim, type View } from './attempts.ts';
import { disposed } from './dispose.ts';
import type { Disposition } from './disposition.ts';
import { shorteningOf } from './epochs.ts';
import { cancelPhaseOf, LACKING, type Expected } from './expected.ts';
import { cutIn, estimateOf } from './length.ts';
import { spendingOf } from './spending.ts';
import { tallyOf } from './tally.ts';
import { messagesOf, type Moment, type Trace } from './trace.ts';
import { resultsOf, type CallRecord, type Turn } from './turns.ts';

export interface Reference {
  /** One for each moment; undefined for what must not be taken. */
  readonly expected: readonly (Expected | undefined)[];
  /** How many tokens the conversation is taken to have after each moment. */
  readonly lengths: readonly number[];
  /** How many calls were let through until then, and how many turns in a row had nothing but errors. */
  readonly counts: readonly (readonly number[])[];
  readonly dispositions: ReadonlyMap<CallRecord, Disposition>;
  /** Calls that a typed agent takes for itself: they count for no limit. */
  readonly claims: ReadonlyMap<CallRecord, Claim>;
  /** What a typed agent is at after each moment. */
  readonly agents: readonly (View | undefined)[];
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
  const claims = new Map<CallRecord, Claim>();
  const left = new Map<Turn, Limits>();
  let rules!: Rules;
  let tools: readonly ToolFacts[] = [];
  let instructions = 'none';
  let standing: ToolChoice = 'auto';
  /**
   * `asked`: turns of the attempt. `given`: messages of the task. `length`: tokens that the conversation is taken to have.
   */
  let [asked, admitted, pending, given, length] = [0, 0, 0, 0, 0];
  let closing: Limit | undefined;
  let decision: TurnDecision | undefined;
  let lacked: 'call' | 'content' | 'output' | undefined;
  let confirmed = false;
  /** Why the model refused the conversation that is being made shorter; and that it was, in this turn. */
  let refused: ModelErrorCode | undefined;
  let shortened = false;
  const tally = tallyOf();
  const spending = spendingOf();
  let attempts: Attempts | undefined;
  let turn: Turn | undefined;
  /** Calls of the turn that may run and have no result. */
  let unanswered = new Set<CallRecord>();

  /** Who has no calls left is asked for an answer; but that of a typed agent is a call. */
  const choice = (): ToolChoice =>
    closing !== undefined || (tally.spent() > 0 && !attempts) ? 'none' : (decision?.toolChoice ?? standing);
  const end = (...words: readonly unknown[]): Expected => ({ type: 'end', outcome: words.join(' ') });
  const isPolling = ({ part: { name } }: CallRecord): boolean =>
    tools.some((tool) => tool.polling && tool.name === name);
  const isDecided = (name: string): boolean => decision?.tools?.includes(name) ?? true;
  const isAllowed = (name: string): boolean =>
    tools.some((tool) => tool.name === name) && isDecided(name) && (rules.allowedTools?.includes(name) ?? true);

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
    if (!rules.closingTurn || attempts || closing !== undefined || spending.isOver(rules.limits))
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
    if (rules.agent) return rules.agent.textOnly === 'fail' ? end('failed', 'no-tool-called') : goOn(moment);
    if (!isMet([])) return lack('call', moment);
    if (text.trim() === '') return lack('content', moment);
    if (lacked !== 'output') lacked = undefined;
    if (pending > 0) return goOn(moment);
    if (rules.finish === 'confirm' && !confirmed) {
      confirmed = true;
      return goOn(moment);
    }
    return rules.output ? { type: 'validate', text, attempt: undefined } : completed(reply);
  }

  function completed({ finish }: Turn['reply']): Expected {
    return end('completed', ...(finish === 'length' ? ['truncated'] : []));
  }

  function checked(result: Checked, moment: Moment): Expected {
    if (attempts) return outputChecked(attempts, result, moment);
    if (result.type === 'valid') return completed(turn!.reply);
    if (pending === 0) return lack('output', moment);
    lacked = undefined;
    return goOn(moment);
  }

  /** The held call gets its answer now, and with it the turn its results. */
  function outputChecked(agent: Attempts, result: Checked, moment: Moment): Expected {
    const missing = count(moment);
    if (missing) return missing;
    if (result.type === 'valid') return completed(turn!.reply);
    const last = agent.reject(result);
    if (last) return end(last);
    const met = tally.met(rules);
    if (met) return meet(met);
    agent.begin();
    asked = 0;
    return goOn(moment);
  }

  function called({ calls }: Turn, moment: Moment): Expected {
    for (const [call, claim] of attempts?.claimsOn(calls) ?? []) claims.set(call, claim);
    const situation = { rules, demanded: choice(), isAllowed, closing: closing !== undefined, admitted, claims, tally };
    for (const [call, disposition] of disposed(calls, situation)) dispositions.set(call, disposition);
    if (attempts) lacked = undefined;
    else if (!isMet(calls)) {
      if (lacked === 'call') return end('failed', LACKING.call);
      lacked = 'call';
    } else {
      lacked = undefined;
      if (choice() !== 'none' && decision?.toolChoice === undefined) standing = 'auto';
    }
    unanswered = new Set(calls.filter((call) => dispositions.get(call) === 'runs'));
    if (!rules.judged) admitted += [...unanswered].filter((call) => !claims.has(call)).length;
    return unanswered.size === 0 ? finished(moment) : NOTHING;
  }

  /** The turn's results are all there, but for that of a call that is held. */
  function finished(moment: Moment): Expected {
    const { calls } = turn!;
    if (calls.some((call) => claims.get(call) === 'held')) {
      return { type: 'validate', text: attempts!.proposal()!, attempt: attempts!.view().attempt };
    }
    const missing = count(moment);
    if (missing) return missing;
    const early = calls.some((call) => claims.get(call) === 'early');
    if (early && rules.agent?.earlySubmit === 'fail') return end('failed', 'submit-before-output');
    if (closing !== undefined) return end('exhausted', closing);
    const met = tally.met(rules);
    return met ? meet(met) : goOn(moment);
  }

  /** Counts what counts of the turn's results, which must be in the history. */
  function count(moment: Moment): Expected | undefined {
    const { calls, number } = turn!;
    const results = resultsOf(turn!, moment);
    if (!results) return { type: 'end', outcome: `the results of turn ${number}` };
    length += estimateOf({ role: 'tool', content: results });
    const counted = calls.map((call) => ({ call, disposition: dispositions.get(call)!, polling: isPolling(call) }));
    tally.count(counted.map((one) => ({ ...one, result: results[one.call.index]! })));
    return undefined;
  }

  function judged(moment: Moment, at: number): Expected {
    for (const call of unanswered) {
      if (isAnswered(call, at)) unanswered.delete(call);
      else if (expiryOf(call) === undefined && !claims.has(call)) admitted++;
    }
    return unanswered.size === 0 ? finished(moment) : NOTHING;
  }

  function onCall(effect: string, moment: Moment, at: number): Expected {
    const call = turn?.calls.find(({ story }) =>
      story.some((one) => one.type === 'issued' && one.effect.id === effect),
    );
    if (!call || !isAnswered(call, at)) {
      if (moment.event.type === 'approval-given' && !(call && claims.has(call))) admitted++;
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
        return { type: 'validate', text: gone.text, attempt: attempts?.view().attempt };
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
        attempts = rules.agent && attemptsOf(rules.agent);
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
        return checked(event.result, moment);
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
        attempts?.remember(event);
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
  const counts: number[][] = [];
  const agents: (View | undefined)[] = [];
  const expected = moments.map((moment, at) => {
    const next = moment.taken ? on(moment, at) : undefined;
    lengths.push(length);
    counts.push([admitted, tally.errors()]);
    agents.push(attempts?.view());
    return next;
  });
  return { expected, lengths, counts, dispositions, claims, agents, left };
}
