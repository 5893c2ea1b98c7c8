import type { Front } from '../serving/front.ts';
import { startFront } from '../serving/process.ts';

export const front: Front = treadleFront({ store: false });

/** With all defaults: request validation, request log, limits, timeouts, retries. */
export function treadleFront(fields: Readonly<Record<string, unknown>>): Front {
  return { open: (options) => startFront(new URL('../serving/treadle-main.ts', import.meta.url), options, fields) };
}
