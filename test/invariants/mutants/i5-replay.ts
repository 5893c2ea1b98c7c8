import type { Event, Message } from '@treadle/core';
import { mutant } from './mutant.ts';

/** What the start of a run pins. */
const PINNED = 'rules tools model settings instructions principal session task trace labels'.split(' ');

/** I5 replaying any prefix of the journal gives the state that was live at that point. */
export const replay = [
  mutant('I5', 'a branch writes into the history of the trunk', 'appendMessage', (original) => (history, message) => {
    const { items, ids, length } = history;
    if (length === items.length) return original(history, message);
    const appended = original(history, message);
    (items as Message[]).push(message);
    return { ...appended, items, ids };
  }),
  mutant('I5', 'the state depends on something outside of the journal', 'withTime', (original) => {
    let steps = 0;
    return (state, event) => {
      const timed = original(state, event);
      return { ...timed, activeMs: timed.activeMs + steps++ };
    };
  }),
  mutant('I5', 'a branch keeps the call ids of the trunk', 'copyView', (original) => (history) => ({
    ...original(history),
    ids: new Map(Array.from(history.ids, ([id]) => [id, 0])),
  })),
  mutant('live', 'events that do not apply are journaled', 'startShell', (original, core) => (context, emit) => {
    const { journal, lease, runId, opening } = context;
    let next = opening.seq;
    let added = 0;
    let done = false;
    const record =
      (feed: (event: Event) => boolean) =>
      (event: Event): boolean => {
        const taken = feed(event);
        const state = driver.state();
        if (taken || done) return taken;
        void journal.append(runId, [core.entryOf(next++, event, { state, effects: [] })], lease);
        added++;
        return taken;
      };
    const shifted: typeof journal = {
      ...journal,
      append(id, entries, holder) {
        next = entries.at(-1)!.seq + added + 1;
        return journal.append(
          id,
          entries.map((entry) => ({ ...entry, seq: entry.seq + added })),
          holder,
        );
      },
    };
    const driver = original({ ...context, journal: shifted }, emit);
    const close = (): void => {
      done = true;
    };
    driver.done.then(close, close);
    return { ...driver, feed: record(driver.feed) };
  }),
  mutant(
    'I5',
    'a snapshot lacks the input that waits',
    'snapshotOf',
    (original) => (state, seq) => original({ ...state, pending: [] }, seq),
  ),
  mutant('I5', 'a snapshot lacks the call ids', 'restoredState', (original) => (snapshot) => {
    const state = original(snapshot);
    return state && { ...state, history: { ...state.history, ids: new Map() } };
  }),
  mutant('I5', 'a snapshot lacks the decision for the turn', 'restoredState', (original) => (snapshot) => {
    const state = original(snapshot);
    return state && { ...state, decision: undefined };
  }),
  mutant('I5', 'replay does not compare what the start pins', 'pinnedDigest', () => () => undefined),
  ...PINNED.map((field) =>
    mutant('I5', `replay does not compare the ${field} of the start`, 'pinnedBy', (original) => (event) => {
      const values = original(event);
      return values && Object.fromEntries(Object.entries(values).filter(([name]) => name !== field));
    }),
  ),
  mutant('live', 'entries after the snapshot are ignored', 'readEntries', (original) => async (journal, runId) => {
    const { start, entries } = await original(journal, runId);
    return { start, entries: start.seq > 0 ? [] : entries };
  }),
  mutant('I5', 'the rules of the policy are not covered by the digest', 'pinnedBy', (original) => (event) => {
    const pinned = original(event);
    return pinned && 'policy' in pinned ? { ...pinned, policy: undefined } : pinned;
  }),
];
