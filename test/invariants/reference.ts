import type {
  ErrorType,
  GuardrailVerdict,
  Limit,
  Limits,
  Memory,
  ModelError,
  ModelErrorCode,
  Narrowing,
  Rules,
  ToolChoice,
  ToolFacts,
  TurnDecision,
} from '@treadle/core';
import type { PolicyLimits } from '@treadle/core/policy';
import { isAnswered, permissionAt, resultsOf, type Turn, type CallRecord } from './turns.ts';
import { attemptsOf, type Attempts, type Checked, type Claim, type View } from './agent-attempts.ts';
import { handlingsOf, type Handling } from './call-handling.ts';
import { refusalType } from './error-types.ts';
import { compactionOf, estimateOf, cutPosition } from './compactions.ts';
import { handoffIn, isRaised, narrowedAfter } from './observed.ts';
import { cancelPhaseOf, LACKING, type Expected } from './expected.ts';
import { usageTotals, countsOf } from './counts.ts';
import { messagesOf, type Moment, type Trace } from './trace.ts';

export interface Reference {
  /** One for each moment; undefined for events that must be ignored. */
  readonly expected: readonly (Expected | undefined)[];
  /** The estimated tokens of the conversation after each moment. */
  readonly lengths: readonly number[];
  /** After each moment: calls that were admitted, and consecutive turns with nothing but errors. */
  readonly counts: readonly (readonly number[])[];
  readonly handlings: ReadonlyMap<CallRecord, Handling>;
  /** The types of the errors of calls that did not run. */
  readonly refusals: ReadonlyMap<CallRecord, ErrorType>;
  /** Calls that a typed agent claims: they count for no limit. */
  readonly claims: ReadonlyMap<CallRecord, Claim>;
  /** The progress of a typed agent after each moment. */
  readonly agents: readonly (View | undefined)[];
  /** After each moment: the memory of a run that is not a typed agent's, with sorted keys. */
  readonly memories: readonly Memory[];
  /** After each moment: the tools from the next turn on, if they change. */
  readonly laterTools: readonly (readonly ToolFacts[] | undefined)[];
  /** After each moment: the agent that the run was handed to, the model, and the agent of the next turn. */
  readonly holders: readonly (readonly (string | undefined)[])[];
  /** After each moment: the definition of the program that is the model. */
  readonly programs: readonly unknown[];
  /** After each moment: what the run may do in this turn, and from the next turn on. */
  readonly narrowings: readonly (readonly unknown[])[];
  /** The remaining limits when the reply of a turn arrived. */
  readonly remaining: ReadonlyMap<Turn, Limits>;
}

const NOTHING: Expected = { type: 'nothing' };

/** Events between which deaths are in a row. */
const NO_PROGRESS: ReadonlySet<string> = new Set(['effect-lost', 'resource-opened', 'resource-closed']);

/**
 * A second implementation of what the loop decides. It works on a trace and uses none of the counters of the states. It
 * reads results from the history, because the loop itself writes the sentences in them.
 */
export function referenceOf({ moments }: Trace, turns: readonly Turn[]): Reference {
  const handlings = new Map<CallRecord, Handling>();
  const refusals = new Map<CallRecord, ErrorType>();
  const claims = new Map<CallRecord, Claim>();
  const remaining = new Map<Turn, Limits>();
  let rules!: Rules;
  let tools: readonly ToolFacts[] = [];
  /** The tools from the next turn on. */
  let laterTools: readonly ToolFacts[] | undefined;
  let instructions = 'none';
  let model = '';
  let program: unknown;
  /** The agent that the run was handed to, and the one that it is handed to with the next turn. */
  let agentName: string | undefined;
  let handoff: ReturnType<typeof handoffIn>;
  let runChoice: ToolChoice = 'auto';
  /** `asked`: turns of the attempt. `given`: messages of the task. `length`: estimated tokens of the conversation. */
  let [asked, admitted, pending, given, length] = [0, 0, 0, 0, 0];
  let closing: Limit | undefined;
  let decision: TurnDecision | undefined;
  let lacked: 'call' | 'content' | 'output' | undefined;
  let confirmed = false;
  /** `refused`: why the model rejected the conversation that is compacted. `shortened`: it was, in this turn. */
  let refused: ModelErrorCode | undefined;
  /** How the run ends if the guardrails let its answer pass, and its validated output. */
  let answer: Expected | undefined;
  let output: unknown;
  let shortened = false;
  const counters = countsOf();
  /** How many deaths in a row each call was running at. */
  const deaths = new Map<string, number>();
  const used = usageTotals();
  /** Every narrowing since the last time that they were lifted, and those that apply in this turn. */
  let narrowings: readonly Narrowing[] = [];
  let narrowed: readonly Narrowing[] = [];
  let attempts: Attempts | undefined;
  const memory = new Map<string, unknown>();
  let turn: Turn | undefined;
  /** Calls of the turn that may run and have no result yet. */
  let unanswered = new Set<CallRecord>();

  /** Without remaining calls, the model must answer with text; but a typed agent answers with a call. */
  const choice = (): ToolChoice => {
    if (closing !== undefined || (counters.spent() > 0 && !attempts)) return 'none';
    const chosen = decision?.toolChoice ?? runChoice;
    const possible = typeof chosen === 'object' ? isOpen(chosen.tool) : tools.some(({ name }) => isOpen(name));
    return possible || chosen === 'none' || narrowed.length === 0 ? chosen : 'auto';
  };
  /** Whether every narrowing has the tool, or it is one that always stays. */
  const isOpen = (name: string): boolean => {
    if ([rules.agent?.output, rules.agent?.submit].includes(name)) return true;
    const marked = tools.some((tool) => tool.name === name && tool.unnarrowed);
    if (rules.marks ? marked : name === 'question') return true;
    return narrowed.every(({ tools: some = [name], without = [] }) => some.includes(name) && !without.includes(name));
  };
  const end = (...words: readonly unknown[]): Expected => ({ type: 'end', outcome: words.join(' ') });
  const isPolling = ({ part: { name } }: CallRecord): boolean =>
    tools.some((tool) => tool.polling && tool.name === name);
  const isDecided = (name: string): boolean => decision?.tools?.includes(name) ?? true;
  const isAllowed = (name: string): boolean =>
    tools.some((tool) => tool.name === name) &&
    isOpen(name) &&
    isDecided(name) &&
    (rules.allowedTools?.includes(name) ?? true);

  function ask(): Expected {
    return {
      type: 'ask',
      choice: choice(),
      tools: tools.map(({ name }) => name).filter((name) => isDecided(name) && isOpen(name)),
      instructions: decision?.instructions ?? instructions,
      model: decision?.model,
    };
  }

  function startTurn(): Expected {
    asked++;
    tools = laterTools ?? tools;
    laterTools = undefined;
    narrowed = narrowings;
    if (handoff) ({ agent: agentName, model, instructions = 'none' } = handoff);
    handoff = undefined;
    decision = undefined;
    shortened = false;
    return rules.prepared && closing === undefined ? { type: 'prepare' } : ask();
  }

  function reachLimit(limit: Limit): Expected {
    pending = 0;
    if (!rules.closingTurn || attempts || closing !== undefined || used.isOver(rules.limits))
      return end('exhausted', closing ?? limit);
    closing = limit;
    return startTurn();
  }

  function limited(): Expected | undefined {
    if (asked >= rules.maxTurns) return reachLimit('turns');
    const reached = used.reached(rules.limits);
    return reached === 'tokens-unknown' || reached === 'cost-unknown'
      ? end('failed', reached)
      : reached && reachLimit(reached);
  }

  function continueRun(moment: Moment): Expected {
    pending = 0;
    const crowded = length >= (rules.compaction?.tokens ?? Infinity);
    return limited() ?? (crowded ? shorten(moment) : undefined) ?? startTurn();
  }

  function shorten({ after }: Moment): Expected | undefined {
    if (!rules.compaction) return undefined;
    const to = cutPosition(messagesOf(after), given, rules.compaction.keepTurns);
    return to === undefined ? undefined : { type: 'compact', to };
  }

  function failed({ code, endsWith }: ModelError, moment: Moment): Expected {
    if (endsWith !== undefined && closing === undefined) return end('failed', endsWith);
    const shorter = code === 'context-length' && !shortened && closing === undefined ? shorten(moment) : undefined;
    if (shorter) refused = code;
    else pending = 0;
    return shorter ?? (closing === undefined ? end('failed', code) : end('exhausted', closing));
  }

  function compacted(moment: Moment): Expected {
    const compaction = compactionOf(moment);
    const again = refused;
    refused = undefined;
    if (compaction) {
      used.charge(compaction.usage);
      length = compaction.kept.map(estimateOf).reduce((sum, one) => sum + one, 0);
      shortened = again !== undefined;
      if (shortened) return ask();
    }
    pending = 0;
    return again === undefined ? (limited() ?? startTurn()) : end('failed', again);
  }

  function isSatisfied(calls: readonly CallRecord[]): boolean {
    const required = choice();
    if (required === 'auto' || required === 'none') return true;
    return calls.some(({ part: { name } }) => isAllowed(name) && (required === 'required' || required.tool === name));
  }

  function askAgain(what: keyof typeof LACKING, moment: Moment): Expected {
    if (lacked === what) return end('failed', LACKING[what]);
    lacked = what;
    return continueRun(moment);
  }

  function replied(now: Turn, moment: Moment): Expected {
    const { reply, calls } = now;
    turn = now;
    used.charge(reply.usage, reply.usesTokens !== false);
    const { inputTokens, outputTokens } = reply.usage;
    length = inputTokens + outputTokens || length + estimateOf({ role: 'assistant', content: reply.content });
    remaining.set(now, used.remaining(rules.limits, admitted, moment.observed.after.activeMs));
    if (reply.finish === 'content-filter') return end('failed', 'content-filter');
    return calls.length === 0 ? answered(now, moment) : called(now, moment);
  }

  function answered({ reply }: Turn, moment: Moment): Expected {
    const text = reply.content.flatMap((part) => (part.type === 'text' ? part.text : [])).join('');
    if (closing !== undefined) {
      return text.trim() === '' ? end('exhausted', closing) : accepted(end('exhausted', closing));
    }
    if (rules.agent) return rules.agent.textOnly === 'fail' ? end('failed', 'no-tool-called') : continueRun(moment);
    if (!isSatisfied([])) return askAgain('call', moment);
    if (text.trim() === '') return askAgain('content', moment);
    if (lacked !== 'output') lacked = undefined;
    if (pending > 0) return continueRun(moment);
    if (rules.finish === 'confirm' && !confirmed && !(rules.marks && tools.length === 0)) {
      confirmed = true;
      return continueRun(moment);
    }
    return rules.output ? { type: 'validate', text, attempt: undefined } : completed(reply);
  }

  function completed({ finish }: Turn['reply']): Expected {
    return accepted(end('completed', ...(finish === 'length' ? ['truncated'] : [])));
  }

  /** The answer, or the guardrails that check it. */
  function accepted(outcome: Expected): Expected {
    if (!rules.guardrails?.output) return outcome;
    answer = outcome;
    return { type: 'guard', stage: 'output', output };
  }

  function guarded(verdicts: readonly GuardrailVerdict[], moment: Moment): Expected {
    if (verdicts.length === 0 || verdicts.some(({ type }) => type === 'stop')) return end('failed', 'guardrail');
    const followed = pending > 0 && closing === undefined && !rules.output && !rules.agent;
    if (answer && !followed) return answer;
    answer = undefined;
    return continueRun(moment);
  }

  function checked(result: Checked, moment: Moment): Expected {
    if (attempts) return outputChecked(attempts, result, moment);
    if (result.type === 'valid') return completed(turn!.reply);
    if (pending === 0) return askAgain('output', moment);
    lacked = undefined;
    return continueRun(moment);
  }

  /** Answers the held call, so that the turn has all its results. */
  function outputChecked(agent: Attempts, result: Checked, moment: Moment): Expected {
    const missing = count(moment);
    if (missing) return missing;
    if (result.type === 'valid') return completed(turn!.reply);
    for (const call of turn!.calls) if (claims.get(call) === 'held') refusals.set(call, 'invalid_params');
    const last = agent.reject(result);
    if (last) return end(last);
    const reached = counters.reached(rules);
    if (reached) return reachLimit(reached);
    agent.startNext();
    asked = 0;
    return continueRun(moment);
  }

  function called({ calls }: Turn, moment: Moment): Expected {
    for (const [call, claim] of attempts?.claimsOn(calls) ?? []) claims.set(call, claim);
    const situation = {
      rules,
      required: choice(),
      isAllowed,
      closing: closing !== undefined,
      admitted,
      claims,
      counters,
    };
    for (const [call, handling] of handlingsOf(calls, situation)) {
      handlings.set(call, handling);
      if (handling !== 'runs' && handling !== 'held') {
        refusals.set(call, refusalType(call, handling, situation.required, isAllowed));
      }
    }
    if (attempts) lacked = undefined;
    else if (!isSatisfied(calls)) {
      if (lacked === 'call') return end('failed', LACKING.call);
      lacked = 'call';
    } else {
      lacked = undefined;
      if (choice() !== 'none' && decision?.toolChoice === undefined) runChoice = 'auto';
    }
    unanswered = new Set(calls.filter((call) => handlings.get(call) === 'runs'));
    const judged = [...unanswered].some((call) => call.mustBeJudged);
    if (!judged) admitted += [...unanswered].filter((call) => !claims.has(call)).length;
    return unanswered.size === 0 ? finished(moment) : NOTHING;
  }

  /** The turn has all its results, except that of a held call. */
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
    const reached = counters.reached(rules);
    return reached ? reachLimit(reached) : continueRun(moment);
  }

  /** Updates the counters from the results of the turn, which must be in the history. */
  function count(moment: Moment): Expected | undefined {
    const { calls, number } = turn!;
    const results = resultsOf(turn!, moment);
    if (!results) return { type: 'end', outcome: `the results of turn ${number}` };
    length += estimateOf({ role: 'tool', content: results });
    const counted = calls.map((call) => ({ call, handling: handlings.get(call)!, polling: isPolling(call) }));
    counters.count(counted.map((one) => ({ ...one, result: results[one.call.index]! })));
    return undefined;
  }

  function judged(moment: Moment, at: number): Expected {
    for (const call of unanswered) {
      if (isAnswered(call, at)) unanswered.delete(call);
      else if (permissionAt(call, at)?.type === 'allowed' && !claims.has(call)) admitted++;
    }
    return unanswered.size === 0 ? finished(moment) : NOTHING;
  }

  /** Calls that wait to start may be denied or asked about, and then are not admitted any more. */
  function policyChanged(moment: Moment, at: number): Expected {
    let denied = false;
    for (const call of unanswered) {
      const was = permissionAt(call, at - 1)?.type ?? 'allowed';
      const is = permissionAt(call, at)?.type ?? 'allowed';
      if (was === 'allowed' && is !== 'allowed' && !claims.has(call)) admitted--;
      if (is === 'denied') denied = unanswered.delete(call);
    }
    return denied && unanswered.size === 0 ? finished(moment) : NOTHING;
  }

  function onCall(effect: string, moment: Moment, at: number): Expected {
    const call = turn?.calls.find(({ log }) => log.some((one) => one.type === 'issued' && one.effect.id === effect));
    if (!call || !isAnswered(call, at)) {
      const approved = moment.event.type === 'approval-given' && call && permissionAt(call, at)?.type === 'allowed';
      const before = approved && permissionAt(call, at - 1);
      // A call that exceeds a budget was admitted before.
      const isNew = before && !(before.type === 'asking' && before.raises);
      if (isNew && !claims.has(call)) admitted++;
      return NOTHING;
    }
    unanswered.delete(call);
    return unanswered.size === 0 ? finished(moment) : NOTHING;
  }

  function lost(effect: string, moment: Moment, at: number): Expected {
    const { open, failed: ended } = moment.observed.before;
    const lostEffect = open.get(effect)?.effect;
    if (isCrashLoop(moment)) return end('failed', 'crash-loop');
    switch (lostEffect?.type) {
      case 'prepare-turn':
        return { type: 'prepare' };
      case 'call-model':
        return ask();
      case 'compact-history':
        return { type: 'compact', to: lostEffect.to };
      case 'validate-output':
        return { type: 'validate', text: lostEffect.text, attempt: attempts?.view().attempt };
      case 'check-guardrails':
        return { type: 'guard', stage: lostEffect.stage, output };
      case 'judge-calls':
        return NOTHING;
      default:
        return effect === ended ? ask() : onCall(effect, moment, at);
    }
  }

  /** People have decided about a model call or a summary that exceeds a budget. */
  function decided({ event, observed: { before } }: Moment): Expected {
    if (!isRaised(before, event)) return end('exhausted', 'budget');
    const { effect } = before.raising!;
    return effect.type === 'compact-history' ? { type: 'compact', to: effect.to } : ask();
  }

  /** Counts the death of the process that ran a call. Only deaths in a row count, and not those of child runs. */
  function isCrashLoop({ event, observed }: Moment): boolean {
    if (event.type !== 'effect-lost' || event.cause !== 'restart') return false;
    if (!event.died) deaths.clear();
    const running = observed.before.open.get(event.effect);
    const kind = running?.effect.type;
    if (!event.died || running?.parked || (kind !== 'call-tool' && kind !== 'verify-tool')) return false;
    const call = turn?.calls.find(({ log }) =>
      log.some((one) => one.type === 'issued' && one.effect.id === event.effect),
    );
    if (call?.facts?.share !== undefined) return false;
    const count = (deaths.get(event.effect) ?? 0) + 1;
    deaths.set(event.effect, count);
    return count === rules.crashLimit;
  }

  /** A call stores whole values. A key with the value null is removed. */
  function remember(changes: Memory = {}): void {
    for (const [key, value] of Object.entries(changes)) {
      memory.set(key, value);
      if (value === null) memory.delete(key);
    }
  }

  function follow(moment: Moment, at: number): Expected {
    const { event } = moment;
    if (!NO_PROGRESS.has(event.type)) deaths.clear();
    narrowings = narrowedAfter(narrowings, event);
    const handed = handoffIn(event);
    if (handed && handed.index > (handoff?.index ?? -1)) {
      handoff = handed;
      laterTools = handed.tools;
    }
    switch (event.type) {
      case 'run-started':
        ({ rules, tools, model, instructions = 'none', program } = event);
        runChoice = rules.toolChoice;
        attempts = rules.agent && attemptsOf(rules.agent);
        given = event.input.length;
        remember(event.memory);
        if (rules.guardrails?.input) return { type: 'guard', stage: 'input', output };
        return continueRun(moment);
      case 'guardrails-checked':
        return guarded(event.verdicts, moment);
      case 'run-forked':
        ({ tools = tools, instructions = instructions, model = model } = event);
        if (handoff && event.model !== undefined) handoff = { ...handoff, model };
        if (handoff && event.instructions !== undefined) handoff = { ...handoff, instructions };
        if (event.tools) laterTools = undefined;
        return NOTHING;
      case 'input-added':
        pending += event.messages.length;
        return NOTHING;
      case 'tools-changed':
        if (event.from) laterTools = event.tools;
        else ({ tools } = event);
        return NOTHING;
      case 'resource-opened':
      case 'resource-closed':
        return NOTHING;
      case 'narrowing-lifted':
        narrowed = narrowedAfter(narrowed, event);
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
        return failed(event.error, moment);
      case 'history-compacted':
        return compacted(moment);
      case 'output-checked':
        if (event.result.type === 'valid') output = event.result.value;
        return checked(event.result, moment);
      case 'calls-judged':
        return judged(moment, at);
      case 'policy-changed':
        if (event.limits) rules = withinLimits(rules, event.limits);
        return policyChanged(moment, at);
      case 'call-rejudged':
        return policyChanged(moment, at);
      case 'program-changed':
        ({ program } = event);
        return NOTHING;
      case 'cancel-requested':
        return end('cancelled', cancelPhaseOf(moment.observed.before));
      case 'budget-refused':
        return end('exhausted', 'budget');
      case 'budget-escalated':
        return NOTHING;
      case 'deadline-passed':
        if (event.effect !== undefined && moment.observed.before.raising) return end('exhausted', 'budget');
        return event.effect === undefined ? end('exhausted', 'duration') : onCall(event.effect, moment, at);
      case 'effect-lost':
        return lost(event.effect, moment, at);
      case 'tool-settled':
        if (event.result.type === 'result' && event.result.usage) used.charge(event.result.usage);
        if (attempts) attempts.remember(event);
        else if (event.result.type === 'result') remember(event.result.memory);
        return onCall(event.effect, moment, at);
      case 'child-started':
        return NOTHING;
      case 'tool-parked':
      case 'question-answered':
        return moment.observed.before.raising ? decided(moment) : onCall(event.effect, moment, at);
      case 'questions-asked':
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
  const memories: Memory[] = [];
  const allNarrowings: unknown[][] = [];
  const holders: (string | undefined)[][] = [];
  const programs: unknown[] = [];
  const allLaterTools: (readonly ToolFacts[] | undefined)[] = [];
  const expected = moments.map((moment, at) => {
    const next = moment.applied ? follow(moment, at) : undefined;
    lengths.push(length);
    counts.push([admitted, counters.errors()]);
    agents.push(attempts?.view());
    allLaterTools.push(laterTools);
    programs.push(program);
    holders.push([agentName, model, handoff?.agent]);
    allNarrowings.push([asSet(narrowed), asSet(narrowings)]);
    memories.push(Object.fromEntries([...memory].toSorted(([a], [b]) => (a < b ? -1 : 1))));
    return next;
  });
  return {
    expected,
    lengths,
    counts,
    handlings,
    refusals,
    claims,
    agents,
    memories,
    narrowings: allNarrowings,
    laterTools: allLaterTools,
    holders,
    programs,
    remaining,
  };
}

/** The rules, with no more turns and calls than a policy allows. */
function withinLimits(rules: Rules, { turns = Infinity, calls = Infinity }: PolicyLimits): Rules {
  const most = Math.min(rules.limits.calls ?? Infinity, calls);
  const limits = most === Infinity ? rules.limits : { ...rules.limits, calls: most };
  return { ...rules, maxTurns: Math.min(rules.maxTurns, turns), limits };
}

/** Narrowings without order, each once. */
export function asSet(narrowings: readonly Narrowing[]): readonly string[] {
  const texts = narrowings.map((one) => JSON.stringify(Object.entries(one).toSorted(([a], [b]) => (a < b ? -1 : 1))));
  return [...new Set(texts)].toSorted();
}
