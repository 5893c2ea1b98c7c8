import type { Mutant } from '../mutate.ts';

/** I8 an effect starts only after the event that caused it is durable. */
export const durable: readonly Mutant[] = [
  {
    property: 'I8',
    name: 'effects begin before their event is durable',
    file: 'loop/shell.ts',
    find: 'if (appended || durable) wait(appended, caused, told);',
    replace: 'if (durable) wait(appended, caused, told);',
  },
  {
    property: 'I8',
    name: 'effects begin before earlier events are durable',
    file: 'loop/shell.ts',
    find: 'Promise.all([durable, appended])',
    replace: 'Promise.all([appended])',
  },
  {
    property: 'I8',
    name: 'the result comes before everything is durable',
    file: 'loop/shell.ts',
    find: 'if (closed || durable || entries.length > 0) return;',
    replace: 'if (closed || entries.length > 0) return;',
  },
  {
    property: 'I8',
    name: 'effects begin after a cancel',
    file: 'loop/shell.ts',
    find: "if (state.phase.type === 'ended') return;",
    replace: '',
  },
  {
    property: 'I8',
    name: 'a cancel stops nothing that goes on',
    file: 'loop/shell.ts',
    find: "if (state.phase.type === 'ended') performer.abort();",
    replace: '',
  },
];
