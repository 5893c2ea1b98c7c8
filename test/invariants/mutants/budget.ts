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
];
