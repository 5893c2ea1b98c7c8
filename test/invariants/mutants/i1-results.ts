import { mutant, without } from './mutant.ts';

/** I1 every call has exactly one result, in call order, before the next model turn. */
export const results = [
  mutant(
    'I1',
    'the result of a call over the cap is dropped',
    'resultsMessage',
    (original) => (slots, rules) =>
      original(
        slots.filter(({ how }) => how !== 'capped'),
        rules,
      ),
  ),
  mutant(
    'I1',
    'results are recorded in the wrong order',
    'resultsMessage',
    (original) => (slots, rules) => original(slots.toReversed(), rules),
  ),
  mutant(
    'I1',
    'a run that is stopped leaves calls unanswered',
    'endMidTurn',
    (original) => (state, outcome, why) => original({ ...state, phase: { type: 'model', effect: '' } }, outcome, why),
  ),
  mutant(
    'I1',
    'an id that occurs twice in one reply is kept',
    'acceptablePart',
    (original) => (history, part, inReply, turn) => {
      if (part.type !== 'tool-call' || part.id === '') return original(history, part, inReply, turn);
      inReply?.add(part.id);
      return original(history, part, new Set(), turn);
    },
  ),
  mutant(
    'I1',
    'an id of an earlier turn is kept',
    'acceptablePart',
    (original) =>
      (history, ...rest) =>
        original({ ...history, ids: new Map() }, ...rest),
  ),
  mutant('I1', 'an empty id is kept', 'acceptablePart', (original) => (history, part, inReply, turn) => {
    const accepted = original(history, part, inReply, turn);
    return part.type === 'tool-call' && part.id === '' ? { ...part, ...accepted, id: '' } : accepted;
  }),
  mutant('I1', 'the error facts of a result from outside are lost', 'slotAfter', (original) => (state, slot, event) => {
    if (event.type !== 'client-result-given') return original(state, slot, event);
    const { type, at, effect, content, isError } = event;
    return original(state, slot, { type, at, effect, content, isError });
  }),
  mutant(
    'I1',
    'an error that a client returns is recorded as a success',
    'slotAfter',
    (original) => (state, slot, event) =>
      original(state, slot, event.type === 'client-result-given' ? { ...event, isError: false } : event),
  ),
  mutant(
    'I1',
    'input that arrives too late is lost at the end',
    'endRun',
    (original) => (state, outcome) => original({ ...state, pending: [] }, outcome),
  ),
  mutant('I1', 'a name that providers reject is kept', 'acceptablePart', (original) => (history, part, ...rest) => {
    const accepted = original(history, part, ...rest);
    return part.type === 'tool-call' && part.name ? { ...part, ...accepted, name: part.name } : accepted;
  }),
  mutant('I1', 'a compaction separates a call from its result', 'compactionEnd', (original) => (state) => {
    const to = original(state);
    return to && to + 1;
  }),
  mutant('I1', 'a compaction drops the task', 'compactHistory', (original) => (state, to, summary) => ({
    ...original({ ...state, inputLength: 0 }, to, summary),
    inputLength: state.inputLength,
  })),
  mutant('I1', 'a compaction keeps only the newest turn', 'compactionEnd', (original) => (state) => {
    const { rules } = state;
    return original({ ...state, rules: { ...rules, compaction: { ...rules.compaction, keepTurns: 1 } } });
  }),
  mutant('I1', 'a compaction leaves out the summary', 'compactHistory', (original) => (state, to, summary) => {
    const { history, ...shorter } = original(state, to, summary);
    const items = history.items.filter((_, index) => index !== state.inputLength);
    return { ...shorter, history: { ...history, items, length: items.length } };
  }),
  mutant(
    'I1',
    'a compaction replaces a single message',
    'compactionEnd',
    (original) => (state) => original(state) ?? original({ ...state, inputLength: state.inputLength - 1 }),
  ),
  mutant(
    'I1',
    'input that arrives during a compaction misses its turn',
    'landInput',
    (original) => (state) => (state.phase.type === 'compacting' ? state : original(state)),
  ),
  mutant(
    'I1',
    'a refused call has no error type',
    'refusedSlot',
    (original) => (call, text, how) => original(call, text, how, undefined as never),
  ),
  mutant('I1', 'a denied call is reported as failed', 'refusedSlot', (original) => (call, text, how, errorType) => {
    return original(call, text, how, errorType === 'denied' ? 'execution_failed' : errorType);
  }),
  mutant('I1', 'the exit code of a command is lost', 'withErrorFacts', (original) => (result, facts) => {
    return original(result, without(facts, 'exitCode'));
  }),
  mutant(
    'I1',
    'results of a run of an earlier version get error types',
    'resultsMessage',
    (original) => (slots, rules) => original(slots, { ...rules, errorTypes: true }),
  ),
  mutant('I1', 'data of the provider of a call is lost', 'acceptablePart', (original) => (history, part, ids, turn) => {
    const accepted = original(history, part, ids, turn);
    return accepted?.type === 'tool-call' ? without(accepted, 'provider') : accepted;
  }),
];
