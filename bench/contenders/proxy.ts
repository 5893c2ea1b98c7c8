import type { Front } from '../serving/front.ts';
import { startFront } from '../serving/process.ts';

export const front: Front = {
  open: (options) => startFront(new URL('../serving/proxy-main.ts', import.meta.url), options),
};
