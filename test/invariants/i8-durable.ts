import type { LiveTrace, Observation } from './live.ts';
import { ensure } from './trace.ts';

/**
 * I8: an effect that is not `pure` starts, and anything leaves the process, only after everything before it is durable.
 * Facts from outside are durable before they are acknowledged. Nothing is shown or started before the journal has accepted it.
 */
export function checkDurable({ observations }: LiveTrace): void {
  for (const observation of observations) if ('issued' in observation) checkStart(observation);
  for (const observation of observations) if (!('issued' in observation)) checkNotification(observation);
}

function checkStart(observation: Extract<Observation, { issued: number }>): void {
  const { type, id, acts, issued, accepted, durable, over } = observation;
  ensure(issued >= 0, () => `${type} ${id} started, and no entry issued it`);
  ensure(
    issued < accepted,
    () => `${type} ${id} started with ${accepted} accepted entries, and entry ${issued} issued it`,
  );
  ensure(
    !acts || issued < durable,
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
      ensure(
        !observation.sent || observation.seq < observation.durable,
        () => `fact ${observation.seq} was sent with ${observation.durable} durable entries`,
      );
      return ensureAccepted(observation);
    case 'snapshot':
      return ensureAccepted(observation);
    case 'acknowledged':
      return ensure(
        observation.seq >= 0 && observation.seq < observation.durable,
        () => `input in entry ${observation.seq} was acknowledged with ${observation.durable} durable entries`,
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

function ensureAccepted({ type, seq, accepted }: Extract<Observation, { type: 'fact' | 'snapshot' }>): void {
  ensure(seq < accepted, () => `${type} ${seq} was visible with ${accepted} accepted entries`);
}
