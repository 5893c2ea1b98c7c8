import { expect, test } from 'vitest';
import { userText, type AssistantPart, type Message } from '../../messages.ts';
import { NEW, step } from '../../machine/step.ts';
import type { Event } from '../../machine/events.ts';
import type { State } from '../../machine/state.ts';

const TURNS = 2_001;
const USAGE = { inputTokens: 1, outputTokens: 1 };

/** The same number of characters in every turn. */
function padded(turn: number): string {
  return String(turn).padStart(6, '0');
}

function callsOf(turn: number): AssistantPart[] {
  const at = padded(turn);
  return [
    { type: 'text', text: `turn ${at}` },
    { type: 'tool-call', id: `a${at}`, name: 'now', arguments: `{"at":"${at}"}` },
    { type: 'tool-call', id: `b${at}`, name: 'later', arguments: `{"at":"${at}"}` },
    { type: 'tool-call', id: `c${at}`, name: 'unknown', arguments: `{"at":"${at}"}` },
  ];
}

test('step accesses no more of the history in turn 2,000 than in turn 20', () => {
  let accesses = 0;
  const counting: ProxyHandler<Message[]> = {
    get(target, key, receiver) {
      if (key !== 'length' && typeof key === 'string') accesses++;
      return Reflect.get(target, key, receiver);
    },
    has: (target, key) => (accesses++, Reflect.has(target, key)),
    ownKeys: (target) => (accesses++, Reflect.ownKeys(target)),
  };
  const facts = {
    description: 'x',
    parameters: {},
    effect: 'pure',
    exclusive: false,
    polling: false,
    client: false,
    verifiable: false,
  } as const;
  let state: State = NEW;
  const feed = (event: Event): void => {
    state = step(state, event).state;
  };
  feed({
    type: 'run-started',
    at: 0,
    runId: 'r',
    rules: {
      wording: 2,
      finish: 'plain',
      maxTurns: TURNS,
      maxParallel: 5,
      parallel: true,
      errorLimit: 3,
      repeatLimit: 3,
      maxResultChars: 1_000,
      toolTimeoutMs: 1_000,
      limits: {},
      closingTurn: false,
      toolChoice: 'auto',
      judged: false,
    },
    tools: [
      { ...facts, name: 'now' },
      { ...facts, name: 'later' },
    ],
    model: 'm',
    settings: {},
    input: [userText('go')],
  });
  const items = new Proxy(state.history.items as Message[], counting);
  state = { ...state, history: { ...state.history, items } };

  const perTurn: number[] = [];
  for (let turn = 1; turn < TURNS; turn++) {
    accesses = 0;
    feed({
      type: 'model-replied',
      at: turn,
      effect: `t${turn}.model.0`,
      content: callsOf(turn),
      finish: 'tool-calls',
      usage: USAGE,
      model: 'm',
      checks: [{}, {}, {}],
    });
    for (const index of [1, 0]) {
      const content = [{ type: 'text', text: padded(turn) }] as const;
      feed({
        type: 'tool-settled',
        at: turn,
        effect: `t${turn}.tool.${index}`,
        result: { type: 'result', content, isError: false },
      });
    }
    perTurn.push(accesses);
  }
  expect(state.turn).toBe(TURNS);
  expect(state.history.items).toBe(items);
  expect(state.history.length).toBe(TURNS * 2 - 1);
  expect(perTurn[19]).toBeGreaterThan(0);
  expect(perTurn[1_999]).toBe(perTurn[19]);
});
