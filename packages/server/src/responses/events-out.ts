import type { StreamEvent } from '../wire/events.ts';

export type NumberedEvent = StreamEvent & { readonly sequence_number: number };

/** Where events go; a promise while they come faster than they are taken. */
export type Emit = (event: NumberedEvent) => void | Promise<void>;

/** The events of one response, numbered from 0. */
export interface EventsOut {
  /** The number of the event that is sent next: it is made with it, so that a piece of text costs one object. */
  next(): number;
  send(event: NumberedEvent): void;
  /** What the last events that were sent are waiting for, if they are; once. */
  pressure(): void | Promise<void>;
}

export function eventsOut(emit: Emit | undefined): EventsOut {
  let number = 0;
  let waiting: void | Promise<void>;
  return {
    next: () => number++,
    send(event) {
      waiting = emit?.(event) ?? waiting;
    },
    pressure() {
      const last = waiting;
      waiting = undefined;
      return last;
    },
  };
}
