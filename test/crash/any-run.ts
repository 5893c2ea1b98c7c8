import { agentTool, type ModelRequest, type Policy, type Tool } from '@treadle/core';
import fc, { type Arbitrary } from 'fast-check';
import { keyedModel, unable, type Said, type Script } from './keyed-model.ts';
import type { Scenario } from './scenario.ts';
import { book, list, look, pick, put, remove, wire } from './tools.ts';
import { recordRequest, type Life } from './world.ts';

/** A run as plain data, so that fast-check can shrink and print it. */
export interface AnyRun {
  /** The calls of the model by turn. After the last turn it answers. */
  readonly turns: readonly (readonly Called[])[];
  readonly maxParallel: number;
  readonly parallel: boolean;
  readonly maxTurns: number;
  readonly closingTurn: boolean;
  readonly repeatLimit: number;
  readonly callsLimit: number | undefined;
  readonly finish: 'plain' | 'confirm';
  /** A policy judges the calls, and some require an approval. */
  readonly judged: boolean;
  readonly decision: 'approve' | 'deny' | 'expire';
  /** How many people have to approve, and whether they do so for the rest of the run. */
  readonly required: number;
  readonly forRun: boolean;
  /** Turns are prepared: every second one excludes `put`. */
  readonly prepared: boolean;
  /** The answer is validated, and the first one is invalid. */
  readonly typed: boolean;
  /** Whether the conversation is compacted: at a threshold, or because the model rejects it. */
  readonly crowded: 'never' | 'threshold' | 'refused';
  /** The turn in which the model fails once. */
  readonly outage: number;
}

type Called = readonly [name: (typeof NAMES)[number], what: string];

const NAMES = ['look', 'put', 'book', 'wire', 'remove', 'pick', 'list', 'read', 'helper', 'nothing'] as const;

const called: Arbitrary<Called> = fc.tuple(fc.constantFrom(...NAMES), fc.constantFrom('a', 'b'));

export const anyRun: Arbitrary<AnyRun> = fc.record({
  turns: fc.array(fc.array(called, { minLength: 1, maxLength: 4, size: 'max' }), { maxLength: 4, size: 'max' }),
  maxParallel: fc.constantFrom(1, 2, 5),
  parallel: fc.constantFrom(true, true, true, false),
  maxTurns: fc.constantFrom(9, 9, 9, 2, 3),
  closingTurn: fc.boolean(),
  repeatLimit: fc.constantFrom(0, 1, 2),
  callsLimit: fc.constantFrom(undefined, undefined, undefined, 1, 3),
  finish: fc.constantFrom('plain', 'plain', 'confirm'),
  judged: fc.boolean(),
  decision: fc.constantFrom('approve', 'approve', 'deny', 'expire'),
  required: fc.constantFrom(1, 1, 2),
  forRun: fc.boolean(),
  prepared: fc.boolean(),
  typed: fc.boolean(),
  crowded: fc.constantFrom('never', 'threshold', 'refused'),
  outage: fc.constantFrom(0, 0, 1, 2),
});

const policyOf = ({ required }: AnyRun): Policy => ({
  rules: { required },
  judge: (calls) =>
    calls.map(({ name, input }) => {
      if (name === 'remove') return { type: 'ask', reason: 'It removes.', required };
      const { what } = input as { what?: string };
      return name === 'look' && what === 'b' ? { type: 'deny', reason: 'Not that.' } : { type: 'allow' };
    }),
});

export function scenarioOf(run: AnyRun): Scenario {
  const { maxParallel, parallel, maxTurns, closingTurn, repeatLimit, callsLimit, finish } = run;
  return {
    name: 'any run',
    code: (life) => ({
      model: keyedModel(scriptOf(run, life), { onAsk: (request) => recordRequest(life, request) }),
      tools: [
        look(life),
        put(life),
        book(life),
        wire(life, () => 'on'),
        remove(life),
        pick,
        list(life),
        helper(life, run),
      ],
      maxParallel,
      parallel,
      maxTurns,
      closingTurn,
      repeatLimit,
      finish,
      ...(callsLimit !== undefined && { limits: { calls: callsLimit } }),
      ...(run.judged && { policy: policyOf(run) }),
      ...(run.prepared && {
        prepareTurn: ({ turn }) => (turn % 2 === 0 ? { tools: WITHOUT_PUT, instructions: 'Do not put.' } : {}),
      }),
      ...(run.typed && { output: { type: 'object', properties: { total: { type: 'number' } }, required: ['total'] } }),
      ...(run.crowded !== 'never' && {
        compaction: { keepTurns: 1, ...(run.crowded === 'threshold' && { tokens: 100 }) },
      }),
      maxResultChars: 600,
      errorLimit: 0,
      input: 'Do it.',
    }),
    decide: () => run.decision,
    forRun: () => run.forRun,
    interrupted: {},
  };
}

const WITHOUT_PUT = ['look', 'book', 'wire', 'remove', 'pick', 'list', 'helper'];

/** Twice as many turns as any run needs. */
const TURNS = 20;

function scriptOf({ turns, typed, crowded, outage }: AnyRun, { world }: Life): Script {
  const script: Record<string, Script[string]> = {};
  for (let turn = 1; turn <= TURNS; turn++) {
    const calls = turns[turn - 1];
    const answer = typed && turn > turns.length + 1 ? '{"total": 3}' : `That is ${turn}.`;
    const usage = { inputTokens: turn === 2 ? 90 : 10, outputTokens: 10, cost: 0 };
    const said = (request: ModelRequest): Said =>
      calls ? { text: `Turn ${turn}.`, calls: calls.map((call) => inputOf(call, request)), usage } : answer;
    script[`t${turn}.model.0`] = (request) => {
      if (turn === outage && world.fault('outage')) return unable('overloaded');
      return turn === 3 && crowded === 'refused' ? unable('context-length') : said(request);
    };
    script[`t${turn}.model.1`] = said;
    script[`t${turn}.compact.0`] = `In short, before ${turn}.`;
    script[`t${turn}.compact.1`] = `In short, in ${turn}.`;
  }
  return script;
}

function inputOf([name, what]: Called, { messages }: ModelRequest): readonly [string, unknown] {
  if (name === 'helper') return [name, { task: what }];
  if (name !== 'read') return [name, { what }];
  const [, id = 'none'] = /read_result: \{\\+"id\\+":\\+"([0-9a-f]+)/.exec(JSON.stringify(messages)) ?? [];
  return ['read_result', { id }];
}

function helper(life: Life, run: AnyRun): Tool {
  return agentTool({
    name: 'helper',
    description: 'Helps',
    model: keyedModel(
      {
        't1.model.0': {
          calls: [
            ['book', { what: 'inside' }],
            ['remove', { what: 'inside' }],
          ],
        },
        't2.model.0': 'Helped.',
      },
      { id: 'small', onAsk: (request) => recordRequest(life, request) },
    ),
    tools: [book(life), remove(life)],
    policy: policyOf(run),
  });
}
