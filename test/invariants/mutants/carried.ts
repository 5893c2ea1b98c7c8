import { mutant, without, withState } from './mutant.ts';

/** What a run carries from turn to turn: its memory. */
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
];
