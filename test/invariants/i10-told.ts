import type { JournalEntry, LoopResult, Model, StartedRun, Tool, TreadleError } from '@treadle/core';
import fc from 'fast-check';
import type { Core } from './core.ts';
import { manualScheduler, type ManualScheduler } from './manual-scheduler.ts';
import { slowJournal, type Durability, type SlowJournal } from './slow-journal.ts';
import { ensure } from './trace.ts';

/** A run that is opened several times, each time with `resume: 'auto'`. It is narrowed, waits for its client, and ends. */
type Plan = readonly Opening[];

interface Opening {
  readonly acts: readonly Act[];
  /** How its appends and reads are stored, one after the other; the rest at once. */
  readonly durabilities: readonly Durability[];
}

/** Something that is done from outside. `step`: after how many jobs. `ticks`: how many microtasks later. */
interface Act {
  readonly type: 'send' | 'lift' | 'tools' | 'answer' | 'cancel' | 'detach';
  readonly step: number;
  readonly ticks: number;
}

/** What a method said. Undefined while its promise is pending. */
interface Told {
  readonly name: string;
  said: { readonly value: boolean } | { readonly error: TreadleError } | undefined;
}

const MOST_STEPS = 60;

export const plans: fc.Arbitrary<Plan> = fc.array(
  fc.record({
    acts: fc.array(
      fc.record({
        type: fc.constantFrom('send', 'lift', 'tools', 'answer', 'cancel', 'detach'),
        step: fc.oneof(fc.constant(0), fc.nat(12)),
        ticks: fc.oneof(fc.constant(0), fc.nat(12)),
      }),
      { maxLength: 5 },
    ),
    durabilities: fc.array(fc.constantFrom('now', 'now', 'now', 'later', 'later', 'never'), { maxLength: 12 }),
  }),
  { minLength: 1, maxLength: 4 },
);

/**
 * I10: what `send`, `answer`, `changeTools` and `liftNarrowing` say is what the journal has, and an early `cancel` ends the
 * run. This holds for calls before the run is opened, while it is read, while it is in progress, when it has paused or
 * ended, and with a journal that fails.
 */
export async function checkTold(core: Core, plan: Plan): Promise<void> {
  let kept: readonly JournalEntry[] = [];
  for (const [index, opening] of plan.entries()) kept = await driveOnce(core, kept, opening, `opening ${index}`);
}

async function driveOnce(
  core: Core,
  kept: readonly JournalEntry[],
  { acts, durabilities }: Opening,
  name: string,
): Promise<readonly JournalEntry[]> {
  const scheduler = manualScheduler();
  let stored = 0;
  const next = (): Durability => durabilities[stored++] ?? 'now';
  const slow = slowJournal({
    kept,
    snapshot: undefined,
    next,
    wait: (settle) => scheduler.jobs.push({ settle }),
    keep() {},
  });
  const run = core.startLoop({ ...codeOf(core, scheduler), journal: slowToRead(slow, scheduler, next) });
  let ended: { readonly result?: LoopResult } | undefined;
  run.result.then(
    (result) => (ended = { result }),
    () => (ended = {}),
  );
  const told: Told[] = [];
  for (let step = 0; step < MOST_STEPS && (!ended || acts.some((act) => act.step >= step)); step++) {
    const now = acts
      .map((act, index) => ({ ...act, name: `${name}, act ${index}` }))
      .filter((act) => act.step === step);
    for (let tick = 0; now.some(({ ticks }) => ticks >= tick); tick++) {
      for (const act of now) if (act.ticks === tick) told.push(...doAct(core, run, act, slow));
      await undefined;
    }
    await new Promise<void>((resolve) => void setImmediate(resolve));
    scheduler.settle(step);
  }
  ensure(ended !== undefined, () => `${name} has neither ended nor paused`);
  const durable = slow.appended.slice(0, slow.durable());
  for (const one of told) checkSaid(one, slow.appended, durable);
  const { result } = ended;
  if (result && !result.detached && acts.some(isEarlyCancel) && !acts.some(({ type }) => type === 'detach')) {
    ensure(result.outcome !== undefined, () => `${name} was cancelled before it was opened, and has not ended`);
  }
  return durable;
}

function isEarlyCancel({ type, step, ticks }: Act): boolean {
  return type === 'cancel' && step === 0 && ticks === 0;
}

/** Each fact has the name of its act in it, so that it is found in the journal. */
function doAct(
  core: Core,
  run: StartedRun,
  { type, name }: Act & { readonly name: string },
  { durable, appended }: SlowJournal,
): Told[] {
  const told: Told = { name, said: undefined };
  const answer = { type: 'result', effect: 't2.client.0', content: name } as const;
  const saying = {
    send: () => run.send(name),
    lift: () => run.liftNarrowing(name),
    tools: () => run.changeTools(toolsNamed(core, name)),
    answer: () => run.answer(answer).then(() => true),
    cancel: () => run.cancel(),
    detach: () => void run.detach(),
  }[type]();
  saying
    ?.then(
      (value) => {
        told.said = { value };
        const written = value ? entriesOf(told, appended.slice(0, durable())) : 1;
        ensure(written === 1, () => `${type} of ${name} said yes, and ${written} durable entries have it`);
      },
      (error: TreadleError) => (told.said = { error }),
    )
    .catch((error: TreadleError) => (told.said = { error }));
  return saying ? [told] : [];
}

function checkSaid(told: Told, appended: readonly JournalEntry[], durable: readonly JournalEntry[]): void {
  const { name, said } = told;
  ensure(said !== undefined, () => `nothing was said about ${name}`);
  if ('value' in said && said.value) {
    const written = entriesOf(told, durable);
    return ensure(written === 1, () => `${name} was accepted, and ${written} durable entries have it`);
  }
  const written = entriesOf(told, appended);
  if ('value' in said) return ensure(written === 0, () => `${name} was refused, and ${written} entries have it`);
  const { code, message } = said.error;
  if (code === 'journal-failed') return;
  ensure(code === 'answer-unfit', () => `${name} failed: ${message}`);
  ensure(written === 0, () => `${name} was rejected, and ${written} entries have it`);
}

function entriesOf({ name }: Told, entries: readonly JournalEntry[]): number {
  const quoted = JSON.stringify(name);
  return entries.filter(({ event }) => JSON.stringify(event).includes(quoted)).length;
}

/** Reads wait, or fail, like appends. */
function slowToRead(journal: SlowJournal, { later }: ManualScheduler, next: () => Durability): SlowJournal {
  return {
    ...journal,
    async read(...args) {
      const durability = next();
      if (durability !== 'now') await later(undefined);
      if (durability === 'never') throw new Error('the disk cannot be read');
      return journal.read(...args);
    },
  };
}

/** The first turn narrows the run, the second waits for the client, and the third ends it. */
function codeOf(core: Core, { clock, later }: ManualScheduler) {
  const model: Model = {
    id: 'model',
    reply({ key }) {
      const name = { 't1.model.0': 'fetch', 't2.model.0': 'ask' }[key.slice(key.indexOf('/') + 1)];
      return later({
        type: 'reply',
        content: name ? [{ type: 'tool-call', id: name, name, arguments: '{}' }] : [{ type: 'text', text: 'Done.' }],
        finish: name ? 'tool-calls' : 'stop',
        usage: core.NO_USAGE,
        model: 'model',
      });
    },
  };
  const tools = toolsNamed(core, 'at first', () => later({ content: 'narrowed', narrow: { tools: ['fetch', 'ask'] } }));
  return { model, tools, input: 'Go.', runId: 'run', resume: 'auto', clock } as const;
}

function toolsNamed({ tool }: Core, description: string, execute?: () => unknown): readonly Tool[] {
  const fetch = tool({ name: 'fetch', description, effect: 'pure', execute: execute ?? (() => 'fetched') });
  return [fetch, tool({ name: 'ask', description: 'asks the client' })];
}
