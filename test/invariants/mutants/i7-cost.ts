import type { Mutant } from '../mutate.ts';

/** I7 the cost of a step does not grow with the length of the history. */
export const cost: readonly Mutant[] = [
  {
    property: 'I7',
    name: 'each message copies the history',
    file: 'loop/history.ts',
    find: 'history.length === history.items.length ? history : copied(history)',
    replace: 'copied(history)',
  },
  {
    property: 'I7',
    name: 'each message hashes the whole history',
    file: 'loop/history.ts',
    find: 'rolling: rolled(history.rolling, message)',
    replace: 'rolling: items.reduce(rolled, EMPTY_ROLLING)',
  },
  {
    property: 'I7',
    name: 'an id is looked for among all messages',
    file: 'loop/history.ts',
    find: 'return (history.ids.get(id) ?? history.length) < history.length;',
    replace: 'return [...history.ids].some(([one, position]) => one === id && position < history.length);',
  },
  {
    property: 'I7',
    name: 'where to cut is looked for from the beginning',
    file: 'loop/compaction.ts',
    find: 'let to = history.length;',
    replace: 'let to = history.items.map((message) => message).length;',
  },
  {
    property: 'I7',
    name: 'a compaction goes through what it drops',
    file: 'loop/compaction.ts',
    find: 'const { items, length } = state.history;',
    replace: 'const { items, length } = state.history;\n  items.forEach(() => {});',
  },
];
