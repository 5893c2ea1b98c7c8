import type { ModelDelta } from '@treadle/core';
import { minimalLoop } from '../loop/minimal.ts';
import { chainModel } from '../loop/workload.ts';
import { CALL_ARGUMENTS } from './in-process.ts';
import { PROMPT, TOOL_NAME, type Contender } from './contender.ts';

/** The floor of the in-process rows. */
export const contender: Contender = {
  prepare() {
    throw new Error('the minimal loop has no HTTP');
  },
  prepareInProcess({ turns, deltas, stream, step, onDelta }) {
    const call = { name: TOOL_NAME, arguments: (turn: number) => CALL_ARGUMENTS[turn]! };
    const model = chainModel(turns, stream ? deltas : 0, call);
    const hear = (delta: ModelDelta): void => {
      if (delta.type === 'text-delta') onDelta(delta.text);
    };
    return async () => {
      const last = (await minimalLoop(model, { [TOOL_NAME]: step }, PROMPT, hear)).at(-1)!.content[0]!;
      return last.type === 'text' ? last.text : '';
    };
  },
};
