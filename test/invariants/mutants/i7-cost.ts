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
    find: 'rolling: rollMessage(history.rolling, message)',
    replace: 'rolling: [...history.items].reduce(rollMessage, EMPTY_ROLLING)',
  },
  {
    property: 'I7',
    name: 'an id is looked for among all messages',
    file: 'loop/history.ts',
    find: 'return (history.ids.get(id) ?? history.length) < history.length;',
    replace: 'return [...history.ids].some(([one, position]) => one === id && position < history.length);',
  },
];
