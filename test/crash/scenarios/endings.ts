import { keyedModel, unable } from '../keyed-model.ts';
import type { Scenario } from '../scenario.ts';
import { book, endless, look, put, shell } from '../tools.ts';
import { recordRequest } from '../world.ts';

const script = {
  't1.model.0': {
    calls: [
      ['book', { what: 'a' }],
      ['look', { what: 'a' }],
    ],
  },
  't2.model.0': {
    calls: [
      ['put', { what: 'b' }],
      ['endless', { what: 'b' }],
      ['book', { what: 'b' }],
    ],
  },
} as const;

export const cancelled: Scenario = {
  name: 'a run that is cancelled during a call',
  code: (life) => ({
    model: keyedModel(script, { onAsk: (request) => recordRequest(life, request) }),
    tools: [book(life), look(life), put(life), endless(life, () => life.live!.cancel())],
    maxParallel: 2,
    input: 'Go.',
  }),
  interrupted: { 'run/t1.tool.0': ['2', '3'] },
};

export const overdue: Scenario = {
  name: 'a run that reaches its deadline',
  code: (life) => ({
    model: keyedModel(script, { onAsk: (request) => recordRequest(life, request) }),
    tools: [book(life), look(life), put(life), endless(life, () => void life.world.clock.advance(10_000))],
    maxParallel: 2,
    limits: { durationMs: 5_000 },
    input: 'Go.',
  }),
  interrupted: { 'run/t1.tool.0': ['2', '3'], 'run/t2.tool.2': ['6'] },
};

export const outage: Scenario = {
  name: 'a model that fails and is called again later',
  code: (life) => ({
    model: keyedModel(
      {
        't1.model.0': { calls: [['book', { what: 'a' }]] },
        't2.model.0': () => (life.world.fault('outage') ? unable('overloaded') : { calls: [['put', { what: 'b' }]] }),
        't3.model.0': 'Done.',
        't4.model.0': 'Done indeed.',
      },
      { onAsk: (request) => recordRequest(life, request) },
    ),
    tools: [book(life), put(life)],
    finish: 'confirm',
    input: 'Go.',
  }),
  interrupted: { 'run/t1.tool.0': ['2'] },
};

export const unprepared: Scenario = {
  name: 'a turn that cannot be prepared',
  code: (life) => ({
    model: keyedModel(
      { 't1.model.0': { calls: [['book', { what: 'a' }]] } },
      { onAsk: (request) => recordRequest(life, request) },
    ),
    tools: [book(life)],
    prepareTurn: ({ turn }) => ({ tools: turn === 1 ? ['book'] : ['gone'] }),
    input: 'Go.',
  }),
  interrupted: { 'run/t1.tool.0': ['3'] },
};

/** Commands that end with an exit code other than 0 are not errors of the model, so the run does not end. */
export const failing: Scenario = {
  name: 'commands that fail again and again',
  code: (life) => ({
    model: keyedModel(
      {
        't1.model.0': { calls: [['shell', { what: 'a' }]] },
        't2.model.0': {
          calls: [
            ['shell', { what: 'b' }],
            ['shell', { what: 'c' }],
          ],
        },
        't3.model.0': { calls: [['shell', { what: 'd' }]] },
        't4.model.0': 'It does not work.',
      },
      { onAsk: (request) => recordRequest(life, request) },
    ),
    tools: [shell(life)],
    errorLimit: 1,
    input: 'Go.',
  }),
  interrupted: {},
};
