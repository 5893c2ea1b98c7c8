import { messagesOf, replay, type JournalEntry } from '@treadle/core';
import { findMetrics, type Store } from '@treadle/store';

/** Something that a client was told. It must be true after a power cut. */
export type Fact =
  /** `output` and `status`: of a response that has ended. */
  | { readonly type: 'response'; readonly id: string; readonly status?: string; readonly output?: unknown }
  /** What another API than that of responses has stored. `status`: it has ended. */
  | { readonly type: 'record'; readonly id: string; readonly status?: string }
  | { readonly type: 'deleted'; readonly id: string }
  /** Something else that a server stores by a name. `gone`: it was deleted. */
  | { readonly type: 'stored' | 'gone'; readonly what: StoredThing; readonly id: string }
  /** How many runs of the tenant had completed when they were counted. */
  | { readonly type: 'counted'; readonly completed: number }
  | { readonly type: 'event'; readonly stream: string; readonly seq: number; readonly event: object }
  | { readonly type: 'entry'; readonly run: string; readonly seq: number; readonly entry: object }
  /** The run had so many entries, and this status then. */
  | { readonly type: 'run'; readonly id: string; readonly entries: number; readonly status: string }
  /** The run has ended. */
  | { readonly type: 'ended'; readonly run: string; readonly status: string }
  /** An effect of the run was in its journal, or its end. */
  | { readonly type: 'begun' | 'settled'; readonly run: string; readonly effect: string }
  /** A text in an item that the client of a run has received. */
  | { readonly type: 'item'; readonly run: string; readonly text: string }
  | { readonly type: 'key'; readonly key: string; readonly id: string };

export type StoredThing = 'note' | 'schedule' | 'conversation';

const TENANT = 'default';

/** Names the facts that a store does not have. */
export async function lostFacts(store: Store, facts: readonly Fact[]): Promise<readonly string[]> {
  const streams = new Map<string, Promise<ReadonlyMap<number, object>>>();
  const runs = new Map<string, Promise<readonly JournalEntry[]>>();
  const once = <T>(known: Map<string, T>, key: string, make: () => T): T => {
    const found = known.get(key) ?? make();
    known.set(key, found);
    return found;
  };
  const isStored = async (what: StoredThing, id: string): Promise<boolean> =>
    (await find(store, what, id)) !== undefined;
  const eventsOf = (stream: string) => once(streams, stream, () => allEvents(store, stream));
  const entriesOf = (run: string) => once(runs, run, () => store.read(run));

  async function whyLost(fact: Fact): Promise<string | undefined> {
    switch (fact.type) {
      case 'response': {
        const record = await store.requests.get(TENANT, fact.id);
        if (!record) return 'does not exist';
        if (fact.status !== undefined && record.status !== fact.status) return `is ${record.status}`;
        const { output } = (record.response ?? {}) as { readonly output?: unknown };
        return fact.output === undefined || isSame(output, fact.output) ? undefined : 'has another output';
      }
      case 'record': {
        const record = await store.requests.head(TENANT, fact.id);
        if (!record) return 'does not exist';
        return fact.status === undefined || record.status === fact.status ? undefined : `is ${record.status}`;
      }
      case 'deleted':
        return (await store.requests.head(TENANT, fact.id)) ? 'exists' : undefined;
      case 'stored':
        return (await isStored(fact.what, fact.id)) ? undefined : 'does not exist';
      case 'gone':
        return (await isStored(fact.what, fact.id)) ? 'exists' : undefined;
      case 'counted': {
        const { metrics } = await findMetrics(store, { tenant: TENANT });
        const { completed = 0 } = metrics.loop.runs;
        return completed >= fact.completed ? undefined : `are ${completed}`;
      }
      case 'event': {
        const event = (await eventsOf(fact.stream)).get(fact.seq);
        if (!event) return 'does not exist';
        return isSame(withoutResponse(event), withoutResponse(fact.event)) ? undefined : 'is another event';
      }
      case 'entry': {
        const entry = (await entriesOf(fact.run))[fact.seq];
        if (!entry) return 'does not exist';
        return isSame(entry, fact.entry) ? undefined : 'is another entry';
      }
      case 'run': {
        const [run] = await store.list({ runId: fact.id, limit: 1 });
        if (!run) return 'does not exist';
        if (run.entries < fact.entries) return `has ${run.entries} entries`;
        return run.entries > fact.entries || run.status === fact.status ? undefined : `is ${run.status}`;
      }
      case 'ended': {
        const [run] = await store.list({ runId: fact.run, limit: 1 });
        return run?.status === fact.status ? undefined : `is ${run?.status}`;
      }
      case 'begun':
      case 'settled':
        return isInJournal(fact, await entriesOf(fact.run)) ? undefined : 'is not recorded';
      case 'item':
        return isRecorded(fact.text, await entriesOf(fact.run)) ? undefined : 'is not recorded';
      case 'key': {
        const found = await store.requests.findKey(TENANT, fact.key, Date.now());
        return found?.response === fact.id ? undefined : `belongs to ${found?.response}`;
      }
      default:
        return fact satisfies never;
    }
  }

  const lost: string[] = [];
  for (const fact of facts) {
    const why = await whyLost(fact);
    if (why !== undefined) lost.push(`${JSON.stringify(fact).slice(0, 300)} ${why}`);
  }
  return lost;
}

async function find({ memory, schedules, conversations }: Store, what: StoredThing, id: string): Promise<unknown> {
  if (what === 'note') return memory.get({ tenant: TENANT }, id);
  return what === 'schedule' ? schedules.get(TENANT, `schedule ${id}`) : conversations.get(TENANT, id);
}

function isInJournal(
  { type, effect }: Extract<Fact, { type: 'begun' | 'settled' }>,
  entries: readonly JournalEntry[],
): boolean {
  if (type === 'begun') return entries.some(({ issued }) => issued.includes(effect));
  return entries.some(({ event }) => 'effect' in event && event.effect === effect);
}

/** What a call that was denied returns is in no event: it follows from the verdict. */
function isRecorded(text: string, entries: readonly JournalEntry[]): boolean {
  const isIn = (value: unknown): boolean => JSON.stringify(value).includes(JSON.stringify(text));
  if (isIn(entries)) return true;
  const replayed = replay(entries);
  return replayed.type === 'replayed' && isIn(messagesOf(replayed.state.history));
}

async function allEvents({ streams }: Store, stream: string): Promise<ReadonlyMap<number, object>> {
  const found = new Map<number, object>();
  for (let last = 0; ; last = Math.max(...found.keys())) {
    const page = await streams.read(stream, last);
    if (page.length === 0) return found;
    for (const { seq, event } of page) found.set(seq, event as object);
  }
}

/** Each client sees the response in its own form. */
function withoutResponse(event: object): object {
  return { ...event, response: undefined };
}

function isSame(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}
