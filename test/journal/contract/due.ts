import { agentTool, Parked, runLoop, tool, type RunStore } from '@treadle/core';
import { manualClock, scriptedModel } from '@treadle/core/testing';
import { resumeDue, sleepTool } from '@treadle/core/timers';
import { describe, expect, test } from 'vitest';
import type { Subject } from './subject.ts';

const DAY = 86_400_000;

/** Starts a run that sleeps, a run that waits for a client, and one whose child run sleeps. */
async function startRuns(journal: RunStore): Promise<void> {
  const clock = manualClock(0);
  const sleep = (seconds: number) => scriptedModel([{ calls: [{ name: 'sleep', arguments: { seconds } }] }]);
  const tools = [sleepTool({ clock }), tool({ name: 'pick', description: '' })];
  const common = { tools, journal, clock, input: 'Go.' };
  await runLoop({ ...common, model: sleep(20), runId: 'later' });
  await runLoop({ ...common, model: sleep(10), runId: 'sooner' });
  await runLoop({ ...common, model: scriptedModel([{ calls: [{ name: 'pick' }] }]), runId: 'client' });
  const child = agentTool({ name: 'child', description: '', model: sleep(15), tools });
  const model = scriptedModel([{ calls: [{ name: 'child', arguments: { task: 'x' } }] }]);
  await runLoop({ ...common, model, tools: [child], runId: 'parent' });
}

/** Runs that are resumed at a time. */
export function dueContract(subject: Subject): void {
  describe('runs that are due', () => {
    test('are listed, the earliest first, without child runs', async () => {
      const { store } = subject;
      await startRuns(store);
      const due = async (...filters: Parameters<RunStore['list']>) =>
        (await store.list(...filters)).map(({ runId, wakeAt }) => `${runId} ${wakeAt}`);
      expect(await due({ due: { to: Infinity } })).toEqual(['sooner 10000', 'parent 15000', 'later 20000']);
      expect(await due({ due: { to: 15_000 } })).toEqual(['sooner 10000', 'parent 15000']);
      expect(await due({ due: { from: 15_000, to: 20_000 }, limit: 1 })).toEqual(['parent 15000']);
      expect(await due({ due: { to: 9_999 } })).toEqual([]);
      expect(await due({ due: { to: Infinity }, status: ['running'] })).toEqual([]);
    });

    test('are not due any more once they were resumed', async () => {
      const { store } = subject;
      await startRuns(store);
      const clock = manualClock(12_000);
      const model = scriptedModel(['Done.']);
      const [woken] = await resumeDue(store, () => ({ model, tools: [sleepTool({ clock })] }), { clock });
      expect(woken).toMatchObject({ type: 'failed', runId: 'sooner' });
      const tools = [sleepTool({ clock }), tool({ name: 'pick', description: '' })];
      const [again] = await resumeDue(store, () => ({ model: scriptedModel(['Done.']), tools }), { clock });
      expect(again).toMatchObject({ type: 'resumed', runId: 'sooner', result: { text: 'Done.' } });
      expect(await store.list({ due: { to: clock.now() } })).toEqual([]);
      expect((await store.list()).find(({ runId }) => runId === 'sooner')).not.toHaveProperty('wakeAt');
    });

    test('are also those that failed and are retried later, until they are retried', async () => {
      const { store } = subject;
      const error = { code: 'rate-limit', message: 'Wait.', retryable: true, retryAfterMs: DAY } as const;
      const failing = scriptedModel([() => ({ type: 'failure', error })]);
      const common = { journal: store, clock: manualClock(0), input: 'Go.' };
      await runLoop({ ...common, model: failing, runId: 'retried', retryLater: true });
      const forGood = scriptedModel([() => ({ type: 'failure', error })]);
      await runLoop({ ...common, model: forGood, runId: 'failed' });
      expect(await store.list({ due: { to: DAY - 1 } })).toEqual([]);
      expect(await store.list({ due: { to: DAY }, status: ['paused'] })).toEqual([]);
      expect(await store.list({ due: { to: DAY } })).toMatchObject([
        { runId: 'retried', status: 'failed', wakeAt: DAY },
      ]);
      const woken = await resumeDue(store, () => ({ model: scriptedModel(['Done.']) }), { clock: manualClock(DAY) });
      expect(woken).toMatchObject([{ type: 'resumed', runId: 'retried', result: { text: 'Done.' } }]);
      expect(await store.list({ due: { to: Infinity } })).toEqual([]);
      expect(await store.list({ status: ['failed'] })).toMatchObject([{ runId: 'failed' }]);
    });

    test('are woken again and again, for weeks', async () => {
      const { store } = subject;
      const acted: string[] = [];
      let isArrived = false;
      const order = tool({
        name: 'order',
        description: 'Orders a parcel',
        execute: (_, { key }) => (acted.push(key), new Parked('in transit', [], { wakeAt: 3 * DAY, ttlMs: 60 * DAY })),
        verify: (_, { parked }) =>
          isArrived
            ? { type: 'done', result: 'arrived' }
            : new Parked('in transit', [], { wakeAt: (parked?.wakeAt ?? 0) + 3 * DAY }),
      });
      const model = scriptedModel([{ calls: [{ name: 'order' }] }]);
      const run = { model, tools: [order], journal: store, clock: manualClock(0), runId: 'parcel', input: 'Order it.' };
      await runLoop(run);
      const woken: string[] = [];
      for (let time = 1; time <= 4; time++) {
        const clock = manualClock(time * 3 * DAY);
        isArrived = time === 4;
        const resumed = await resumeDue(store, () => ({ model: scriptedModel(['It is here.']), tools: [order] }), {
          clock,
        });
        for (const one of resumed) {
          woken.push(one.type === 'resumed' ? `${one.result.outcome?.type ?? one.result.wakeAt! / DAY}` : one.type);
        }
      }
      expect(woken).toEqual(['6', '9', '12', 'completed']);
      expect(acted).toEqual(['parcel/t1.tool.0']);
    });
  });
}
