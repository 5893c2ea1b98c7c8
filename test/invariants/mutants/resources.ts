import { accepts, mutant, without } from './mutant.ts';

/** Processes that tools have started for a run: the state has those that have not ended. */
export const resources = [
  mutant('I4', 'a process that has ended is still recorded', 'resourcesAfter', (original) => (state, event) => {
    return event.type === 'resource-closed' ? (state.resources ?? []).slice() : original(state, event);
  }),
  mutant('I4', 'a process replaces those of other names', 'resourcesAfter', (original) => (state, event) => {
    return original(event.type === 'resource-opened' ? { ...state, resources: undefined } : state, event);
  }),
  mutant('I4', 'a process is recorded for the wrong run', 'resourcesAfter', (original) => (state, event) => {
    return original(state, event.type === 'resource-opened' ? { ...event, runId: state.runId } : event);
  }),
  mutant(
    'I4',
    'a process that the run takes over is not recorded',
    'onRunStarted',
    (original) => (event) => original(without(event, 'resources')),
  ),
  mutant(
    'I3',
    'a process that is not there is closed',
    'fits',
    accepts(['resource-closed'], ({ phase }) => phase.type !== 'new' && phase.type !== 'ended'),
  ),
  mutant(
    'I3',
    'a run that has ended opens a resource',
    'fits',
    accepts(['resource-opened'], ({ phase }) => phase.type === 'ended'),
  ),
  mutant(
    'I5',
    'a snapshot lacks the processes',
    'snapshotOf',
    (original) => (state, seq) => original({ ...state, resources: undefined }, seq),
  ),
];
