import type { LiveTrace, Observation } from './live.ts';
import { ensure } from './trace.ts';

/** I8: an effect starts only after the event that caused it is durable, and listeners are notified after that. */
export function checkDurable({ observations }: LiveTrace): void {
  for (const observation of observations) if ('issued' in observation) checkStart(observation);
  for (const observation of observations) if (!('issued' in observation)) checkNotification(observation);
}

function checkStart({ type, id, issued, durable, over }: Extract<Observation, { issued: number }>): void {
  ensure(issued >= 0, () => `${type} ${id} started, and no entry issued it`);
  ensure(
    issued < durable,
    () => `${type} ${id} started with ${durable} durable entries, and entry ${issued} issued it`,
  );
  ensure(!over, () => `${type} ${id} started after the run was cancelled or detached`);
}

function checkNotification(observation: Exclude<Observation, { issued: number }>): void {
  switch (observation.type) {
    case 'budget':
    case 'stuck':
      return;
    case 'fact':
    case 'snapshot':
      return ensure(
        observation.seq < observation.durable,
        () => `${observation.type} ${observation.seq} was visible with ${observation.durable} durable entries`,
      );
    case 'result':
      return ensure(
        observation.appended === observation.durable,
        () => 'the run returned its result before everything was durable',
      );
    case 'stop':
      return ensure(observation.notAborted === 0, () => `${observation.notAborted} effects were not aborted`);
    default:
      return observation satisfies never;
  }
}
