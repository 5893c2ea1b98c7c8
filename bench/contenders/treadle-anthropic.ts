import { anthropic } from '@treadle/models/anthropic';
import type { Contender } from './contender.ts';
import { endpoint, treadle } from './treadle.ts';

/** Uses the same protocol as the tool runner of Anthropic. */
export const contender: Contender = treadle((task) => ({ model: anthropic({ ...endpoint(task) }) }));
