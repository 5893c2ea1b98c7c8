import { stableJson, type Call, type Event, type Rules, type State, type Waiting } from '@treadle/core';
import { turnOf } from './answers.ts';
import type { Core } from './core.ts';
import { outcomeText } from './expected.ts';
import { expiryOf, isRaised, isWaiting, openQuestions, shouldApply, type Observed, type Open } from './observed.ts';
import { referenceOf } from './reference.ts';
import { ensure, outcomeOf, same, type Moment, type Trace } from './trace.ts';
import { isAnswered, shares, turnsOf } from './turns.ts';

type Views = Pick<Core, 'outstanding' | 'waiting' | 'isPaused' | 'step' | 'wakeAtOf'>;

/** I4: a run ends in exactly one outcome, or is paused on named outstanding effects. */
export function checkEnding(core: Views, trace: Trace): void {
  const { moments, last } = trace;
  for (const moment of moments) {
    checkMoment(core, moment);
    checkUnguarded(core, moment.after);
  }

  const { after: observed } = last.observed;
  ensure(
    observed.phase === 'ended' || isWaiting(observed),
    () => 'everything has settled, and the run has neither ended nor paused',
  );
  if (observed.phase === 'ended') checkEnded(core, trace);
  else checkNoCallIdles(trace);
  checkCause(trace);
  if (trace.world.rules.agent) checkAgentEnd(trace, trace.world.rules.agent);
}

/** The effects that the state reports as outstanding are those that were issued and have not settled. */
function checkMoment(
  { outstanding, waiting, isPaused, wakeAtOf }: Views,
  { after, observed: { after: observed }, event }: Moment,
): void {
  const { open, phase } = observed;
  const ended = phase === 'ended';
  ensure(
    ended || observed.raising !== undefined || open.size > 0,
    () => `after ${event.type} the run has not ended, and no effect is outstanding`,
  );
  const reported = outstanding(after).map((effect) => [effect.id, effect.type]);
  const issued = [...open.values()].map(({ effect }) => [effect.id, effect.type]);
  ensure(
    same(reported.sort(), issued.sort()),
    () => `the state reports ${reported.join(' ')} as outstanding; issued and not settled are ${issued.join(' ')}`,
  );

  const reportedWaits = waiting(after).map(stableJson);
  const outside = [
    ...raisingWaits(after, observed),
    ...[...open.values()].flatMap((one) => waitsOf(observed, one)),
  ].map(stableJson);
  ensure(
    same(reportedWaits.sort(), outside.sort()),
    () => `the run waits for ${outside.join()}, and reports ${reportedWaits.join()}`,
  );
  checkQuestions(after, observed);
  const processes = [...observed.resources.values()];
  ensure(
    same(after.resources ?? [], processes),
    () => `the run has the processes ${JSON.stringify(after.resources)}; there are ${JSON.stringify(processes)}`,
  );
  ensure(
    isPaused(after) === isWaiting(observed),
    () => `paused is ${isPaused(after)} with ${issued.join(' ')} outstanding`,
  );
  const times = isWaiting(observed)
    ? [...open.values()].flatMap((one) => wakeTimesOf(observed, one)).toSorted((a, b) => a - b)
    : [];
  const wakeAt = ended ? observed.retryAt : (observed.raising?.expiresAt ?? times[0]);
  ensure(wakeAtOf(after) === wakeAt, () => `the run wakes at ${wakeAtOf(after)}, and must at ${wakeAt}`);
}

/** Each call has the questions that it asked, with the answers that were given in time. */
function checkQuestions({ phase }: State, { open, asked }: Observed): void {
  for (const { effect } of open.values()) {
    if (effect.type !== 'call-tool' || phase.type !== 'tools') continue;
    const slot = phase.slots[effect.call.index]!;
    const has = ('asked' in slot && slot.asked) || [];
    const must = asked.get(effect.id) ?? [];
    ensure(same(has, must), () => `${effect.id} has ${JSON.stringify(has)}, and was told ${JSON.stringify(must)}`);
  }
}

/** JSON with the fields in order, because the order has no meaning. */
/** A run that is cancelled while guardrails check its answer has no output. */
function checkUnguarded({ step }: Views, state: State): void {
  if (state.phase.type !== 'guarding') return;
  const { output } = step(state, { type: 'cancel-requested', at: state.at }).state;
  ensure(output === undefined, () => `a cancelled run has the unchecked output ${JSON.stringify(output)}`);
}

/** When something has to be done about an effect without an answer. Only tools that are asked again wake a run. */
function wakeTimesOf(observed: Observed, open: Open): readonly number[] {
  const { effect, parked } = open;
  const isAsked = ({ call }: Pick<Waiting, 'call'>): boolean => call.effect !== 'once' || call.verifiable;
  const inside = parked && effect.type === 'call-tool' && isAsked(effect) ? parked.waiting : undefined;
  const wakes = (inside ?? []).flatMap((wait) => ('wakeAt' in wait && isAsked(wait) ? wait.wakeAt : []));
  const times = [inside && parked?.wakeAt, ...(inside ?? []).map(({ expiresAt }) => expiresAt), ...wakes];
  const questions = parked ? [] : openQuestions(observed, effect.id).map(({ expiresAt }) => expiresAt);
  return [expiryOf(open), ...questions, ...times].filter((time) => time !== undefined);
}

/** The question about a model call or a summary that exceeds a budget. */
function raisingWaits({ model, decision, turn }: State, { raising }: Observed): readonly Waiting[] {
  if (!raising) return [];
  const { effect, question, expiresAt } = raising;
  const call: Call = {
    turn,
    index: 0,
    id: effect.id,
    name: decision?.model ?? model,
    arguments: '{}',
    resources: [],
    effect: 'pure',
    exclusive: false,
    client: false,
    verifiable: false,
  };
  return [{ type: 'question', effect: `${effect.id}.budget`, call, question, expiresAt, raises: true }];
}

/** What an effect waits for. For a parked call: what its child waits for, with the path to it. */
function waitsOf(observed: Observed, { effect, parked }: Open): readonly Waiting[] {
  if (effect.type === 'ask-approval') {
    const { id, type: _, ...shown } = effect;
    return [{ type: 'approval', effect: id, ...shown }];
  }
  if (effect.type === 'await-client') {
    const { id, type: _, ...shown } = effect;
    return [{ type: 'client', effect: id, ...shown }];
  }
  if (effect.type !== 'call-tool') return [];
  if (!parked) {
    return openQuestions(observed, effect.id).map(({ index, question, expiresAt }) => ({
      type: 'question',
      effect: `${effect.id.replace('.tool.', '.question.')}.${index}`,
      call: effect.call,
      question,
      ...(expiresAt !== undefined && { expiresAt }),
    }));
  }
  const { waiting, ...shown } = parked;
  if (waiting.length === 0) return [{ type: 'parked', effect: effect.id, call: effect.call, ...shown }];
  return waiting.map((inside) => ({ ...inside, effect: `${effect.id}/${inside.effect}` }));
}

/**
 * No event changes a run that has ended. Exceptions: a failed model call may be repeated, and its tools may change before
 * that.
 */
function checkEnded({ step }: Views, { moments, last: { after, observed } }: Trace): void {
  for (const { event, before, after: state, applied, observed: then } of moments) {
    const again = shouldApply(observed.after, event);
    ensure(again || step(after, event).state === after, () => `${event.type} was applied after the end`);
    const resumed = then.before.failed !== undefined && event.type === 'effect-lost';
    const kept = outcomeOf(before) === undefined || same(outcomeOf(before), outcomeOf(state));
    ensure(!applied || kept || resumed, () => `${event.type} changed the outcome`);
  }
  for (const type of ['cancel-requested', 'deadline-passed'] as const) {
    ensure(step(after, { type, at: after.at + 1e9 }).state === after, () => `${type} was applied after the end`);
  }
}

/** The budget refused, or people did not allow that it is exceeded. */
function isOutOfBudget(before: Observed, event: Moment['event']): boolean {
  if (event.type === 'budget-refused') return true;
  const isDecision = event.type === 'question-answered' || event.type === 'deadline-passed';
  return before.raising !== undefined && isDecision && event.effect !== undefined && !isRaised(before, event);
}

/** Each outcome has the event that causes it, and such an event always has its outcome. */
function checkCause({ world, moments, last }: Trace): void {
  const outcome = outcomeOf(last.after);
  const final = moments.findLast(({ applied }) => applied)!.event;
  const some = (holds: (event: Moment['event']) => boolean): boolean =>
    moments.some(({ applied, event }) => applied && holds(event));
  const pairs = [
    ['cancelled', outcome?.type === 'cancelled', some(({ type }) => type === 'cancel-requested')],
    [
      'out of time',
      outcome?.type === 'exhausted' && outcome.limit === 'duration',
      some((event) => event.type === 'deadline-passed' && event.effect === undefined),
    ],
    [
      'out of budget',
      outcome?.type === 'exhausted' && outcome.limit === 'budget',
      moments.some(({ applied, event, observed: { before } }) => applied && isOutOfBudget(before, event)),
    ],
  ] as const;
  for (const [what, is, caused] of pairs)
    ensure(is === caused, () => `the run is ${is ? '' : 'not '}${what}, and ${caused ? 'an' : 'no'} event requires it`);
  const { output: schema, agent, guardrails } = world.rules;
  // With guardrails, the answer is the event before their verdict. Other events may come in between.
  const guarded = guardrails?.output && outcome?.type === 'completed';
  const answers = moments.flatMap(({ applied, event }) => (applied && isAnswer(event) ? event : []));
  const answer = guarded ? answers.at(-1)! : final;
  if (guarded) ensure(isPass(final), () => `the run is completed after ${JSON.stringify(final)}, without a check`);
  if (outcome?.type === 'completed') {
    const answered = schema || agent ? valueIn(answer) !== undefined : isText(answer);
    ensure(answered, () => `the run is completed after ${JSON.stringify(answer)}`);
  }
  const output = outcome?.type === 'completed' ? valueIn(answer) : undefined;
  ensure(same(last.after.output, output), () => `the output of the run is ${JSON.stringify(last.after.output)}`);
}

/** Every guardrail let it pass. */
function isPass(event: Moment['event']): boolean {
  if (event.type !== 'guardrails-checked') return false;
  return event.verdicts.length > 0 && event.verdicts.every(({ type }) => type === 'pass');
}

function isAnswer(event: Moment['event']): boolean {
  return event.type === 'model-replied' || event.type === 'output-checked';
}

function isText(event: Moment['event']): boolean {
  return event.type === 'model-replied' && !event.content.some(({ type }) => type === 'tool-call');
}

function valueIn(event: Moment['event']): unknown {
  return event.type === 'output-checked' && event.result.type === 'valid' ? event.result.value : undefined;
}

/** While the run is paused, a call that has not started is blocked by one that waits. */
function checkNoCallIdles(trace: Trace): void {
  const { rules } = trace.world;
  const turns = turnsOf(trace);
  const { handlings } = referenceOf(trace, turns);
  const { open } = trace.last.observed.after;
  const { calls, number } = turns.at(-1)!;
  const unanswered = calls.filter((call) => handlings.get(call) === 'runs' && !isAnswered(call, Infinity));
  for (const call of unanswered) {
    if (call.log.some((record) => record.type === 'issued' && open.has(record.effect.id))) continue;
    const blocked = unanswered.some((other) => other.index < call.index && (!rules.parallel || shares(other, call)));
    ensure(blocked, () => `call ${call.index} of turn ${number} could run although the run is paused`);
  }
}

type AgentRules = NonNullable<Rules['agent']>;

/** Checks how a typed agent ends by the number of rejections and turns alone, without following its run. */
function checkAgentEnd({ world, moments }: Trace, agent: AgentRules): void {
  const { maxTurns, guardrails } = world.rules;
  let rejected = 0;
  let turns = new Set<number>();
  /** The limit of turns, and how many this attempt may have: turns that had started when a policy lowered it stay. */
  let [limit, most] = [maxTurns, maxTurns];
  for (const moment of moments) {
    if (!moment.applied) continue;
    const { event, effects, after } = moment;
    if (isRejection(event)) {
      rejected++;
      if (after.phase.type !== 'ended') [turns, most] = [new Set(), limit];
    }
    if (event.type === 'policy-changed') {
      limit = Math.min(limit, event.limits?.turns ?? Infinity);
      most = Math.min(most, Math.max(limit, turns.size));
    }
    for (const { type, id } of effects) if (type === 'call-model' || type === 'prepare-turn') turns.add(turnOf(id));
    ensure(turns.size <= most, () => `an attempt had ${turns.size} turns; the limit is ${most}`);
    checkOutcome(moment, { agent, guarded: guardrails?.output === true }, rejected);
    const outOfTurns = outcomeText(after) === 'exhausted turns';
    ensure(!outOfTurns || turns.size === most, () => `the attempt ended after ${turns.size} of ${most} turns`);
  }
}

/** `guarded`: guardrails check the output. */
interface Ending {
  readonly agent: AgentRules;
  readonly guarded: boolean;
}

/** Each of these outcomes follows exactly when it must. */
function checkOutcome({ event, after }: Moment, { agent, guarded }: Ending, rejected: number): void {
  const last = isRejection(event) && rejected >= agent.maxAttempts;
  const unprompted = event.type === 'output-checked' && 'promptProblem' in event.result;
  const isValid = event.type === 'output-checked' && event.result.type === 'valid';
  const due: Readonly<Record<string, boolean>> = {
    completed: guarded ? isPass(event) && 'effect' in event && event.effect !== 't0.guard.0' : isValid,
    'exhausted attempts': last,
    'failed prompt-failed': isRejection(event) && unprompted && !last,
    'failed no-tool-called': isTextOnly(event) && agent.textOnly === 'fail',
  };
  const outcome = outcomeText(after)?.replace(' truncated', '');
  for (const [end, must] of Object.entries(due)) {
    const is = outcome === end;
    ensure(
      is === must,
      () => `after ${event.type} the run is ${is ? '' : 'not '}${end}, and must ${must ? '' : 'not '}be`,
    );
  }
  const early = agent.earlySubmit === 'fail' && agent.submit !== undefined;
  ensure(
    early || outcome !== 'failed submit-before-output',
    () => 'a submit before any output ended the run although it must not',
  );
}

function isRejection(event: Event): boolean {
  return event.type === 'output-checked' && event.result.type === 'invalid';
}

/** A reply without a call that the content filter did not cut. */
function isTextOnly(event: Event): boolean {
  if (event.type !== 'model-replied' || event.finish === 'content-filter') return false;
  return !event.content.some(({ type }) => type === 'tool-call');
}
