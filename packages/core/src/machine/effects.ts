import type { ModelRequest, Settings, ToolChoice } from '../model.ts';
import { exposureElsewhere } from './exposure.ts';
import type { History } from './history.ts';
import { isWithinNarrowing, narrowedChoice, withoutFixed } from './narrowing.ts';
import { openQuestions, raisingWait } from './questions.ts';
import type { Memory, Rules, ToolFacts } from './rules.ts';
import type { Ask, Call, Carried, Phase, Slot, State, Waiting } from './state.ts';
import { wordingOf } from './wording.ts';

/** Something for the driver to do. Each effect is settled by exactly one event with its id. */
export type Effect =
  | {
      readonly type: 'call-model';
      readonly id: string;
      readonly turn: number;
      readonly toolChoice: ToolChoice;
      readonly history: History;
      readonly tools: readonly ToolFacts[];
      readonly instructions: string | undefined;
      /** Undefined: the model of the run. */
      readonly model: string | undefined;
    }
  | { readonly type: 'prepare-turn'; readonly id: string; readonly turn: number; readonly history: History }
  /** Summarise the messages from `from` up to `to`, which are whole turns. */
  | {
      readonly type: 'compact-history';
      readonly id: string;
      readonly history: History;
      readonly from: number;
      readonly to: number;
    }
  /** `text` is the output as JSON. `attempt` is set for a typed agent. */
  | { readonly type: 'validate-output'; readonly id: string; readonly text: string; readonly attempt?: number }
  /** Check the input, or the answer, which is the last message of the history and for a run with `output` a value. */
  | {
      readonly type: 'check-guardrails';
      readonly id: string;
      readonly stage: 'input' | 'output';
      readonly history: History;
      readonly output: unknown;
    }
  | { readonly type: 'judge-calls'; readonly id: string; readonly calls: readonly Call[] }
  | { readonly type: 'call-tool'; readonly id: string; readonly call: Call }
  | { readonly type: 'verify-tool'; readonly id: string; readonly call: Call }
  | ({ readonly type: 'ask-approval'; readonly id: string; readonly call: Call } & Ask)
  | { readonly type: 'await-client'; readonly id: string; readonly call: Call; readonly expiresAt?: number };

/** The effects that have started and are not settled. Derived from the phase, so that they cannot contradict it. */
export function outstanding(state: State): readonly Effect[] {
  const { phase } = state;
  switch (phase.type) {
    case 'new':
    case 'raising':
    case 'ended':
      return [];
    case 'preparing':
    case 'model':
    case 'compacting':
    case 'judging':
    case 'validating':
    case 'guarding':
      return [phaseEffect(state, phase)];
    case 'tools':
      return phase.slots.flatMap((slot) => slotEffect(slot) ?? []);
    default:
      return phase satisfies never;
  }
}

/** What the run waits for outside. Other effects may still be in progress. */
export function waiting(state: State): readonly Waiting[] {
  if (state.phase.type === 'raising') return [raisingWait(state, state.phase)];
  if (state.phase.type !== 'tools') return [];
  return state.phase.slots.flatMap((slot): Waiting | readonly Waiting[] => {
    if (slot.type === 'client') return { ...slot, effect: slotEffectId(slot) };
    if (slot.type === 'parked') return parkedWaiting(slotEffectId(slot), slot);
    if (slot.type === 'questioning') return openQuestions(slot);
    if (slot.type !== 'asking') return [];
    const { type: _, ...asked } = slot;
    return { type: 'approval', effect: slotEffectId(slot), ...asked };
  });
}

export type UnstartedSlot = Extract<Slot, { type: 'queued' | 'asking' }>;

export function isUnstarted(slot: Slot): slot is UnstartedSlot {
  return slot.type === 'asking' || (slot.type === 'queued' && !slot.verify && !slot.begun && !slot.asked);
}

/** Whether calls are judged by a policy: since the start of the run, or since it was resumed with one. */
export function isJudged({ rules, policies }: State): boolean {
  return rules.judged || policies !== undefined;
}

/** What a child run waits for, under the path of effects that leads to it. */
function parkedWaiting(
  effect: string,
  { waiting: inside, asked: _, ...slot }: Extract<Slot, { type: 'parked' }>,
): readonly Waiting[] {
  if (inside.length === 0) return [{ ...slot, effect }];
  return inside.map((wait) => ({ ...wait, effect: `${effect}/${wait.effect}` }));
}

/** Whether no call is running, so that the run only waits for a person, a client or a device. */
export function isPaused({ phase }: State): boolean {
  if (phase.type !== 'tools') return phase.type === 'raising';
  const { slots } = phase;
  for (let i = 0; i < slots.length; i++) {
    const { type } = slots[i]!;
    if (type === 'running' || type === 'verifying') return false;
  }
  return true;
}

/** The effect of a phase that has exactly one. */
export function phaseEffect(
  state: State,
  phase: Exclude<Phase, { type: 'new' | 'raising' | 'ended' | 'tools' }>,
): Effect {
  const { history, inputLength } = state;
  const id = phase.effect;
  switch (phase.type) {
    case 'preparing':
      return { type: 'prepare-turn', id, turn: state.turn, history };
    case 'model':
      return modelEffect(state, id);
    case 'compacting':
      return { type: 'compact-history', id, history, from: inputLength, to: phase.to };
    case 'guarding': {
      const stage = phase.answer ? 'output' : 'input';
      return { type: 'check-guardrails', id, stage, history, output: state.output };
    }
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
  const { decision, history } = state;
  return {
    type: 'call-model',
    id,
    turn: state.turn,
    toolChoice: toolChoiceOf(state),
    history,
    tools: offeredTools(state),
    instructions: decision?.instructions ?? state.instructions,
    model: decision?.model,
  };
}

/**
 * The request of a model call, without what depends on the moment: its deadline, and the function that reads blobs. `messages`
 * is the array of the history itself, which may have grown since.
 */
export function requestOf(
  { id, history, tools, toolChoice, instructions: given }: Extract<Effect, { type: 'call-model' }>,
  rules: Rules,
  settings: Settings,
  runId: string,
): RequestDraft {
  const { parallel, allowedTools, output } = rules;
  const required = output && wordingOf(rules).outputDemand(JSON.stringify(output));
  const key = `${runId}/${id}`;
  const request: RequestDraft = { messages: history.items, tools, toolChoice, parallel, settings, key };
  if (allowedTools) request.allowedTools = allowedTools;
  if (output) request.output = output;
  const instructions = required === undefined ? given : joinTexts(given, required);
  if (instructions !== undefined) request.instructions = instructions;
  return request;
}

export type RequestDraft = { -readonly [Field in keyof ModelRequest]: ModelRequest[Field] };

function joinTexts(first: string | undefined, second: string): string {
  return first === undefined ? second : `${first}\n\n${second}`;
}

/** The tools of the current turn. */
function offeredTools(state: State): readonly ToolFacts[] {
  const { tools, decision, narrowed } = state;
  const chosen = decision?.tools;
  if (!chosen && !narrowed) return tools;
  return tools.filter(({ name }) => (chosen?.includes(name) ?? true) && isWithinNarrowing(state, name));
}

/** What the tools of a run remember. */
export function memoryOf({ agent, memory }: State): Memory | undefined {
  return agent ? agent.memory : memory;
}

/** What the next run of a conversation starts with, if it follows this state. Undefined: nothing. */
export function carriedFrom(state: State): Carried | undefined {
  const { memory, grants, principal } = state;
  const narrowing = withoutFixed(state.narrowing);
  const exposure = state.exposure && exposureElsewhere(state);
  if (!(memory ?? narrowing ?? grants ?? exposure)) return undefined;
  return { memory: memory && newestOfEach(memory), narrow: narrowing, grants, principal, exposure };
}

/** How many keys with the same name before a colon, such as `files_read:PATH`, the next run of a conversation takes over. */
const MAX_CARRIED = 1_000;

/** A conversation has no end, so the keys that its calls name are bounded: those that were changed last are kept. */
function newestOfEach(memory: Memory): Memory {
  const all = Object.entries(memory);
  if (all.length <= MAX_CARRIED) return memory;
  const counts = new Map<string, number>();
  const kept = all.toReversed().filter(([key]) => {
    const [, name] = /^([^:]*):/.exec(key) ?? [];
    if (name === undefined) return true;
    const count = (counts.get(name) ?? 0) + 1;
    counts.set(name, count);
    return count <= MAX_CARRIED;
  });
  return Object.fromEntries(kept.toReversed());
}

/**
 * The tool choice of the current turn: `none` when the model is asked for an answer, otherwise that of `prepareTurn` or
 * of the run. A typed agent answers with a call, so the calls limit does not force `none` there.
 */
export function toolChoiceOf(state: State): State['choice'] {
  const { closing, spent, agent, decision, narrowed } = state;
  if (closing !== undefined || (spent > 0 && agent === undefined)) return 'none';
  const choice = decision?.toolChoice ?? state.choice;
  return narrowed ? narrowedChoice(state, choice) : choice;
}

export function slotEffect(slot: Slot): Effect | undefined {
  const { call } = slot;
  switch (slot.type) {
    case 'queued':
    case 'held':
    case 'settled':
      return undefined;
    case 'running':
    case 'parked':
    case 'questioning':
      return { type: 'call-tool', id: slotEffectId(slot), call };
    case 'verifying':
      return { type: 'verify-tool', id: slotEffectId(slot), call };
    case 'client': {
      const { expiresAt } = slot;
      return { type: 'await-client', id: slotEffectId(slot), call, ...(expiresAt !== undefined && { expiresAt }) };
    }
    case 'asking': {
      const { type: _, ...asked } = slot;
      return { type: 'ask-approval', id: slotEffectId(slot), ...asked };
    }
    default:
      return slot satisfies never;
  }
}

/** The slot with this outstanding effect. */
export function slotFor({ phase }: State, effect: string): Slot | undefined {
  if (phase.type !== 'tools') return undefined;
  const slot = phase.slots[slotIndex(phase.slots, effect)];
  return slot && slotEffectId(slot) === effect ? slot : undefined;
}

/** The index of the slot of an effect that is known to be outstanding. It is the last part of the id. */
export function slotIndex(slots: readonly Slot[], effect: string): number {
  return slots.length === 1 ? 0 : Number(effect.slice(effect.lastIndexOf('.') + 1));
}

const SLOT_KINDS: Record<Slot['type'], string | undefined> = {
  queued: undefined,
  held: undefined,
  settled: undefined,
  running: 'tool',
  parked: 'tool',
  questioning: 'tool',
  verifying: 'verify',
  client: 'client',
  asking: 'approval',
};

function slotEffectId({ type, call }: Slot): string {
  const kind = SLOT_KINDS[type];
  return kind === undefined ? '' : effectId(kind, call.turn, call.index);
}

/** The id of an effect. Those of model calls and of the first call of a turn are kept: each turn needs them several times. */
export function effectId(kind: string, turn: number, index = 0): string {
  const kept = kind === 'tool' ? TOOL_IDS : kind === 'model' ? MODEL_IDS : undefined;
  if (!kept || index !== 0 || !(turn < KEPT_TURNS)) return `t${turn}.${kind}.${index}`;
  return (kept[turn] ??= `t${turn}.${kind}.0`);
}

const KEPT_TURNS = 100;
const TOOL_IDS: string[] = [];
const MODEL_IDS: string[] = [];

/** The id of the effect that runs a call. */
export function toolEffectId({ turn, index }: Call): string {
  return effectId('tool', turn, index);
}
