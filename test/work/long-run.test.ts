import {
  memoryJournal,
  runLoop,
  tool,
  userText,
  type AssistantPart,
  type LoopOptions,
  type Message,
  type Model,
} from '@treadle/core';
import { describe, expect, test } from 'vitest';
import { countWork, type Work } from './counted-work.ts';

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
  /** How often blocks of the code of the loop were entered. */
  readonly blocks: number;
  /** Elements that built-in functions visited or copied. */
  readonly elements: number;
  /** Characters written to or read from JSON. */
  readonly chars: number;
}

function costOf({ blocks, elements, json }: Work): Cost {
  const counts = [...blocks.values()].flatMap((ranges) => ranges.map(({ count }) => count));
  return { blocks: sumOf(counts), elements: sumOf(elements.values()), chars: sumOf(json.values()) };
}

function sumOf(counts: Iterable<number>): number {
  let sum = 0;
  for (const count of counts) sum += count;
  return sum;
}

/** The cost of these turns, each from one model call to the next. */
async function costs(options: Partial<LoopOptions>, turns: readonly number[]): Promise<Cost[]> {
  using counter = countWork({ files: /packages\/core\/src\/(?!.*\.test\.ts)/ });
  const counted: Cost[] = [];
  let turn = 0;
  const model: Model = {
    id: 'm',
    async reply(_request, emit) {
      if (turns.includes(turn)) counted.push(costOf(counter.read()));
      turn++;
      if (turn === TURNS)
        return { type: 'reply', content: [{ type: 'text', text: 'done' }], finish: 'stop', usage: USAGE, model: 'm' };
      const content = callsOf(turn);
      if (turns.includes(turn)) counter.reset();
      emit({ type: 'text-delta', text: 'word' });
      return { type: 'reply', content, finish: 'tool-calls', usage: USAGE, model: 'm' };
    },
  };
  const input = { type: 'object', properties: { at: { type: 'string' } }, required: ['at'] };
  const now = tool({ name: 'now', description: 'x', input, execute: ({ at }) => `now ${String(at)}` });
  const later = tool({ name: 'later', description: 'x', input, execute: async ({ at }) => ({ later: at }) });
  const { outcome } = await runLoop({
    model,
    tools: [now, later],
    input: 'go',
    maxTurns: TURNS,
    journal: memoryJournal(),
    ...options,
  });
  expect(outcome).toEqual({ type: 'completed' });
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
