import type { Event, Message, State } from '@treadle/core';
import type { Core } from './core.ts';
import { drive } from './drive.ts';
import { metered, type Cost } from './meter.ts';
import { demand, same } from './trace.ts';
import type { World } from './world.ts';

type Loop = Pick<Core, 'NEW' | 'step'>;

/** I7: the cost of a step does not grow with the length of the history. */
export function checkCost(core: Loop, world: World): void {
  const events = drive(core, world).moments.map(({ event }) => event);
  const short = costsOf(core, events);
  const long = costsOf(core, [after(PAST, events[0]!), ...events.slice(1)]);
  for (const [place, cost] of short.entries()) {
    demand(
      same(cost, long[place]),
      () =>
        `${events[place]!.type} costs ${JSON.stringify(cost)}, and ${JSON.stringify(long[place])} after a long history`,
    );
  }
}

/** What each event costs; the first, which reads the input, costs what it costs and is left out. */
export function costsOf({ NEW, step }: Loop, [first, ...events]: readonly Event[]): readonly (Cost | undefined)[] {
  const { measure, watched } = metered();
  let state: State = watched(step(NEW, first!).state);
  const costs = events.map((event) =>
    measure(() => {
      ({ state } = step(state, event));
    }),
  );
  return [undefined, ...costs];
}

function after(past: readonly Message[], event: Event): Event {
  return event.type === 'run-started' ? { ...event, input: [...past, ...event.input] } : event;
}

const PAST: readonly Message[] = Array.from({ length: 40 }, (_, turn): Message[] => [
  { role: 'user', content: [{ type: 'text', text: `question ${turn}` }] },
  { role: 'assistant', content: [{ type: 'tool-call', id: `past${turn}`, name: 'read', arguments: '{}' }] },
  {
    role: 'tool',
    content: [{ type: 'tool-result', callId: `past${turn}`, name: 'read', content: [], isError: false }],
  },
]).flat();
