import { keyedModel } from '../keyed-model.ts';
import type { Scenario } from '../scenario.ts';
import { book, look } from '../tools.ts';
import { recordRequest } from '../world.ts';

/** Prepared turns, a compaction at a threshold, and a validated answer. */
export const shaping: Scenario = {
  name: 'prepared turns, a compaction at a threshold, a typed answer',
  code: (life) => {
    const onAsk = (request: Parameters<typeof recordRequest>[1]): void => recordRequest(life, request);
    return {
      model: keyedModel(
        {
          't1.model.0': { calls: [['look', { what: 'a' }]] },
          't3.model.0': { calls: [['book', { what: 'b' }]] },
          't4.model.0': 'It is three.',
          't5.model.0': '```json\n{"total": 3}\n```',
        },
        { onAsk },
      ),
      models: [
        keyedModel(
          { 't2.model.0': { calls: [['look', { what: 'b' }]], usage: { inputTokens: 90, outputTokens: 10, cost: 0 } } },
          { id: 'other', onAsk },
        ),
      ],
      summariser: keyedModel({ 't2.compact.0': 'They looked at a.' }, { id: 'summariser', onAsk }),
      tools: [look(life), book(life)],
      prepareTurn: ({ turn }) => {
        if (turn === 1) return { instructions: 'Be brief.', toolChoice: 'required' };
        return turn === 2 ? { model: 'other', tools: ['look'] } : {};
      },
      compaction: { tokens: 100, keepTurns: 1 },
      output: { type: 'object', properties: { total: { type: 'number' } }, required: ['total'] },
      input: 'Add it up.',
    };
  },
  interrupted: { 'run/t3.tool.0': ['10'] },
};
