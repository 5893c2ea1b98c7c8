import type { Message, ToolResult } from '@treadle/core';
import { keyedModel } from '../keyed-model.ts';
import type { Scenario } from '../scenario.ts';
import { book, look, pick, put, remove } from '../tools.ts';
import { recordRequest } from '../world.ts';

const CALLS = ['look', 'remove', 'book', 'pick', 'put'].map((name, index) => ({
  type: 'tool-call' as const,
  id: `t0.model.0.${index}`,
  name,
  arguments: '{"what":"a"}',
}));

const INPUT: readonly Message[] = [
  { role: 'user', content: [{ type: 'text', text: 'Do all of it.' }] },
  { role: 'assistant', content: CALLS },
];

const ANSWERED: readonly ToolResult[] = [
  {
    type: 'tool-result',
    callId: 't0.model.0.0',
    name: 'look',
    content: [{ type: 'text', text: 'saw a' }],
    isError: false,
  },
];

/** A run that begins with the calls of a reply in its input: one has a result, others are approved, denied or the client's. */
export const beginning: Scenario = {
  name: 'a run that begins with calls',
  code: (life) => ({
    model: keyedModel(
      { 't1.model.0': { calls: [['put', { what: 'b' }]] }, 't2.model.0': 'All is done.' },
      { onAsk: (request) => recordRequest(life, request) },
    ),
    tools: [
      look(life),
      put(life),
      pick,
      { ...book(life), needsApproval: true },
      { ...remove(life), needsApproval: true },
    ],
    input: INPUT,
    answered: ANSWERED,
    toolChoice: { tool: 'put' },
  }),
  decide: ({ name }) => (name === 'remove' ? 'deny' : 'approve'),
  interrupted: { 'run/t0.tool.2': ['5'] },
};
