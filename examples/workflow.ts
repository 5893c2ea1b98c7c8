/**
 * A workflow: a program is the model of a run. It has 12 steps, with a map over 500 items, a condition, a retry, an agent,
 * an approval, two branches and a fork. Run it: npm run example workflow
 */
import {
  agentTool,
  approve,
  forkRun,
  memoryJournal,
  runLoop,
  tool,
  type Answer,
  type LoopResult,
  type Tool,
} from '@treadle/core';
import { memoryBudgets } from '@treadle/core/budgets';
import {
  all,
  branchTool,
  call,
  fail,
  programModel,
  retry,
  step,
  type Program,
  type Steps,
} from '@treadle/core/program';
import { scriptedModel } from '@treadle/core/testing';

interface Item {
  readonly sku: string;
  readonly count: number;
  readonly price: number;
}

/** The program. It is deterministic: time, randomness and everything outside come from tools. */
function* fulfil({ order }: { readonly order: string }): Steps<unknown> {
  // 1. The list is longer than a result in a history. It is stored once, and passed on by reference.
  const items = yield* call<readonly Item[]>('load_items', { order });
  // 2. A map: 500 calls in five turns.
  const left = yield* all<number>(items.map(({ sku, count }) => step('reserve_item', { sku, count })));
  // 3. A condition.
  const scarce = items.filter((_, index) => left[index]! < 0).map(({ sku }) => sku);
  if (scarce.length > 0) yield* call('refill', { skus: scarce });
  // 4. The argument is a reference to the result of step 1.
  const total = yield* call<number>('add_up', { items });
  if (total === 0) fail('nothing-to-sell', `Order ${order} has no price.`);
  // 5. An agent: a child run with a language model.
  const note = yield* call<string>('write_note', { task: `Write a note for an order of ${total}.` });
  // 6. People approve a large amount.
  yield* call('charge', { order, total });
  // 7. A retry.
  const truck = yield* retry(3, (count) => call<string>('book_truck', { order, count }));
  // 8 to 11. Branches: child runs that do not wait for each other.
  const [parcel, invoice] = yield* all<string>([step('ship', { order, truck }), step('bill', { order, total, note })]);
  // 12.
  yield* call('close_order', { order });
  return { order, total, refilled: scarce.length, truck, parcel, invoice };
}

function* ship({ order, truck }: { readonly order: string; readonly truck: string }): Steps<unknown> {
  const parcel = yield* call<string>('pack', { order });
  yield* call('load_truck', { parcel, truck });
  return parcel;
}

function* bill(input: { readonly order: string; readonly total: number; readonly note: string }): Steps<unknown> {
  const invoice = yield* call<string>('write_invoice', input);
  yield* call('send_mail', { invoice });
  return invoice;
}

/** What the tools do outside, such as a request to another service. */
export interface Outside {
  /** Does something under an idempotency key: a second time with the same key has no effect. */
  readonly act: (key: string, what: string) => void;
  readonly isDone: (key: string) => boolean;
}

/** The model and the tools of the workflow. */
export function workflow({ act, isDone }: Outside): Pick<Parameters<typeof runLoop>[0], 'model'> & { tools: Tool[] } {
  /** A tool that acts outside. It runs again after a crash, with the same key. */
  const acting = (name: string, result: (input: Record<string, unknown>) => unknown): Tool =>
    tool({
      name,
      description: name,
      input: { type: 'object' },
      effect: 'idempotent',
      execute(input, { key }) {
        const value = result(input as Record<string, unknown>);
        act(key, name);
        return value;
      },
    });
  const loadItems = tool({
    name: 'load_items',
    description: 'The items of an order',
    input: { type: 'object', properties: { order: { type: 'string' } }, required: ['order'] },
    effect: 'pure',
    execute: (): readonly Item[] =>
      Array.from({ length: 500 }, (_, n) => ({ sku: `article-${1000 + n}`, count: 1 + (n % 7), price: 2 })),
  });
  const addUp = tool({
    name: 'add_up',
    description: 'The price of items',
    input: { type: 'object', properties: { items: { type: 'array' } }, required: ['items'] },
    effect: 'pure',
    execute: ({ items }) => (items as Item[]).reduce((sum, { count, price }) => sum + count * price, 0),
  });
  // Never charges twice: after a crash, `verify` finds out whether it did.
  const charge = tool({
    name: 'charge',
    description: 'Charges the customer',
    input: {
      type: 'object',
      properties: { order: { type: 'string' }, total: { type: 'number' } },
      required: ['total'],
    },
    needsApproval: ({ total }) => (total as number) > 1_000,
    verify: (_, { key }) => (isDone(key) ? { type: 'done', result: 'charged' } : { type: 'not-done' }),
    execute(_, { key }) {
      act(key, 'charge');
      return 'charged';
    },
  });
  const writeNote = agentTool({
    name: 'write_note',
    description: 'Writes a note to the customer',
    // A scripted model, so that the example needs no key. Try openaiChat({ model }) of @treadle/models.
    model: { ...scriptedModel([]), reply: (...request) => scriptedModel(['Thank you!']).reply(...request) },
    share: 'ledger',
  });
  const branch = <Input>(name: string, run: Program<Input>['run'], tools: readonly Tool[]): Tool =>
    branchTool({ name, description: name, program: { name, version: 1, run }, tools });
  return {
    model: programModel({ name: 'fulfil', version: 1, run: fulfil }),
    tools: [
      loadItems,
      acting('reserve_item', ({ sku }) => (sku === 'article-1007' ? -3 : 10)),
      acting('refill', () => 'refilled'),
      addUp,
      writeNote,
      charge,
      acting('book_truck', ({ count }) => {
        if (count !== 3) throw new Error('All trucks are on the road.');
        return 'truck 7';
      }),
      branch('ship', ship, [
        acting('pack', ({ order }) => `parcel of ${String(order)}`),
        acting('load_truck', () => 'loaded'),
      ]),
      branch('bill', bill, [
        acting('write_invoice', ({ order, total }) => `invoice ${String(order)}: ${String(total)}`),
        acting('send_mail', () => 'sent'),
      ]),
      acting('close_order', () => 'closed'),
    ],
  };
}

/** Approves everything that a run waits for. */
export function approvals({ waiting }: Pick<LoopResult, 'waiting'>): readonly Answer[] {
  return waiting.flatMap((wait) => (wait.type === 'approval' ? approve(wait) : []));
}

async function main(): Promise<void> {
  const done = new Map<string, string>();
  const outside: Outside = { act: (key, what) => void done.set(key, what), isDone: (key) => done.has(key) };
  const journal = memoryJournal();
  const ledger = memoryBudgets({ 'order 7': { tokens: 10_000, calls: 1_500 } }).ledger(['order 7']);
  const run = { ...workflow(outside), journal, ledger };

  const paused = await runLoop({ ...run, runId: 'order-7', input: JSON.stringify({ order: '7' }) });
  console.log(`Approve: ${paused.waiting.map(({ call: { name, arguments: args } }) => `${name} ${args}`).join()}`);
  const result = await runLoop({ ...run, runId: 'order-7', answers: approvals(paused) });
  console.log(result.text, `${result.turns} turns, ${done.size} effects`);

  // What if the price had been 0? The fork has the same entries up to the result of add_up.
  const entries = await journal.read('order-7');
  const at = entries.findIndex(({ event }) => event.type === 'tool-settled' && event.effect === 't8.tool.0');
  const changes = { results: { 't8.tool.0': '0' } };
  const fork = await forkRun({ journal, runId: 'order-7', at, changes });
  console.log((await runLoop({ ...run, runId: fork })).outcome);
}

if (process.argv[1] === import.meta.filename) await main();
