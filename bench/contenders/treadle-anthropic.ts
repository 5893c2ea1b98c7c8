import * as models from '@treadle/models';
import type { Model } from '@treadle/core';
import type { Contender } from './contender.ts';
import { endpoint, treadle } from './treadle.ts';

const { anthropic } = models as { anthropic?: (options: ReturnType<typeof endpoint>) => Model };
if (!anthropic) throw new Error('@treadle/models does not speak Anthropic yet');

/** Over the same protocol as Anthropic's own tool runner. */
export const contender: Contender = treadle((task) => ({ model: anthropic({ ...endpoint(task) }) }));
