import { tool, type Tool } from '@treadle/core';
import { keyedModel } from '../keyed-model.ts';
import type { Scenario } from '../scenario.ts';
import { book, WHAT } from '../tools.ts';
import { never, recordRequest, type Life } from '../world.ts';

/** Works in a shell that lives as long as the process drives the run. */
const work = (life: Life): Tool =>
  tool({
    name: 'work',
    description: 'work',
    input: WHAT,
    effect: 'idempotent',
    execute: async ({ what }, { hold, key }) => {
      const pid = 100 + life.entries.length;
      const { resource } = await hold(
        `shell for ${String(what)}`,
        () => ({ pid }),
        () => {},
        { process: (one) => one, marked: { mark: 'shell' } },
      );
      if (!life.alive()) return never();
      life.world.actions.push({ key, tool: 'work', effect: 'idempotent' });
      return resource.pid >= 100 ? `worked on ${String(what)}` : 'there is no shell';
    },
  });

/** A run whose tools start processes. They are closed when nothing uses them, and killed when the run is resumed. */
export const holding: Scenario = {
  name: 'tools that start processes for the run',
  code: (life) => {
    const { clock } = life.world;
    const rest = tool({
      name: 'rest',
      description: 'rest',
      effect: 'pure',
      timeoutMs: 86_400_000,
      execute: async () => (await clock.advance(60_000), 'rested'),
    });
    return {
      model: keyedModel(
        {
          't1.model.0': {
            calls: [
              ['work', { what: 'a' }],
              ['work', { what: 'b' }],
              ['book', { what: 'it' }],
            ],
          },
          't2.model.0': { calls: [['rest', {}]] },
          't3.model.0': { calls: [['work', { what: 'a' }]] },
          't4.model.0': 'All is done.',
        },
        { onAsk: (request) => recordRequest(life, request) },
      ),
      tools: [work(life), book(life), rest],
      holdIdleMs: 60_000,
      killProcess: () => true,
      input: 'Work.',
    };
  },
  interrupted: { 'run/t1.tool.2': ['2'] },
};
