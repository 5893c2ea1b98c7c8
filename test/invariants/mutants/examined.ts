import type { Exposure } from '@treadle/core';
import { mutant, without, withState } from './mutant.ts';

/** What a run has seen, and the filters of its results. */
export const examined = [
  mutant('I6', 'what a run has seen is forgotten', 'withExposure', () => (had, seen) => seen ?? had),
  mutant('I6', 'only one of both exposures is kept', 'withExposure', () => (had, seen) => had ?? seen),
  mutant('I9', 'the call that settles first is the cause', 'isEarlier', () => () => false),
  mutant('I6', 'the last turn is the cause', 'isEarlier', () => (one, other) => one.effect !== other?.effect),
  mutant('I6', 'what a result from outside exposes is lost', 'chargeCall', (original) => (state, event) => {
    return original(state, event.type === 'client-result-given' ? without(event, 'exposes') : event);
  }),
  mutant('I6', 'what a result of a tool exposes is lost', 'chargeCall', (original) => (state, event) => {
    if (event.type !== 'tool-settled' || event.result.type !== 'result') return original(state, event);
    return original(state, { ...event, result: without(event.result, 'exposes') });
  }),
  mutant(
    'I6',
    'what a run has seen before is lost',
    'onRunStarted',
    (original) => (event) => withState(original(event), { exposure: undefined }),
  ),
  mutant('I6', 'a compaction forgets what a run has seen', 'compactHistory', (original) => (state, to, summary) => {
    return { ...original(state, to, summary), exposure: undefined };
  }),
  mutant(
    'I5',
    'what a run has seen before is not pinned',
    'pinnedBy',
    (original) => (event) => original(event.type === 'run-started' ? without(event, 'exposure') : event),
  ),
  mutant(
    'I5',
    'a snapshot lacks what the run has seen',
    'snapshotOf',
    (original) => (state, seq) => original({ ...state, exposure: undefined }, seq),
  ),
  mutant('live', 'the policy is not told what the run has seen', 'judgeChecked', (original) => (described, judging) => {
    return original(described, { ...judging, state: { ...judging.state, exposure: undefined } });
  }),
  mutant('live', 'what a call exposes is not found out', 'exposureOf', () => (): Exposure | undefined => undefined),
  mutant('live', 'results are not examined', 'needsExamining', () => () => false),
  mutant('live', 'results from outside are not examined', 'recordedAnswer', (original) => (state, event) => {
    return original(state, event, undefined);
  }),
  mutant('live', 'a filter that fails lets the result pass', 'decisionOf', (original) => async (...filtering) => {
    const decision = await original(...filtering);
    return decision?.note === 'it failed' ? undefined : decision;
  }),
  mutant('live', 'a refused result is recorded', 'refusedResult', () => (result) => result),
];
