import type { Limit, Rules, ToolChoice, ToolFacts, ToolResult } from '@treadle/core';
import { expiryOf, isAnswered } from './answered.ts';
import type { Moment, Trace } from './trace.ts';
import { argumentsOf, capOf, resultsOf, type CallRecord, type Turn } from './turns.ts';

/** What must follow from a fact: nothing yet, a model call, or the end. */
export type Expected =
  | { readonly type: 'nothing' }
  | { readonly type: 'ask'; readonly choice: ToolChoice }
  | { readonly type: 'end'; readonly outcome: string };

/**
 * What must become of a call. `refused` is for the model to mend; `capped` and `spent` are the loop's own limits and no
 * errors of the model; `repeated` is the same call once too often.
 */
export type Disposition = 'runs' | 'refused' | 'capped' | 'spent' | 'repeated';

export interface Reference {
  /** One for each moment; undefined for what must not be taken. */
  readonly expected: readonly (Expected | undefined)[];
  readonly dispositions: ReadonlyMap<CallRecord, Disposition>;
}

const NOTHING: Expected = { type: 'nothing' };

/**
 * The design's table "What the loop decides", written a second time: over what is in a trace, with none of the states'
 * counters. It only reads results from the history, because the sentences in them are the loop's own.
 */
export function referenceOf({ moments }: Trace, turns: readonly Turn[]): Reference {
  const dispositions = new Map<CallRecord, Disposition>();
  let rules!: Rules;
  let tools: readonly ToolFacts[] = [];
  let standing: ToolChoice = 'auto';
  let [asked, admitted, tokens, errors, spentReplies, pending] = [0, 0, 0, 0, 0, 0];
  let cost: number | undefined = 0;
  let closing: Limit | undefined;
  let lacked: 'call' | 'content' | undefined;
  let confirmed = false;
  let streak: { name: string; text: string; result: string; count: number; refused: number } | undefined;
  let turn: Turn | undefined;
  /** Calls of the turn that may run and have no result. */
  let unanswered = new Set<CallRecord>();

  const choice = (): ToolChoice => (closing !== undefined || spentReplies > 0 ? 'none' : standing);
  const end = (...words: readonly unknown[]): Expected => ({ type: 'end', outcome: words.join(' ') });
  const isKnown = (name: string): boolean => tools.some((tool) => tool.name === name);
  const isAllowed = (name: string): boolean => isKnown(name) && (rules.allowedTools?.includes(name) ?? true);

  function ask(): Expected {
    asked++;
    pending = 0;
    return { type: 'ask', choice: choice() };
  }

  function isPaid(): boolean {
    const { limits } = rules;
    return tokens >= (limits.tokens ?? Infinity) || (limits.cost !== undefined && !(cost! < limits.cost));
  }

  function meet(limit: Limit): Expected {
    if (!rules.closingTurn || closing !== undefined || isPaid()) return end('exhausted', closing ?? limit);
    closing = limit;
    return ask();
  }

  function goOn(): Expected {
    if (asked >= rules.maxTurns) return meet('turns');
    if (tokens >= (rules.limits.tokens ?? Infinity)) return meet('tokens');
    if (rules.limits.cost === undefined) return ask();
    if (cost === undefined) return end('failed', 'cost-unknown');
    return cost >= rules.limits.cost ? meet('cost') : ask();
  }

  function isMet(calls: readonly CallRecord[]): boolean {
    const demanded = choice();
    if (demanded === 'auto' || demanded === 'none') return true;
    return calls.some(({ part: { name } }) => isAllowed(name) && (demanded === 'required' || demanded.tool === name));
  }

  function lack(what: 'call' | 'content'): Expected | undefined {
    if (lacked === what) return end('failed', what === 'call' ? 'tool-choice-unmet' : 'empty-reply');
    lacked = what;
    return undefined;
  }

  function replied(now: Turn, moment: Moment): Expected {
    const { reply, calls } = now;
    turn = now;
    tokens += reply.usage.inputTokens + reply.usage.outputTokens;
    cost = cost === undefined || reply.usage.cost === undefined ? undefined : cost + reply.usage.cost;
    if (reply.finish === 'content-filter') return end('failed', 'content-filter');
    return calls.length === 0 ? answered(now) : called(now, moment);
  }

  function answered({ reply }: Turn): Expected {
    if (closing !== undefined) return end('exhausted', closing);
    if (!isMet([])) return lack('call') ?? goOn();
    if (!reply.content.some((part) => part.type === 'text' && part.text.trim() !== ''))
      return lack('content') ?? goOn();
    lacked = undefined;
    if (pending > 0) return goOn();
    if (rules.finish === 'confirm' && !confirmed) {
      confirmed = true;
      return goOn();
    }
    return end('completed', ...(reply.finish === 'length' ? ['truncated'] : []));
  }

  function called({ calls }: Turn, moment: Moment): Expected {
    let inReply = 0;
    for (const call of calls) {
      const disposition = dispositionOf(call, inReply);
      if (disposition === 'runs') inReply++;
      dispositions.set(call, disposition);
    }
    if (!isMet(calls)) {
      const failed = lack('call');
      if (failed) return failed;
    } else {
      lacked = undefined;
      if (choice() !== 'none') standing = 'auto';
    }
    unanswered = new Set(calls.filter((call) => dispositions.get(call) === 'runs'));
    if (!rules.judged) admitted += inReply;
    return unanswered.size === 0 ? finished(moment) : NOTHING;
  }

  function dispositionOf(call: CallRecord, inReply: number): Disposition {
    const { index, part, facts, check } = call;
    if (index >= capOf(rules) || closing !== undefined) return 'capped';
    if (spentReplies > 0) return 'spent';
    if (standing === 'none' || (typeof standing === 'object' && standing.tool !== part.name)) return 'refused';
    if (!facts || !isAllowed(part.name) || !check || check.problem !== undefined) return 'refused';
    if (admitted + inReply >= (rules.limits.calls ?? Infinity)) return 'spent';
    const again = streak?.name === part.name && streak.text === argumentsOf(call) && streak.count >= rules.repeatLimit;
    return again && rules.repeatLimit > 0 && !facts.polling ? 'repeated' : 'runs';
  }

  /** The turn's results are all there. */
  function finished(moment: Moment): Expected {
    const { calls, number } = turn!;
    const results = resultsOf(turn!, moment);
    if (!results) return { type: 'end', outcome: `the results of turn ${number}` };
    for (const call of calls) follow(call, results[call.index]!);
    const counted = calls.filter((call) => ['runs', 'refused', 'repeated'].includes(dispositions.get(call)!));
    if (counted.some(({ index }) => !results[index]!.isError)) errors = 0;
    else if (counted.length > 0) errors++;
    if (calls.some((call) => dispositions.get(call) === 'spent')) spentReplies++;

    if (closing !== undefined) return end('exhausted', closing);
    if (streak && streak.refused >= 2) return meet('repetition');
    if (rules.errorLimit > 0 && errors >= rules.errorLimit) return meet('errors');
    return spentReplies > 1 ? meet('calls') : goOn();
  }

  function follow(call: CallRecord, { content }: ToolResult): void {
    const { name } = call.part;
    const disposition = dispositions.get(call)!;
    if (rules.repeatLimit === 0 || disposition === 'capped' || disposition === 'spent') return;
    if (disposition === 'repeated') {
      if (streak) streak.refused++;
      return;
    }
    const [text, result] = [argumentsOf(call), JSON.stringify(content)];
    const again = streak?.name === name && streak.text === text && streak.result === result;
    const polls = tools.some((tool) => tool.polling && tool.name === name);
    streak = polls ? undefined : { name, text, result, count: again ? streak!.count + 1 : 1, refused: 0 };
  }

  function judged(moment: Moment, at: number): Expected {
    for (const call of unanswered) {
      if (isAnswered(call, at)) unanswered.delete(call);
      else if (expiryOf(call) === undefined) admitted++;
    }
    return unanswered.size === 0 ? finished(moment) : NOTHING;
  }

  function cancelled({ books: { before } }: Moment): Expected {
    const kinds = new Set([...before.open.values()].map(({ effect }) => effect.type));
    if (kinds.has('call-model')) return end('cancelled', 'model');
    if (kinds.has('judge-calls') || kinds.has('call-tool') || kinds.has('verify-tool')) return end('cancelled', 'tool');
    return end('cancelled', kinds.has('ask-approval') ? 'approval' : 'client');
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

  function on(moment: Moment, at: number): Expected {
    const { event } = moment;
    switch (event.type) {
      case 'run-started':
        ({ rules, tools } = event);
        standing = rules.toolChoice;
        return goOn();
      case 'input-added':
        pending += event.messages.length;
        return NOTHING;
      case 'tools-changed':
        ({ tools } = event);
        return NOTHING;
      case 'model-replied':
        return replied(
          turns.find(({ repliedAt }) => repliedAt === at)!,
          moment,
        );
      case 'model-failed':
        pending = 0;
        return closing === undefined ? end('failed', event.error.code) : end('exhausted', closing);
      case 'calls-judged':
        return judged(moment, at);
      case 'cancel-requested':
        return cancelled(moment);
      case 'deadline-passed':
        return event.effect === undefined ? end('exhausted', 'duration') : onCall(event.effect, moment, at);
      case 'effect-lost': {
        const { open, failed } = moment.books.before;
        const kind = open.get(event.effect)?.effect.type;
        if (kind === 'call-model' || event.effect === failed) return { type: 'ask', choice: choice() };
        return kind === 'judge-calls' ? NOTHING : onCall(event.effect, moment, at);
      }
      default:
        return onCall(event.effect, moment, at);
    }
  }

  return { expected: moments.map((moment, at) => (moment.taken ? on(moment, at) : undefined)), dispositions };
}

/** An outcome in the words of `Expected`. */
export function inWords({ phase }: Moment['after']): string | undefined {
  if (phase.type !== 'ended') return undefined;
  const { outcome } = phase;
  switch (outcome.type) {
    case 'completed':
      return outcome.truncated ? 'completed truncated' : 'completed';
    case 'exhausted':
      return `exhausted ${outcome.limit}`;
    case 'failed':
      return `failed ${outcome.error.code}`;
    case 'cancelled':
      return `cancelled ${outcome.phase}`;
    default:
      return outcome satisfies never;
  }
}
