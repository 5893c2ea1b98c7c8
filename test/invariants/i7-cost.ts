import type { Event, Message, State } from '@treadle/core';
import type { Core } from './core.ts';
import { compactionOf } from './compactions.ts';
import { metered, type Cost } from './meter.ts';
import { ensure, same, type Trace } from './trace.ts';

type Loop = Pick<Core, 'NEW' | 'step'>;

/**
 * I7: the cost of a step does not grow with the length of the history. Only a
 * compaction writes the history again. It costs what it keeps, and what it
 * replaces, which is read once for the names of the tools.
 */
export function checkCost(core: Loop, { moments }: Trace): void {
  const events = moments.map(({ event }) => event);
  const short = costsOf(core, events);
  const long = costsOf(core, [after(PAST, events[0]!), ...events.slice(1)]);
  for (const [place, cost] of short.entries()) {
    const compaction = compactionOf(moments[place]!);
    if (compaction) {
      const { visited } = cost!;
      const { length } = compaction.kept;
      const replaced = compaction.effect.to - compaction.effect.from;
      ensure(
        visited < length + replaced + 10,
        () => `a compaction that keeps ${length} messages and replaces ${replaced} visits ${visited}`,
      );
      continue;
    }
    ensure(
      same(cost, long[place]),
      () =>
        `${events[place]!.type} costs ${JSON.stringify(cost)} after a short history, and ${JSON.stringify(long[place])} after a long one`,
    );
  }
}

/** The cost of each event; undefined for the first one, which reads the input. */
export function costsOf({ NEW, step }: Loop, [first, ...events]: readonly Event[]): readonly (Cost | undefined)[] {
  const { measure, watched } = metered();
  let state: State = watched(step(NEW, first!).state);
  const costs = events.map((event) => {
    const { history } = state;
    const cost = measure(() => {
      ({ state } = step(state, event));
    });
    if (state.history.length < history.length) state = watched(state);
    return cost;
  });
  return [undefined, ...costs];
}

function after(past: readonly Message[], event: Event): Event {
  return event.type === 'run-started' ? { ...event, input: [...past, ...event.input] } : event;
}

/** A long history without text, so that it does not change the estimated length of the conversation. */
const PAST: readonly Message[] = Array.from({ length: 40 }, (_, turn): Message[] => [
  { role: 'user', content: [{ type: 'text', text: '' }] },
  { role: 'assistant', content: [{ type: 'tool-call', id: `past${turn}`, name: '', arguments: '' }] },
  { role: 'tool', content: [{ type: 'tool-result', callId: `past${turn}`, name: '', content: [], isError: false }] },
]).flat();
