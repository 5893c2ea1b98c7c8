import { mutant, without, withState } from './mutant.ts';

/** Programs as models: replies without tokens, ends with a code of their own, references, and child runs on a ledger. */
export const programs = [
  mutant(
    'I6',
    'a limit of tokens fails the run of a model that uses none',
    'startTurn',
    (original) => (state) => original({ ...state, tokenless: false }),
  ),
  mutant(
    'I6',
    'a reply of unknown usage counts as one without tokens after others',
    'applyEvent',
    (original) => (state, event) => {
      const { tokenless } = state;
      const next = original(state, event);
      return event.type === 'model-replied' && tokenless ? withState(next, { tokenless }) : next;
    },
  ),
  mutant(
    'I6',
    'a program that ends the run fails with a code of the loop',
    'onModelFailed',
    (original) => (state, event) => original(state, { ...event, error: without(event.error, 'endsWith') }),
  ),
  mutant('I3', 'a run that a program ended can be resumed', 'onModelFailed', (original) => (state, event) => {
    const next = original(state, event);
    const { phase } = next.state;
    if (phase.type !== 'ended' || event.error.endsWith === undefined) return next;
    return withState(next, { phase: { ...phase, effect: event.effect } });
  }),
  mutant(
    'I6',
    'the program that a run is started with is lost',
    'onRunStarted',
    (original) => (event) => withState(original(event), { program: undefined }),
  ),
  mutant('I6', 'a changed program is not recorded', 'applyEvent', (original) => (state, event) => {
    const { program } = state;
    const next = original(state, event);
    return event.type === 'program-changed' ? withState(next, { program }) : next;
  }),
  mutant(
    'I5',
    'the program is not pinned',
    'pinnedBy',
    (original) => (event) => original(event.type === 'run-started' ? without(event, 'program') : event),
  ),
  mutant('I1', 'a result lacks the blob that it refers to', 'slotAfter', (original) => (state, slot, event) => {
    const next = original(state, slot, event);
    return next.type === 'settled' ? { ...next, result: without(next.result, 'blob') } : next;
  }),
  mutant(
    'I2',
    'a call refers to results in a run without references',
    'planCalls',
    (original) => (state, calls, checks) =>
      original({ ...state, rules: { ...state.rules, references: true } }, calls, checks),
  ),
  mutant('I2', 'a call lacks its references', 'planCalls', (original) => (state, calls, checks) => {
    return original({ ...state, rules: without(state.rules, 'references') }, calls, checks);
  }),
  mutant(
    'I6',
    'a child run draws on a ledger that the run does not have',
    'planCalls',
    (original) => (state, calls, checks) =>
      original({ ...state, rules: { ...state.rules, budgeted: true } }, calls, checks),
  ),
  mutant('I6', 'a child run on a ledger gets a share of the limits', 'planCalls', (original) => {
    return (state, calls, checks) => original({ ...state, rules: without(state.rules, 'budgeted') }, calls, checks);
  }),
  mutant(
    'live',
    'a ledger reserves tokens for a model that uses none',
    'performWithinBudget',
    (original) => (context, effect, settle, perform) => {
      const { options } = context;
      const model = without(options.model, 'usesTokens');
      original({ ...context, options: { ...options, model } }, effect, settle, (_, ...rest) =>
        perform(context, ...rest),
      );
    },
  ),
  mutant('I6', 'a child run on a ledger has no limit of time', 'timeLeft', () => () => ({})),
];
