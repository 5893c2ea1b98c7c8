import type { Journal, JournalEntry, State } from '@treadle/core';
import type { RunContext, Shell } from '../core-functions.ts';
import type { Core } from '../core.ts';
import type { Replacement } from '../mutable-core.ts';
import { mutant } from './mutant.ts';

/** I8 an effect that is not `pure` starts, and anything leaves the process, only after everything before it is durable. */
export const durable = [
  mutant('I8', 'a tool that is not pure starts when its event is written', 'startShell', written(issuesTool)),
  mutant(
    'I8',
    'input is acknowledged when it is written',
    'startShell',
    written(({ event }) => event.type === 'input-added'),
  ),
  mutant(
    'I8',
    'items that leave the process are only written',
    'startShell',
    written((entry, { durableItems }) => durableItems === true && entry.status === undefined && !issuesTool(entry)),
  ),
  mutant(
    'I8',
    'the end of a run is only written',
    'startShell',
    written(({ status }) => status !== undefined && status !== 'paused'),
  ),
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
            if (seq !== undefined && seq + 1 >= journal.snapshotFrom!)
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

function issuesTool({ issued }: JournalEntry): boolean {
  return issued.some((id) => id.includes('.tool.') || id.includes('.verify.'));
}

/** Batches with such an entry are only written, not made durable. */
function written(isSoft: (entry: JournalEntry, options: RunContext['options']) => boolean): Replacement<'startShell'> {
  return (original) =>
    (context, ...rest) => {
      const { journal, options } = context;
      const append: Journal['append'] = (runId, entries, lease, until) => {
        const soft = entries.some((entry) => isSoft(entry, options));
        return journal.append(runId, entries, lease, soft ? 'written' : until);
      };
      return original({ ...context, journal: { ...journal, append } }, ...rest);
    };
}

/** The same context with another way to append. `seq`: the last entry that is appended, if any. */
function appending(
  context: RunContext,
  change: (append: () => void | Promise<void>, seq: number | undefined) => void | Promise<void>,
): RunContext {
  const { journal } = context;
  return {
    ...context,
    journal: {
      ...journal,
      append: (runId, entries, lease, until) =>
        change(() => journal.append(runId, entries, lease, until), entries.at(-1)?.seq),
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
            append(runId, entries, holder, until) {
              const appended = journal.append(runId, entries, holder, until);
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
