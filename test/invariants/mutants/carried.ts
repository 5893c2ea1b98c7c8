import { mutant, without, withState } from './mutant.ts';

/** What a run carries from turn to turn: its memory, and tools that change. */
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
];
