import { Session, type Profiler } from 'node:inspector';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { memoryJournal } from '../../journal/memory.ts';
import { userText, type AssistantPart, type Message } from '../../messages.ts';
import type { Model } from '../../model.ts';
import { tool } from '../../tools/tool.ts';
import type { LoopOptions } from '../options.ts';
import { runLoop } from '../run.ts';
import { NEW, step } from '../../machine/step.ts';
import type { Event } from '../../machine/events.ts';
import type { State } from '../../machine/state.ts';

vi.setConfig({ testTimeout: 60_000 });

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

// ── Counting the cost of a turn ──────────────────────────────────────────────────────────────────────────────────────

interface Cost {
  /** How often blocks of the code of the loop were entered, which includes iterations of loops. */
  readonly blocks: number;
  /** Elements that built-in functions visited or copied. */
  readonly elements: number;
  /** Characters written to or read from JSON. */
  readonly chars: number;
}

const session = new Session();
let blocks = 0;
let elements = 0;
let chars = 0;

function reset(): void {
  countBlocks();
  [blocks, elements, chars] = [0, 0, 0];
}

function read(): Cost {
  const cost = { elements, chars };
  countBlocks();
  return { blocks, ...cost };
}

/** Adds the blocks executed since the last call. The callback is called before `post` returns. */
function countBlocks(): void {
  session.post('Profiler.takePreciseCoverage', (error, taken: Profiler.TakePreciseCoverageReturnType) => {
    if (error) throw error;
    for (const { url, functions } of taken.result) {
      if (!/packages\/core\/src\/(?!.*\.test\.ts)/.test(url)) continue;
      for (const { ranges } of functions) for (const { count } of ranges) blocks += count;
    }
  });
}

const restore: (() => void)[] = [];

function replace<T extends object, K extends keyof T>(target: T, name: K, by: (original: T[K]) => unknown): void {
  const descriptor = Object.getOwnPropertyDescriptor(target, name)!;
  restore.push(() => Object.defineProperty(target, name, descriptor));
  Object.defineProperty(target, name, { ...descriptor, value: by(target[name]) });
}

type Method = (this: unknown, ...all: unknown[]) => unknown;

function sizeOf(value: unknown): number {
  if (Array.isArray(value) || typeof value === 'string') return value.length;
  if (value instanceof Map || value instanceof Set) return value.size;
  return typeof value === 'object' && value !== null ? Reflect.ownKeys(value).length : 1;
}

/** Replaces built-in functions that visit all elements of a value by ones that count them. */
function instrument(): void {
  const visiting =
    'slice splice concat map filter flatMap forEach some every find findIndex findLast findLastIndex reduce reduceRight ' +
    'indexOf lastIndexOf includes join with toSpliced toSorted toReversed sort reverse fill flat shift unshift';
  // A slice counts the elements it returns; all others count the whole array.
  for (const name of visiting.split(' ')) {
    replace(
      Array.prototype as never,
      name as never,
      ((original: Method) =>
        function (this: unknown[], ...all: unknown[]) {
          const result = original.apply(this, all);
          elements += name === 'slice' ? sizeOf(result) : this.length;
          return result;
        }) as never,
    );
  }
  for (const name of ['values', 'entries', 'keys', Symbol.iterator] as const) {
    replace(
      Array.prototype as never,
      name as never,
      ((original: Method) =>
        function* (this: unknown[], ...all: unknown[]) {
          for (const iterator = original.apply(this, all) as Iterator<unknown>; ; elements++) {
            const next = iterator.next();
            if (next.done) return;
            yield next.value;
          }
        }) as never,
    );
  }
  for (const target of [Map.prototype, Set.prototype]) {
    for (const name of ['values', 'entries', 'keys', 'forEach', Symbol.iterator] as const) {
      replace(
        target as never,
        name as never,
        ((original: Method) =>
          function (this: Map<unknown, unknown>, ...all: unknown[]) {
            elements += this.size;
            return original.apply(this, all);
          }) as never,
      );
    }
  }
  for (const name of ['keys', 'values', 'entries', 'assign', 'fromEntries', 'freeze'] as const) {
    replace(
      Object as never,
      name as never,
      ((original: Method) =>
        (...all: unknown[]) => {
          for (const one of all) elements += sizeOf(one);
          return original(...all);
        }) as never,
    );
  }
  replace(Array, 'from', (original) => (...all: Parameters<typeof original>) => {
    const made = (original as Method)(...all) as unknown[];
    elements += made.length;
    return made;
  });
  replace(JSON, 'stringify', (original) => (...all: Parameters<typeof original>) => {
    const text = original(...all);
    chars += sizeOf(text);
    return text;
  });
  replace(JSON, 'parse', (original) => (...all: Parameters<typeof original>) => {
    chars += all[0].length;
    return original(...all);
  });
  replace(globalThis, 'structuredClone', (original) => (...all: Parameters<typeof original>) => {
    chars += JSON.stringify(all[0]).length;
    return original(...all);
  });
}

beforeAll(() => {
  session.connect();
  session.post('Profiler.enable');
  session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
});

afterAll(() => {
  session.post('Profiler.stopPreciseCoverage');
  session.disconnect();
});

/** The cost of these turns, each from one model call to the next. */
async function costs(options: Partial<LoopOptions>, turns: readonly number[]): Promise<Cost[]> {
  const counted: Cost[] = [];
  let turn = 0;
  const model: Model = {
    id: 'm',
    async reply(_request, emit) {
      if (turns.includes(turn)) counted.push(read());
      turn++;
      if (turn === TURNS)
        return { type: 'reply', content: [{ type: 'text', text: 'done' }], finish: 'stop', usage: USAGE, model: 'm' };
      const content = callsOf(turn);
      if (turns.includes(turn)) reset();
      emit({ type: 'text-delta', text: 'word' });
      return { type: 'reply', content, finish: 'tool-calls', usage: USAGE, model: 'm' };
    },
  };
  const input = { type: 'object', properties: { at: { type: 'string' } }, required: ['at'] };
  const now = tool({ name: 'now', description: 'x', input, execute: ({ at }) => `now ${String(at)}` });
  const later = tool({ name: 'later', description: 'x', input, execute: async ({ at }) => ({ later: at }) });
  instrument();
  try {
    const running = runLoop({
      model,
      tools: [now, later],
      input: 'go',
      maxTurns: TURNS,
      journal: memoryJournal(),
      ...options,
    });
    const { outcome } = await running;
    expect(outcome).toEqual({ type: 'completed' });
  } finally {
    for (const one of restore.splice(0).reverse()) one();
  }
  return counted;
}

// ── I7: the cost of a turn does not depend on the length of the history ──────────────────────────────────────────────

describe('turn 2,000 of a run visits and copies no more than turn 20', () => {
  const ways: [string, Partial<LoopOptions>][] = [
    ['without a listener', {}],
    ['with a listener', { onItem: () => {} }],
    ['with a policy', { policy: { judge: (calls) => calls.map(() => ({ type: 'allow' })) } }],
    ['with parallel: false', { parallel: false, onItem: () => {} }],
  ];

  test.each(ways)('%s', async (_, options) => {
    const [twentieth, last] = await costs(options, [20, 2_000]);
    // Checks that the counting works.
    expect(twentieth!.blocks).toBeGreaterThan(100);
    expect(twentieth!.elements).toBeGreaterThan(10);
    expect(last!.blocks).toBeLessThanOrEqual(twentieth!.blocks);
    expect(last!.elements).toBeLessThanOrEqual(twentieth!.elements);
    expect(last!.chars).toBeLessThanOrEqual(twentieth!.chars);
  });

  test.each<[string, (messages: readonly Message[]) => unknown]>([
    ['a copy', (messages) => messages.slice()],
    ['a search', (messages) => messages.findLast(({ role }) => role === 'tool')],
    ['a spread', (messages) => [...messages]],
    ['JSON.stringify', (messages) => JSON.stringify(messages)],
  ])('the counting detects %s of the history', async (_, visit) => {
    const history: Message[] = [];
    const [twentieth, last] = await costs(
      {
        onItem: (item) => {
          if (item.type !== 'turn-started') return;
          history.push(userText('one more'));
          if (item.turn === 21 || item.turn === 2_001) visit(history);
        },
      },
      [20, 2_000],
    );
    expect(last!.elements + last!.chars).toBeGreaterThan(twentieth!.elements + twentieth!.chars + 1_900);
  });
});

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
