import type { Call, Event, Rules, Slot, State, Touch } from '@treadle/core';
import type { Replacement } from '../mutable-core.ts';
import type { SettledSlot } from '../core-functions.ts';
import { mutant, underRules, unlimited, withState, without } from './mutant.ts';

/** I6 limits hold: turns, calls, tokens, cost, time, errors. */
export const limits = [
  mutant(
    'I6',
    'errors are never reset by a success',
    'errorsAfter',
    (original) => (errors, slots) => Math.max(errors, original(errors, slots)),
  ),
  mutant('I6', 'one error among successes counts', 'errorsAfter', (original) => (errors, slots) => {
    const failed = slots.filter(({ result }) => result.isError);
    return original(errors, failed.length > 0 ? failed : slots);
  }),
  mutant(
    'I6',
    'calls that the calls limit refused count as errors',
    'errorsAfter',
    (original) => (errors, slots) => original(errors, slots.map(ranInsteadOf('spent'))),
  ),
  mutant('I6', 'a command that ends with another exit code than 0 counts', 'errorsAfter', (original) => {
    return (errors, slots) =>
      original(
        errors,
        slots.map((slot) => ({ ...slot, result: without(slot.result, 'exitCode') })),
      );
  }),
  mutant(
    'I6',
    'a run has two closing turns',
    'reachLimit',
    (original) => (state, limit) => withState(original(state, limit), { closing: state.closing }),
  ),
  mutant(
    'I6',
    'the reply of a closing turn counts as an answer',
    'onTextReply',
    (original) => (state, content) =>
      withState(original({ ...state, closing: undefined }, content), { closing: state.closing }),
  ),
  mutant(
    'I6',
    'one turn too many',
    'startTurn',
    underRules((rules) => ({ ...rules, maxTurns: rules.maxTurns + 1 })),
  ),
  mutant(
    'I6',
    'a policy does not limit a run that is resumed with it',
    'onPolicyChanged',
    (original) => (state, event) => original(state, without(event, 'limits')),
  ),
  mutant(
    'I6',
    'a later policy raises the limits of an earlier one',
    'onPolicyChanged',
    (original) => (state, event) => original(event.limits ? { ...state, policyLimits: undefined } : state, event),
  ),
  mutant('I6', 'one call over the cap', 'refusalFor', (original) => (state, candidate) => {
    const { maxCallsPerTurn = Infinity } = state.rules;
    return original({ ...state, rules: { ...state.rules, maxCallsPerTurn: maxCallsPerTurn + 1 } }, candidate);
  }),
  mutant(
    'I6',
    'calls of one reply do not count towards the limit',
    'refusalFor',
    (original) => (state, candidate) => original(state, { ...candidate, admitted: 0 }),
  ),
  mutant(
    'I6',
    'an approved call does not count towards the limit',
    'onCallEvent',
    (original) => (state, effect, event) => {
      const next = original(state, effect, event);
      return event.type === 'approval-given' ? withState(next, { calls: state.calls }) : next;
    },
  ),
  mutant(
    'I6',
    'twice as many tokens as allowed may be used',
    'startTurn',
    underRules((rules) => {
      const { tokens } = rules.limits;
      return tokens === undefined ? rules : { ...rules, limits: { ...rules.limits, tokens: tokens * 2 } };
    }),
  ),
  mutant('I6', 'an unknown cost is no cost', 'startTurn', (original) => (state) => {
    const { usage } = state;
    return withState(original({ ...state, usage: { ...usage, cost: usage.cost ?? 0 } }), { usage });
  }),
  mutant('I6', 'a closing turn follows although the tokens are spent', 'reachLimit', underRules(unlimited)),
  mutant(
    'I6',
    'time in which a run is paused counts',
    'activeMsAt',
    (original) => (state, moment) =>
      state.phase.type === 'ended' ? original(state, moment) : state.activeMs + passedUntil(state, moment),
  ),
  mutant(
    'I6',
    'time between a failure and the resumption counts',
    'activeMsAt',
    (original) => (state, moment) =>
      state.phase.type === 'ended' ? state.activeMs + passedUntil(state, moment) : original(state, moment),
  ),
  mutant(
    'I6',
    'only the clock that people set counts',
    'activeMsAt',
    (original) =>
      (state, { at }) =>
        original(state, { at }),
  ),
  mutant(
    'I6',
    'the time that a clock was set by counts',
    'activeMsAt',
    (original) =>
      (state, { at, ...moment }) =>
        original(state, { at, elapsedMs: Math.max(moment.elapsedMs ?? 0, at - state.at) }),
  ),
  mutant('I6', 'the same call runs once more than the limit', 'isRepeatedCall', (original) => (state, call) => {
    const { repeatLimit } = state.rules;
    return original({ ...state, rules: { ...state.rules, repeatLimit: repeatLimit && repeatLimit + 1 } }, call);
  }),
  mutant(
    'I6',
    'one call more than allowed runs at once',
    'scheduleCalls',
    (original) => (slots, rules, at) => original(slots, { ...rules, maxParallel: rules.maxParallel + 1 }, at),
  ),
  mutant('I6', 'an exclusive tool starts while others run', 'scheduleCalls', sharing('queued')),
  mutant('I6', 'others start while an exclusive tool runs', 'scheduleCalls', sharing('running')),
  mutant('I6', 'calls that share a resource run at once', 'waitsForResource', () => () => false),
  mutant(
    'I6',
    'calls run at once although they must not',
    'scheduleCalls',
    (original) => (slots, rules, at) => original(slots, { ...rules, parallel: true }, at),
  ),
  mutant('live', 'effects start after a tool that returned too late', 'hasDeadline', () => () => false),
  mutant(
    'live',
    'the deadline is that of the clock that people set',
    'startShell',
    (original) =>
      (context, ...rest) => {
        const { monotonic: _, ...clock } = context.clock;
        return original({ ...context, clock }, ...rest);
      },
  ),
  mutant('I6', 'a call that kills its process is attempted again', 'isCrashLoop', () => () => false),
  mutant(
    'I6',
    'a call is attempted once more after the last death',
    'isCrashLoop',
    (original) => (state, effect) =>
      original({ ...state, rules: { ...state.rules, crashLimit: (state.rules.crashLimit ?? 0) + 1 } }, effect),
  ),
  mutant(
    'I6',
    'deaths count that are not in a row',
    'deathsAfter',
    (original) => (state, event) => original(state, event) ?? state.deaths,
  ),
  mutant(
    'I6',
    'clean restarts count as deaths',
    'deathsAfter',
    (original) => (state, event) => original(state, event.type === 'effect-lost' ? { ...event, died: true } : event),
  ),
  mutant('I6', 'child runs count as deaths', 'deathsAfter', (original) => (state, event) => {
    const next = original(state, event);
    if (event.type !== 'effect-lost' || !event.died || event.cause !== 'restart' || !state.rules.crashLimit)
      return next;
    return next === state.deaths ? { ...next, [event.effect]: (next?.[event.effect] ?? 0) + 1 } : next;
  }),
  mutant('live', 'no timer is set for the deadline', 'watchDeadline', () => () => () => {}),
  mutant(
    'I6',
    'a call is refused as repeated after a different one',
    'refusalFor',
    (original) => (state, candidate) => original(state, { ...candidate, repeating: true }),
  ),
  mutant(
    'I6',
    'only the first call of a reply is refused as repeated',
    'refusalFor',
    (original) => (state, candidate) =>
      original(state, { ...candidate, repeating: candidate.repeating && candidate.call.index === 0 }),
  ),
  mutant('I6', 'the usage of a summary does not count', 'onHistoryCompacted', (original) => (state, event) => {
    const { result } = event;
    if (result.type === 'failure') return original(state, event);
    return original(state, { ...event, result: { ...result, usage: { inputTokens: 0, outputTokens: 0, cost: 0 } } });
  }),
  mutant('I6', 'limits are not checked after a summary', 'onHistoryCompacted', underRules(unlimited)),
  mutant(
    'I6',
    'a failed compaction is repeated before the same turn',
    'onHistoryCompacted',
    (original) => (state, event) => {
      const { phase, history, inputLength: from } = state;
      if (phase.type !== 'compacting' || phase.refused || event.result.type !== 'failure')
        return original(state, event);
      return {
        state: { ...state },
        effects: [{ type: 'compact-history', id: phase.effect, history, from, to: phase.to }],
      };
    },
  ),
  mutant('I6', 'a failed compaction after a refusal is ignored', 'onHistoryCompacted', (original) => (state, event) => {
    const { phase } = state;
    if (phase.type !== 'compacting' || event.result.type !== 'failure') return original(state, event);
    return original({ ...state, phase: without(phase, 'refused') }, event);
  }),
  mutant(
    'I6',
    'a conversation is compacted one token too late',
    'isOverThreshold',
    (original) => (state) => original({ ...state, contextTokens: state.contextTokens - 1 }),
  ),
  mutant(
    'I6',
    'a compaction does not change the estimated length',
    'compactHistory',
    (original) => (state, to, summary) => ({
      ...original(state, to, summary),
      contextTokens: state.contextTokens,
    }),
  ),
  mutant(
    'I6',
    'a conversation that is too long fails at once',
    'onModelFailed',
    underRules((rules) => without(rules, 'compaction')),
  ),
  mutant('I6', 'any failure of the model leads to a compaction', 'onModelFailed', (original) => (state, event) => {
    const { effect, error } = event;
    const next = original(state, { ...event, error: { ...error, code: 'context-length' } });
    const { phase } = next.state;
    if (phase.type !== 'compacting') return original(state, event);
    return withState(next, { phase: { ...phase, refused: { effect, error } } });
  }),
  mutant(
    'I6',
    'results do not count towards the estimated length',
    'estimateTokens',
    (original) => (message) => (message.role === 'tool' ? 0 : original(message)),
  ),
  mutant(
    'I6',
    'a call that new rules deny counts for the calls limit',
    'onPolicyChanged',
    (original) => (state, event) => {
      const next = original(state, event);
      return next.state.calls < state.calls ? withState(next, { calls: state.calls }) : next;
    },
  ),
  mutant('I6', 'a call that is judged again counts twice', 'onCallRejudged', (original) => (state, event) => {
    const { calls } = state;
    const next = original(state, event);
    return { ...next, state: { ...next.state, calls: Math.max(next.state.calls, calls) } };
  }),
  mutant(
    'I6',
    'the same path at another place is the same file',
    'withWritten',
    (original) => (written, touches) =>
      original(
        written,
        Array.isArray(touches)
          ? touches.map((touch: Touch) => ('on' in touch ? without(touch, 'on') : touch))
          : touches,
      ),
  ),
];

function passedUntil(state: State, { at, elapsedMs }: Pick<Event, 'at' | 'elapsedMs'>): number {
  return Math.max(0, elapsedMs ?? at - state.at);
}

/** Counts a call that was settled in this way as one that ran. */
function ranInsteadOf(how: SettledSlot['how']): (slot: SettledSlot) => SettledSlot {
  return (slot) => (slot.how === how ? { ...slot, how: 'ran' } : slot);
}

/** Schedules calls in this state as if they were not exclusive. */
function sharing(type: Slot['type']): Replacement<'scheduleCalls'> {
  return (original) => (slots: readonly Slot[], rules: Rules, at: number) => {
    const asBefore = <T extends { readonly call: Call }>(one: T): T => ({ ...one, call: slots[one.call.index]!.call });
    const scheduled = original(
      slots.map((slot) => (slot.type === type ? { ...slot, call: { ...slot.call, exclusive: false } } : slot)),
      rules,
      at,
    );
    return {
      slots: scheduled.slots.map(asBefore),
      effects: scheduled.effects.map((effect) => ('call' in effect ? asBefore(effect) : effect)),
    };
  };
}
