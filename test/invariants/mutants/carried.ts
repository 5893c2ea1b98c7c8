import { accepts, mutant, without, withState } from './mutant.ts';

/** What a run carries from turn to turn: its memory, tools that change, how it is narrowed, who it is handed to, and what guards it. */
export const carried = [
  mutant(
    'I6',
    'memory that a tool of a plain run changed is not stored',
    'withMemory',
    (original) => (state, changes) => ({
      ...original(state, changes),
      memory: state.memory,
    }),
  ),
  mutant(
    'I6',
    'a result replaces the whole memory of a plain run',
    'withMemory',
    (original) => (state, changes) => original({ ...state, memory: undefined }, changes),
  ),
  mutant(
    'I6',
    'a key that is removed from the memory stays',
    'withMemory',
    (original) => (state, changes) =>
      original(state, Object.fromEntries(Object.entries(changes).filter(([, value]) => value !== null))),
  ),
  mutant(
    'I6',
    'the initial memory is lost',
    'onRunStarted',
    (original) => (event) => withState(original(event), { memory: undefined }),
  ),
  mutant(
    'live',
    'a snapshot lacks the memory of a plain run',
    'snapshotOf',
    (original) => (state, seq) => original({ ...state, memory: undefined }, seq),
  ),
  mutant('live', 'calls wait for all memory', 'memoryResources', (original) => (remembers, input) => {
    return original(typeof remembers === 'function' ? ['run', 'attempt'] : remembers, input);
  }),
  mutant('live', 'a call waits for no memory that it names', 'memoryResources', (original) => (remembers, input) => {
    return typeof remembers === 'function' ? [] : original(remembers, input);
  }),
  mutant('live', 'a call gets memory that it does not name', 'memoryKeysOf', () => () => ['run', 'attempt']),
  mutant(
    'I5',
    'the initial memory is not pinned',
    'pinnedBy',
    (original) => (event) => original(event.type === 'run-started' ? without(event, 'memory') : event),
  ),
  mutant(
    'I6',
    'tools that change from the next turn on change at once',
    'onToolsChanged',
    (original) => (state, event) => original(state, without(event, 'from')),
  ),
  mutant('I6', 'changed tools are never offered', 'askModel', (original) => (state) => {
    const { tools } = state;
    return original({ ...state, nextTools: state.nextTools && tools });
  }),
  mutant(
    'I6',
    'changed tools are offered once more than they should be',
    'askModel',
    (original) => (state) => withState(original({ ...state }), { nextTools: state.nextTools }),
  ),
  mutant(
    'I6',
    'a change at once drops the one for the next turn',
    'onToolsChanged',
    (original) => (state, event) => original(event.from ? state : { ...state, nextTools: undefined }, event),
  ),
  mutant('I6', 'a fork keeps the change of tools that it replaces', 'applyEvent', (original) => (state, event) => {
    const next = original(state, event);
    return event.type === 'run-forked' ? withState(next, { nextTools: state.nextTools }) : next;
  }),
  mutant(
    'I5',
    'a snapshot lacks the tools of the next turn',
    'snapshotOf',
    (original) => (state, seq) => original({ ...state, nextTools: undefined }, seq),
  ),
  mutant(
    'I2',
    'a narrowing is only shown to the model',
    'isToolAllowed',
    (original) => (state, name) => original({ ...state, narrowed: undefined }, name),
  ),
  mutant(
    'I6',
    'the model is offered what it may not call',
    'offeredTools',
    (original) => (state) => original({ ...state, narrowed: undefined }),
  ),
  mutant('I6', 'a narrowing applies at once', 'chargeCall', (original) => (state, event) => {
    const charged = original(state, event);
    return { ...charged, narrowed: charged.narrowing };
  }),
  mutant(
    'I6',
    'a narrowing never applies',
    'askModel',
    (original) => (state) => withState(original({ ...state, narrowing: undefined }), { narrowing: state.narrowing }),
  ),
  mutant(
    'I6',
    'a narrowing replaces the one before',
    'withNarrowing',
    (original) => (had, given) => original(undefined, given) ?? had,
  ),
  mutant(
    'I6',
    'a later narrowing is ignored',
    'withNarrowing',
    (original) => (had, given) => had ?? original(had, given),
  ),
  mutant('I6', 'only the first of several narrowings is kept', 'withNarrowing', (original) => (had, given) => {
    return original(had, Array.isArray(given) ? given.slice(0, 1) : given);
  }),
  mutant('I6', 'what belongs to the run is lifted', 'withoutNarrowing', (original) => (had, source) => {
    return original(
      had?.map(({ fixed: _, ...one }) => one),
      source,
    );
  }),
  mutant('live', 'the highest autonomy applies', 'lowestAutonomy', () => (narrowings) => {
    return [narrowings ?? []]
      .flat()
      .flatMap(({ autonomy }) => autonomy ?? [])
      .toSorted()
      .at(-1);
  }),
  mutant('live', 'the autonomy of a narrowing is lost', 'lowestAutonomy', () => () => undefined),
  mutant('I6', 'a narrowing widens the tools', 'isWithinNarrowing', (original) => (state, name) => {
    return state.narrowed?.some((one) => original({ ...state, narrowed: [one] }, name)) ?? true;
  }),
  mutant(
    'I6',
    'a narrowing also takes the tools of the loop',
    'isWithinNarrowing',
    (original) => (state, name) => original({ ...state, rules: without(state.rules, 'agent') }, name),
  ),
  mutant(
    'I6',
    'a narrowing also takes the tools that are marked',
    'isWithinNarrowing',
    (original) => (state, name) => original({ ...state, tools: [] }, name),
  ),
  mutant('I6', 'a mark counts in a run without marks', 'isWithinNarrowing', (original) => (state, name) => {
    const marked = state.tools.some((facts) => facts.name === name && facts.unnarrowed);
    return marked || original(state, name);
  }),
  mutant('I6', 'the name of a tool keeps it callable', 'isWithinNarrowing', (original) => (state, name) => {
    return name === 'question' || original(state, name);
  }),
  mutant('I6', 'what a narrowing takes away stays', 'lets', (original) => (one, name) => {
    return original(without(one, 'without'), name);
  }),
  mutant('I6', 'a narrowing that takes tools away has no list', 'lets', (original) => (one, name) => {
    return original(one.without ? without(one, 'tools') : one, name);
  }),
  mutant('I2', 'calls that only a narrowing judges are not judged', 'isNarrowingJudged', () => () => false),
  mutant('I2', 'the rules of a narrowing do not make calls judged', 'isNarrowingJudged', () => (narrowed) => {
    return narrowed.some(({ ask }) => ask);
  }),
  mutant('live', 'nobody is asked about calls that a narrowing asks about', 'askingPolicy', (original) => () => {
    return original([], 'nobody');
  }),
  mutant('I6', 'lifting a source lifts all', 'withoutNarrowing', (original) => (had) => original(had, undefined)),
  mutant('I6', 'lifting a source lifts nothing', 'withoutNarrowing', (original) => (had, source) => {
    return source === undefined ? original(had, source) : had;
  }),
  mutant(
    'I3',
    'a source that narrows nothing can be lifted',
    'isNarrowedBy',
    (original) => (state) => original(state, undefined),
  ),
  mutant(
    'I6',
    'a choice that the narrowing makes impossible still applies',
    'narrowedChoice',
    () => (_, choice) => choice,
  ),
  mutant('I6', 'lifting keeps the narrowing of this turn', 'applyEvent', (original) => (state, event) => {
    const { narrowed } = state;
    const next = original(state, event);
    return event.type === 'narrowing-lifted' ? withState(next, { narrowed }) : next;
  }),
  mutant('I6', 'lifting keeps the narrowing of the next turn', 'applyEvent', (original) => (state, event) => {
    const { narrowing } = state;
    const next = original(state, event);
    return event.type === 'narrowing-lifted' ? withState(next, { narrowing }) : next;
  }),
  mutant(
    'I3',
    'a run that is not narrowed can be lifted',
    'fits',
    accepts(['narrowing-lifted'], ({ phase }) => phase.type !== 'new' && phase.type !== 'ended'),
  ),
  mutant(
    'I6',
    'the initial narrowing is lost',
    'onRunStarted',
    (original) => (event) => original(without(event, 'narrow')),
  ),
  mutant(
    'I6',
    'what people have allowed in the conversation is lost',
    'onRunStarted',
    (original) => (event) => original(without(event, 'grants')),
  ),
  mutant('I2', 'a grant of the conversation covers anything', 'onRunStarted', (original) => (event) => {
    const touches = [{ type: 'unknown' as const }, { type: 'read' as const, path: '/a' }];
    const grants = event.tools.map((facts) => {
      const definition = event.grants?.find(({ tool }) => tool === facts.name)?.definition ?? '';
      return { tool: facts.name, touches, definition, by: ['ann', 'bob', 'cid'] };
    });
    return event.grants ? original({ ...event, grants }) : original(event);
  }),
  mutant(
    'I5',
    'what people have allowed in the conversation is not pinned',
    'pinnedBy',
    (original) => (event) => original(event.type === 'run-started' ? without(event, 'grants') : event),
  ),
  mutant(
    'I5',
    'a snapshot lacks the narrowing',
    'snapshotOf',
    (original) => (state, seq) => original({ ...state, narrowing: undefined }, seq),
  ),
  mutant(
    'I5',
    'the initial narrowing is not pinned',
    'pinnedBy',
    (original) => (event) => original(event.type === 'run-started' ? without(event, 'narrow') : event),
  ),
  mutant(
    'I6',
    'the input is not checked',
    'onRunStarted',
    (original) => (event) =>
      withState(original({ ...event, rules: without(event.rules, 'guardrails') }), { rules: event.rules }),
  ),
  mutant(
    'I4',
    'an answer is accepted without a check',
    'acceptAnswer',
    (original) => (state, answer) =>
      withState(original({ ...state, rules: without(state.rules, 'guardrails') }, answer), { rules: state.rules }),
  ),
  mutant(
    'I6',
    'only the first guardrail counts',
    'onGuardrailsChecked',
    (original) => (state, event) => original(state, { ...event, verdicts: event.verdicts.slice(0, 1) }),
  ),
  mutant(
    'I6',
    'a run without a verdict continues',
    'onGuardrailsChecked',
    (original) => (state, event) =>
      original(state, event.verdicts.length === 0 ? { ...event, verdicts: [{ type: 'pass' }] } : event),
  ),
  mutant(
    'I6',
    'input that arrives while an answer is checked is not answered',
    'onGuardrailsChecked',
    (original) => (state, event) =>
      state.phase.type === 'guarding' && state.phase.answer
        ? original({ ...state, pending: [] }, event)
        : original(state, event),
  ),
  mutant(
    'I4',
    'a stopped answer is the output of the run',
    'onGuardrailsChecked',
    (original) => (state, event) => withState(original(state, event), { output: state.output }),
  ),
  mutant(
    'I4',
    'an answer whose check was cancelled is the output of the run',
    'endMidTurn',
    (original) =>
      (state, ...end) =>
        withState(original(state, ...end), { output: state.output }),
  ),
  mutant(
    'I3',
    'a verdict on something else counts',
    'fits',
    accepts(['guardrails-checked'], ({ phase }) => phase.type === 'guarding'),
  ),
  mutant(
    'I6',
    'the first handoff of a turn counts',
    'withHandoff',
    (original) => (state, handoff, effect) => (state.handoff ? state : original(state, handoff, effect)),
  ),
  mutant(
    'I6',
    'the handoff that settles last counts',
    'withHandoff',
    (original) => (state, handoff, effect) => original({ ...state, handoff: undefined }, handoff, effect),
  ),
  mutant('I6', 'a handoff keeps the tools', 'withHandoff', (original) => (state, handoff, effect) => ({
    ...original(state, handoff, effect),
    nextTools: state.nextTools,
  })),
  mutant('I6', 'a handoff applies at once', 'withHandoff', (original) => (state, handoff, effect) => {
    const { agent } = handoff;
    return { ...original(state, handoff, effect), handedTo: agent };
  }),
  mutant('I6', 'a handoff keeps the instructions', 'takeOver', (original) => (state, handoff) => {
    const { instructions } = state;
    original(state, handoff);
    state.instructions = instructions;
  }),
  mutant('I6', 'a handoff keeps the model', 'takeOver', (original) => (state, handoff) => {
    const { model } = state;
    original(state, handoff);
    state.model = model;
  }),
  mutant('I6', 'an agent takes over in every turn', 'takeOver', (original) => (state, handoff) => {
    original(state, handoff);
    state.handoff = handoff;
  }),
  mutant('I6', 'a fork does not change the agent that takes over', 'forkedAgent', () => () => ({})),
  mutant(
    'I5',
    'a snapshot lacks the agent that takes over',
    'snapshotOf',
    (original) => (state, seq) => original({ ...state, handoff: undefined }, seq),
  ),
];
