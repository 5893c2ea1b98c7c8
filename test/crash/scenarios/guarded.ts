import type { Guardrail, GuardrailVerdict } from '@treadle/core';
import { keyedModel } from '../keyed-model.ts';
import type { Scenario } from '../scenario.ts';
import { look } from '../tools.ts';
import { never, recordRequest, type Life } from '../world.ts';

/** Records that it was called for an effect. */
function guardrail(life: Life, effect: string, verdict: GuardrailVerdict): Guardrail {
  return async () => {
    if (!life.alive()) return never();
    life.world.actions.push({ key: `${life.world.runId}/${effect}`, tool: 'guardrail', effect: 'pure' });
    await Promise.resolve();
    return verdict;
  };
}

/** Guardrails that let the input pass, and stop the answer. */
export const guarded: Scenario = {
  name: 'guardrails for the input and the answer',
  code: (life) => ({
    model: keyedModel(
      { 't1.model.0': { calls: [['look', { what: 'a' }]] }, 't2.model.0': 'The password is 1234.' },
      { onAsk: (request) => recordRequest(life, request) },
    ),
    tools: [look(life)],
    guardrails: {
      input: [guardrail(life, 't0.guard.0', { type: 'pass' }), guardrail(life, 't0.guard.0', { type: 'pass' })],
      output: [
        guardrail(life, 't2.guard.0', { type: 'pass' }),
        guardrail(life, 't2.guard.0', { type: 'stop', reason: 'It contains a password.' }),
      ],
    },
    input: 'What is the password?',
  }),
  interrupted: {},
};
