import type { JournalEntry } from '@treadle/core';
import { agentHost, agentRegistry, agentRun, type NamedAgent } from '@treadle/core/named-agents';
import { policy } from '@treadle/core/policy';
import { keyedModel } from '../keyed-model.ts';
import type { Scenario } from '../scenario.ts';
import { look, put } from '../tools.ts';
import { recordRequest, type Life } from '../world.ts';

/** The files with the definitions. Each changes as soon as a run of its agent has started. */
function definitions(entries: readonly JournalEntry[]): readonly object[] {
  const hasChild = entries.some(({ event }) => event.type === 'child-started');
  return [
    entries.length > 0
      ? { name: 'boss', description: 'Changed.', instructions: 'Do nothing.' }
      : {
          name: 'boss',
          version: '1',
          description: 'Leads.',
          tools: ['put', 'agent:helper'],
          outputs: { done: { type: 'integer', required: true } },
          governance: { approvals: ['put'], paths: { read: ['src/**'] } },
          constraints: { max_iterations: 9 },
        },
    hasChild
      ? { name: 'helper', model: 'helper', description: 'Changed.' }
      : { name: 'helper', model: 'helper', description: 'Looks.', tools: ['look'], autonomy_level: 'bounded' },
  ];
}

/**
 * An agent that calls another one, with the definitions of both in files that change after the start. It asks for approval, is
 * asked to confirm, and gives an output that goes back to it.
 */
export const filed: Scenario = {
  name: 'the run of an agent whose file has changed',
  code: (life: Life) => {
    const onAsk = (request: Parameters<typeof recordRequest>[1]): void => recordRequest(life, request);
    const model = keyedModel(
      {
        't1.model.0': { calls: [['put', { what: 'a' }]] },
        't2.model.0': { calls: [['agent_helper', { task: 'look' }]] },
        't3.model.0': '{"done": 1}',
        't4.model.0': 'One.',
        't5.model.0': '```json\n{"done": 1}\n```',
      },
      { onAsk },
    );
    const helper = keyedModel(
      { 't1.model.0': { calls: [['look', { what: 'b' }]] }, 't2.model.0': 'Seen.', 't3.model.0': 'Seen, in full.' },
      { id: 'helper', onAsk },
    );
    const registry = agentRegistry(definitions(life.entries));
    const rates = { second: 1_000, minute: 1_000 };
    const host = agentHost({
      registry,
      model: (name) => (name === undefined ? model : helper),
      tools: [look(life), put(life)].map((tool) => ({ ...tool, touches: () => [] })),
      policy: policy({ autonomy: 3, rate: rates }),
    });
    const [first] = life.entries;
    const started = first?.event.type === 'run-started' ? (first.event.definition as NamedAgent) : undefined;
    return agentRun(started ?? registry.get('boss')!, { inputs: { task: 'lead' } }, host);
  },
  interrupted: {},
};
