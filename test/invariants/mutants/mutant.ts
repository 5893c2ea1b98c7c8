import type { Call, Event, Limits, Next, Rules, Settling, Slot, State } from '@treadle/core';
import type { CoreFunctions, FinishStrategy, SettledSlot } from '../core-functions.ts';
import type { Core } from '../core.ts';
import { fault, type Fault, type Replacement } from '../mutable-core.ts';
import type { PROPERTIES } from '../properties.ts';

/** A fault of the core, and the property that must find it. */
export interface Mutant extends Fault {
  readonly property: keyof typeof PROPERTIES;
  readonly name: string;
}

export function mutant<
  Target extends keyof CoreFunctions,
  Replaced extends (...args: never[]) => unknown = CoreFunctions[Target],
>(
  property: Mutant['property'],
  name: string,
  target: Target,
  replace: (original: Replaced, core: Core) => Replaced,
): Mutant {
  return { property, name, ...fault(target, replace) };
}

/** A fault in how a typed agent finishes: one method of its strategy is replaced. */
export function agentFinish<Method extends keyof FinishStrategy>(
  method: Method,
  replace: (original: NonNullable<FinishStrategy[Method]>) => FinishStrategy[Method],
): Replacement<'finishOf'> {
  return (original) => (rules) => {
    const strategy = original(rules);
    return rules.agent ? { ...strategy, [method]: replace(strategy[method]!) } : strategy;
  };
}

/** A fault that makes a function see other rules; the run keeps its own. */
export function underRules(
  change: (rules: Rules) => Rules,
): <Rest extends readonly unknown[]>(
  original: (state: State, ...rest: Rest) => Next,
) => (state: State, ...rest: Rest) => Next {
  return (original) =>
    (state, ...rest) =>
      withState(original({ ...state, rules: change(state.rules) }, ...rest), { rules: state.rules });
}

/** What follows from an event, with a state that differs in some fields. */
export function withState(next: Next, changes: Partial<State>): Next {
  return { ...next, state: { ...next.state, ...changes } };
}

/** The event is applied, but has no effect: neither the state nor the effects change. */
export function unanswered(state: State): Next {
  return { state: { ...state }, effects: [] };
}

/** A fault of the guard: it accepts more events. */
export function accepts(
  types: readonly Event['type'][],
  also: (state: State, event: Event, slot: Slot | undefined) => boolean,
): Replacement<'fits'> {
  return (original) => (state, event) => {
    if (original(state, event)) return true;
    const slot = 'effect' in event && event.effect !== undefined ? slotOf(state, event.effect) : undefined;
    return types.includes(event.type) && also(state, event, slot);
  };
}

/** The call that has an outstanding effect of this id. */
export function slotOf({ phase }: State, effect: string): Slot | undefined {
  if (phase.type !== 'tools') return undefined;
  return phase.slots.find(
    ({ type, call }) => type in EFFECT_KINDS && `t${call.turn}.${EFFECT_KINDS[type]}.${call.index}` === effect,
  );
}

const EFFECT_KINDS: Partial<Record<Slot['type'], string>> = {
  running: 'tool',
  parked: 'tool',
  questioning: 'tool',
  verifying: 'verify',
  client: 'client',
  asking: 'approval',
};

export function settled(call: Call, text: string, isError: boolean, how: Settling = 'ran'): SettledSlot {
  const content = [{ type: isError ? 'error' : 'text', text } as const];
  return {
    type: 'settled',
    call,
    result: { type: 'tool-result', callId: call.id, name: call.name, content, isError },
    how,
  };
}

/** Does some work with changed calls. The result has the original calls. */
export function withCalls(state: State, change: (call: Call) => Call, work: (state: State) => Next): Next {
  const { phase } = state;
  if (phase.type !== 'tools') return work(state);
  const { slots } = phase;
  const next = work({
    ...state,
    phase: { ...phase, slots: slots.map((slot) => ({ ...slot, call: change(slot.call) })) },
  });
  const asBefore = <T extends { readonly call: Call }>(one: T): T => ({ ...one, call: slots[one.call.index]!.call });
  if (next.state.phase.type !== 'tools') return next;
  return {
    state: { ...next.state, phase: { ...next.state.phase, slots: next.state.phase.slots.map(asBefore) } },
    effects: next.effects.map((effect) => ('call' in effect ? asBefore(effect) : effect)),
  };
}

/** The rules without limits of tokens and cost, and without a limit of turns. */
export function unlimited(rules: Rules): Rules {
  return { ...rules, maxTurns: Infinity, limits: without(rules.limits as Limits, 'tokens', 'cost') };
}

export function withAgentRules(state: State, changes: Partial<NonNullable<Rules['agent']>>): State {
  return { ...state, rules: { ...state.rules, agent: { ...state.rules.agent!, ...changes } } };
}

export function without<T extends object>(value: T, ...names: readonly KeyOf<T>[]): T {
  return Object.fromEntries(Object.entries(value).filter(([name]) => !names.includes(name as KeyOf<T>))) as T;
}

/** A field of any member of a union. */
type KeyOf<T> = T extends unknown ? keyof T : never;
