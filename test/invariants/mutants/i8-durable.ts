import type { Event, State } from '@treadle/core';
import type { Driver, DriverOptions } from '../core-functions.ts';
import type { Core } from '../core.ts';
import type { Replacement } from '../mutable-core.ts';
import { mutant } from './mutant.ts';

/** I8 an effect starts only after the event that caused it is durable. */
export const durable = [
  mutant(
    'I8',
    'effects start before their event is durable',
    'shell',
    (original) => (options) =>
      original(
        appending(options, (append) => {
          void append();
        }),
      ),
  ),
  mutant('I8', 'effects start before earlier events are durable', 'shell', (original) => (options) => {
    let settleEarlier = (): void => {};
    return original(
      appending(options, (append) => {
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
    );
  }),
  mutant(
    'I8',
    'the result is returned before everything is durable',
    'shell',
    (original, { isPaused }) =>
      (options) => {
        const { promise: early, resolve } = Promise.withResolvers<State>();
        const checking =
          <Args extends readonly unknown[], T>(work: (...args: Args) => T) =>
          (...args: Args): T => {
            const result = work(...args);
            const state = driver.state();
            if (state.phase.type === 'ended' || isPaused(state)) resolve(state);
            return result;
          };
        const { performer } = options;
        const driver = original({
          ...options,
          performer: { ...performer, perform: (effect, done) => performer.perform(effect, checking(done)) },
        });
        const { feed, begin, done } = driver;
        return { ...driver, feed: checking(feed), begin: checking(begin), done: Promise.race([early, done]) };
      },
  ),
  mutant(
    'I8',
    'effects start after a cancellation',
    'shell',
    startingLate((state) => state.phase.type === 'ended'),
  ),
  mutant('I8', 'a cancellation aborts nothing', 'performer', (original) => (...stage) => {
    const performer = original(...stage);
    return { ...performer, abort: (reason) => reason && performer.abort(reason) };
  }),
  mutant('I8', 'a snapshot is stored before its entries are durable', 'shell', (original, core) => (options) => {
    const { journal, runId } = options;
    const driver = original(
      appending(options, (append, seq) => {
        const appended = append();
        if (seq + 1 >= journal.snapshotFrom!)
          void journal.writeSnapshot!(runId, core.snapshotOf(driver.state(), seq + 1));
        return appended;
      }),
    );
    return driver;
  }),
  mutant(
    'I8',
    'effects start after the run was detached',
    'shell',
    startingLate((_, detached) => detached),
  ),
  mutant(
    'I8',
    'effects in progress are not aborted when the run is detached',
    'performer',
    (original) =>
      (...stage) => {
        const performer = original(...stage);
        return { ...performer, abort: (reason) => reason ?? performer.abort() };
      },
  ),
];

/** The same driver with another way to append. `seq`: the last entry that is appended. */
function appending(
  options: DriverOptions,
  change: (append: () => void | Promise<void>, seq: number) => void | Promise<void>,
): DriverOptions {
  const { journal } = options;
  return {
    ...options,
    journal: {
      ...journal,
      append: (runId, entries, lease) => change(() => journal.append(runId, entries, lease), entries.at(-1)!.seq),
    },
  };
}

/** Starts effects once their event is durable, also when the run is over by then. */
function startingLate(isOver: (state: State, detached: boolean) => boolean): Replacement<'shell'> {
  return (original, { outstanding }: Core) =>
    (options): Driver => {
      let detached = false;
      const { journal, performer } = options;
      const driver: Driver = original({
        ...options,
        journal: {
          ...journal,
          append(runId, entries, lease) {
            const appended = journal.append(runId, entries, lease);
            const effects = outstanding(driver.state()).filter(({ id }) =>
              entries.some(({ issued }) => issued.includes(id)),
            );
            const start = (): void => {
              if (!isOver(driver.state(), detached)) return;
              for (const effect of effects) performer.perform(effect, (event: Event) => driver.feed(event));
            };
            appended?.then(start, () => {});
            return appended;
          },
        },
      });
      const detach = (): void => {
        detached = true;
        driver.detach();
      };
      return { ...driver, detach };
    };
}
