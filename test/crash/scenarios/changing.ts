import { keyedModel } from '../keyed-model.ts';
import type { Scenario } from '../scenario.ts';
import { book, edit, look, put, slow } from '../tools.ts';
import { recordRequest, type Life } from '../world.ts';

/** The tools after the change: `edit` is new, `look` stays, and the others are gone. */
function changedTools(life: Life) {
  return [look(life), edit(life)];
}

/** Tools that change while a call runs. The calls after it in the same reply still have the tools that were offered. */
export const changing: Scenario = {
  name: 'tools that change during a run',
  code: (life) => {
    const offered = [slow(life, () => life.live!.changeTools(changedTools(life))), look(life), put(life), book(life)];
    return {
      model: keyedModel(
        {
          't1.model.0': {
            calls: [
              ['slow', { what: 'a' }],
              ['put', { what: 'b' }],
              ['edit', { what: 'c' }],
              ['book', { what: 'd' }],
            ],
          },
          't2.model.0': {
            calls: [
              ['edit', { what: 'e' }],
              ['put', { what: 'f' }],
              ['look', { what: 'g' }],
            ],
          },
          't3.model.0': 'Done.',
        },
        { onAsk: (request) => recordRequest(life, request) },
      ),
      // A process that resumes the run has the code of all of them.
      tools: life.entries.length === 0 ? offered : [...offered, edit(life)],
      parallel: false,
      input: 'Use what there is.',
    };
  },
  interrupted: { 'run/t1.tool.3': ['5'] },
};
