import type { LiveTrace, Sighting } from './live.ts';
import { demand } from './trace.ts';

/** I8: an effect starts only after the event that caused it is durable; and nobody hears of it before. */
export function checkDurable({ sightings }: LiveTrace): void {
  for (const sighting of sightings) if ('issued' in sighting) checkBeginning(sighting);
  for (const sighting of sightings) if (!('issued' in sighting)) checkTelling(sighting);
}

function checkBeginning({ type, id, issued, durable, over }: Extract<Sighting, { issued: number }>): void {
  demand(issued >= 0, () => `${type} ${id} began, and no entry issued it`);
  demand(issued < durable, () => `${type} ${id} began with ${durable} entries durable, and entry ${issued} issued it`);
  demand(!over, () => `${type} ${id} began after the run was over`);
}

function checkTelling(sighting: Exclude<Sighting, { issued: number }>): void {
  switch (sighting.type) {
    case 'stuck':
      return;
    case 'fact':
    case 'snapshot':
      return demand(
        sighting.seq < sighting.durable,
        () => `${sighting.type} ${sighting.seq} was there with ${sighting.durable} durable`,
      );
    case 'result':
      return demand(
        sighting.appended === sighting.durable,
        () => 'the run gave its result before everything was durable',
      );
    case 'stop':
      return demand(sighting.deaf === 0, () => `${sighting.deaf} effects were not told that the run is over`);
    default:
      return sighting satisfies never;
  }
}
