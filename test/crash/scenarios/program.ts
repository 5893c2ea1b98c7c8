import type { LoopOptions, Model } from '@treadle/core';
import { all, branchTool, call, fail, programModel, settle, step, type Steps } from '@treadle/core/program';
import type { Scenario } from '../scenario.ts';
import { count, look, put, remove, rows } from '../tools.ts';
import { recordRequest, type Life } from '../world.ts';

interface What {
  readonly what: string;
}

function* flow({ what }: What): Steps<unknown> {
  const lines = yield* call<readonly string[]>('rows', { what });
  const counted = yield* all([step('count', { rows: lines }), step('branch', { what }), step('put', { what })]);
  // Whether it was interrupted makes no difference.
  yield* settle([step('remove', { what })]);
  return counted;
}

function* inner({ what }: What): Steps<unknown> {
  const put = yield* call('put', { what: `${what} inside` });
  return [put, yield* call('look', { what })];
}

function recorded(life: Life, model: Model): Model {
  return {
    ...model,
    reply(request, ...rest) {
      recordRequest(life, request);
      return model.reply(request, ...rest);
    },
  };
}

/** Every process after the first has another version of the program. */
export const programmed: Scenario = {
  name: 'a program with a long result, a branch, an approval and another version',
  code: (life) =>
    ({
      model: recorded(life, programModel({ name: 'flow', version: life.entries.length === 0 ? 1 : 2, run: flow })),
      tools: [
        rows(life),
        count(life),
        put(life),
        { ...remove(life), needsApproval: true },
        branchTool({
          name: 'branch',
          description: 'A branch',
          program: { name: 'inner', version: 1, run: inner },
          tools: [put(life), look(life)],
        }),
      ],
      maxResultChars: 600,
      limits: { tokens: 100 },
      input: '{"what":"line"}',
      acceptChangedProgram: true,
    }) as Omit<LoopOptions, 'journal' | 'runId' | 'clock'>,
  interrupted: { 'run/t3.tool.0': ['12/6'] },
};

/** The program ends the run with a code of its own. */
export const ending: Scenario = {
  name: 'a program that ends its run as failed',
  code: (life) => ({
    model: recorded(
      life,
      programModel({
        name: 'ending',
        version: 1,
        *run() {
          yield* call('put', { what: 'a' });
          fail('out-of-stock', 'There is none left.');
        },
      }),
    ),
    tools: [put(life)],
    input: 'Go.',
  }),
  interrupted: {},
};
