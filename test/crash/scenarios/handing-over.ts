import { handoff, type HandoffAgent } from '@treadle/core';
import { keyedModel } from '../keyed-model.ts';
import type { Scenario } from '../scenario.ts';
import { book, look, put } from '../tools.ts';
import { recordRequest } from '../world.ts';

/** A run that is handed to another agent and back, with calls beside the handoffs. */
export const handingOver: Scenario = {
  name: 'a run that is handed over and back',
  code: (life) => {
    const onAsk = (request: Parameters<typeof recordRequest>[1]): void => recordRequest(life, request);
    const desk = { name: 'desk', description: 'answers questions' };
    const billing = { name: 'billing', description: 'books' };
    const model = keyedModel(
      {
        't1.model.0': {
          calls: [
            ['hand_off_to_desk', {}],
            ['put', { what: 'a' }],
            ['hand_off_to_billing', {}],
          ],
        },
        't4.model.0': {
          calls: [
            ['book', { what: 'c' }],
            ['look', { what: 'd' }],
          ],
        },
        't5.model.0': 'Done.',
      },
      { onAsk },
    );
    const clerk = keyedModel(
      {
        't2.model.0': {
          calls: [
            ['book', { what: 'b' }],
            ['put', { what: 'e' }],
          ],
        },
        't3.model.0': { calls: [['hand_off_to_desk', {}]] },
      },
      { id: 'clerk', onAsk },
    );
    const tools = [look(life), put(life), handoff(billing), handoff(desk)];
    const agents: readonly HandoffAgent[] = [
      { ...desk, instructions: 'Answer.', tools },
      { ...billing, instructions: 'Book it.', model: clerk, tools: [book(life), handoff(desk)] },
    ];
    return { model, instructions: 'Answer.', tools, agents, input: 'Book b.' };
  },
  interrupted: { 'run/t2.tool.0': ['6'] },
};
