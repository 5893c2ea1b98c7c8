import {
  userText,
  type AssistantPart,
  type ErrorFacts,
  type ErrorType,
  type Message,
  type ResultBlock,
  type ToolCall,
  type ToolMessage,
  type ToolResult,
} from '../messages.ts';
import { addUsage, NO_USAGE, tokensOf, type ModelError } from '../model.ts';
import { isAskable, smallerLimits } from '../policy/applied.ts';
import {
  askedAgain,
  askingSlot,
  approvalProblem,
  boundAgain,
  isApproved,
  isGranted,
  withApproval,
  withGrant,
  withWritten,
  type AskingSlot,
} from './approvals.ts';
import {
  effectId,
  isJudged,
  isPaused,
  isUnstarted,
  phaseEffect,
  slotEffect,
  slotFor,
  slotIndex,
  toolChoiceOf,
  toolEffectId,
  type Effect,
} from './effects.ts';
import type { CallCheck, Event, Moment, RecordedVerdict } from './events.ts';
import { escalatedSlot, fitsEscalation, raisedPhase, raisingPhase } from './escalation.ts';
import { withExposure } from './exposure.ts';
import { finishOf, hasFinish, type CheckedOutput, type Claim, type Move } from './finish/finish.ts';
import { nextAttempt } from './finish/output.ts';
import { acceptableParts, added, appendMessage, emptyHistory, estimateTokens, mapped, stableJson } from './history.ts';
import {
  isNarrowedBy,
  isNarrowingJudged,
  isReadResult,
  isWithinNarrowing,
  withNarrowing,
  withoutNarrowing,
} from './narrowing.ts';
import { askedIn, clientSlot, deadlineOf, isAnswerable, parkedAgain, parkedSlot, parkingOf } from './parking.ts';
import { askingQuestions, fitsQuestions, withQuestionSettled } from './questions.ts';
import { fitsResources, resourcesAfter } from './resources.ts';
import type { Handoff, Limits, Memory, Rules, ToolFacts } from './rules.ts';
import type { Call, CancelPhase, Limit, Outcome, Phase, Settling, Slot, State, Streak } from './state.ts';
import { hasWording, wordingOf } from './wording.ts';

/*
 * One turn, in order.
 *
 *  1. The model is called (`nextTurn`). Pending input is added to the history first, and the limits are checked.
 *  2. The model replies (`onModelReplied`). A reply without calls is an answer (`onTextReply`): it may lack something
 *     that was required, be followed by pending input, or end the run, as the finish strategy decides.
 *  3. A reply with calls is planned (`planCalls`): each call is queued, or refused with an error result.
 *  4. If the run has a policy, or a call may need an approval, the queued calls are judged (`onCallsJudged`): allow, deny,
 *     or ask people. A call that people have allowed for the rest of the run is not asked about again (`isGranted`).
 *  5. Calls that may start now start (`scheduleCalls`); again whenever a call settles, is parked or is lost.
 *  6. When every call has a result, the results are recorded as one message in call order (`recordResults`), the
 *     counters are updated, and the next turn starts at 1. A call held by the finish strategy is answered last: its
 *     output is validated, and the verdict is its result (`onOutputChecked`).
 *
 * `step` is pure, synchronous and total: no clock, no I/O, no randomness, and no exception for any event in any state.
 */
export function step(state: State, event: Event): Next {
  if (!fits(state, event)) return withoutEffects(state);
  return event.type === 'run-started' ? onRunStarted(event) : applyEvent(withTime(state, event), event);
}

/** The state after an event, and the effects that the event issued. */
export interface Next {
  readonly state: State;
  readonly effects: readonly Effect[];
}

/**
 * A state that only the current step refers to. `step` copies the state once, and what happens in every turn edits that
 * copy instead of making another.
 */
type Draft = { -readonly [Field in keyof State]: State[Field] } & { readonly [isDraft]: true };

/** Only a type: a `State` cannot be passed for a `Draft`, because editing it would change a state that others have. */
declare const isDraft: unique symbol;

type EventOf<Type extends Event['type']> = Extract<Event, { type: Type }>;

type SettledSlot = Extract<Slot, { type: 'settled' }>;

const NO_EFFECTS: readonly Effect[] = [];

type EveryField = { readonly [Field in keyof Required<State>]: State[Field] };

/** Every field has to be here, also optional ones: snapshots detect a changed state by these keys. */
export const NEW: EveryField = {
  runId: '',
  rules: undefined as unknown as Rules, // only `run-started` fits a new state, and it contains the rules
  model: '',
  settings: {},
  principal: undefined,
  instructions: undefined,
  tools: [],
  nextTools: undefined,
  handedTo: undefined,
  handoff: undefined,
  program: undefined,
  inputLength: 0,
  phase: { type: 'new' },
  history: emptyHistory(),
  turn: 0,
  calls: 0,
  usage: NO_USAGE,
  tokenless: false,
  errors: 0,
  streak: undefined,
  choice: 'auto',
  lacked: undefined,
  decision: undefined,
  output: undefined,
  agent: undefined,
  memory: undefined,
  narrowed: undefined,
  narrowing: undefined,
  usedBefore: undefined,
  contextTokens: 0,
  confirmed: false,
  truncated: false,
  spent: 0,
  closing: undefined,
  pending: [],
  policies: undefined,
  policyLimits: undefined,
  grants: undefined,
  written: undefined,
  exposure: undefined,
  resources: undefined,
  deaths: undefined,
  at: 0,
  activeMs: 0,
};

function applyEvent(state: Draft, event: Exclude<Event, { type: 'run-started' }>): Next {
  switch (event.type) {
    case 'run-forked': {
      const { model = state.model, instructions = state.instructions } = event;
      const tools = event.tools && { tools: event.tools, nextTools: undefined };
      const handoff = state.handoff && { ...state.handoff, ...forkedAgent(event) };
      return withoutEffects({ ...state, model, instructions, ...tools, handoff });
    }
    case 'input-added':
      if (event.exposes) state.exposure = withExposure(state.exposure, event.exposes);
      state.pending = [...state.pending, ...event.messages];
      return withoutEffects(state);
    case 'tools-changed':
      return onToolsChanged(state, event);
    case 'narrowing-lifted':
      state.narrowed = withoutNarrowing(state.narrowed, event.source);
      state.narrowing = withoutNarrowing(state.narrowing, event.source);
      return withoutEffects(state);
    case 'resource-opened':
    case 'resource-closed':
      state.resources = resourcesAfter(state, event);
      return withoutEffects(state);
    case 'turn-prepared':
      return onTurnPrepared(state, event);
    case 'model-replied':
      return onModelReplied(state, event);
    case 'model-failed':
      return onModelFailed(state, event);
    case 'program-changed':
      state.program = event.program;
      return withoutEffects(state);
    case 'history-compacted':
      return onHistoryCompacted(state, event);
    case 'output-checked':
      return onOutputChecked(state, event);
    case 'guardrails-checked':
      return onGuardrailsChecked(state, event);
    case 'calls-judged':
      return onCallsJudged(state, event);
    case 'policy-changed':
      return onPolicyChanged(state, event);
    case 'call-rejudged':
      return onCallRejudged(state, event);
    case 'cancel-requested':
      return endMidTurn(state, { type: 'cancelled', phase: cancelPhaseOf(state) }, wordingOf(state.rules).cancelled);
    case 'effect-lost':
      if (event.cause === 'parked') return updateSlot(state, event.effect, verifyParked);
      return onEffectLost(state, event.effect);
    case 'deadline-passed':
      if (event.effect !== undefined) return onAnswerEvent(state, event.effect, event);
      return endMidTurn(state, { type: 'exhausted', limit: 'duration' }, wordingOf(state.rules).stopped('duration'));
    case 'budget-refused':
      return endOfBudget(state);
    case 'budget-escalated':
      return onEscalated(state, event);
    case 'question-answered':
      return onAnswerEvent(state, event.effect, event);
    case 'child-started':
    case 'tool-settled':
    case 'tool-parked':
    case 'questions-asked':
    case 'client-result-given':
      return onCallEvent(state, event.effect, event);
    case 'approval-given':
      return onCallEvent(withGrant(state, event), event.effect, event);
    default:
      return event satisfies never;
  }
}

function withoutEffects(state: State): Next {
  return { state, effects: NO_EFFECTS };
}

/** The copy of the state that a step edits. Naming the fields takes half of the time of a spread. */
function withTime(state: State, event: Event): Draft {
  const restarted = (event.type === 'effect-lost' && event.cause === 'restart') || event.type === 'policy-changed';
  const activeMs = restarted ? state.activeMs : activeMsAt(state, event);
  const deaths = state.deaths || event.type === 'effect-lost' ? deathsAfter(state, event) : undefined;
  const copy: EveryField = {
    runId: state.runId,
    rules: state.rules,
    model: state.model,
    settings: state.settings,
    principal: state.principal,
    instructions: state.instructions,
    tools: state.tools,
    nextTools: state.nextTools,
    handedTo: state.handedTo,
    handoff: state.handoff,
    program: state.program,
    inputLength: state.inputLength,
    phase: state.phase,
    history: state.history,
    turn: state.turn,
    calls: state.calls,
    usage: state.usage,
    tokenless: state.tokenless,
    errors: state.errors,
    streak: state.streak,
    choice: state.choice,
    lacked: state.lacked,
    decision: state.decision,
    output: state.output,
    agent: state.agent,
    memory: state.memory,
    narrowed: state.narrowed,
    narrowing: state.narrowing,
    usedBefore: state.usedBefore,
    contextTokens: state.contextTokens,
    confirmed: state.confirmed,
    truncated: state.truncated,
    spent: state.spent,
    closing: state.closing,
    pending: state.pending,
    policies: state.policies,
    policyLimits: state.policyLimits,
    grants: state.grants,
    written: state.written,
    exposure: state.exposure,
    resources: state.resources,
    deaths,
    at: Math.max(state.at, event.at),
    activeMs,
  };
  return copy as Draft;
}

/**
 * The deaths in a row after an event. A process that released its lease did not die, and a parked call that is resumed
 * (`device`, `parked`) was not running. Child runs count the deaths of their own calls.
 */
function deathsAfter(state: State, event: Event): State['deaths'] {
  const { deaths } = state;
  // They are no progress of the run.
  if (event.type === 'resource-opened' || event.type === 'resource-closed') return deaths;
  if (event.type !== 'effect-lost' || !state.rules.crashLimit) return undefined;
  const { effect, cause, died } = event;
  if (cause !== 'restart') return deaths;
  if (!died) return undefined;
  const slot = slotFor(state, effect);
  const counts = (slot?.type === 'running' || slot?.type === 'verifying') && slot.call.limits === undefined;
  return counts ? { ...deaths, [effect]: (deaths?.[effect] ?? 0) + 1 } : deaths;
}

/* Which events apply */

/**
 * Whether an event applies to a state. This is the only guard of `step`: an event that settles an effect must have the
 * id of an outstanding effect of its own kind, so duplicate, late and foreign events change nothing.
 */
export function fits(state: State, event: Event): boolean {
  const { phase } = state;
  switch (event.type) {
    case 'run-started':
      return phase.type === 'new' && isKnownRules(event.rules);
    case 'input-added':
      return isLive(state) && event.messages.length > 0;
    case 'tools-changed':
    case 'policy-changed':
    case 'program-changed':
      return canResume(state);
    case 'resource-opened':
      return isLive(state) && fitsResources(state, event);
    case 'resource-closed':
      return canResume(state) && fitsResources(state, event);
    case 'narrowing-lifted':
      return isLive(state) && isNarrowedBy(state, event.source);
    case 'run-forked':
    case 'cancel-requested':
      return isLive(state);
    case 'model-replied':
    case 'model-failed':
      return phase.type === 'model' && phase.effect === event.effect;
    case 'turn-prepared':
      return phase.type === 'preparing' && phase.effect === event.effect;
    case 'history-compacted':
      return phase.type === 'compacting' && phase.effect === event.effect;
    case 'output-checked':
      return phase.type === 'validating' && phase.effect === event.effect;
    case 'guardrails-checked':
      return phase.type === 'guarding' && phase.effect === event.effect;
    case 'calls-judged':
      return phase.type === 'judging' && phase.effect === event.effect;
    case 'tool-settled': {
      const type = slotFor(state, event.effect)?.type;
      // Only a verification may find that the call did not take effect, or that nobody knows.
      if (type === 'verifying') return true;
      const started = type === 'running' || type === 'parked' || type === 'questioning';
      return started && event.result.type === 'result';
    }
    case 'call-rejudged': {
      const type = slotFor(state, event.effect)?.type;
      return type === 'running' || type === 'asking';
    }
    case 'child-started': {
      const slot = slotFor(state, event.effect);
      return slot?.type === 'running' && !slot.begun;
    }
    case 'tool-parked': {
      const type = slotFor(state, event.effect)?.type;
      return type === 'running' || type === 'verifying';
    }
    case 'question-answered':
      if (phase.type === 'raising') return phase.of.effect === event.effect;
      return fitsQuestions(slotFor(state, event.effect), event);
    case 'questions-asked':
      return fitsQuestions(slotFor(state, event.effect), event);
    case 'approval-given': {
      const slot = slotFor(state, event.effect);
      return slot?.type === 'asking' && approvalProblem(slot, event) === undefined;
    }
    case 'client-result-given': {
      const slot = slotFor(state, event.effect);
      return slot !== undefined && isAnswerable(slot, event.at);
    }
    case 'effect-lost': {
      if (event.cause === 'parked') {
        const slot = slotFor(state, event.effect);
        return slot?.type === 'parked' && slot.call.effect === 'once' && slot.call.verifiable;
      }
      if (phase.type !== 'tools') return 'effect' in phase && phase.effect === event.effect;
      const type = slotFor(state, event.effect)?.type;
      return type === 'running' || type === 'verifying' || type === 'parked';
    }
    case 'budget-escalated':
      return fitsEscalation(phase, slotFor(state, event.effect), event);
    case 'budget-refused':
      if (phase.type === 'model' || phase.type === 'compacting') return phase.effect === event.effect;
      return slotFor(state, event.effect)?.type === 'running';
    case 'deadline-passed': {
      if (event.effect === undefined) return isLive(state) && isOverdue(state, event);
      if (phase.type === 'raising') return phase.of.effect === event.effect && event.at >= phase.expiresAt;
      const slot = slotFor(state, event.effect);
      if (event.question !== undefined || slot?.type === 'questioning') return fitsQuestions(slot, event);
      const deadline = deadlineOf(slot);
      return deadline !== undefined && event.at >= deadline;
    }
    default:
      event satisfies never;
      return false; // an event type of a later version
  }
}

/** Whether this code supports the rules: those of a later version may name a strategy or wording it does not have. */
export function isKnownRules(rules: Rules): boolean {
  return hasWording(rules) && hasFinish(rules) && (rules.finish === 'output') === (rules.agent !== undefined);
}

/** The run has not ended, or ended only because a model call failed, which can be retried. */
export function canResume(state: State): boolean {
  const { phase } = state;
  return isLive(state) || (phase.type === 'ended' && phase.effect !== undefined);
}

function isLive({ phase }: State): boolean {
  return phase.type !== 'new' && phase.type !== 'ended';
}

/** Whether the active time of a run is used up at a moment. */
function isOverdue(state: State, moment: Moment): boolean {
  const { durationMs } = state.rules.limits;
  return durationMs !== undefined && activeMsAt(state, moment) >= durationMs;
}

/** How long the run has been active at a moment, without paused time. A clock that goes backwards subtracts nothing. */
export function activeMsAt(state: State, { at, elapsedMs = at - state.at }: Moment): number {
  const idle = state.phase.type === 'ended' || isPaused(state);
  return state.activeMs + (idle ? 0 : Math.max(0, elapsedMs));
}

/* The start of a run and of a turn */

function onRunStarted(event: EventOf<'run-started'>): Next {
  const { runId, rules, model, settings, principal, instructions, tools, input, memory, policy, program, at } = event;
  const history = input.reduce(appendMessage, emptyHistory());
  const { answered } = event;
  // The results of the calls at the end of the input belong to the task: compaction keeps both.
  const inputLength = input.length + (answered ? 1 : 0);
  const begun: State = {
    ...NEW,
    runId,
    rules,
    model,
    settings,
    principal,
    instructions,
    tools,
    memory,
    program,
    inputLength,
    history,
    choice: rules.toolChoice,
    agent: rules.agent && nextAttempt(rules.agent, undefined, 0),
    narrowing: event.narrow && withNarrowing(undefined, event.narrow),
    grants: event.grants,
    exposure: event.exposure,
    resources: event.resources,
    policies: policy === undefined ? undefined : [policy],
    at,
  };
  const started = begun as Draft;
  if (answered) return continueTurn(started, answered);
  return rules.guardrails?.input
    ? enterPhase(started, { type: 'guarding', effect: effectId('guard', 0) })
    : nextTurn(started);
}

/** The arguments are checked when the call is judged or executed. */
const CHECKED_LATER: CallCheck = {};

/** Begins with the calls at the end of the input. The tool choice is for the replies of this run. */
function continueTurn(state: Draft, answered: readonly ToolResult[]): Next {
  const last = state.history.items[state.history.length - 1];
  const calls = last?.role === 'assistant' ? last.content.filter((part) => part.type === 'tool-call') : [];
  if (calls.length === 0) return nextTurn(state);
  // Not in runs of earlier versions.
  if (state.rules.marks) state.narrowed = state.narrowing;
  const unforced: State = { ...state, choice: 'auto' };
  const slots = planCalls(
    unforced,
    calls,
    calls.map(() => CHECKED_LATER),
    answered,
  );
  if (mustBeJudged(state, slots)) {
    return enterPhase(state, { type: 'judging', effect: effectId('judge', state.turn), slots });
  }
  state.calls += countQueued(slots);
  return advanceCalls(state, slots);
}

/** What a fork changes also applies to an agent that the run is about to be handed to. */
function forkedAgent({ model, instructions }: EventOf<'run-forked'>): Partial<Handoff> {
  return { ...(model !== undefined && { model }), ...(instructions !== undefined && { instructions }) };
}

/** With `from`, calls of the reply in flight are still planned with the tools that the model was offered. */
function onToolsChanged(state: State, { tools, from }: EventOf<'tools-changed'>): Next {
  if (from !== undefined) return withoutEffects({ ...state, nextTools: tools });
  const { phase } = state;
  if (phase.type !== 'tools') return withoutEffects({ ...state, tools });
  return withoutEffects({ ...state, tools, phase: { ...phase, slots: askedAgain(phase.slots, tools) } });
}

function onTurnPrepared(state: Draft, { decision, problem }: EventOf<'turn-prepared'>): Next {
  if (problem !== undefined) return failRun(state, 'prepare-failed', problem);
  return enterPhase({ ...state, decision }, { type: 'model', effect: effectId('model', state.turn) });
}

/** Starts the next turn. A history over the compaction threshold is compacted first. */
function nextTurn(state: Draft): Next {
  const landed = landInput(state);
  const to = isOverThreshold(landed) && !isAtLimit(landed) ? compactionEnd(landed) : undefined;
  if (to === undefined) return startTurn(landed);
  return enterPhase(landed, { type: 'compacting', effect: effectId('compact', state.turn), to });
}

/** Calls the model, or ends the run if a limit is reached. */
function startTurn(state: Draft): Next {
  const { rules, usage, turn } = state;
  if (turnsUsed(state) >= turnsLimit(state)) return reachLimit(state, 'turns');
  if (rules.limits.tokens !== undefined) {
    if (turn > 0 && tokensOf(usage) === 0 && !state.tokenless)
      return endRun(state, { type: 'failed', error: TOKENS_UNKNOWN });
    if (tokensOf(usage) >= rules.limits.tokens) return reachLimit(state, 'tokens');
  }
  if (rules.limits.cost !== undefined) {
    if (usage.cost === undefined) return endRun(state, { type: 'failed', error: COST_UNKNOWN });
    if (usage.cost >= rules.limits.cost) return reachLimit(state, 'cost');
  }
  return askModel(state);
}

function askModel(state: Draft): Next {
  const turn = state.turn + 1;
  const phase: SinglePhase =
    state.rules.prepared && state.closing === undefined
      ? { type: 'preparing', effect: effectId('prepare', turn) }
      : { type: 'model', effect: effectId('model', turn) };
  state.turn = turn;
  if (state.handoff) takeOver(state, state.handoff);
  if (state.nextTools) {
    state.tools = state.nextTools;
    state.nextTools = undefined;
  }
  state.narrowed = state.narrowing;
  state.decision = undefined;
  state.phase = phase;
  return { state, effects: [phaseEffect(state, phase)] };
}

/** The agent that the run is handed to continues the conversation. */
function takeOver(state: Draft, { agent, model, instructions }: NonNullable<State['handoff']>): void {
  state.handedTo = agent;
  state.model = model;
  state.instructions = instructions;
  state.handoff = undefined;
}

type SinglePhase = Exclude<Phase, { type: 'new' | 'raising' | 'ended' | 'tools' }>;

/** Enters a phase that has one effect, and issues it. */
function enterPhase(state: State, phase: SinglePhase): Next {
  const next: State = { ...state, phase };
  return { state: next, effects: [phaseEffect(next, phase)] };
}

/** Adds pending input to the history. */
function landInput(state: Draft): Draft {
  if (state.pending.length === 0) return state;
  return { ...state, history: state.pending.reduce<State['history']>(appendMessage, state.history), pending: [] };
}

function withMessage(state: Draft, message: Message): Draft {
  return { ...state, history: appendMessage(state.history, message) };
}

/* Limits */

/** Turns that count for `maxTurns`. For a typed agent: those of the current attempt. */
export function turnsUsed({ turn, agent }: State): number {
  return turn - (agent?.from ?? 0);
}

/** The limit of turns. For a typed agent: of each attempt. */
export function turnsLimit({ rules, policyLimits }: State): number {
  return Math.min(rules.maxTurns, policyLimits?.turns ?? Infinity);
}

/** The limit of calls; undefined if there is none. */
export function callsLimit({ rules, policyLimits }: State): number | undefined {
  const { calls } = rules.limits;
  if (policyLimits?.calls === undefined) return calls;
  return Math.min(calls ?? Infinity, policyLimits.calls);
}

function isAtLimit(state: State): boolean {
  return turnsUsed(state) >= turnsLimit(state) || isBudgetSpent(state);
}

const TOKENS_UNKNOWN = {
  code: 'tokens-unknown',
  message:
    'limits.tokens is set, but the model does not report token usage, so the limit cannot be enforced. Limit turns, ' +
    'calls or duration instead.',
};

const COST_UNKNOWN = {
  code: 'cost-unknown',
  message:
    'limits.cost is set, but the model does not report a cost, so the limit cannot be enforced. Set a price for the ' +
    'model, or limit tokens instead.',
};

/** Ends the run, or first asks the model for a final answer if the rules have `closingTurn`. */
function reachLimit(state: Draft, limit: Limit): Next {
  if (!state.rules.closingTurn || state.agent || state.closing !== undefined || isBudgetSpent(state)) {
    return endRun(state, { type: 'exhausted', limit: state.closing ?? limit });
  }
  const asked = withMessage(landInput(state), userText(wordingOf(state.rules).closing(limit)));
  return askModel({ ...asked, closing: limit });
}

/** Whether a closing turn would exceed the tokens or cost limit, or cannot be counted against it. */
function isBudgetSpent({ rules: { limits }, usage, tokenless }: State): boolean {
  const tokens = tokensOf(usage);
  if (limits.tokens !== undefined && ((tokens === 0 && !tokenless) || tokens >= limits.tokens)) return true;
  return limits.cost !== undefined && (usage.cost === undefined || usage.cost >= limits.cost);
}

/** What counts against each limit. A limit without an entry here does not compile. */
const LIMIT_USAGE: Record<keyof Limits, (state: State) => number> = {
  calls: ({ calls }) => calls,
  tokens: ({ usage }) => tokensOf(usage),
  cost: ({ usage }) => usage.cost ?? 0,
  durationMs: ({ activeMs }) => activeMs,
};

export const LIMIT_NAMES: readonly (keyof Limits)[] = Object.keys(LIMIT_USAGE) as (keyof Limits)[];

/** The limits of a child run: this part of what the run has left of each of its own limits. */
export function shareOfLimits(state: State, part: number): Limits {
  const shares: { -readonly [Name in keyof Limits]: number } = {};
  for (const name of LIMIT_NAMES) {
    const limit = name === 'calls' ? callsLimit(state) : state.rules.limits[name];
    if (limit === undefined) continue;
    const share = Math.max(0, limit - LIMIT_USAGE[name](state)) * part;
    shares[name] = name === 'cost' ? share : Math.floor(share);
  }
  return shares;
}

/** This part of the time that a run has left: the only limit of a child run that draws on its ledger. */
function timeLeft(state: State, part: number): Limits {
  const { durationMs } = shareOfLimits(state, part);
  return durationMs === undefined ? {} : { durationMs };
}

/* Replies of the model */

function onModelReplied(state: Draft, event: EventOf<'model-replied'>): Next {
  const { finish } = event;
  const content = acceptableParts(state.history, event.content, state.turn);
  const message = { role: 'assistant', content } as const;
  state.usage = addUsage(state.usage, event.usage);
  state.tokenless = event.usesTokens === false && (state.tokenless || state.turn === 1);
  state.contextTokens = tokensOf(event.usage) || state.contextTokens + estimateTokens(message);
  state.truncated = finish === 'length';
  const calls = callsIn(content);
  if (calls.length > 0 && finish !== 'content-filter') {
    state.history = appendMessage(state.history, message);
    return onCallsReply(state, calls, event.checks);
  }
  return finish === 'content-filter' ? failFiltered(state, content) : onTextReply(state, content);
}

function callsIn(content: readonly AssistantPart[]): readonly ToolCall[] {
  let calls: ToolCall[] | undefined;
  for (let i = 0; i < content.length; i++) {
    const part = content[i]!;
    if (part.type === 'tool-call') calls = added(calls, part);
  }
  return calls ?? NO_CALLS;
}

const NO_CALLS: readonly ToolCall[] = [];

function failFiltered(state: Draft, content: readonly AssistantPart[]): Next {
  const texts = content.filter(({ type }) => type === 'text');
  const recorded = hasText(texts) ? withMessage(state, { role: 'assistant', content: texts }) : state;
  return failRun(recorded, 'content-filter', FILTERED);
}

const FILTERED = "The provider's content filter stopped the reply. Change the task, the instructions or the model.";

/** A history that is too long is compacted once a turn, if the rules allow it and there are turns to compact. */
function onModelFailed(state: Draft, { effect, error, at }: EventOf<'model-failed'>): Next {
  if (state.closing !== undefined) return endRun(state, { type: 'exhausted', limit: state.closing });
  if (error.endsWith !== undefined) return failRun(state, error.endsWith, error.message);
  const first = effect === effectId('model', state.turn);
  const to = error.code === 'context-length' && first && state.rules.compaction ? compactionEnd(state) : undefined;
  if (to === undefined) return failWithModelError(state, { effect, error }, retryTime(state, error, at));
  const refused = { effect, error };
  return enterPhase(state, { type: 'compacting', effect: effectId('compact', state.turn, 1), to, refused });
}

/** The run can be resumed: `effect-lost` for this effect repeats the model call. */
function failWithModelError(
  state: Draft,
  { effect, error }: { readonly effect: string; readonly error: ModelError },
  wakeAt?: number,
): Next {
  const outcome = { type: 'failed', error: { code: error.code, message: error.message } } as const;
  const retries = retriesIn(state.phase);
  const again = wakeAt !== undefined && { wakeAt, ...(retries > 0 && { retries }) };
  const phase: Phase = { type: 'ended', outcome, effect, ...again };
  return withoutEffects({ ...endRun(state, outcome).state, phase });
}

/** When the model may be called again, if it asked to wait, and not more often in a row than the rules allow. */
function retryTime({ rules, phase }: State, { retryable, retryAfterMs }: ModelError, at: number): number | undefined {
  if (!rules.retryLater || !retryable || retriesIn(phase) >= rules.retryLater) return undefined;
  return Number.isFinite(retryAfterMs) ? at + retryAfterMs! : undefined;
}

/** How often the model call was repeated because the model asked to wait. */
function retriesIn(phase: Phase): number {
  return 'retries' in phase ? (phase.retries ?? 0) : 0;
}

function onTextReply(state: Draft, content: readonly AssistantPart[]): Next {
  const empty = !hasText(content);
  const recorded = empty ? state : withMessage(state, { role: 'assistant', content });
  if (state.closing !== undefined) {
    const outcome = { type: 'exhausted', limit: state.closing } as const;
    return empty ? endRun(recorded, outcome) : acceptAnswer(recorded, outcome);
  }
  const { byCalls, onText } = finishOf(state.rules);
  if (byCalls) {
    const move = onText(recorded);
    return applyMove(empty ? recordEmptyReply(state, move) : recorded, move);
  }
  if (!satisfiesChoice(state, [])) {
    return askForMissing(recorded, 'call', wordingOf(state.rules).callRequired(requiredTool(state)));
  }
  if (empty) return askForMissing(recorded, 'content', wordingOf(state.rules).emptyReply);
  const replied: Draft = { ...recorded, lacked: state.lacked === 'output' ? 'output' : undefined };
  if (replied.pending.length > 0) return nextTurn(replied);
  const move = onText(replied);
  if (move.type !== 'end' || !isOutputChecked(replied, content)) return applyMove(replied, move);
  return applyMove(replied, { type: 'validate', text: replyText(content) });
}

function isOutputChecked({ rules, truncated }: State, content: readonly AssistantPart[]): boolean {
  if (!rules.output || !rules.outputCheck) return rules.output !== undefined;
  return !truncated && !content.some((part) => part.type === 'text' && part.refusal);
}

/** Records a placeholder for an empty reply that gets an answer: providers reject two user messages in a row. */
function recordEmptyReply(state: Draft, { type }: Move): Draft {
  const last = state.history.items[state.history.length - 1];
  if (type !== 'ask' || last?.role !== 'user') return state;
  const text = wordingOf(state.rules).nothingSaid;
  return withMessage(state, { role: 'assistant', content: [{ type: 'text', text }] });
}

type Lack = Exclude<State['lacked'], 'output' | undefined>;

/** Asks once for what a reply lacked. Lacking it a second time in a row fails the run. */
function askForMissing(state: Draft, what: Lack, request: string): Next {
  if (state.lacked === what) return failMissing(state, what);
  return nextTurn({ ...withMessage(state, userText(request)), lacked: what });
}

function failMissing(state: Draft, what: Lack): Next {
  switch (what) {
    case 'content':
      return failRun(state, 'empty-reply', 'The model sent an empty reply twice in a row.');
    case 'call': {
      const required = requiredTool(state);
      const missing = required === undefined ? 'any tool' : `"${required}"`;
      const message = `The model did not call ${missing}, although toolChoice requires it and the model was reminded.`;
      return failRun(state, 'tool-choice-unmet', message);
    }
    default:
      return what satisfies never;
  }
}

function requiredTool(state: State): string | undefined {
  const choice = toolChoiceOf(state);
  return typeof choice === 'object' ? choice.tool : undefined;
}

function hasText(content: readonly AssistantPart[]): boolean {
  return replyText(content).trim() !== '';
}

function replyText(content: readonly AssistantPart[]): string {
  let text = '';
  for (const part of content) if (part.type === 'text') text += part.text;
  return text;
}

/* Planning the calls of a reply */

function onCallsReply(state: Draft, calls: readonly ToolCall[], checks: readonly CallCheck[]): Next {
  const slots = planCalls(state, calls, checks);
  const { byCalls } = finishOf(state.rules);
  if (!byCalls && !satisfiesChoice(state, calls)) {
    if (state.lacked === 'call') return failMissing({ ...state, phase: { type: 'tools', slots } }, 'call');
    return advanceCalls({ ...state, lacked: 'call' }, slots);
  }
  const choiceStands = byCalls || toolChoiceOf(state) === 'none' || state.decision?.toolChoice !== undefined;
  if (!choiceStands) state.choice = 'auto';
  state.lacked = undefined;
  if (mustBeJudged(state, slots)) {
    return enterPhase(state, { type: 'judging', effect: effectId('judge', state.turn), slots });
  }
  state.calls += countQueued(slots);
  return advanceCalls(state, slots);
}

/** Whether a queued call has to be judged before it runs. */
function mustBeJudged(state: State, slots: readonly Slot[]): boolean {
  const judged = isJudged(state) || (state.narrowed && isNarrowingJudged(state.narrowed));
  for (let index = 0; index < slots.length; index++) {
    const { type, call } = slots[index]!;
    if (type === 'queued' && (judged || call.needsApproval)) return true;
  }
  return false;
}

/** More calls than this in one reply are refused whatever the rules say. */
const MAX_CALLS_PER_REPLY = 128;

const NO_RESOURCES: readonly string[] = [];

/**
 * Returns one slot per call of a reply: queued if it may run, otherwise settled with an error result, or with the one that
 * it has already.
 */
function planCalls(
  state: State,
  calls: readonly ToolCall[],
  checks: readonly CallCheck[],
  answered?: readonly ToolResult[],
): readonly Slot[] {
  let admitted = 0;
  let unshared = 1;
  let repeating = true;
  const claimOf = finishOf(state.rules).claim?.(state, calls.slice(0, MAX_CALLS_PER_REPLY));
  const results = answered && new Map(answered.map((result) => [result.callId, result]));
  return mapped(calls, (part, index): Slot => {
    const facts = factsNamed(state.tools, part.name);
    const check = checks[index] ?? UNCHECKED;
    const planned: Call = {
      turn: state.turn,
      index,
      id: part.id,
      name: part.name,
      arguments: check.arguments ?? part.arguments,
      resources: check.resources ?? NO_RESOURCES,
      effect: facts?.effect ?? 'once',
      exclusive: facts?.exclusive ?? false,
      client: facts?.client ?? false,
      verifiable: facts?.verifiable ?? false,
    };
    const judged: Call = facts?.needsApproval ? { ...planned, needsApproval: true } : planned;
    const timed: Call = facts?.ttlMs === undefined ? judged : { ...judged, ttlMs: facts.ttlMs };
    const { references } = part;
    const counted: Call = facts?.uncounted ? { ...timed, uncounted: true } : timed;
    const sent: Call = check.recipient === undefined ? counted : { ...counted, recipient: check.recipient };
    const referring: Call = references && state.rules.references ? { ...sent, references } : sent;
    const call: Call = part.label === undefined ? referring : { ...referring, label: part.label };
    const given = results?.get(part.id);
    if (given) return { type: 'settled', call, result: given, how: 'claimed' };
    const claim = index < MAX_CALLS_PER_REPLY ? claimOf?.(index) : undefined;
    const refusal = claim ? undefined : refusalFor(state, { call, check, facts, admitted, repeating });
    repeating &&= refusal?.[1] === 'repeated';
    if (claim) return claimCall(state, { ...call, claimed: true }, check, claim);
    if (refusal) return refusedSlot(call, ...refusal);
    if (!call.uncounted) admitted++;
    if (facts?.share === undefined) return { type: 'queued', call };
    if (facts.drawsOnLedger && state.rules.budgeted) {
      return { type: 'queued', call: { ...call, limits: timeLeft(state, 1) } };
    }
    const most = facts.drawsOnLedger ? 1 / (branchesFrom(state, calls, index) + 1) : 1;
    const share = Math.min(facts.share, most);
    const limits = shareOfLimits(state, unshared * share);
    unshared *= 1 - share;
    // Time passes for all of them at once.
    const time = timeLeft(state, facts.drawsOnLedger ? 1 : facts.share);
    return { type: 'queued', call: { ...call, limits: { ...limits, ...time } } };
  });
}

/** How many calls of a reply, from this one on, would share a ledger: without one, they get equal parts. */
function branchesFrom({ tools }: State, calls: readonly ToolCall[], from: number): number {
  let count = 0;
  for (let index = from; index < calls.length; index++)
    if (factsNamed(tools, calls[index]!.name)?.drawsOnLedger) count++;
  return count;
}

function factsNamed(tools: readonly ToolFacts[], name: string): ToolFacts | undefined {
  for (let i = 0; i < tools.length; i++) if (tools[i]!.name === name) return tools[i];
  return undefined;
}

/** Plans a call that the finish strategy claims. Limits and the tool choice do not apply to it. */
function claimCall({ rules }: State, call: Call, { problem }: CallCheck, claim: Claim): Slot {
  switch (claim.type) {
    case 'hold':
      return { type: 'held', call };
    case 'answer':
      return settledSlot(
        call,
        [{ type: claim.isError ? 'error' : 'text', text: claim.text }],
        claim.isError,
        'claimed',
        DENIED,
      );
    case 'run':
      if (problem === undefined) return { type: 'queued', call };
      return refusedSlot(call, wordingOf(rules).badCall(call.name, problem), 'claimed', 'invalid_params');
    default:
      return claim satisfies never;
  }
}

const UNCHECKED: CallCheck = { problem: 'Its arguments were not checked.' };

interface Candidate {
  readonly call: Call;
  readonly check: CallCheck;
  readonly facts: ToolFacts | undefined;
  /** Earlier calls of the same reply that are queued. */
  readonly admitted: number;
  /** Every earlier call of the reply was refused as repeated, so nothing separates this call from those it repeats. */
  readonly repeating: boolean;
}

type Refusal = readonly [text: string, how: Settling, errorType: ErrorType];

/** The text of the error result, what it counts as, and its type; undefined if the call may run. */
function refusalFor(state: State, candidate: Candidate): Refusal | undefined {
  const { call, check, facts, admitted, repeating } = candidate;
  const { rules } = state;
  const { name } = call;
  const words = wordingOf(rules);
  const choice = toolChoiceOf(state);

  const cap = Math.min(rules.maxCallsPerTurn ?? MAX_CALLS_PER_REPLY, MAX_CALLS_PER_REPLY);
  if (call.index >= cap) return [words.tooManyCalls(cap), 'capped', 'denied'];

  if (state.closing !== undefined) return [words.choiceNone, 'capped', 'denied'];
  if (state.spent > 0 && !call.uncounted) return [words.callsSpent(callsLimit(state)!), 'spent', 'denied'];
  if (choice === 'none') return [words.choiceNone, 'ran', 'denied'];

  if (!facts) return [words.unknownTool(name, allowedToolNames(state)), 'ran', 'not_found'];
  if (!isToolAllowed(state, name)) return [words.notAllowed(name, allowedToolNames(state)), 'ran', 'permission_denied'];
  if (typeof choice === 'object' && choice.tool !== name)
    return [words.choiceOther(name, choice.tool), 'ran', 'denied'];
  if (check.problem !== undefined)
    return [words.badCall(name, check.problem), 'ran', check.errorType ?? 'invalid_params'];

  const limit = callsLimit(state);
  if (limit !== undefined && !call.uncounted && state.calls + admitted >= limit)
    return [words.callsSpent(limit), 'spent', 'denied'];
  if (!repeating || facts.polling || !isRepeatedCall(state, call)) return undefined;
  return [words.repeated(name, state.streak!.count), 'repeated', 'denied'];
}

function isToolAllowed(state: State, name: string): boolean {
  const { rules, decision, narrowed } = state;
  if (narrowed && !isWithinNarrowing(state, name)) return false;
  return (rules.allowedTools?.includes(name) ?? true) && (decision?.tools?.includes(name) ?? true);
}

function allowedToolNames(state: State): readonly string[] {
  return state.tools.flatMap(({ name }) => (isToolAllowed(state, name) ? name : []));
}

function isRepeatedCall({ rules, streak }: State, call: Call): boolean {
  if (rules.repeatLimit === 0 || !streak || streak.count < rules.repeatLimit) return false;
  return streak.name === call.name && streak.arguments === call.arguments;
}

/** Whether the calls of a reply satisfy the tool choice. `auto` and `none` require nothing. */
function satisfiesChoice(state: State, calls: readonly ToolCall[]): boolean {
  const choice = toolChoiceOf(state);
  if (choice === 'auto' || choice === 'none') return true;
  const allowed = allowedToolNames(state);
  return calls.some(({ name }) => allowed.includes(name) && (choice === 'required' || choice.tool === name));
}

/** Queued calls that count for the calls limit. */
function countQueued(slots: readonly Slot[]): number {
  let count = 0;
  for (let index = 0; index < slots.length; index++) {
    const { type, call } = slots[index]!;
    if (type === 'queued' && !call.claimed && !call.uncounted) count++;
  }
  return count;
}

export function settledSlot(
  call: Call,
  content: readonly ResultBlock[],
  isError: boolean,
  how: Settling = 'ran',
  facts: ErrorFacts = NO_FACTS,
): SettledSlot {
  const result: ToolResult = { type: 'tool-result', callId: call.id, name: call.name, content, isError };
  return { type: 'settled', call, result: isError ? withErrorFacts(result, facts) : result, how };
}

const NO_FACTS: ErrorFacts = {};
const DENIED: ErrorFacts = { errorType: 'denied' };

function withErrorFacts(
  result: ToolResult,
  { errorType = 'execution_failed', exitCode, stderr, httpStatus, protocolCode }: ErrorFacts,
): ToolResult {
  return {
    ...result,
    errorType,
    ...(exitCode !== undefined && { exitCode }),
    ...(stderr !== undefined && { stderr }),
    ...(httpStatus !== undefined && { httpStatus }),
    ...(protocolCode !== undefined && { protocolCode }),
  };
}

/** Settles a call that has no result of its own, with an error result that contains the reason. */
export function refusedSlot(call: Call, text: string, how: Settling, errorType: ErrorType): SettledSlot {
  return settledSlot(call, [{ type: 'error', text }], true, how, { errorType });
}

/* Verdicts and what happens to single calls */

function onCallsJudged(state: Draft, { verdicts, at }: EventOf<'calls-judged'>): Next {
  if (state.phase.type !== 'judging') return withoutEffects(state);
  let judgedSoFar = 0;
  const slots = state.phase.slots.map((slot) =>
    slot.type === 'queued' ? applyVerdict(state, slot, verdicts[judgedSoFar++], at) : slot,
  );
  const counted = { ...state, calls: state.calls + countQueued(slots), written: writtenAfter(state, slots, verdicts) };
  const next = advanceCalls(counted, slots);
  const asked = slots.flatMap((slot) => (slot.type === 'asking' ? slotEffect(slot)! : []));
  return asked.length === 0 ? next : { state: next.state, effects: [...asked, ...next.effects] };
}

/**
 * Applies other rules. Calls that have not started and open approvals have new verdicts, which only make them stricter:
 * a call that was allowed may be denied or asked about, and what is asked about stays so.
 */
function onPolicyChanged(state: Draft, { rules, verdicts = {}, limits, at }: EventOf<'policy-changed'>): Next {
  const policyLimits = limits ? smallerLimits(state.policyLimits ?? {}, limits) : state.policyLimits;
  const changed: Draft = { ...state, policies: policiesAfter(state, rules), policyLimits };
  const { phase } = state;
  if (phase.type !== 'tools') return withoutEffects(changed);
  const slots = phase.slots.map((slot) => {
    if (!isUnstarted(slot)) return slot;
    const verdict = verdicts[toolEffectId(slot.call)];
    return slot.type === 'asking' ? stricterAsk(state, slot, verdict, at) : applyVerdict(state, slot, verdict, at);
  });
  const calls = state.calls + countQueued(slots) - countQueued(phase.slots);
  const next = advanceCalls({ ...changed, calls }, slots);
  const asked = slots.flatMap((slot, index) =>
    slot.type === 'asking' && phase.slots[index]!.type !== 'asking' ? slotEffect(slot)! : [],
  );
  return asked.length === 0 ? next : { state: next.state, effects: [...asked, ...next.effects] };
}

/**
 * Applies the verdict on a call for where it would run now. It may start by it, be asked about or be denied; an open approval
 * stays open, and is bound to the new promises. A call that has begun cannot be asked about.
 */
function onCallRejudged(state: Draft, { effect, verdict, at }: EventOf<'call-rejudged'>): Next {
  const slot = slotFor(state, effect)!;
  const call = { ...slot.call, rejudged: (slot.call.rejudged ?? 0) + 1 };
  if (slot.type === 'asking')
    return updateSlot(state, effect, () => stricterAsk(state, { ...slot, call }, verdict, at));
  const judged = applyVerdict(state, { ...slot, type: 'queued', call } as Slot, verdict, at);
  const hasBegun = slot.type === 'running' && (slot.begun || slot.asked) && judged.type !== 'queued';
  const next = hasBegun ? refusedSlot(call, wordingOf(state.rules).interrupted(call.name), 'ran', 'denied') : judged;
  if (next.type === 'queued') state.written = withWritten(state.written, verdict?.touches);
  else if (!call.claimed && !call.uncounted) state.calls--;
  const { state: after, effects } = updateSlot(state, effect, () => next);
  return { state: after, effects: next.type === 'asking' ? [slotEffect(next)!, ...effects] : effects };
}

/** The latest rules are the last. */
function policiesAfter({ policies = [] }: State, rules: unknown): readonly unknown[] {
  if (rules === undefined) return policies;
  const text = stableJson(rules);
  return [...policies.filter((other) => stableJson(other) !== text), rules];
}

/** An open approval under other rules: what is required of both. */
function stricterAsk(state: State, given: AskingSlot, verdict: RecordedVerdict | undefined, at: number): Slot {
  const slot = boundAgain(state.tools, given, ruledCall(given.call, verdict), verdict?.touches);
  if (verdict?.type === 'allow') return slot;
  const judged = applyVerdict({ ...state, grants: undefined }, { type: 'queued', call: slot.call }, verdict, at);
  if (judged.type !== 'asking') return judged;
  const { approvers, required = 1 } = judged;
  const named = slot.approvers ? slot.approvers.filter((one) => approvers?.includes(one) ?? true) : approvers;
  const most = Math.max(required, slot.required ?? 1);
  return {
    ...judged,
    ...slot,
    expiresAt: Math.min(slot.expiresAt, judged.expiresAt),
    ...(most > 1 && { required: most }),
    ...(named && { approvers: named }),
    ...(slot.approvedBy && { approvedBy: slot.approvedBy.filter((one) => named?.includes(one) ?? true) }),
  };
}

function applyVerdict(state: State, slot: Slot, verdict: RecordedVerdict | undefined, at: number): Slot {
  const call = ruledCall(slot.call, verdict);
  const words = wordingOf(state.rules);
  const allowed = call === slot.call ? slot : { ...slot, call };
  switch (verdict?.type) {
    case 'allow':
      return allowed;
    case 'ask':
      if (!isAskable(verdict)) return refusedSlot(call, words.denied(call.name, words.noVerdict), 'ran', 'denied');
      return isGranted(state, call, verdict) ? allowed : askingSlot(state, call, verdict, at);
    case 'deny':
      return refusedSlot(call, words.denied(call.name, verdict.reason), 'ran', 'denied');
    default:
      return refusedSlot(call, words.denied(call.name, words.noVerdict), 'ran', 'denied');
  }
}

/** What people allowed a call to exceed was for the sandbox that they were asked about. */
function ruledCall(call: Call, verdict: RecordedVerdict | undefined): Call {
  const ruled = typeof verdict?.rule === 'string' ? { ...call, rule: verdict.rule } : call;
  if (!ruled.sandbox && !verdict?.sandbox) return ruled;
  const { sandbox: _, raised: _raised, ...elsewhere } = ruled;
  return Array.isArray(verdict?.sandbox) ? { ...elsewhere, sandbox: verdict.sandbox } : elsewhere;
}

/** With what the calls of a turn that are allowed to run would write. */
function writtenAfter(
  { phase, written }: State,
  slots: readonly Slot[],
  verdicts: readonly (RecordedVerdict | undefined)[],
): State['written'] {
  if (phase.type !== 'judging') return written;
  let judgedSoFar = 0;
  let all = written;
  for (let index = 0; index < slots.length; index++) {
    if (phase.slots[index]!.type !== 'queued') continue;
    const verdict = verdicts[judgedSoFar++];
    if (slots[index]!.type === 'queued') all = withWritten(all, verdict?.touches);
  }
  return all;
}

type CallEvent = EventOf<
  | 'child-started'
  | 'tool-settled'
  | 'tool-parked'
  | 'questions-asked'
  | 'question-answered'
  | 'approval-given'
  | 'client-result-given'
  | 'deadline-passed'
>;

function onCallEvent(state: Draft, effect: string, event: CallEvent): Next {
  return updateSlot(chargeCall(state, event), effect, (slot) => slotAfter(state, slot, event));
}

/** An answer or a deadline: of a call, or of the question that the run is paused on because of a budget. */
function onAnswerEvent(state: Draft, effect: string, event: EventOf<'question-answered' | 'deadline-passed'>): Next {
  if (state.phase.type !== 'raising') return onCallEvent(state, effect, event);
  const raised = raisedPhase(state.phase, event);
  return raised ? enterPhase(state, raised) : endOfBudget(state);
}

function onEscalated(state: Draft, event: EventOf<'budget-escalated'>): Next {
  const { phase } = state;
  if (phase.type === 'model' || phase.type === 'compacting') {
    return withoutEffects({ ...state, phase: raisingPhase(phase, event) });
  }
  const asking = escalatedSlot(state, slotFor(state, event.effect)!, event);
  const next = updateSlot(state, event.effect, () => asking);
  return { state: next.state, effects: [slotEffect(asking)!, ...next.effects] };
}

function endOfBudget(state: Draft): Next {
  return endMidTurn(state, { type: 'exhausted', limit: 'budget' }, wordingOf(state.rules).stopped('budget'));
}

/** Adds what a child run has used, stores what the run has seen and the memory that the call changed, and narrows the next turns. */
function chargeCall(state: Draft, event: CallEvent): Draft {
  if (event.type === 'client-result-given' && event.exposes) {
    state.exposure = withExposure(state.exposure, event.exposes);
  }
  if (event.type !== 'tool-settled' || event.result.type !== 'result') return state;
  const { usage, calls = 0, memory, narrow, handoff, exposes } = event.result;
  if (exposes) state.exposure = withExposure(state.exposure, exposes);
  const remembering = memory ? withMemory(state, memory) : state;
  const narrowing = narrow ? { ...remembering, narrowing: withNarrowing(state.narrowing, narrow) } : remembering;
  const handed = handoff ? withHandoff(narrowing, handoff, event.effect) : narrowing;
  if (!usage) return handed;
  return { ...handed, usage: addUsage(state.usage, usage), calls: state.calls + calls };
}

/** Of several handoffs in a turn, that of the last call counts, in whatever order they settle. */
function withHandoff(state: Draft, handoff: Handoff, effect: string): Draft {
  const index = Number(effect.slice(effect.lastIndexOf('.') + 1));
  if (!Array.isArray(handoff.tools) || index < (state.handoff?.index ?? 0)) return state;
  const { tools, ...agent } = handoff;
  // A result of the same turn may have been cut after the handoff was made.
  const own = tools.some(isReadResult) ? [] : state.tools.filter(isReadResult);
  return { ...state, handoff: { ...agent, index }, nextTools: [...tools, ...own] };
}

/**
 * Replaces the values of the changed keys, so that calls that change different keys keep each other's changes. What was changed
 * last is last.
 */
function withMemory(state: Draft, changes: Memory): Draft {
  const { agent } = state;
  if (agent) return { ...state, agent: { ...agent, memory: { ...agent.memory, ...changes } } };
  const others = Object.entries(state.memory ?? {}).filter(([key]) => !Object.hasOwn(changes, key));
  const kept = [...others, ...Object.entries(changes)].filter(([, value]) => value !== null);
  return { ...state, memory: Object.fromEntries(kept) };
}

function updateSlot(state: Draft, effect: string, update: (slot: Slot) => Slot): Next {
  if (state.phase.type !== 'tools') return withoutEffects(state);
  const { slots } = state.phase;
  const index = slotIndex(slots, effect);
  const slot = slots[index]!;
  const next = update(slot);
  const updated = slots.slice();
  updated[index] = next;
  if (slot.type !== 'asking' || next.type !== 'queued') return advanceCalls(state, updated);
  const { claimed, uncounted } = slot.call;
  // A call that exceeds its budgets was counted when it started first.
  const calls = claimed || uncounted || slot.raises ? state.calls : state.calls + 1;
  return advanceCalls({ ...state, calls, written: withWritten(state.written, slot.touches) }, updated);
}

function slotAfter({ rules }: State, slot: Slot, event: CallEvent): Slot {
  const { call } = slot;
  switch (event.type) {
    case 'child-started':
      return { ...slot, type: 'running', call, begun: true };
    case 'tool-settled': {
      const { result } = event;
      if (result.type === 'result') {
        const settled = settledSlot(call, result.content, result.isError, 'ran', result);
        const { blob } = result;
        return blob === undefined ? settled : { ...settled, result: { ...settled.result, blob } };
      }
      const parked = parkedAgain(slot, event.at);
      if (parked) return unlessExpired(rules, parked, event.at);
      if (result.type === 'not-done') return { type: 'queued', call, ...askedIn(slot) };
      return refusedSlot(call, wordingOf(rules).interrupted(call.name), 'ran', 'interrupted');
    }
    case 'tool-parked':
      return unlessExpired(rules, parkedSlot(slot, event), event.at);
    case 'questions-asked':
      return askingQuestions(slot, event);
    case 'question-answered':
      return slot.type === 'questioning' ? withQuestionSettled(slot, event) : slot;
    case 'approval-given':
      if (slot.type === 'asking' && event.at >= slot.expiresAt) return unapprovedSlot(rules, call);
      if (event.approved !== true) {
        return refusedSlot(call, wordingOf(rules).notApproved(call.name, event.reason), 'ran', 'denied');
      }
      if (slot.type !== 'asking') return { type: 'queued', call };
      if (!isApproved(slot, event)) return withApproval(slot, event);
      return { type: 'queued', call: slot.raises ? { ...call, raised: event.raises } : call };
    case 'client-result-given':
      return settledSlot(call, event.content, event.isError, 'ran', event);
    case 'deadline-passed':
      if (slot.type === 'questioning') return withQuestionSettled(slot, event);
      return slot.type === 'asking' ? unapprovedSlot(rules, call) : expiredSlot(rules, call);
    default:
      return event satisfies never;
  }
}

/** A call that parks, or parks again, after its deadline has failed. */
function unlessExpired(rules: Rules, slot: Slot, at: number): Slot {
  const deadline = deadlineOf(slot);
  return deadline !== undefined && at >= deadline ? expiredSlot(rules, slot.call) : slot;
}

function expiredSlot(rules: Rules, call: Call): Slot {
  return refusedSlot(call, wordingOf(rules).callExpired(call.name), 'ran', 'timeout');
}

function unapprovedSlot(rules: Rules, call: Call): Slot {
  return refusedSlot(call, wordingOf(rules).approvalExpired(call.name), 'ran', 'denied');
}

/** Asks the tool of a parked call what became of it. */
function verifyParked(slot: Slot): Slot {
  return { type: 'queued', call: slot.call, verify: true, ...parkingOf(slot), ...askedIn(slot) };
}

/** Issues the lost effect again under the same id. A `once` tool that had started is verified or not run again. */
function onEffectLost(state: Draft, effect: string): Next {
  const { phase } = state;
  if (phase.type === 'ended') {
    const retries = phase.wakeAt !== undefined && { retries: retriesIn(phase) + 1 };
    return enterPhase(state, { type: 'model', effect, ...retries });
  }
  if (phase.type === 'new' || phase.type === 'raising') return withoutEffects(state);
  if (phase.type !== 'tools') return enterPhase(state, phase);
  if (isCrashLoop(state, effect)) return failCrashLoop(state, phase.slots, effect);
  return updateSlot(state, effect, (slot) => slotAfterLoss(state, slot));
}

/** Whether the call was running at so many process deaths in a row that it must not be attempted again. */
function isCrashLoop({ deaths, rules: { crashLimit } }: State, effect: string): boolean {
  return crashLimit !== undefined && crashLimit > 0 && (deaths?.[effect] ?? 0) >= crashLimit;
}

function failCrashLoop(state: Draft, slots: readonly Slot[], effect: string): Next {
  const words = wordingOf(state.rules);
  const { name } = slots[slotIndex(slots, effect)]!.call;
  const message =
    `The process ended ${state.deaths?.[effect]} times in a row while the tool "${name}" was running (${effect}), so it ` +
    'is not called again. Fix the tool, and fork the run before that call.';
  const answered = slots.map((slot) => {
    if (slot.type === 'settled') return slot;
    const started = isStarted(slot);
    const text = started ? words.interrupted(slot.call.name) : words.badCall(slot.call.name, NEVER_STARTED);
    return refusedSlot(slot.call, text, 'ran', 'interrupted');
  });
  const outcome: Outcome = { type: 'failed', error: { code: 'crash-loop', message } };
  return endRun(withMessage(state, resultsMessage(answered, state.rules)), outcome);
}

const NEVER_STARTED = 'The run failed before it started.';

function slotAfterLoss({ rules }: State, slot: Slot): Slot {
  const { type, call } = slot;
  const repeatable = call.effect === 'pure' || call.effect === 'idempotent';
  const begun = type === 'parked' || (type === 'running' && slot.begun);
  const carried = { ...parkingOf(slot), ...askedIn(slot) };
  if (type !== 'verifying' && repeatable) return { type: 'queued', call, ...(begun && { begun }), ...carried };
  // A parked call that is lost, and not only asked about, may run again if it did not take effect.
  if (call.verifiable) return { type: 'queued', call, verify: true, ...(type === 'parked' ? askedIn(slot) : carried) };
  return refusedSlot(call, wordingOf(rules).interrupted(call.name), 'ran', 'interrupted');
}

/** Whether the tool of the call has been called, and has not returned a result. */
function isStarted({ type }: Slot): boolean {
  return type === 'running' || type === 'verifying' || type === 'parked' || type === 'questioning';
}

/* Running the calls */

const CONTINUE: Move = { type: 'continue' };

/** Starts the calls that may start, or ends the turn as the finish strategy decides when all of them have results. */
function advanceCalls(state: Draft, slots: readonly Slot[]): Next {
  if (areAnswered(slots)) {
    const move = finishOf(state.rules).onResults?.(state, slots) ?? CONTINUE;
    if (move.type !== 'validate') return recordResults(state, slots as readonly SettledSlot[], move);
    return enterPhase(state, { type: 'validating', effect: effectId('validate', state.turn), text: move.text, slots });
  }
  const scheduled = scheduleCalls(slots, state.rules, state.at);
  state.phase = { type: 'tools', slots: scheduled.slots };
  return { state, effects: scheduled.effects };
}

/** Whether every call has its result, except those that the finish strategy holds. */
function areAnswered(slots: readonly Slot[]): boolean {
  for (let i = 0; i < slots.length; i++) {
    const { type } = slots[i]!;
    if (type !== 'settled' && type !== 'held') return false;
  }
  return true;
}

/**
 * Starts the queued calls that may run now.
 *
 * 1. At most `maxParallel` calls run at once. Calls that wait for a person, a client or a device do not count.
 * 2. An exclusive call runs alone, and queued calls after it wait until it has started.
 * 3. Calls that share a resource run in call order, also while an earlier one waits for an answer.
 * 4. With `parallel: false` a call starts when all calls before it have results.
 */
export function scheduleCalls(
  slots: readonly Slot[],
  rules: Rules,
  at: number,
): { readonly slots: readonly Slot[]; readonly effects: readonly Effect[] } {
  let effects: Effect[] | undefined;
  let next: Slot[] | undefined;
  let running = 0;
  let closed = false;
  for (let index = 0; index < slots.length; index++) {
    const slot = slots[index]!;
    if (slot.type !== 'running' && slot.type !== 'verifying') continue;
    running++;
    closed ||= slot.call.exclusive;
  }

  for (let index = 0; index < slots.length; index++) {
    const slot = slots[index]!;
    if (slot.type === 'settled' || slot.type === 'held') continue;
    const { call } = slot;
    if (slot.type === 'queued' && !waitsForResource(call, slots)) {
      const free = call.client || (!closed && running < rules.maxParallel && (!call.exclusive || running === 0));
      if (free) {
        const started = startedSlot(slot, at);
        (next ??= slots.slice())[index] = started;
        effects = added(effects, slotEffect(started)!);
        if (!call.client) running++;
      }
      closed ||= call.exclusive && !call.client;
    }
    if (!rules.parallel) break;
  }
  return { slots: next ?? slots, effects: effects ?? NO_EFFECTS };
}

/** Whether an earlier call without a result needs the same resource. Held calls are answered last and block nothing. */
function waitsForResource({ index, resources }: Call, slots: readonly Slot[]): boolean {
  if (resources.length === 0) return false;
  return slots.some(
    ({ type, call }) =>
      call.index < index &&
      type !== 'settled' &&
      type !== 'held' &&
      call.resources.some((resource) => resources.includes(resource)),
  );
}

function startedSlot(slot: Extract<Slot, { type: 'queued' }>, at: number): Slot {
  const { call, verify, begun, asked } = slot;
  if (call.client) return clientSlot(call, at);
  if (verify) return { type: 'verifying', call, ...parkingOf(slot), ...askedIn(slot) };
  if (begun) return { type: 'running', call, begun, ...parkingOf(slot), ...askedIn(slot) };
  return asked ? { type: 'running', call, asked } : { type: 'running', call };
}

/* The end of a turn */

/** Records the results of a turn, then does what the strategy decided unless a limit is reached. */
function recordResults(state: Draft, slots: readonly SettledSlot[], move: Move): Next {
  const { rules, closing } = state;
  let { streak, spent } = state;
  for (let i = 0; i < slots.length; i++) {
    const slot = slots[i]!;
    streak = nextStreak(streak, slot, state);
    if (slot.how === 'spent') spent = state.spent + 1;
  }
  const errors = errorsAfter(state.errors, slots);
  const results = resultsMessage(slots, rules);
  state.contextTokens += estimateTokens(results);
  state.history = appendMessage(state.history, results);
  state.streak = streak;
  state.errors = errors;
  state.spent = spent;

  if (move.type !== 'continue' && move.type !== 'ask') return applyMove(state, move);
  if (closing !== undefined) return endRun(state, { type: 'exhausted', limit: closing });
  if (streak && streak.refused >= 2) return reachLimit(state, 'repetition');
  if (rules.errorLimit > 0 && errors >= rules.errorLimit) return reachLimit(state, 'errors');
  if (spent > 1) return reachLimit(state, 'calls');
  return applyMove(state, move);
}

/** All results of a turn as one message, in call order. */
function resultsMessage(slots: readonly SettledSlot[], { errorTypes }: Rules): ToolMessage {
  return { role: 'tool', content: mapped(slots, errorTypes ? resultIn : untypedResultIn) };
}

function resultIn({ result }: SettledSlot): ToolResult {
  return result;
}

/** The history of a run of an earlier version stays as it was. */
function untypedResultIn({ result }: SettledSlot): ToolResult {
  const { errorType, ...untyped } = result;
  return errorType === undefined ? result : untyped;
}

/**
 * A turn with only errors adds one, a success resets. Calls refused by a limit of the loop do not count, and neither do
 * commands that ran and ended with an exit code other than 0.
 */
function errorsAfter(errors: number, slots: readonly SettledSlot[]): number {
  let counted = false;
  for (let i = 0; i < slots.length; i++) {
    const { how, result } = slots[i]!;
    if (how !== 'ran' && how !== 'repeated') continue;
    if (!result.isError) return 0;
    if (!result.exitCode) counted = true;
  }
  return counted ? errors + 1 : errors;
}

function nextStreak(
  last: Streak | undefined,
  { call, result, how }: SettledSlot,
  { rules, tools }: State,
): Streak | undefined {
  if (rules.repeatLimit === 0 || how === 'capped' || how === 'spent') return last;
  const same = last?.name === call.name && last.arguments === call.arguments;
  if (how === 'repeated') return same ? { ...last, refused: last.refused + 1 } : last;
  if (factsNamed(tools, call.name)?.polling) return undefined;
  const count = same && sameContent(last.content, result.content) ? last.count + 1 : 1;
  return { name: call.name, arguments: call.arguments, content: result.content, count, refused: 0 };
}

function sameContent(a: Streak['content'], b: Streak['content']): boolean {
  return a.length === b.length && JSON.stringify(a) === JSON.stringify(b);
}

/** Does what a finish strategy decided. */
function applyMove(state: Draft, move: Move): Next {
  const changed: Draft = move.changes ? { ...state, ...move.changes } : state;
  switch (move.type) {
    case 'continue':
      return nextTurn(changed);
    case 'ask':
      return nextTurn(withMessage(changed, userText(move.text)));
    case 'end':
      return acceptAnswer(changed, { type: 'completed', ...(changed.truncated && { truncated: true }) });
    case 'exhaust':
      return endRun(changed, { type: 'exhausted', limit: move.limit });
    case 'fail':
      return endRun(changed, { type: 'failed', error: { code: move.code, message: move.message } });
    case 'validate':
      return enterPhase(changed, { type: 'validating', effect: effectId('validate', state.turn), text: move.text });
    default:
      return move satisfies never;
  }
}

/** Ends the run with its answer, if the guardrails let it pass. */
function acceptAnswer(state: Draft, answer: Outcome): Next {
  if (!state.rules.guardrails?.output) return endRun(state, answer);
  return enterPhase(state, { type: 'guarding', effect: effectId('guard', state.turn), answer });
}

/** The first guardrail that stops ends the run. Without a verdict it stops too. */
function onGuardrailsChecked(state: Draft, { verdicts }: EventOf<'guardrails-checked'>): Next {
  if (state.phase.type !== 'guarding') return withoutEffects(state);
  const { answer } = state.phase;
  const stop = verdicts.find((verdict) => verdict?.type !== 'pass');
  if (stop || verdicts.length === 0) {
    const message = stop?.type === 'stop' ? stop.reason : 'A guardrail gave no verdict.';
    return endRun({ ...state, output: undefined }, { type: 'failed', error: { code: 'guardrail', message } });
  }
  // Input that arrived meanwhile follows a text, as it does without guardrails.
  const followed = state.pending.length > 0 && answer?.type === 'completed' && !state.rules.output && !state.agent;
  return answer && !followed ? endRun(state, answer) : nextTurn(state);
}

/** If a call provided the output, the verdict is the result of that call. */
function onOutputChecked(state: Draft, { result }: EventOf<'output-checked'>): Next {
  if (result.type === 'valid') state.output = result.value;
  const { phase } = state;
  const move = finishOf(state.rules).onChecked?.(state, result);
  if (move && phase.type === 'validating' && phase.slots) {
    const slots = phase.slots.map((slot) => (slot.type === 'held' ? settleHeldCall(slot.call, result, state) : slot));
    return recordResults(state, slots as readonly SettledSlot[], move);
  }
  if (result.type === 'valid') return applyMove({ ...state, lacked: undefined }, { type: 'end' });
  if (state.pending.length > 0) return nextTurn({ ...state, lacked: undefined });
  if (state.rules.outputCheck === 'once' || state.lacked === 'output') {
    return failRun(state, 'output-invalid', `The answer does not match its schema: ${result.problems.join('; ')}`);
  }
  const request = userText(wordingOf(state.rules).outputInvalid(result.problems));
  return nextTurn({ ...withMessage(state, request), lacked: 'output' });
}

function settleHeldCall(call: Call, result: CheckedOutput, { rules }: State): Slot {
  const words = wordingOf(rules);
  if (result.type === 'valid') return settledSlot(call, [{ type: 'text', text: words.accepted }], false, 'claimed');
  return refusedSlot(call, words.rejected(result.problems, result.validator), 'claimed', 'invalid_params');
}

/* Compaction */

/**
 * Continues the turn with the shorter history: starts it, with input that has arrived meanwhile, or repeats the model call
 * that was refused.
 */
function onHistoryCompacted(state: Draft, { result }: EventOf<'history-compacted'>): Next {
  if (state.phase.type !== 'compacting') return withoutEffects(state);
  const { to, refused } = state.phase;
  if (result.type === 'failure') return refused ? failWithModelError(state, refused) : startTurn(landInput(state));
  const shorter = compactHistory({ ...state, usage: addUsage(state.usage, result.usage) }, to, result.summary);
  if (!refused) return startTurn(landInput(shorter));
  return enterPhase(shorter, { type: 'model', effect: effectId('model', state.turn, 1) });
}

/** Whether the history has reached the size from which the rules compact it. */
function isOverThreshold({ rules, contextTokens }: State): boolean {
  const tokens = rules.compaction?.tokens;
  return tokens !== undefined && contextTokens >= tokens;
}

/**
 * The index where the messages that a summary may replace end. They are whole turns after the input and before the newest
 * `keepTurns`. Undefined if there is nothing to gain.
 */
function compactionEnd({ history, inputLength, rules }: State): number | undefined {
  let turns = rules.compaction?.keepTurns ?? 0;
  let to = history.length;
  for (let index = history.length - 1; index > inputLength && turns > 0; index--) {
    if (history.items[index]!.role !== 'assistant') continue;
    to = index;
    turns--;
  }
  return turns === 0 && to - inputLength >= 2 ? to : undefined;
}

/** Replaces the messages after the input and before `to` by a summary. The journal still has what it replaces. */
function compactHistory(state: Draft, to: number, summary: string): Draft {
  const { items, length } = state.history;
  const messages = [
    ...items.slice(0, state.inputLength),
    userText(wordingOf(state.rules).summary(summary)),
    ...items.slice(to, length),
  ];
  const contextTokens = messages.reduce((sum, message) => sum + estimateTokens(message), 0);
  const history = messages.reduce<State['history']>(appendMessage, emptyHistory());
  return { ...state, usedBefore: toolsUsed(state, to), history, contextTokens };
}

/** The names of the tools that were called before `to`, without calls that were denied; sorted. */
export function toolsUsed(state: State, to: number = state.history.length): readonly string[] {
  const { usedBefore, history, inputLength, tools } = state;
  const used = new Set(usedBefore);
  for (let at = inputLength; at < to; at++) {
    const message = history.items[at]!;
    if (message.role !== 'tool') continue;
    for (let i = 0; i < message.content.length; i++) {
      const { name, isError, errorType } = message.content[i]!;
      if (errorType !== 'denied' && (!isError || factsNamed(tools, name))) used.add(name);
    }
  }
  return [...used].sort();
}

/* The end of a run */

/** Input that is still pending is added to the history, so no input is lost. */
function endRun(state: Draft, outcome: Outcome): Next {
  return withoutEffects({ ...landInput(state), phase: { type: 'ended', outcome } });
}

/**
 * Ends a run in the middle of a turn. Calls without a result get an error result, so that the history stays valid. An
 * output that the guardrails have not checked is not the output of the run.
 */
function endMidTurn(state: Draft, outcome: Outcome, reason: string): Next {
  const { phase } = state;
  if (phase.type === 'guarding') return endRun({ ...state, output: undefined }, outcome);
  if (!('slots' in phase) || !phase.slots) return endRun(state, outcome);
  const slots = phase.slots.map((slot) =>
    slot.type === 'settled' ? slot : refusedSlot(slot.call, reason, 'ran', 'interrupted'),
  );
  return endRun(withMessage(state, resultsMessage(slots, state.rules)), outcome);
}

/** No call is without a result when a run fails, so there is no reason to give. */
function failRun(state: Draft, code: string, message: string): Next {
  return endMidTurn(state, { type: 'failed', error: { code, message } }, '');
}

function cancelPhaseOf({ phase }: State): CancelPhase {
  if (phase.type === 'validating' || phase.type === 'guarding') return 'validation';
  if (phase.type === 'judging') return 'tool';
  if (phase.type !== 'tools') return 'model';
  const has = (type: Slot['type']): boolean => phase.slots.some((slot) => slot.type === type);
  if (phase.slots.some(isStarted)) return 'tool';
  return has('asking') ? 'approval' : 'client';
}
