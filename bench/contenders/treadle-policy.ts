import type { Policy, Verdict } from '@treadle/core';
import { openaiChat } from '@treadle/models';
import type { Contender } from './contender.ts';
import { endpoint, treadle } from './treadle.ts';

const ALLOW: Verdict = { type: 'allow' };
const policy: Policy = { judge: (calls) => calls.map(() => ALLOW) };

export const contender: Contender = treadle((task) => ({ model: openaiChat({ ...endpoint(task) }), policy }));
