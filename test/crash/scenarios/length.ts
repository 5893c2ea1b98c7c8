import type { ModelRequest } from '@treadle/core';
import { keyedModel, unable, type Said } from '../keyed-model.ts';
import type { Scenario } from '../scenario.ts';
import { book, list, slow } from '../tools.ts';
import { recordRequest } from '../world.ts';

/** A result that is too long is stored and read in pages; then the conversation is too long. Input is added, too. */
export const length: Scenario = {
  name: 'a result that is too long, a conversation that is too long, and steering',
  code: (life) => ({
    model: keyedModel(
      {
        't1.model.0': {
          calls: [
            ['list', { what: 'line' }],
            ['book', { what: 'a' }],
          ],
        },
        't2.model.0': readOn,
        't3.model.0': unable('context-length'),
        't3.compact.1': 'They listed lines.',
        't3.model.1': { calls: [['slow', { what: 'it' }]] },
        't4.model.0': 'Done, and b as well.',
      },
      { onAsk: (request) => recordRequest(life, request) },
    ),
    tools: [
      list(life),
      book(life),
      slow(life, () => {
        // A user who sees the input in the run does not send it again.
        if (!life.entries.some(({ event }) => event.type === 'input-added')) life.live!.send('And b as well.');
      }),
    ],
    maxResultChars: 600,
    compaction: { keepTurns: 1 },
    input: 'List it.',
  }),
  interrupted: { 'run/t1.tool.1': ['2'] },
};

function readOn({ messages }: ModelRequest): Said {
  const { id } = JSON.parse(/read_result: (\{.*?\})/.exec(JSON.stringify(messages).replaceAll('\\"', '"'))![1]!);
  return { calls: [['read_result', { id, offset: 300 }]] };
}
