import type { Mutant } from '../mutate.ts';

/** I8 an effect starts only after the event that caused it is durable. */
export const durable: readonly Mutant[] = [
  {
    property: 'I8',
    name: 'effects begin before their event is durable',
    file: 'loop/shell.ts',
    find: 'if (appended || durable) wait(appended, batch);',
    replace: 'if (durable) wait(appended, batch);',
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
    find: 'if (closed || durable || taken.length > 0) return;',
    replace: 'if (closed || taken.length > 0) return;',
  },
  {
    property: 'I8',
    name: 'effects begin after a cancel',
    file: 'loop/shell.ts',
    find: "if (state.phase.type !== 'ended') performer.perform(effect, feed);",
    replace: 'if (effect.id) performer.perform(effect, feed);',
  },
  {
    property: 'I8',
    name: 'a cancel stops nothing that goes on',
    file: 'loop/shell.ts',
    find: 'performer.abort();\n    if (phase.type',
    replace: 'if (phase.type',
  },
  {
    property: 'I8',
    name: 'a snapshot is kept of what is not durable',
    file: 'loop/shell.ts',
    find: 'if (appended || durable) wait(appended, batch);',
    replace:
      'if (seq >= snapshotAt) keepSnapshot(batch.at(-1)!);\n        if (appended || durable) wait(appended, batch);',
  },
  {
    property: 'I8',
    name: 'effects begin after the run was left',
    file: 'loop/shell.ts',
    find: 'if (detached) return;',
    replace: '',
  },
  {
    property: 'I8',
    name: 'what goes on is not told that the run was left',
    file: 'loop/shell.ts',
    find: 'detached = true;\n    performer.abort(DETACHED);',
    replace: 'detached = true;',
  },
];
