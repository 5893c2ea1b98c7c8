import { agentTool, type ResultFilter, type Touch } from '@treadle/core';
import { keyedModel } from '../keyed-model.ts';
import type { Scenario } from '../scenario.ts';
import { look, pick, put, shell, slow } from '../tools.ts';
import { recordRequest } from '../world.ts';

const FILTERS: readonly ResultFilter[] = [
  {
    name: 'secrets',
    async filter({ content }) {
      const texts = content.map((block) => ('text' in block ? block.text : ''));
      if (!texts.some((text) => text.includes('key'))) return undefined;
      return { type: 'changed', content: texts.join('').replaceAll('key', '***'), note: 'a key', exposes: 'private' };
    },
  },
  {
    name: 'scan',
    filter: ({ call }) =>
      call.arguments.includes('virus') ? { type: 'refused', reason: 'it is a virus.' } : undefined,
  },
];

const page = (): readonly Touch[] => [{ type: 'url', url: 'https://example.org/page' }];

/** Results that filters change and refuse, of tools, a child run and a client, and what they expose. */
export const filtering: Scenario = {
  name: 'filtered results, and what a run has seen',
  code: (life) => {
    const onAsk = (request: Parameters<typeof recordRequest>[1]): void => recordRequest(life, request);
    const child = keyedModel(
      { 't1.model.0': { calls: [['look', { what: 'inside key' }]] }, 't2.model.0': 'Saw the key.' },
      { onAsk },
    );
    const reads = { ...look(life), exposes: (): 'private' => 'private' };
    return {
      model: keyedModel(
        {
          't1.model.0': {
            calls: [
              ['shell', { what: 'key' }],
              ['put', { what: 'virus' }],
              ['pick', { what: 'a key' }],
            ],
          },
          't2.model.0': {
            calls: [
              ['delegate', { task: 'look' }],
              ['slow', { what: 'd' }],
            ],
          },
          't3.model.0': 'Done.',
        },
        { onAsk },
      ),
      tools: [
        shell(life),
        { ...put(life), touches: page },
        { ...pick, touches: page },
        agentTool({ name: 'delegate', description: 'delegate', model: child, tools: [reads] }),
        slow(life, () => {
          if (life.entries.some(({ event }) => event.type === 'input-added')) return;
          void life.live!.send({ role: 'user', content: [ATTACHED] });
        }),
      ],
      resultFilters: FILTERS,
      exposes: ({ type }) => (type === 'read' ? 'private' : undefined),
      input: [{ role: 'user', content: [{ type: 'text', text: 'Look.' }, ATTACHED] }],
    };
  },
  interrupted: {},
};

const ATTACHED = {
  type: 'image',
  mediaType: 'image/png',
  source: { type: 'url', url: 'https://example.org/a.png' },
} as const;
