import type { Mutant } from '../mutate.ts';

/** I5 replaying any prefix of the journal gives the state that was live at that point. */
export const replay: readonly Mutant[] = [
  {
    property: 'I5',
    name: 'a branch writes into the history of the trunk',
    file: 'loop/history.ts',
    find: 'const { items, ids } = history.length === history.items.length ? history : copied(history);',
    replace: 'const { items, ids } = history;',
  },
  {
    property: 'I5',
    name: 'the state depends on something that is not in the journal',
    file: 'loop/step.ts',
    find: 'return { ...state, at: Math.max(state.at, event.at), activeMs };',
    replace: 'return { ...state, at: Math.max(state.at, event.at), activeMs: activeMs + performance.now() };',
  },
  {
    property: 'I5',
    name: 'a branch remembers the call ids of the trunk',
    file: 'loop/history.ts',
    find: 'for (const [id, position] of history.ids) if (position < history.length) ids.set(id, position);',
    replace: 'for (const [id] of history.ids) ids.set(id, 0);',
  },
  {
    property: 'live',
    name: 'facts that did not apply are journaled',
    file: 'loop/shell.ts',
    find: 'if (next.state === state) return false;',
    replace: '',
  },
  {
    property: 'I5',
    name: 'a snapshot forgets the input that waits',
    file: 'loop/snapshot.ts',
    find: 'const { history, ...rest } = state;',
    replace: 'const { history, pending: _, ...rest } = state;',
  },
  {
    property: 'I5',
    name: 'a snapshot forgets the call ids',
    file: 'loop/snapshot.ts',
    find: 'history: messages.reduce(append, emptyHistory())',
    replace: 'history: { ...messages.reduce(append, emptyHistory()), ids: new Map() }',
  },
  {
    property: 'I5',
    name: 'a snapshot forgets what was decided',
    file: 'loop/snapshot.ts',
    find: 'return { ...NEW, ...rest, ',
    replace: 'return { ...NEW, ...rest, decision: undefined, ',
  },
  {
    property: 'live',
    name: 'what came after the snapshot is left out',
    file: 'loop/opening.ts',
    find: 'return { start: { state, seq: snapshot.seq }, entries };',
    replace: 'return { start: { state, seq: snapshot.seq }, entries: [] };',
  },
];
