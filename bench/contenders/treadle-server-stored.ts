import type { Front } from '../serving/front.ts';
import { treadleFront } from './treadle-server.ts';

/** As requests are that do not say otherwise: response and journal are safe on disk before the client hears of them. */
export const front: Front = treadleFront({ store: true });
