import { beforeAll, describe, expect, test } from 'vitest';
import { resultTexts } from '../../test/results.ts';
import { agentTool } from '../agents/agent-tool.ts';
import { memoryJournal } from '../journal/memory.ts';
import type { Journal, JournalEntry, RunStore } from '../journal/port.ts';
import { replay } from '../journal/replay.ts';
import { manualClock, scriptedModel, type ScriptStep } from '../testing/index.ts';
import { Parked } from '../tools/result.ts';
import { tool, type Tool, type ToolDefinition } from '../tools/tool.ts';
import type { ContinueOptions, LiveRun, LoopOptions } from './options.ts';
import { runLoop, streamLoop } from './run.ts';

// A process dies after two ticks. Modules that are loaded when they are needed would take longer.
beforeAll(() =>
  Promise.all([
    import('./reopen.ts'),
    import('./resources.ts'),
    import('./start-run.ts'),
    import('../agents/child-run.ts'),
  ]),
);

/** What is left of the runs of a process that died: their entries. */
async function survivors(store: RunStore): Promise<RunStore> {
  const copy = memoryJournal();
  for (const { runId } of await store.list()) await copy.append(runId, await store.read(runId));
  return copy;
}

/** As after a death: the last driver did not release its lease. */
function leftBehind(store: RunStore): Journal {
  return { ...store, acquire: async (runId) => ({ ...(await store.acquire(runId)), takenOver: true }) };
}

type Options = Omit<LoopOptions, 'model' | 'input' | 'journal' | 'runId'>;

/** A run, and the processes that drive it one after the other. The tools hang unless they say otherwise. */
function processes(options: Options, first: ScriptStep = { calls: [{ name: 'act' }] }) {
  let store = memoryJournal();
  let died = false;
  let begun = false;
  const clock = manualClock();

  function open(): LiveRun {
    const journal = died ? leftBehind(store) : store;
    clock.advance(10).catch(() => {});
    const model = scriptedModel(begun ? ['Done.'] : [first, 'Done.']);
    const shared = { ...options, clock, journal, runId: 'run', model };
    const run = streamLoop(begun ? (shared as ContinueOptions) : { ...shared, input: 'Go.' });
    begun = true;
    return run;
  }

  return {
    /** A process that dies while calls are running. `before`: what it does first. */
    async die(before?: (run: LiveRun) => unknown): Promise<void> {
      const run = open();
      await tick();
      before?.(run);
      await tick();
      store = await survivors(store);
      died = true;
    },
    async detach(): Promise<void> {
      const run = open();
      await tick();
      await run.detach();
      died = false;
    },
    last: async () => open().result,
    entries: async (): Promise<readonly JournalEntry[]> => store.read('run'),
    children: async () => store.list({ parent: 'run' }),
  };
}

function tick(): Promise<void> {
  return new Promise((resolve) => void setImmediate(resolve));
}

/** The tool `act`: it hangs for the first `times` calls. */
function hanging(times: number, definition: Partial<ToolDefinition> = {}): { readonly act: Tool; ran: () => number } {
  let ran = 0;
  const execute = (): unknown => (++ran <= times ? new Promise(() => {}) : 'acted');
  const act = tool({ name: 'act', description: 'Acts', effect: 'pure', ...definition, execute });
  return { act, ran: () => ran };
}

const CRASH_LOOP = { type: 'failed', error: { code: 'crash-loop', message: expect.stringContaining('"act"') } };

describe('a call that was running at five process deaths in a row', () => {
  test('is not attempted again although it starts a process each time', async () => {
    let ran = 0;
    const act = tool({
      name: 'act',
      description: 'Acts',
      effect: 'pure',
      async execute(_, { hold }) {
        ran++;
        await hold(
          'shell',
          () => ({ pid: ran }),
          () => {},
          { process: (shell) => shell },
        );
        return new Promise(() => {});
      },
    });
    const { die, last } = processes({ tools: [act], crashLimit: 2, killProcess: () => true });
    await die();
    await die();
    expect((await last()).outcome).toMatchObject({ type: 'failed', error: { code: 'crash-loop' } });
    expect(ran).toBe(2);
  });

  test.each(['pure', 'idempotent'] as const)('is not attempted again: %s', async (effect) => {
    const { act, ran } = hanging(Infinity, { effect });
    const { die, last, entries } = processes({ tools: [act] });
    for (let death = 1; death <= 5; death++) await die();
    const result = await last();
    expect(result.outcome).toEqual(CRASH_LOOP);
    expect(ran()).toBe(5);
    expect(resultTexts(result)).toEqual([expect.stringContaining('was interrupted')]);
    expect(replay(await entries()).type).toBe('replayed');
  });

  test('is attempted again after four', async () => {
    const { act, ran } = hanging(4);
    const { die, last } = processes({ tools: [act] });
    for (let death = 1; death <= 4; death++) await die();
    expect(await last()).toMatchObject({ outcome: { type: 'completed' }, text: 'Done.' });
    expect(ran()).toBe(5);
  });

  test('is not verified again either', async () => {
    let verified = 0;
    const verify = (): Promise<never> => (verified++, new Promise(() => {}));
    const { act, ran } = hanging(Infinity, { effect: 'once', verify });
    const { die, last } = processes({ tools: [act] });
    for (let death = 1; death <= 6; death++) await die();
    expect((await last()).outcome).toEqual(CRASH_LOOP);
    expect([ran(), verified]).toEqual([1, 5]);
  });

  test('ends the run, and its open child runs are cancelled', async () => {
    const { act } = hanging(Infinity);
    const model = { ...scriptedModel([]), reply: (): Promise<never> => new Promise(() => {}) };
    const helper = agentTool({ name: 'helper', description: 'Helps', model });
    const calls = [{ name: 'act' }, { name: 'helper', arguments: { task: 'Help.' } }];
    const { die, last, children } = processes({ tools: [act, helper] }, { calls });
    // The start of the child run is progress, so the first death does not count.
    for (let death = 0; death <= 5; death++) await die();
    expect((await last()).outcome).toEqual(CRASH_LOOP);
    expect(await children()).toMatchObject([{ status: 'cancelled' }]);
  });

  test('and the other calls of the turn have error results', async () => {
    const { act } = hanging(Infinity);
    const { act: other } = hanging(Infinity, { name: 'other' });
    const calls = [{ name: 'act' }, { name: 'other' }];
    const { die, last } = processes({ tools: [act, other], parallel: false }, { calls });
    for (let death = 1; death <= 5; death++) await die();
    expect(resultTexts(await last())).toEqual([
      expect.stringContaining('The call of "act" was interrupted'),
      'The tool "other" was not called. The run failed before it started.',
    ]);
  });
});

describe('deaths do not count', () => {
  test('before a clean detach', async () => {
    const { act, ran } = hanging(9);
    const { die, detach, last } = processes({ tools: [act] });
    for (let death = 1; death <= 4; death++) await die();
    await detach();
    for (let death = 1; death <= 4; death++) await die();
    expect((await last()).outcome).toEqual({ type: 'completed' });
    expect(ran()).toBe(10);
  });

  test('if all processes were detached', async () => {
    const { act } = hanging(7);
    const { detach, last } = processes({ tools: [act] });
    for (let count = 1; count <= 7; count++) await detach();
    expect((await last()).outcome).toEqual({ type: 'completed' });
  });

  test('before another entry of the run', async () => {
    const { act } = hanging(8);
    const { die, last } = processes({ tools: [act] });
    for (let death = 1; death <= 4; death++) await die();
    await die((run) => run.send('Are you there?'));
    for (let death = 1; death <= 3; death++) await die();
    expect((await last()).outcome).toEqual({ type: 'completed' });
  });

  test('for a call that is a child run, whose own calls count in it', async () => {
    const { act, ran } = hanging(Infinity);
    const child = agentTool({
      name: 'child',
      description: 'x',
      model: scriptedModel([{ calls: [{ name: 'act' }] }]),
      tools: [act],
    });
    const { die, last } = processes({ tools: [child] }, { calls: [{ name: 'child', arguments: { task: 'x' } }] });
    for (let death = 1; death <= 5; death++) await die();
    const result = await last();
    expect(result.outcome).toEqual({ type: 'completed' });
    expect(resultTexts(result)).toEqual([expect.stringContaining('(crash-loop)')]);
    expect(ran()).toBe(5);
  });

  test('while a child run of another call makes progress', async () => {
    const { act } = hanging(6);
    const steps = Array.from({ length: 6 }, (): ScriptStep => ({ calls: [{ name: 'look' }] }));
    let gate = Promise.resolve();
    const look = tool({ name: 'look', description: 'x', effect: 'pure', execute: () => gate.then(() => 'seen') });
    const model = scriptedModel([...steps, 'Found.']);
    const slow = {
      ...model,
      reply: async (...all: Parameters<typeof model.reply>) => (await gate, model.reply(...all)),
    };
    const child = agentTool({
      name: 'child',
      description: 'x',
      model: slow,
      tools: [look],
      maxTurns: 50,
      repeatLimit: 0,
    });
    const calls = [{ name: 'act' }, { name: 'child', arguments: { task: 'x' } }];
    const { die, last } = processes({ tools: [act, child] }, { calls });
    for (let death = 1; death <= 6; death++) {
      // The child makes one step, and then waits until the process dies.
      let open = (): void => {};
      gate = new Promise((resolve) => (open = resolve));
      await die(() => {
        open();
        gate = new Promise(() => {});
      });
    }
    gate = Promise.resolve();
    expect((await last()).outcome).toEqual({ type: 'completed' });
  });

  test('for a parked call', async () => {
    let ran = 0;
    const execute = (): unknown => (++ran <= 7 ? new Parked('device', []) : 'acted');
    const act = tool({ name: 'act', description: 'x', effect: 'idempotent', execute });
    const { die, last } = processes({ tools: [act] });
    for (let death = 1; death <= 7; death++) await die();
    expect((await last()).outcome).toEqual({ type: 'completed' });
  });

  test('if crashLimit is 0, and crashLimit is the limit otherwise', async () => {
    for (const [crashLimit, outcome] of [
      [0, { type: 'completed' }],
      [2, CRASH_LOOP],
    ] as const) {
      const { act } = hanging(6);
      const { die, last } = processes({ tools: [act], crashLimit });
      for (let death = 1; death <= 6 && (crashLimit === 0 || death <= 2); death++) await die();
      expect((await last()).outcome).toEqual(outcome);
    }
    await expect(runLoop({ model: scriptedModel([]), input: 'x', crashLimit: -1 })).rejects.toThrow('crashLimit is -1');
  });
});
