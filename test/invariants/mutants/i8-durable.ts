import type { State } from '@treadle/core';
import type { RunContext, Shell } from '../core-functions.ts';
import type { Core } from '../core.ts';
import type { Replacement } from '../mutable-core.ts';
import { mutant } from './mutant.ts';

/** I8 an effect starts only after the event that caused it is durable. */
export const durable = [
  mutant(
    'I8',
    'effects start before their event is durable',
    'startShell',
    (original) =>
      (context, ...rest) =>
        original(
          appending(context, (append) => {
            void append();
          }),
          ...rest,
        ),
  ),
  mutant('I8', 'effects start before earlier events are durable', 'startShell', (original) => (context, ...rest) => {
    let settleEarlier = (): void => {};
    return original(
      appending(context, (append) => {
        const appended = append();
        const settlePrevious = settleEarlier;
        if (!appended) return settlePrevious();
        const { promise, resolve, reject } = Promise.withResolvers<void>();
        settleEarlier = () => {
          settlePrevious();
          resolve();
        };
        appended.then(settleEarlier, reject);
        return promise;
      }),
      ...rest,
    );
  }),
  mutant(
    'I8',
    'the result is returned before everything is durable',
    'startShell',
    (original, { isPaused }) =>
      (context, ...rest) => {
        const { promise: early, resolve } = Promise.withResolvers<State>();
        const shell = original(
          appending(context, (append) => {
            const appended = append();
            const state = shell.state();
            if (state.phase.type === 'ended' || isPaused(state)) resolve(state);
            return appended;
          }),
          ...rest,
        );
        return { ...shell, done: Promise.race([early, shell.done]) };
      },
  ),
  mutant(
    'I8',
    'effects start after a cancellation',
    'startShell',
    startingLate((state) => state.phase.type === 'ended'),
  ),
  mutant('I8', 'a cancellation aborts nothing', 'abortEffects', (original) => (context, reason) => {
    if (reason !== undefined) original(context, reason);
  }),
  mutant(
    'I8',
    'a snapshot is stored before its entries are durable',
    'startShell',
    (original, core) =>
      (context, ...rest) => {
        const { journal, runId } = context;
        const shell = original(
          appending(context, (append, seq) => {
            const appended = append();
            if (seq + 1 >= journal.snapshotFrom!)
              void journal.writeSnapshot!(runId, core.snapshotOf(shell.state(), seq + 1));
            return appended;
          }),
          ...rest,
        );
        return shell;
      },
  ),
  mutant(
    'I8',
    'effects start after the run was detached',
    'startShell',
    startingLate((_, detached) => detached),
  ),
  mutant(
    'I8',
    'effects in progress are not aborted when the run is detached',
    'abortEffects',
    (original) => (context, reason) => {
      if (reason === undefined) original(context);
    },
  ),
];

/** The same context with another way to append. `seq`: the last entry that is appended. */
function appending(
  context: RunContext,
  change: (append: () => void | Promise<void>, seq: number) => void | Promise<void>,
): RunContext {
  const { journal } = context;
  return {
    ...context,
    journal: {
      ...journal,
      append: (runId, entries, lease) => change(() => journal.append(runId, entries, lease), entries.at(-1)!.seq),
    },
  };
}

/** Starts effects once their event is durable, also when the run is over by then. */
function startingLate(isOver: (state: State, detached: boolean) => boolean): Replacement<'startShell'> {
  return (original, { outstanding, performEffect }: Core) =>
    (context: RunContext, emit?: unknown): Shell => {
      let detached = false;
      const { journal } = context;
      const shell: Shell = original(
        {
          ...context,
          journal: {
            ...journal,
            append(runId, entries, holder) {
              const appended = journal.append(runId, entries, holder);
              const effects = outstanding(shell.state()).filter(({ id }) =>
                entries.some(({ issued }) => issued.includes(id)),
              );
              const start = (): void => {
                if (!isOver(shell.state(), detached)) return;
                for (const effect of effects) performEffect(context, effect, shell.feed);
              };
              appended?.then(start, () => {});
              return appended;
            },
          },
        },
        emit,
      );
      const detach = (): void => {
        detached = true;
        shell.detach();
      };
      return { ...shell, detach };
    };
}
