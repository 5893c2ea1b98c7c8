import type { SettledResult } from '../machine/events.ts';
import type { Waiting } from '../machine/state.ts';

/** Returned by a tool whose call goes on elsewhere: the run may pause on it, and the call runs again to take it up. */
export class Parked {
  readonly on: string;
  readonly waiting: readonly Waiting[];

  /** `on`: what it is waited for, such as the id of a run; `waiting`: what that waits for itself. */
  constructor(on: string, waiting: readonly Waiting[] = []) {
    this.on = on;
    this.waiting = waiting;
  }
}

/** Returned by a tool that was a whole run: its result, and what it has used. */
export class Finished {
  readonly result: SettledResult;

  constructor(result: SettledResult) {
    this.result = result;
  }
}

/** Returned by a tool whose own run cannot be driven: the calling run stops as if its own journal had failed. */
export class Broken {
  readonly error: unknown;

  constructor(error: unknown) {
    this.error = error;
  }
}
