import { expect, test } from 'vitest';
import { killedCalls } from './kill/killed-calls.ts';

/** test/long/edge-kill.test.ts kills each process at every step of the protocol. */
test('a device that is killed while a tool runs has run it once, and says that its effect is unknown', async () => {
  expect(await killedCalls('device', 'tool runs')).toEqual({
    wasKilled: true,
    outcome: 'completed',
    done: 3,
    unknown: 1,
  });
});

test('a device that is killed while a tool runs, and loses its store, does not run the call again', async () => {
  expect(await killedCalls('device', 'tool runs', { losesStore: true })).toEqual({
    wasKilled: true,
    outcome: 'completed',
    done: 3,
    unknown: 1,
  });
});

test('an orchestrator that is killed while a tool runs gets its result from the device', async () => {
  expect(await killedCalls('orchestrator', 'tool runs')).toEqual({
    wasKilled: true,
    outcome: 'completed',
    done: 4,
    unknown: 0,
  });
});
