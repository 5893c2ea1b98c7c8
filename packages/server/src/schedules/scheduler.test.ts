import { manualClock } from '@treadle/core/testing';
import { sqliteStore, type SqliteStore } from '@treadle/store';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { ApiError } from '../api-error.ts';
import type { Invocations } from '../apis/agents/invocations.ts';
import { serverKeys } from '../http/keys.ts';
import { checkSchedule, type GivenSchedule, type ScheduleDefinition } from './definition.ts';
import { scheduler, type Scheduler } from './scheduler.ts';

const MINUTE = 60_000;
const START = Date.parse('2026-05-01T00:00:00Z');
const POLL = { timeout: 20_000, interval: 2 };

let store: SqliteStore;
let clock: ReturnType<typeof manualClock>;
/** What the servers have started: the key of each start, and the runs by it. */
let starts: string[];
let runs: Map<string, string>;
let refusal: ApiError | undefined;
let servers: Scheduler[];

beforeEach(async () => {
  store = sqliteStore(':memory:');
  clock = manualClock();
  await clock.advance(START);
  [starts, runs, refusal, servers] = [[], new Map(), undefined, []];
});
afterEach(async () => {
  for (const one of servers) await one.stop();
  await store.close();
});

/** Starts runs as the server does: once for a key. */
const prepare = (async (
  request: { readonly agent: string },
  { tenant }: { readonly tenant: string },
  key: { key: string },
) => ({
  async start() {
    if (refusal) throw refusal;
    starts.push(key.key);
    const known = runs.get(key.key);
    const run = known ?? `run_${runs.size}`;
    if (known === undefined) {
      runs.set(key.key, run);
      const times = { createdAt: 1, updatedAt: 1 };
      await store.requests.create({
        id: `inv_${run}`,
        kind: 'invocation',
        tenant,
        runId: run,
        status: 'in_progress',
        ...times,
        request,
      });
    }
    return {
      type: 'unfinished',
      unfinished: { agent: request.agent, run_id: run, status: 'in_progress', waiting: [] },
    };
  },
})) as unknown as Invocations['prepare'];

function server(): Scheduler {
  const engine = { store, log: pino({ level: 'silent' }) };
  const one = scheduler({ engine, invocations: { prepare }, keys: serverKeys([]), clock });
  servers.push(one);
  return one;
}

function definition(given: Partial<GivenSchedule>): ScheduleDefinition {
  const checked = checkSchedule({ name: 'n', agent: 'a', ...given });
  if (checked.type === 'problem') throw new Error(checked.message);
  return checked.definition;
}

const caller = { tenant: 'default', key: '' };
const endAll = async (): Promise<void> => {
  for (const run of runs.values())
    await store.requests.finish(`inv_${run}`, { status: 'completed', response: 1, at: 1 });
};
/** The times for which runs were started, in minutes since the start of the test. */
const started = (): readonly number[] =>
  [...runs.keys()].map((key) => (Date.parse(key.split(' ')[2]!) - START) / MINUTE);
/** Lets the time pass in steps, so that timers set in between fire too. */
async function pass(minutes: number): Promise<void> {
  for (let second = 0; second < minutes * 60; second += 15) {
    await clock.advance(15_000);
    await new Promise((resolve) => setImmediate(resolve));
  }
  await settled();
}
/** What is due has been looked at. */
async function settled(): Promise<void> {
  await expect
    .poll(async () => {
      await clock.advance(1_000);
      const open = await Promise.all(servers.map((one) => one.list('default')));
      return open.flat().filter(({ next, pending, attempts, definition: { overlap } }) => {
        const isLeft = pending.length > 0 && overlap !== 'wait' && attempts === 0;
        return isLeft || (next ?? Infinity) <= clock.now();
      });
    }, POLL)
    .toEqual([]);
}

describe('a schedule', () => {
  test('starts one run for each due time on one of three servers', async () => {
    const all = [server(), server(), server()];
    for (const one of all) await one.start();
    await all[0]!.add(caller, 'n', definition({ every: '5m', overlap: 'allow' }));
    await pass(31);
    expect(started()).toEqual([5, 10, 15, 20, 25, 30]);
    expect(await all[1]!.find('default', 'n')).toMatchObject({ pending: [], skipped: 0, last: { run: 'run_5' } });
  });

  test.each([
    ['skip', []],
    ['once', [55]],
    ['all', [5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55]],
  ] as const)('missed times: %s', async (missed, expected) => {
    const first = server();
    await first.start();
    await first.add(caller, 'n', definition({ every: '5m', missed, overlap: 'allow' }));
    await first.stop();
    await clock.advance(58 * MINUTE);
    await server().start();
    await settled();
    expect(started()).toEqual(expected);
    await pass(3);
    expect(started()).toEqual([...expected, 60]);
  });

  test('what is due while the run before has not ended is skipped', async () => {
    const one = server();
    await one.start();
    await one.add(caller, 'n', definition({ every: '5m' }));
    await pass(12);
    expect(started()).toEqual([5]);
    expect(await one.find('default', 'n')).toMatchObject({ skipped: 1 });
    await endAll();
    await pass(5);
    expect(started()).toEqual([5, 15]);
  });

  test('what is due while the run before has not ended waits for it', async () => {
    const one = server();
    await one.start();
    await one.add(caller, 'n', definition({ every: '5m', overlap: 'wait' }));
    await pass(16);
    expect(started()).toEqual([5]);
    expect((await one.find('default', 'n'))!.pending).toHaveLength(2);
    await endAll();
    await pass(1);
    expect(started()).toEqual([5, 10]);
    await endAll();
    await pass(1);
    expect(started()).toEqual([5, 10, 15]);
  });

  test('a server that dies after the decision leaves the start to another one, and a second start finds the run', async () => {
    const one = server();
    await one.start();
    await one.add(caller, 'n', definition({ every: '5m', overlap: 'allow' }));
    await one.stop();
    // It has decided, and has started the run. Its entry does not say so.
    const [stored] = await store.schedules.list();
    const due = START + 5 * MINUTE;
    runs.set(`schedule n ${new Date(due).toISOString()}`, 'run_x');
    await store.schedules.change(stored!, {
      ...stored!,
      state: { ...(stored!.state as object), pending: [due], next: due + 5 * MINUTE },
      dueAt: due + 25_000,
    });
    await clock.advance(6 * MINUTE);
    const other = server();
    await other.start();
    await settled();
    expect(await other.find('default', 'n')).toMatchObject({ pending: [], last: { due, run: 'run_x' } });
    expect(started()).toEqual([5]);
    await pass(5);
    expect(started()).toEqual([5, 10]);
  });

  test('a server without capacity tries again, and a workflow that is gone is given up', async () => {
    const one = server();
    await one.start();
    await one.add(caller, 'n', definition({ every: '1h', overlap: 'allow' }));
    refusal = new ApiError(429, 'rate_limit_error', 'Too many runs.');
    await pass(61);
    expect(await one.find('default', 'n')).toMatchObject({ problem: { message: 'Too many runs.' }, skipped: 0 });
    expect((await one.find('default', 'n'))!.attempts).toBeGreaterThan(1);
    refusal = undefined;
    await pass(5);
    expect(started()).toEqual([60]);
    expect(await one.find('default', 'n')).toMatchObject({ problem: null, attempts: 0 });
    refusal = new ApiError(404, 'not_found_error', 'There is no workflow "a".');
    await pass(60);
    expect(await one.find('default', 'n')).toMatchObject({
      problem: { message: 'There is no workflow "a".' },
      skipped: 1,
      pending: [],
    });
  });

  test('one of the configuration begins again when it is changed, and is left alone by servers without it', async () => {
    const [one, other] = [server(), server()];
    one.configure(new Map([['n', { ...definition({ every: '5m', overlap: 'allow' }), key: '' }]]));
    await one.start();
    await other.start();
    expect(await other.list('default')).toEqual([]);
    await pass(6);
    expect(started()).toEqual([5]);
    one.configure(new Map([['n', { ...definition({ every: '20m', overlap: 'allow' }), key: '' }]]));
    await pass(21);
    expect(started()).toHaveLength(2);
    one.configure(new Map());
    await pass(60);
    expect(started()).toHaveLength(2);
  });

  test('is not started by a server whose keys have changed', async () => {
    const one = server();
    await one.start();
    await one.add({ tenant: 'default', key: 'gone' }, 'n', definition({ every: '5m', overlap: 'allow' }));
    await pass(6);
    expect(started()).toEqual([]);
    expect((await one.find('default', 'n'))!.problem!.message).toContain('The key "gone" is not valid any more.');
  });
});

test.each([
  [{ name: 'a b', agent: 'a', every: 5 }, 'name', 'cannot be a name'],
  [{ name: 'n', every: 5 }, 'workflow', 'either a workflow or an agent'],
  [{ name: 'n', agent: 'a', workflow: 'w', every: 5 }, 'workflow', 'either a workflow or an agent'],
  [{ name: 'n', agent: 'a' }, 'cron', 'either "cron" or "every"'],
  [{ name: 'n', agent: 'a', cron: '* * * * *', every: 5 }, 'cron', 'either "cron" or "every"'],
  [{ name: 'n', agent: 'a', every: 5, time_zone: 'UTC' }, 'time_zone', 'is for "cron"'],
  [{ name: 'n', agent: 'a', every: '5 minutes' }, 'every', 'is not an interval'],
  [{ name: 'n', agent: 'a', every: 0 }, 'every', 'is not an interval'],
  [{ name: 'n', agent: 'a', cron: 'x' }, 'cron', 'is not a cron expression'],
  [{ name: 'n', agent: 'a', every: 5, missed: 'all', overlap: 'skip' }, 'overlap', 'Use "wait" or "allow"'],
] as const)('%j is refused', (given, key, message) => {
  expect(checkSchedule(given)).toMatchObject({ type: 'problem', key, message: expect.stringContaining(message) });
});
