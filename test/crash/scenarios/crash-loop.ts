import { streamLoop, tool, type Journal, type LiveRun } from '@treadle/core';
import { keyedModel } from '../keyed-model.ts';
import type { LoopScenario, Scenario } from '../scenario.ts';
import { RUN, type World } from '../world.ts';

function code(onCall: () => void): ReturnType<LoopScenario['code']> {
  const act = tool({
    name: 'act',
    description: 'Ends the process',
    effect: 'pure',
    execute: () => (onCall(), new Promise(() => {})),
  });
  const script = { 't1.model.0': { calls: [['act', {}]] } } as const;
  return { model: keyedModel(script), tools: [act], crashLimit: 2, input: 'Go.' };
}

/** A call that runs when its process dies, until it is not attempted again. */
export const crashLoop: Scenario = {
  name: 'a crash loop',
  code: () => code(() => {}),
  async begin({ store, clock }: World) {
    // The store of a scenario is in memory, so the entries after a death are made with a lease that says so.
    const journal: Journal = {
      ...store,
      acquire: async (runId) => ({ ...(await store.acquire(runId)), takenOver: true }),
    };
    for (let life = 0; life < 2; life++) {
      let run!: LiveRun;
      const called = new Promise<void>((resolve) => {
        const { input, crashLimit, ...parts } = code(resolve);
        const start = life === 0 ? { input, crashLimit: crashLimit! } : {};
        run = streamLoop({ ...parts, ...start, journal, clock, runId: RUN });
      });
      await called;
      await run.detach();
    }
    const { input: _, crashLimit: __, ...parts } = code(() => {});
    await streamLoop({ ...parts, journal, clock, runId: RUN }).result;
  },
  interrupted: {},
};
