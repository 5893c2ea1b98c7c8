import { mutant, withState, without } from './mutant.ts';

const NO_USAGE = { inputTokens: 0, outputTokens: 0, cost: 0 };

/** I6 for what a single turn, a fork, a typed answer or a child decides or uses. */
export const turns = [
  mutant('I6', 'a decision is kept for the next turn', 'askModel', (original) => (state) => {
    const { decision } = state;
    const { effects, ...next } = original(state);
    return {
      ...withState({ ...next, effects }, { decision }),
      effects: effects.map((effect) => {
        if (effect.type !== 'call-model') return effect;
        const { instructions = effect.instructions, model } = decision ?? {};
        return { ...effect, instructions, model };
      }),
    };
  }),
  mutant('I6', 'tools that a turn excludes are still offered', 'modelEffect', (original) => (state, id) => ({
    ...original(state, id),
    tools: state.tools,
  })),
  mutant('I6', 'the instructions of a turn are ignored', 'modelEffect', (original) => (state, id) => ({
    ...original(state, id),
    instructions: state.instructions,
  })),
  mutant('I6', 'the model of a turn is ignored', 'modelEffect', (original) => (state, id) => ({
    ...original(state, id),
    model: undefined,
  })),
  mutant(
    'I6',
    'a turn continues although its preparation failed',
    'onTurnPrepared',
    (original) => (state, event) => original(state, without(event, 'problem')),
  ),
  mutant(
    'I6',
    'the tool choice of a turn uses up that of the run',
    'onCallsReply',
    (original) => (state, calls, checks) => {
      const choice = state.decision?.toolChoice;
      const next = original({ ...state }, calls, checks);
      const used = !state.agent && choice !== undefined && choice !== 'none' && next.state.lacked === undefined;
      return used ? withState(next, { choice: 'auto' }) : next;
    },
  ),
  mutant('I6', 'the closing turn is prepared too', 'askModel', (original) => (state) => {
    const { closing, rules } = state;
    return rules.prepared ? withState(original({ ...state, closing: undefined }), { closing }) : original(state);
  }),
  mutant(
    'I6',
    'the tools of a fork are ignored',
    'applyEvent',
    (original) => (state, event) => original(state, event.type === 'run-forked' ? without(event, 'tools') : event),
  ),
  mutant(
    'I6',
    'an answer may be invalid any number of times',
    'onTextReply',
    (original) => (state, content) =>
      original({ ...state, lacked: state.lacked === 'output' ? undefined : state.lacked }, content),
  ),
  mutant('I6', 'input that arrives during the validation of an answer is ignored', 'onOutputChecked', (original) => {
    return (state, event) => {
      if (state.agent || event.result.type === 'valid') return original(state, event);
      if (state.lacked === 'output') return original({ ...state, pending: [] }, event);
      return withState(original(state, event), { lacked: 'output' });
    };
  }),
  mutant('I6', 'a cancellation during the validation of an answer has another phase', 'cancelPhaseOf', (original) => {
    return (state) => (state.phase.type === 'validating' ? 'model' : original(state));
  }),
  mutant('I6', 'the usage of a child does not count', 'chargeCall', (original) => (state, event) => ({
    ...original(state, event),
    usage: state.usage,
  })),
  mutant(
    'I6',
    'two children share the same budget',
    'planCalls',
    (original) => (state, calls, checks) =>
      original(state, calls, checks).map((slot) => {
        const { call } = slot;
        if (slot.type !== 'queued' || !call.limits) return slot;
        const { index } = call;
        const [alone] = original(state, [calls[index]!], [checks[index]!]);
        return { ...slot, call: { ...call, limits: alone!.call.limits ?? call.limits } };
      }),
  ),
  mutant(
    'I6',
    'the budget of a child includes what is already used',
    'shareOfLimits',
    (original) => (state, part) => original({ ...state, calls: 0, usage: NO_USAGE, activeMs: 0 }, part),
  ),
  mutant(
    'I6',
    'a child receives the whole remaining budget',
    'shareOfLimits',
    (original) => (state) => original(state, 1),
  ),
];
