import { anthropic } from '@treadle/models/anthropic';
import type { Contender } from './contender.ts';
import { endpoint, treadle } from './treadle.ts';

/** Over the same protocol as Anthropic's own tool runner. */
export const contender: Contender = treadle((task) => ({ model: anthropic({ ...endpoint(task) }) }));
