import type { Front } from '../serving/front.ts';
import { treadleFront } from './treadle-server.ts';

/** The default of requests: response and journal are durable before the client receives them. */
export const front: Front = treadleFront({ store: true });
