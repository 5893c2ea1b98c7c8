import { accepts, mutant, withState } from './mutant.ts';

/** Budgets: an effect that the ledger refuses ends the run, and nothing is used that the ledger does not have. */
export const budget = [
  mutant(
    'live',
    'an effect starts without a reservation',
    'performWithinBudget',
    () => (context, effect, settle, perform) => perform(context, effect, settle),
  ),
  mutant('live', 'a model call that failed is always released', 'isUnused', () => () => true),
  mutant('live', 'a reply without token counts is free', 'amountsOf', (original) => (usage) => ({
    ...original(usage),
    tokens: usage.inputTokens + usage.outputTokens,
  })),
  mutant(
    'live',
    'the interrupted attempt of a repeated effect is free',
    'chargeOf',
    (original) => (reservation, used) => original({ ...reservation, repeated: false }, used),
  ),
  mutant('live', 'what is reserved can be reserved again', 'refusalOf', (original) => (name, found, amounts) => {
    return original(
      name,
      found && { ...found, reserved: { ...found.reserved, tokens: 0, cost: 0, calls: 0 } },
      amounts,
    );
  }),
  mutant('live', 'the output of a model is not reserved', 'mostUsedByModel', (original) => (context, model, input) => {
    return original({ ...context, opening: { ...context.opening, settings: {} } }, model, input);
  }),
  mutant(
    'I8',
    'an effect starts when it is reserved, although the run was cancelled',
    'reserveAndPerform',
    (original) => (context, effect, settle, perform) =>
      original({ ...context, controller: new AbortController() }, effect, settle, (_, ...rest) =>
        perform(context, ...rest),
      ),
  ),
  mutant(
    'live',
    'an effect starts when it is reserved, although the deadline has passed',
    'reserveAndPerform',
    (original) => (context, effect, settle, perform) => {
      const { opening } = context;
      const timeless = { ...opening, rules: { ...opening.rules, limits: {} } };
      original({ ...context, opening: timeless }, effect, settle, (_, ...rest) => perform(context, ...rest));
    },
  ),
  mutant(
    'I3',
    'the budget refuses a call that is parked or verified',
    'fits',
    accepts(['budget-refused'], (_, __, slot) => slot?.type === 'parked' || slot?.type === 'verifying'),
  ),
  mutant(
    'I3',
    'the budget refuses an earlier model call',
    'fits',
    accepts(['budget-refused'], ({ phase }) => phase.type === 'model'),
  ),
  mutant('I4', 'a refused budget cancels the run', 'applyEvent', (original) => (state, event) => {
    return original(state, event.type === 'budget-refused' ? { type: 'cancel-requested', at: event.at } : event);
  }),
  mutant('I1', 'a refused budget leaves calls without results', 'applyEvent', (original) => (state, event) => {
    const next = original(state, event);
    return event.type === 'budget-refused' ? withState(next, { history: state.history }) : next;
  }),
  mutant(
    'I4',
    'an approval of a call also allows it to exceed its budget',
    'approvalDigest',
    (original) => (tools, call) => original(tools, call),
  ),
  mutant('I4', 'any answer lets a model call exceed its budget', 'raisedPhase', () => ({ of }, { type }) => {
    return type === 'question-answered' ? of : undefined;
  }),
  mutant('I4', 'a model call exceeds its budget if nobody answers', 'raisedPhase', (original) => (phase, event) => {
    return event.type === 'deadline-passed' ? phase.of : original(phase, event);
  }),
  mutant('I2', 'what exceeds a budget is allowed for the rest of the run', 'escalatedSlot', (original) => {
    return (state, slot, event) => {
      const { onlyThisCall: _, ...asking } = original(state, slot, event);
      return asking;
    };
  }),
  mutant('I6', 'a call that exceeds its budget counts twice', 'escalatedSlot', (original) => (state, slot, event) => {
    const { raises: _, ...asking } = original(state, slot, event);
    return asking;
  }),
  mutant('I3', 'a call that has asked or was parked is asked about', 'fitsEscalation', (original) => {
    return (phase, slot, event) => slot?.type === 'running' || original(phase, slot, event);
  }),
];
