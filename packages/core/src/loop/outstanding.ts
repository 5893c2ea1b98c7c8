import type { Effect } from './effects.ts';
import type { Call, Phase, Slot, State, Waiting } from './state.ts';

/** What is under way, derived from the phase alone, so that the two cannot contradict each other. */
export function outstanding(state: State): readonly Effect[] {
  const { phase } = state;
  switch (phase.type) {
    case 'new':
    case 'ended':
      return [];
    case 'preparing':
    case 'model':
    case 'compacting':
    case 'judging':
    case 'validating':
      return [singleEffect(state, phase)];
    case 'tools':
      return phase.slots.flatMap((slot) => effectOf(slot) ?? []);
    default:
      return phase satisfies never;
  }
}

/** What the run waits for outside, whether or not other things still go on. */
export function waiting(state: State): readonly Waiting[] {
  if (state.phase.type !== 'tools') return [];
  return state.phase.slots.flatMap((slot): Waiting | readonly Waiting[] => {
    const { call } = slot;
    if (slot.type === 'client') return { type: 'client', effect: slotEffectId(slot), call };
    if (slot.type === 'parked') return parkedWaiting(slotEffectId(slot), slot);
    if (slot.type !== 'asking') return [];
    const { digest, expiresAt, reason } = slot;
    return {
      type: 'approval',
      effect: slotEffectId(slot),
      call,
      digest,
      expiresAt,
      ...(reason !== undefined && { reason }),
    };
  });
}

/** What a child waits for is waited for here too, under the path that leads there. */
function parkedWaiting(
  effect: string,
  { call, on, waiting: inside }: Extract<Slot, { type: 'parked' }>,
): readonly Waiting[] {
  if (inside.length === 0) return [{ type: 'parked', effect, call, on }];
  return inside.map((wait) => ({ ...wait, effect: `${effect}/${wait.effect}` }));
}

/** Nothing goes on, and somebody outside has to do something. */
export function isPaused({ phase }: State): boolean {
  if (phase.type !== 'tools') return false;
  return !phase.slots.some(({ type }) => type === 'running' || type === 'verifying');
}

/** The effect of a phase that has only one. */
export function singleEffect(state: State, phase: Exclude<Phase, { type: 'new' | 'ended' | 'tools' }>): Effect {
  const { history, given } = state;
  const id = phase.effect;
  switch (phase.type) {
    case 'preparing':
      return { type: 'prepare-turn', id, turn: state.turn, history };
    case 'model':
      return modelEffect(state, id);
    case 'compacting':
      return { type: 'compact-history', id, history, from: given, to: phase.to };
    case 'judging':
      return {
        type: 'judge-calls',
        id,
        calls: phase.slots.flatMap(({ type, call }) => (type === 'queued' ? call : [])),
      };
    case 'validating':
      return { type: 'validate-output', id, text: phase.text, ...(state.agent && { attempt: state.agent.attempt }) };
    default:
      return phase satisfies never;
  }
}

function modelEffect(state: State, id: string): Effect {
  const { decision, history, tools } = state;
  const offered = decision?.tools;
  return {
    type: 'call-model',
    id,
    turn: state.turn,
    toolChoice: choiceOf(state),
    history,
    tools: offered ? tools.filter(({ name }) => offered.includes(name)) : tools,
    instructions: decision?.instructions ?? state.instructions,
    model: decision?.model,
  };
}

/**
 * The tool choice of the turn that goes on: `none` when an answer is wanted, else the turn's own or the standing one. A
 * typed agent answers by a call.
 */
export function choiceOf({ closing, spent, agent, decision, choice }: State): State['choice'] {
  if (closing !== undefined || (spent > 0 && agent === undefined)) return 'none';
  return decision?.toolChoice ?? choice;
}

export function effectOf(slot: Slot): Effect | undefined {
  const { call } = slot;
  switch (slot.type) {
    case 'queued':
    case 'held':
    case 'settled':
      return undefined;
    case 'running':
    case 'parked':
      return { type: 'call-tool', id: slotEffectId(slot), call };
    case 'verifying':
      return { type: 'verify-tool', id: slotEffectId(slot), call };
    case 'client':
      return { type: 'await-client', id: slotEffectId(slot), call };
    case 'asking': {
      const { digest, expiresAt, reason } = slot;
      return {
        type: 'ask-approval',
        id: slotEffectId(slot),
        call,
        digest,
        expiresAt,
        ...(reason !== undefined && { reason }),
      };
    }
    default:
      return slot satisfies never;
  }
}

/** The slot of a tools phase that an effect id belongs to, if the effect is outstanding. */
export function slotIndexOf(slots: readonly Slot[], effect: string): number {
  const index = indexIn(slots, effect);
  const slot = slots[index];
  return slot && slotEffectId(slot) === effect ? index : -1;
}

/** The same for one that is known to be outstanding. */
export function indexIn(slots: readonly Slot[], effect: string): number {
  return slots.length === 1 ? 0 : Number(effect.slice(effect.lastIndexOf('.') + 1));
}

const SLOT_KINDS: Record<Slot['type'], string | undefined> = {
  queued: undefined,
  held: undefined,
  settled: undefined,
  running: 'tool',
  parked: 'tool',
  verifying: 'verify',
  client: 'client',
  asking: 'approval',
};

function slotEffectId({ type, call }: Slot): string {
  const kind = SLOT_KINDS[type];
  return kind === undefined ? '' : effectId(kind, call.turn, call.index);
}

export function effectId(kind: string, turn: number, index = 0): string {
  return `t${turn}.${kind}.${index}`;
}

/** Under which id a call runs, whether it does so now or not. */
export function toolEffectId({ turn, index }: Call): string {
  return effectId('tool', turn, index);
}
