import { describe, expect, test } from 'vitest';
import { hasMosquitto } from '../edge/brokers.ts';
import { killedCalls, STEPS, TARGETS, type BrokerName } from '../edge/kill/killed-calls.ts';

const BROKERS: readonly BrokerName[] = ['embedded', ...(hasMosquitto ? (['mosquitto'] as const) : [])];
const CASES = BROKERS.flatMap((broker) => TARGETS.map((target) => ({ broker, target })));

/** Only a device that dies while a tool runs, or before its result is recorded, does not know what became of the call. */
describe.each(CASES)('with the $broker broker, the $target is killed', ({ broker, target }) => {
  test.each(STEPS)('at the step: %s', async (step) => {
    const killed = await killedCalls(target, step, { kind: broker });
    expect(killed).toMatchObject({ wasKilled: true, outcome: 'completed' });
    if (target !== 'device') expect(killed.unknown).toBe(0);
  });
});

test.each(STEPS)('the device is killed, and its store removed, at the step: %s', async (step) => {
  const killed = await killedCalls('device', step, { losesStore: true });
  expect(killed).toMatchObject({ wasKilled: true, outcome: 'completed' });
  expect(killed.unknown).toBeLessThanOrEqual(1);
});
