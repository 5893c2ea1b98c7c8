import type { Call, Effect, Phase, Slot, State, Waiting } from './types.ts';

/** What is under way, derived from the phase alone, so that the two cannot contradict each other. */
export function outstanding(state: State): readonly Effect[] {
  const { phase } = state;
  switch (phase.type) {
    case 'new':
    case 'ended':
      return [];
    case 'model':
      return [modelEffect(state, phase.effect)];
    case 'judging':
      return [judgeEffect(phase)];
    case 'tools':
      return phase.slots.flatMap((slot) => effectOf(slot) ?? []);
    default:
      return phase satisfies never;
  }
}

/** What the run waits for outside, whether or not other things still go on. */
export function waiting(state: State): readonly Waiting[] {
  if (state.phase.type !== 'tools') return [];
  return state.phase.slots.flatMap((slot): Waiting | [] => {
    const { call } = slot;
    if (slot.type === 'client') return { type: 'client', effect: slotEffectId(slot), call };
    if (slot.type === 'parked') return { type: 'parked', effect: slotEffectId(slot), call, on: slot.on };
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

/** Nothing goes on, and somebody outside has to do something. */
export function isPaused({ phase }: State): boolean {
  if (phase.type !== 'tools') return false;
  return !phase.slots.some(({ type }) => type === 'running' || type === 'verifying');
}

export function modelEffect(state: State, id: string): Effect {
  return { type: 'call-model', id, toolChoice: choiceOf(state), history: state.history, tools: state.tools };
}

/** The tool choice of the turn that goes on: `none` when an answer is wanted, else the standing one. */
export function choiceOf(state: State): State['choice'] {
  return state.closing !== undefined || state.spent > 0 ? 'none' : state.choice;
}

export function judgeEffect({ effect, slots }: Extract<Phase, { type: 'judging' }>): Effect {
  return { type: 'judge-calls', id: effect, calls: slots.flatMap(({ type, call }) => (type === 'queued' ? call : [])) };
}

export function effectOf(slot: Slot): Effect | undefined {
  const { call } = slot;
  switch (slot.type) {
    case 'queued':
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
  const index = Number(effect.slice(effect.lastIndexOf('.') + 1));
  const slot = slots[index];
  return slot && slotEffectId(slot) === effect ? index : -1;
}

const SLOT_KINDS: Record<Slot['type'], string | undefined> = {
  queued: undefined,
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
