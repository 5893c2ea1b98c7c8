import { mutant } from './mutant.ts';

/** I7 the cost of a step does not grow with the length of the history. */
export const cost = [
  mutant(
    'I7',
    'each message copies the history',
    'appendMessage',
    (original) => (history, message) =>
      original({ ...history, items: [...history.items], ids: new Map(history.ids) }, message),
  ),
  mutant('I7', 'each message serialises the whole history', 'appendMessage', (original) => (history, message) => {
    JSON.stringify(history.items.slice(0, history.length));
    return original(history, message);
  }),
  mutant(
    'I7',
    'an id is searched among all messages',
    'hasCallId',
    () => (history, id) => [...history.ids].some(([one, position]) => one === id && position < history.length),
  ),
  mutant('I7', 'the cut is searched from the beginning', 'compactionEnd', (original) => (state) => {
    for (const item of state.history.items) void item;
    return original(state);
  }),
  mutant(
    'I7',
    'a compaction visits the messages that it drops',
    'compactHistory',
    (original) => (state, to, summary) => {
      for (const item of state.history.items) void item;
      return original(state, to, summary);
    },
  ),
];
