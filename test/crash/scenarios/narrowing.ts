import { agentTool, tool, type Narrowing, type Tool } from '@treadle/core';
import { policy } from '@treadle/core/policy';
import { activateSkills, type ActivatedSkills, type Skill } from '@treadle/core/skills';
import { keyedModel } from '../keyed-model.ts';
import type { Scenario } from '../scenario.ts';
import { look, put, slow } from '../tools.ts';
import { never, recordRequest, type Life } from '../world.ts';

/** Narrows the run, as a skill does that is activated. */
function activate(life: Life, name: string, narrow: Narrowing | readonly Narrowing[]): Tool {
  return tool({
    name,
    description: name,
    effect: 'pure',
    async execute(_, { key }) {
      if (!life.alive()) return never();
      life.world.actions.push({ key, tool: name, effect: 'pure' });
      await Promise.resolve();
      return { content: `${name} is active`, narrow };
    },
  });
}

/** Two results that narrow a run, a child run that inherits it, and a person who lifts it. */
export const narrowing: Scenario = {
  name: 'a run that is narrowed, and lifted from outside',
  code: (life) => {
    const onAsk = (request: Parameters<typeof recordRequest>[1]): void => recordRequest(life, request);
    const child = keyedModel(
      {
        't1.model.0': {
          calls: [
            ['look', { what: 'inside' }],
            ['put', { what: 'inside' }],
          ],
        },
        't2.model.0': 'Looked.',
      },
      { onAsk },
    );
    return {
      model: keyedModel(
        {
          't1.model.0': {
            calls: [
              ['skill_a', {}],
              ['put', { what: 'a' }],
              ['skill_b', {}],
            ],
          },
          't2.model.0': {
            calls: [
              ['put', { what: 'b' }],
              ['delegate', { task: 'look and put' }],
              ['look', { what: 'c' }],
            ],
          },
          't3.model.0': { calls: [['slow', { what: 'd' }]] },
          't4.model.0': { calls: [['put', { what: 'e' }]] },
          't5.model.0': 'Done.',
        },
        { onAsk },
      ),
      tools: [
        activate(life, 'skill_a', { tools: ['look', 'slow', 'delegate', 'skill_b'], autonomy: 2 }),
        activate(life, 'skill_b', { tools: ['delegate', 'slow', 'look', 'put_elsewhere'], autonomy: 1 }),
        slow(life, () => life.live!.liftNarrowing('ann')),
        agentTool({ name: 'delegate', description: 'delegate', model: child, tools: [look(life), put(life)] }),
        look(life),
        put(life),
      ],
      policy: {
        judge: (calls, { autonomy }) =>
          calls.map(({ name }) =>
            name === 'look' && autonomy !== 1 ? { type: 'deny', reason: 'no' } : { type: 'allow' },
          ),
      },
      input: 'Use your skills.',
    };
  },
  interrupted: {},
};

/** Narrowings with sources: one asks people, one has rules, a tool stays callable, and a person lifts one of them. */
export const narrowingBySource: Scenario = {
  name: 'a run that several sources narrow, one of which is lifted',
  code: (life) => ({
    model: keyedModel(
      {
        't1.model.0': {
          calls: [
            ['skill', {}],
            ['put', { what: 'a' }],
          ],
        },
        't2.model.0': {
          calls: [
            ['put', { what: 'b' }],
            ['look', { what: 'c' }],
            ['stay', {}],
            ['skill', {}],
          ],
        },
        't3.model.0': { calls: [['slow', { what: 'd' }]] },
        't4.model.0': {
          calls: [
            ['put', { what: 'e' }],
            ['skill', {}],
          ],
        },
        't5.model.0': 'Done.',
      },
      { onAsk: (request) => recordRequest(life, request) },
    ),
    tools: [
      activate(life, 'skill', {
        source: 'skill:x',
        ask: ['look'],
        rules: { tools: { put: 'deny' } },
      }),
      slow(life, () => life.live!.liftNarrowing('ann', 'skill:x')),
      tool({ ...activate(life, 'stay', { source: 'plan', without: ['skill'] }), unnarrowed: true }),
      look(life),
      put(life),
    ],
    policy: policy({ autonomy: 3 }),
    narrow: [{ source: 'plan', without: ['stay'] }, { tools: ['skill', 'put', 'look', 'slow'] }],
    input: 'Use your skills.',
  }),
  interrupted: {},
};

const STYLE: Skill = {
  name: 'style',
  description: 'How to work',
  text: 'Work well.',
  folder: '/skills/style',
  files: [],
  disallowedTools: ['look'],
  dependencies: [],
  invocation: 'both',
  execution: 'inline',
  status: 'active',
};
const CAREFUL: Skill = {
  ...STYLE,
  name: 'careful',
  disallowedTools: [],
  allowedTools: ['look', 'put'],
  approvals: ['look'],
  defaults: { put: { what: 'by default' } },
  dependencies: ['style'],
};

/** A skill and one that it depends on: a result with two narrowings, and a call that gets an argument of them. */
export const skilled: Scenario = {
  name: 'a run with an active skill',
  code: (life) => ({
    model: keyedModel(
      {
        't1.model.0': { calls: [['skill', {}]] },
        't2.model.0': {
          calls: [
            ['look', { what: 'a' }],
            ['put', {}],
            ['slow', { what: 'b' }],
          ],
        },
        't3.model.0': 'Done.',
      },
      { onAsk: (request) => recordRequest(life, request) },
    ),
    tools: [
      activate(
        life,
        'skill',
        (activateSkills([CAREFUL, STYLE], ['careful'], { by: 'model' }) as ActivatedSkills).narrow,
      ),
      slow(life, () => undefined),
      look(life),
      put(life),
    ],
    policy: policy({ autonomy: 3 }),
    input: 'Use your skills.',
  }),
  interrupted: {},
};
