import type { Event, Memory, State } from '@treadle/core';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { loadCore } from './core.ts';
import { drive } from './drive.ts';
import { outcomeText } from './expected.ts';
import { worlds } from './generate/worlds.ts';
import { costsOf } from './i7-cost.ts';
import { handoffIn, narrowIn, parkingAfter } from './observed.ts';
import { ALL_PROPERTIES, PARAMETERS, type PROPERTIES } from './properties.ts';
import type { Moment } from './trace.ts';
import { hasRules, type World } from './world.ts';

const core = loadCore();

const TITLES: Record<keyof typeof PROPERTIES, string> = {
  I1: 'every call in the history has exactly one result, in call order, before the next model turn',
  I2: 'a tool runs only after a recorded verdict, enough people or a grant allowed it, and never one outside the allowed set',
  I3: 'an effect settles at most once; duplicate, late and foreign events are no-ops',
  I4: 'a run ends in exactly one outcome, or is paused on named outstanding effects',
  I5: 'replaying any prefix of the journal gives the state that was live at that point',
  I6: 'limits hold: turns, calls, tokens, cost, time, errors',
  I7: 'the cost of a step does not grow with the length of the history',
  I8: 'an effect that is not pure starts, and anything leaves the process, only after everything before is durable',
  I9: 'the order in which parallel effects settle changes neither the history nor the outcome',
  I10: 'what the methods of a run say about a fact from outside is what the journal has',
  live: 'I1, I2, I4, I5 and I6 hold in the real driver too, through crashes, pauses and cancellations',
  total: 'step never throws, for any event in any state',
};

for (const [names, { property, part }] of Object.entries(ALL_PROPERTIES)) {
  const titles = names.split(', ').map((name) => TITLES[name as keyof typeof PROPERTIES]);
  test(`${names} ${titles.join(' · ')}`, { timeout: 600_000 }, async () => {
    await fc.assert(property(core), { ...PARAMETERS, numRuns: Math.ceil(PARAMETERS.numRuns * part) });
  });
}

test('I7 the 400th turn costs the same as the 20th', () => {
  const world = worldOf400Turns();
  const events = drive(core, world).moments.map(({ event }) => event);
  const costs = costsOf(core, events);
  const ofTurn = (turn: number) =>
    costs.filter((_, place) => 'effect' in events[place]! && events[place].effect?.startsWith(`t${turn}.`));
  expect(ofTurn(20)).toHaveLength(4);
  expect(ofTurn(400)).toEqual(ofTurn(20));
});

/** Every type of event, and the share of the worlds in which it must be applied. */
const LEAST: Record<Event['type'], number> = {
  'run-started': 1,
  'run-forked': 0.05,
  'turn-prepared': 0.05,
  'input-added': 0.05,
  'tools-changed': 0.05,
  'narrowing-lifted': 0.05,
  'resource-opened': 0.05,
  'resource-closed': 0.05,
  'model-replied': 0.05,
  'model-failed': 0.05,
  'calls-judged': 0.05,
  'policy-changed': 0.05,
  'call-rejudged': 0.05,
  'program-changed': 0.05,
  'child-started': 0.05,
  'tool-settled': 0.05,
  'tool-parked': 0.05,
  'questions-asked': 0.05,
  'question-answered': 0.05,
  'approval-given': 0.05,
  'client-result-given': 0.05,
  'output-checked': 0.05,
  'guardrails-checked': 0.05,
  'history-compacted': 0.05,
  'effect-lost': 0.05,
  'budget-escalated': 0.05,
  'budget-refused': 0.05,
  'deadline-passed': 0.05,
  'cancel-requested': 0.05,
};

test('the worlds contain every type of event, applied and ignored, and every outcome', { timeout: 60_000 }, () => {
  const traces = fc.sample(worlds, { ...PARAMETERS, numRuns: 2_000 }).map((world) => drive(core, world));
  const share = (holds: (trace: (typeof traces)[number]) => boolean): number =>
    traces.filter(holds).length / traces.length;
  const types = traces.map(({ moments }) => ({
    applied: new Set(moments.flatMap(({ event, applied }) => (applied ? event.type : []))),
    ignored: new Set(moments.flatMap(({ event, applied }) => (applied ? [] : event.type))),
  }));

  for (const [type, least] of Object.entries(LEAST) as [Event['type'], number][]) {
    const applied = types.filter((one) => one.applied.has(type)).length / traces.length;
    expect(applied, `${type} is applied`).toBeGreaterThanOrEqual(least);
    expect(
      types.some(({ ignored }) => ignored.has(type)),
      `${type} is ignored`,
    ).toBe(true);
  }
  for (const [name, isShown] of Object.entries(FEATURES)) {
    const shown = share(({ moments }) => moments.some((moment) => moment.applied && isShown(moment)));
    expect(shown, name).toBeGreaterThanOrEqual(0.05);
  }
  for (const [name, isShown] of Object.entries(RARE_FEATURES)) {
    const shown = traces.filter(({ moments }) => moments.some((moment) => moment.applied && isShown(moment)));
    expect(shown.length, name).toBeGreaterThan(0);
  }
  expect(new Set(traces.map(({ last }) => outcomeText(last.after) ?? 'paused'))).toEqual(new Set(ENDS));
  const seen = new Set(traces.flatMap(({ moments }) => moments.filter(({ applied }) => applied).map(sceneOf)));
  expect([...seen]).toEqual(expect.arrayContaining([...SCENES]));
});

/** What at least one world of twenty must contain. */
const FEATURES: Readonly<Record<string, (moment: Moment) => boolean>> = {
  'a verdict has touches': ({ event }) =>
    event.type === 'calls-judged' && event.verdicts.some(({ touches }) => touches),
  'a verdict has a rule': ({ event }) => event.type === 'calls-judged' && event.verdicts.some(({ rule }) => rule),
  'an ask is for each call': ({ effects }) => effects.some((effect) => 'eachTime' in effect),
  'a call may write': ({ before, after }) => before.written !== after.written,
  'the rules of policy() are recorded': ({ event }) => event.type === 'run-started' && hasRules(event.policy),
  'the rules of the policy are recorded': ({ event }) => event.type === 'run-started' && event.policy !== undefined,
  'a call is judged because its tool needs approvals': ({ after, effects }) =>
    !after.rules.judged && !after.policies && effects.some(({ type }) => type === 'judge-calls'),
  'one of several people approves': ({ event, after }) =>
    event.type === 'approval-given' && waitsFor(after).includes(event.effect),
  'only some people may answer': ({ effects }) => effects.some((effect) => 'approvers' in effect),
  'people allow something for the rest of the run': ({ before, after }) => before.grants !== after.grants,
  'a grant allows a call': ({ event, before, after, effects }) =>
    event.type === 'calls-judged' &&
    before.grants !== undefined &&
    event.verdicts.filter(({ type }) => type === 'ask').length > effects.filter(isAsk).length &&
    after.phase.type === 'tools',
  'new rules deny or ask about a call that has not started': ({ event, before, after }) =>
    event.type === 'policy-changed' && after.calls < before.calls,
  'new rules change an open approval': ({ event, before, after }) =>
    event.type === 'policy-changed' &&
    before.phase.type === 'tools' &&
    waitsFor(before).some(
      (id) => before !== after && JSON.stringify(askIn(before, id)) !== JSON.stringify(askIn(after, id)),
    ),
  'a policy has smaller limits than the run': ({ event, before, after }) =>
    event.type === 'policy-changed' && before.policyLimits !== after.policyLimits,
  'a model asks to wait': ({ after }) => after.phase.type === 'ended' && after.phase.wakeAt !== undefined,
  'a parked call has a deadline': ({ event }) => event.type === 'tool-parked' && event.expiresAt !== undefined,
  'a tool wants to be asked again': ({ event }) => event.type === 'tool-parked' && event.wakeAt !== undefined,
  'a parked call fails at its deadline': ({ event, observed }) =>
    (event.type === 'deadline-passed' && event.effect?.includes('.tool.') && event.question === undefined) ||
    parkingAfter(observed.before, event) === 'expired',
  'a call of the client fails at its deadline': ({ event }) =>
    event.type === 'deadline-passed' && event.effect?.includes('.client.') === true,
  'a parked call is verified': ({ event }) => event.type === 'effect-lost' && event.cause === 'parked',
  'a parked call stays parked after its verification': ({ event, observed }) =>
    event.type === 'tool-settled' && typeof parkingAfter(observed.before, event) === 'object',
  'a verification parks the call': ({ event }) => event.type === 'tool-parked' && event.effect.includes('.verify.'),
  'a parked call gets its result from outside': ({ event }) =>
    event.type === 'client-result-given' && event.effect.includes('.tool.'),
  'a run starts with a program': ({ event }) => event.type === 'run-started' && event.program !== undefined,
  'a model that uses no tokens replies': ({ event }) => event.type === 'model-replied' && event.usesTokens === false,
  'a run with a limit of tokens continues without tokens': ({ before, after }) =>
    before.turn > 0 &&
    after.turn > before.turn &&
    after.rules.limits.tokens !== undefined &&
    after.usage.inputTokens + after.usage.outputTokens === 0,
  'a result refers to a blob': ({ event }) =>
    event.type === 'tool-settled' && event.result.type === 'result' && event.result.blob !== undefined,
  'a call refers to a result': ({ effects }) =>
    effects.some((effect) => effect.type === 'call-tool' && effect.call.references !== undefined),
  'a child run draws on the ledger': ({ after, effects }) =>
    after.rules.budgeted === true &&
    effects.some((effect) => effect.type === 'call-tool' && drawsOnLedger(after, effect.call.name)),
  'a call asks several questions at once': ({ event }) =>
    event.type === 'questions-asked' && event.questions.length > 1,
  'a call asks again after it has answers': ({ event, before }) =>
    event.type === 'questions-asked' && core.waiting(before).length === 0 && hasAnswers(before),
  'a question expires': ({ event }) => event.type === 'deadline-passed' && event.question !== undefined,
  'a call runs with answers': ({ event, effects }) =>
    event.type === 'question-answered' && effects.some(({ type }) => type === 'call-tool'),
  'a run starts with memory': ({ event }) => event.type === 'run-started' && event.memory !== undefined,
  'a run starts with what it has seen': ({ event }) => event.type === 'run-started' && event.exposure !== undefined,
  'a run starts with grants': ({ event }) => event.type === 'run-started' && event.grants !== undefined,
  'a run takes over a process': ({ event }) => event.type === 'run-started' && event.resources !== undefined,
  'a run starts narrowed': ({ event }) => event.type === 'run-started' && event.narrow !== undefined,
  'a result narrows the run': ({ event }) => event.type === 'tool-settled' && narrowIn(event).length > 0,
  'a call outside of the narrowing is refused': ({ event, before }) =>
    event.type === 'model-replied' &&
    event.content.some((part) => part.type === 'tool-call' && isOutside(before, part.name)),
  'a result hands the run over': ({ event }) => handoffIn(event) !== undefined,
  'an agent takes over': ({ before, after }) => before.handoff !== undefined && after.turn > before.turn,
  'the tools change from the next turn on': ({ event }) => event.type === 'tools-changed' && event.from !== undefined,
  'the tools that were changed for it are offered': ({ before, after }) =>
    before.nextTools !== undefined && after.turn > before.turn,
  'a tool of a plain run changes the memory': ({ event, before }) => memoryIn(event) !== undefined && !before.agent,
  'a tool removes a key of the memory': ({ event, before }) =>
    Object.entries(memoryIn(event) ?? {}).some(([key, value]) => value === null && before.memory?.[key] !== undefined),
};

/** What must occur, even if it is rare. */
const RARE_FEATURES: typeof FEATURES = {
  'a later call exposes the run before an earlier one': ({ before, after }) =>
    before.exposure?.private !== undefined && before.exposure.private !== after.exposure?.private,
  'a tool that a narrowing takes away is called': ({ event, before }) =>
    event.type === 'model-replied' &&
    event.content.some((part) => part.type === 'tool-call' && takesAway(before, part.name)),
  'a marked tool is called in a narrowed run': ({ event, before }) =>
    event.type === 'model-replied' &&
    event.content.some(
      (part) =>
        part.type === 'tool-call' &&
        isOutside(before, part.name) &&
        before.tools.some((facts) => facts.name === part.name && facts.unnarrowed),
    ),
  'a narrowing judges a call': ({ event, before }) =>
    event.type === 'calls-judged' && before.narrowed?.some(({ ask, rules }) => ask ?? rules) === true,
  'the narrowing of a source is lifted, and others stay': ({ event, after }) =>
    event.type === 'narrowing-lifted' && event.source !== undefined && after.narrowing !== undefined,
};

function hasAnswers({ phase }: State): boolean {
  return phase.type === 'tools' && phase.slots.some((slot) => 'asked' in slot && slot.asked);
}

function isAsk({ type }: { readonly type: string }): boolean {
  return type === 'ask-approval';
}

function waitsFor(state: Moment['after']): readonly string[] {
  return core.waiting(state).flatMap(({ type, effect }) => (type === 'approval' ? effect : []));
}

function askIn(state: Moment['after'], id: string): unknown {
  return core.waiting(state).find(({ effect }) => effect === id);
}

function drawsOnLedger({ tools }: State, name: string): boolean {
  return tools.some((facts) => facts.name === name && facts.drawsOnLedger === true);
}

function isOutside({ narrowed, tools }: State, name: string | undefined): boolean {
  const known = tools.some((facts) => facts.name === name);
  return (
    known &&
    narrowed?.some(({ tools: some, without }) => some?.includes(name!) === false || without?.includes(name!)) === true
  );
}

function takesAway({ narrowed, tools }: State, name: string): boolean {
  return (
    tools.some((facts) => facts.name === name) && narrowed?.some(({ without }) => without?.includes(name)) === true
  );
}

function memoryIn(event: Event): Memory | undefined {
  return event.type === 'tool-settled' && event.result.type === 'result' ? event.result.memory : undefined;
}

/** An event and the phase in which it was applied; for a compaction also whether the model had rejected the conversation. */
function sceneOf({ event, before }: Moment): string {
  const { phase } = before;
  const what = 'result' in event ? `${event.type} ${event.result.type}` : event.type;
  return `${what} in ${phase.type}${phase.type === 'compacting' && phase.refused ? ' after a refusal' : ''}`;
}

const PHASES = ['preparing', 'model', 'compacting', 'validating', 'guarding', 'judging', 'tools'];

/** Combinations that must occur, even if they are rare. */
const SCENES: readonly string[] = [
  ...['input-added', 'run-forked', 'effect-lost', 'cancel-requested'].flatMap((type) =>
    PHASES.map((phase) => `${type} in ${phase}`),
  ),
  ...['summary', 'failure'].flatMap((type) =>
    ['', ' after a refusal'].map((why) => `history-compacted ${type} in compacting${why}`),
  ),
  ...['valid', 'invalid'].map((type) => `output-checked ${type} in validating`),
  'effect-lost in ended',
  ...['model', 'compacting', 'tools'].map((phase) => `budget-refused in ${phase}`),
  ...['model', 'tools'].map((phase) => `budget-escalated in ${phase}`),
  'question-answered in raising',
];

const ENDS: readonly string[] = [
  'paused',
  'completed',
  'completed truncated',
  ...['turns', 'attempts', 'calls', 'tokens', 'cost', 'duration', 'errors', 'repetition', 'budget'].map(
    (limit) => `exhausted ${limit}`,
  ),
  ...['model', 'tool', 'approval', 'client', 'validation'].map((phase) => `cancelled ${phase}`),
  ...['empty-reply', 'tool-choice-unmet', 'content-filter', 'cost-unknown', 'tokens-unknown'].map(
    (code) => `failed ${code}`,
  ),
  ...['prepare-failed', 'output-invalid', 'no-tool-called', 'submit-before-output', 'prompt-failed'].map(
    (code) => `failed ${code}`,
  ),
  'failed crash-loop',
  'failed guardrail',
  ...['auth', 'overloaded', 'context-length', 'out-of-stock'].map((code) => `failed ${code}`),
];

function worldOf400Turns(): World {
  const call = {
    type: 'call',
    name: 'read',
    arguments: '{}',
    copies: 1,
    check: {},
    verdict: { type: 'allow' },
    fate: {
      content: [],
      isError: false,
      child: false,
      parked: false,
      inside: [],
      asks: [],
      lost: [],
      verified: { type: 'unknown' },
      answer: 'given',
      forRun: [],
    },
  } as const;
  const tool = {
    name: 'read',
    description: '',
    parameters: {},
    effect: 'pure',
    exclusive: false,
    polling: false,
  } as const;
  return {
    rules: {
      wording: 1,
      finish: 'plain',
      maxTurns: 1_000,
      maxParallel: 5,
      parallel: true,
      errorLimit: 3,
      repeatLimit: 0,
      maxResultChars: 1_000,
      toolTimeoutMs: 1_000,
      limits: {},
      closingTurn: false,
      toolChoice: 'auto',
      judged: true,
    },
    tools: [{ ...tool, client: false, verifiable: false }],
    otherTools: [],
    input: [],
    replies: Array.from({ length: 401 }, (_, turn) => ({
      type: 'reply',
      parts: ['a', 'b'].map((id) => ({ ...call, id: `${id}${1_000 + turn}` })),
      finish: 'tool-calls',
      usage: { inputTokens: 1, outputTokens: 1 },
      unchecked: 0,
      unjudged: 0,
      steered: false,
    })),
    turnScripts: [],
    moves: [],
  };
}
