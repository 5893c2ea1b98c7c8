import { describe, expect, test } from 'vitest';
import { resultTexts } from '../../test/results.ts';
import { agentTool } from '../agents/agent-tool.ts';
import { forkRun } from '../journal/fork.ts';
import type { Item } from '../journal/items.ts';
import { replay } from '../journal/replay.ts';
import type { HeldProcess } from '../machine/resources.ts';
import { manualClock, memoryJournal, scriptedModel, type ScriptStep } from '../testing/index.ts';
import { tool, type HoldOptions, type Tool, type ToolContext } from '../tools/tool.ts';
import type { Policy } from '../policy/port.ts';
import { approve } from './make-answer.ts';
import type { Answer, KeptResource, KeptResources, LoopOptions } from './options.ts';
import { runLoop, streamLoop } from './run.ts';

const nextTick = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));
const call = (...names: readonly string[]): ScriptStep => ({ calls: names.map((name) => ({ name })) });

/** Shells that log when they are opened, used and closed. */
function shells(options: HoldOptions<string> = {}) {
  const log: string[] = [];
  let opened = 0;
  const hold = ({ hold: of }: ToolContext): ReturnType<typeof of<string>> =>
    of(
      'shell',
      () => {
        log.push(`open ${++opened}`);
        return Promise.resolve(`shell ${opened}`);
      },
      (resource) => void log.push(`close ${resource}`),
      options,
    );
  const use = async (context: ToolContext): Promise<string> => {
    const { resource, isNew } = await hold(context);
    log.push(`use ${resource}`);
    return `${resource}${isNew ? ', new' : ''}`;
  };
  const named = (name: string): Tool => tool({ name, description: name, execute: (_, context) => use(context) });
  return { log, hold, tools: [named('run'), named('type')] };
}

const PROCESS: HeldProcess = { pid: 4_242, startedAt: 'then', host: 'here', mark: 'x1' };

describe('a resource', () => {
  test('is opened once for all tools and turns of a run, and closed at its end', async () => {
    const { log, tools } = shells();
    const model = scriptedModel([call('run', 'type'), call('run'), 'Done.']);
    const result = await runLoop({ model, tools, input: 'Go.' });
    expect(resultTexts(result)).toEqual(['shell 1, new', 'shell 1', 'shell 1']);
    expect(log).toEqual(['open 1', 'use shell 1', 'use shell 1', 'use shell 1', 'close shell 1']);
  });

  test.each<[string, (live: ReturnType<typeof streamLoop>) => unknown]>([
    ['cancelled', (live) => live.cancel()],
    ['detached', (live) => void live.detach()],
  ])('is closed when the run is %s', async (_, stop) => {
    const { log, tools } = shells();
    const hang = tool({ name: 'hang', description: '', execute: () => new Promise(() => {}) });
    const live = streamLoop({
      model: scriptedModel([call('run'), call('hang')]),
      tools: [...tools, hang],
      input: 'Go.',
    });
    for await (const item of live) if (item.type === 'call-started' && item.call.name === 'hang') stop(live);
    await live.result;
    expect(log.at(-1)).toBe('close shell 1');
  });

  test('is closed when the lease is lost', async () => {
    const { log, tools } = shells();
    const lost = new AbortController();
    const store = memoryJournal();
    const journal = {
      ...store,
      acquire: async (runId: string) => ({ ...(await store.acquire(runId)), lost: lost.signal }),
    };
    const hang = tool({ name: 'hang', description: '', execute: () => (lost.abort(new Error('gone')), nextTick()) });
    const model = scriptedModel([call('run'), call('hang')]);
    const result = runLoop({ model, tools: [...tools, hang], journal, input: 'Go.' });
    await expect(result).rejects.toMatchObject({ code: 'journal-failed' });
    expect(log.at(-1)).toBe('close shell 1');
  });

  test('is closed when the run pauses, and a new one is opened when it is resumed', async () => {
    const { log, tools } = shells();
    const policy: Policy = { judge: (calls) => calls.map(({ name }) => ({ type: name === 'type' ? 'ask' : 'allow' })) };
    const model = scriptedModel([call('run'), call('type'), 'Done.']);
    const run = { model, tools, policy, journal: memoryJournal(), runId: 'run' };
    const { waiting } = await runLoop({ ...run, input: 'Go.' });
    expect(log.at(-1)).toBe('close shell 1');
    const [wait] = waiting;
    if (wait?.type !== 'approval') throw new Error('expected an approval');
    const { effect, digest } = wait;
    const result = await runLoop({ ...run, answers: [{ type: 'approval', effect, digest, approved: true }] });
    expect(resultTexts(result)).toEqual(['shell 1, new', 'shell 2, new']);
    expect(log.at(-1)).toBe('close shell 2');
  });

  test('is closed when no call has used it for holdIdleMs, and the next call is told that it is new', async () => {
    const { log, tools } = shells();
    const clock = manualClock(0);
    const idle = tool({
      name: 'idle',
      description: '',
      timeoutMs: 10_000,
      async execute() {
        await clock.advance(999);
        log.push('999');
        await clock.advance(1);
        await nextTick();
      },
    });
    const model = scriptedModel([call('run'), call('idle'), call('run'), 'Done.']);
    const result = await runLoop({ model, tools: [...tools, idle], clock, holdIdleMs: 1_000, input: 'Go.' });
    expect(resultTexts(result)).toEqual(['shell 1, new', '(no output)', 'shell 2, new']);
    expect(log.slice(2, 5)).toEqual(['999', 'close shell 1', 'open 2']);
  });

  test('is not closed while it is busy, although no call uses it', async () => {
    const clock = manualClock(0);
    const { log, tools } = shells({ isBusy: () => clock.now() < 2_500 });
    const idle = tool({
      name: 'idle',
      description: '',
      timeoutMs: 10_000,
      async execute() {
        for (const at of [1_000, 2_000, 3_000]) {
          await clock.advance(1_000);
          await nextTick();
          log.push(`${at}`);
        }
      },
    });
    const model = scriptedModel([call('run'), call('idle'), 'Done.']);
    await runLoop({ model, tools: [...tools, idle], clock, holdIdleMs: 1_000, input: 'Go.' });
    expect(log.slice(2)).toEqual(['1000', '2000', 'close shell 1', '3000']);
  });

  test('is not closed while a call uses it', async () => {
    const { log, hold } = shells();
    const clock = manualClock(0);
    const long = tool({
      name: 'long',
      description: '',
      timeoutMs: 1_000_000,
      async execute(_, context) {
        await hold(context);
        await clock.advance(400_000);
        return (await hold(context)).resource;
      },
    });
    const result = await runLoop({ model: scriptedModel([call('long'), 'Done.']), tools: [long], clock, input: 'Go.' });
    expect(resultTexts(result)).toEqual(['shell 1']);
    expect(log).toEqual(['open 1', 'close shell 1']);
  });

  test('that cannot be opened is an error of the call, and the next call tries again', async () => {
    let tries = 0;
    const open = (): string => {
      if (++tries === 1) throw new Error('no port');
      return 'open';
    };
    const connect = tool({
      name: 'connect',
      description: '',
      execute: async (_, { hold }) => (await hold('port', open, () => {})).resource,
    });
    const model = scriptedModel([call('connect'), call('connect'), 'Done.']);
    const result = await runLoop({ model, tools: [connect], input: 'Go.' });
    expect(resultTexts(result)).toEqual(['The tool "connect" failed: no port', 'open']);
  });

  test.each<[string, () => unknown, string]>([
    ['fails to close', () => Promise.reject(new Error('stuck')), 'stuck'],
    ['never closes', () => new Promise(() => {}), 'it was not closed within 10000 ms'],
  ])('that %s is reported, and does not change the outcome', async (_, close, problem) => {
    const clock = manualClock(0);
    const items: Item[] = [];
    const connect = tool({
      name: 'connect',
      description: '',
      execute: async (_input, { hold }) => (await hold('port', () => 'open', close)).resource,
    });
    const model = scriptedModel([call('connect'), 'Done.']);
    const result = runLoop({ model, tools: [connect], clock, input: 'Go.', onItem: (item) => items.push(item) });
    await nextTick();
    await nextTick();
    await clock.advance(10_000);
    expect((await result).outcome).toEqual({ type: 'completed' });
    expect(items.at(-1)).toEqual({ type: 'resource-problem', name: 'port', problem });
  });

  test('that is still being opened at the end is closed when it is open', async () => {
    const { log } = shells();
    const opening = Promise.withResolvers<string>();
    const connect = tool({
      name: 'connect',
      description: '',
      async execute(_, { hold }) {
        const close = (resource: string): void => void log.push(`close ${resource}`);
        void hold('port', () => (log.push('open'), opening.promise), close);
        while (log.length === 0) await nextTick();
        return 'soon';
      },
    });
    const result = runLoop({ model: scriptedModel([call('connect'), 'Done.']), tools: [connect], input: 'Go.' });
    while (log.length === 0) await nextTick();
    await nextTick();
    opening.resolve('port');
    await result;
    expect(log).toEqual(['open', 'close port']);
  });

  test('cannot be held by a call that has ended', async () => {
    const { log, hold } = shells();
    let late: Promise<unknown> | undefined;
    const leave = tool({
      name: 'leave',
      description: '',
      execute(_, context) {
        late = nextTick().then(() => hold(context));
        late.catch(() => {});
        return 'left';
      },
    });
    await runLoop({ model: scriptedModel([call('leave'), 'Done.']), tools: [leave], input: 'Go.' });
    await expect(late).rejects.toThrow('has ended, so it cannot hold "shell"');
    expect(log).toEqual([]);
  });

  test('of a child run is its own', async () => {
    const { log, tools } = shells();
    const helper = agentTool({ name: 'helper', description: '', model: scriptedModel([call('type'), 'Ok.']), tools });
    const help = { calls: [{ name: 'helper', arguments: { task: 'x' } }] };
    await runLoop({ model: scriptedModel([call('run'), help, 'Done.']), tools: [...tools, helper], input: 'Go.' });
    expect(log).toEqual(['open 1', 'use shell 1', 'open 2', 'use shell 2', 'close shell 2', 'close shell 1']);
  });

  test('without a name or a function is an error of the tool', async () => {
    const bad = tool({
      name: 'bad',
      description: '',
      execute: async (_, { hold }) => {
        await expect(
          hold(
            '',
            () => 1,
            () => {},
          ),
        ).rejects.toThrow('without a name');
        await expect(hold('x', undefined as never, () => {})).rejects.toThrow('without functions');
      },
    });
    const result = await runLoop({ model: scriptedModel([call('bad'), 'Done.']), tools: [bad], input: 'Go.' });
    expect(resultTexts(result)).toEqual(['(no output)']);
    const options = { model: scriptedModel([]), input: 'Go.', holdIdleMs: -1 };
    await expect(runLoop(options)).rejects.toMatchObject({ code: 'invalid-options' });
  });
});

describe('the process of a resource', () => {
  const options = { process: () => PROCESS };

  test('is recorded before the call gets it', async () => {
    const { tools, hold } = shells(options);
    const journal = memoryJournal();
    const check = tool({
      name: 'check',
      description: '',
      async execute(_, context) {
        await hold(context);
        return (await journal.read('run')).map(({ event }) => event.type).at(-1);
      },
    });
    const model = scriptedModel([call('check'), 'Done.']);
    const result = await runLoop({ model, tools: [...tools, check], journal, runId: 'run', input: 'Go.' });
    expect(resultTexts(result)).toEqual(['resource-opened']);
    const entries = await journal.read('run');
    const event = entries.find(({ event: { type } }) => type === 'resource-opened')?.event;
    expect(event).toEqual({
      type: 'resource-opened',
      at: expect.any(Number),
      runId: 'run',
      name: 'shell',
      process: PROCESS,
    });
  });

  test('that will have a mark is recorded by it before it is started', async () => {
    const MARKED: HeldProcess = { host: 'here', mark: 'x1' };
    const journal = memoryJournal();
    const seen: unknown[] = [];
    const resources = async () => replay(await journal.read('run')).state.resources;
    const start = tool({
      name: 'start',
      description: '',
      async execute(_, { hold }) {
        const open = async () => void seen.push(await resources());
        await hold('shell', open, () => {}, { process: () => PROCESS, marked: MARKED });
        seen.push(await resources());
      },
    });
    const model = scriptedModel([call('start'), 'Done.']);
    await runLoop({ model, tools: [start], journal, runId: 'run', input: 'Go.' });
    const shell = { runId: 'run', name: 'shell' };
    expect(seen).toEqual([[{ ...shell, process: MARKED }], [{ ...shell, process: PROCESS }]]);
  });

  test.each<[string, HoldOptions<string>]>([
    ['a process', { process: () => ({ startedAt: 'then' }) }],
    ['a mark', { marked: { host: 'here' } }],
  ])('that has neither a pid nor a mark as %s is not held', async (_, wrong) => {
    const { tools } = shells(wrong);
    const result = await runLoop({ model: scriptedModel([call('run'), 'Done.']), tools, input: 'Go.' });
    expect(resultTexts(result)[0]).toContain('"shell" has neither a pid nor a mark');
  });

  test('that closes because it is idle is recorded as closed', async () => {
    const { tools } = shells(options);
    const clock = manualClock(0);
    const journal = memoryJournal();
    const idle = tool({
      name: 'idle',
      description: '',
      timeoutMs: 1_000_000,
      execute: async () => (await clock.advance(300_000), nextTick()),
    });
    const model = scriptedModel([call('run'), call('idle'), 'Done.']);
    await runLoop({ model, tools: [...tools, idle], clock, journal, runId: 'run', input: 'Go.' });
    const types = (await journal.read('run')).map(({ event }) => event.type);
    expect(types.filter((type) => type.startsWith('resource'))).toEqual(['resource-opened', 'resource-closed']);
  });

  /** A run that was interrupted while a tool used its process. */
  async function interrupted() {
    const { tools, hold } = shells(options);
    const journal = memoryJournal();
    const hang = tool({
      name: 'hang',
      description: '',
      execute: async (_, context) => (await hold(context), new Promise(() => {})),
    });
    const run = { model: scriptedModel([call('hang'), 'Done.']), tools: [...tools, hang], journal, runId: 'run' };
    const live = streamLoop({ ...run, input: 'Go.' });
    for await (const item of live)
      if (item.type === 'fact' && item.event.type === 'resource-opened') void live.detach();
    await live.result;
    return run;
  }

  test('is killed when the run is resumed, before its call is recorded as interrupted', async () => {
    const run = await interrupted();
    const { journal } = run;
    const killed: unknown[] = [];
    const result = await runLoop({
      ...run,
      async killProcess(process) {
        killed.push(process, (await journal.read('run')).at(-1)!.event.type);
        return true;
      },
    });
    expect(killed).toEqual([PROCESS, 'resource-opened']);
    expect(resultTexts(result)[0]).toContain('was interrupted');
    const types = (await journal.read('run')).map(({ event }) => event.type);
    expect(types.slice(2, 5)).toEqual(['resource-opened', 'resource-closed', 'effect-lost']);
  });

  test.each<[string, object]>([
    ['belongs to another host', { killProcess: () => false }],
    ['cannot be killed, because there is no killProcess', {}],
  ])('that %s is not reported as closed', async (_, more) => {
    const run = await interrupted();
    await runLoop({ ...run, ...more });
    const types = (await run.journal.read('run')).map(({ event }) => event.type);
    expect(types).not.toContain('resource-closed');
  });

  test('that cannot be killed stops the resume, and nothing is recorded', async () => {
    const run = await interrupted();
    const before = await run.journal.read('run');
    const killProcess = (): never => {
      throw new Error('not permitted');
    };
    await expect(runLoop({ ...run, killProcess })).rejects.toThrow('not permitted');
    expect(await run.journal.read('run')).toEqual(before);
  });

  test('of the original of a fork is left alone', async () => {
    const { tools } = shells(options);
    const journal = memoryJournal();
    const run = { tools, journal };
    const model = scriptedModel([call('run'), 'Done.', 'Done again.']);
    await runLoop({ ...run, model, runId: 'run', input: 'Go.' });
    const entries = await journal.read('run');
    const at = entries.findIndex(({ event }) => event.type === 'tool-settled');
    const runId = await forkRun({ journal, runId: 'run', at });
    const killed: unknown[] = [];
    await runLoop({ ...run, model, runId, killProcess: (process) => killed.push(process) > 0 });
    expect(killed).toEqual([]);
  });

  test('of a child run is killed with its parent', async () => {
    const { hold } = shells(options);
    const journal = memoryJournal();
    const hang = tool({
      name: 'hang',
      description: '',
      execute: async (_, context) => (await hold(context), new Promise(() => {})),
    });
    const helper = agentTool({
      name: 'helper',
      description: '',
      model: scriptedModel([call('hang'), 'Helped.']),
      tools: [hang],
    });
    const model = scriptedModel([{ calls: [{ name: 'helper', arguments: { task: 'x' } }] }, 'Done.']);
    const run = { model, tools: [helper], journal, runId: 'run' };
    const live = streamLoop({ ...run, input: 'Go.' });
    while (!(await journal.read('run.t1.tool.0')).some(({ event }) => event.type === 'resource-opened'))
      await nextTick();
    await live.detach();
    const killed: unknown[] = [];
    await runLoop({ ...run, killProcess: (process) => killed.push(process) > 0 });
    expect(killed).toEqual([PROCESS]);
  });
});

describe('a resource that may outlive its run', () => {
  /** Keeps what each run leaves for the next one. */
  function shelf() {
    let left: KeptResource[] = [];
    const kept: KeptResources = {
      take: () => left.splice(0),
      keep: async (_, resources) => void (left = [...resources]),
    };
    return { kept, names: () => left.map(({ name }) => name) };
  }
  const held = { process: () => PROCESS, passes: true as const };

  test('passes to the next run of the conversation, with its process', async () => {
    const { log, tools } = shells(held);
    const { kept, names } = shelf();
    const journal = memoryJournal();
    const say = async (runId: string, ...script: ScriptStep[]) =>
      resultTexts(await runLoop({ model: scriptedModel(script), tools, journal, runId, kept, input: 'Go.' }));
    expect(await say('a', call('run'), 'Done.')).toEqual(['shell 1, new']);
    expect(names()).toEqual(['shell']);
    // A message that does not use it passes it on.
    expect(await say('b', 'Done.')).toEqual([]);
    expect(await say('c', call('run'), 'Done.')).toEqual(['shell 1']);
    expect(log).toEqual(['open 1', 'use shell 1', 'use shell 1']);
    const [started] = await journal.read('c');
    expect(started!.event).toMatchObject({ resources: [{ runId: 'c', name: 'shell', process: PROCESS }] });
    expect(replay(await journal.read('b')).state.resources).toEqual([{ runId: 'b', name: 'shell', process: PROCESS }]);
  });

  test.each<[string, HoldOptions<string>, Partial<LoopOptions>]>([
    ['the tool does not allow it', { process: () => PROCESS }, {}],
    [
      'the run pauses, and nothing can give it back',
      held,
      { policy: { judge: (calls) => calls.map(() => ({ type: 'ask' as const })) } },
    ],
  ])('is closed if %s', async (_, options, more) => {
    const { log, tools } = shells(options);
    const { kept, names } = shelf();
    const client = tool({ name: 'client', description: '', needsApproval: true, execute: () => '' });
    const model = scriptedModel([call('run'), call('client'), 'Done.']);
    await runLoop({ model, tools: [...tools, client], kept, journal: memoryJournal(), input: 'Go.', ...more });
    expect(names()).toEqual([]);
    expect(log.filter((line) => line.startsWith('open'))).toHaveLength(
      log.filter((line) => line.startsWith('close')).length,
    );
  });

  describe('and that pauses', () => {
    const policy: Policy = { judge: (calls) => calls.map(({ name }) => ({ type: name === 'type' ? 'ask' : 'allow' })) };

    /** Pauses a run that holds a shell. Returns how to resume it. */
    async function paused() {
      const { log, tools } = shells(held);
      const left = new Map<string, readonly KeptResource[]>();
      const others: string[] = [];
      const kept: KeptResources = {
        take: () => [],
        keep: async (runId, resources, isPaused) => void left.set(`${runId}${isPaused ? ' paused' : ''}`, resources),
        takeBack(runId, isOpen) {
          const all = left.get(`${runId} paused`) ?? [];
          left.delete(`${runId} paused`);
          others.push(...all.filter((one) => !isOpen(one)).map(({ name }) => name));
          return all.filter(isOpen);
        },
      };
      const killed: HeldProcess[] = [];
      const killProcess = (process: HeldProcess): boolean => (killed.push(process), true);
      const journal = memoryJournal();
      const model = scriptedModel([call('run'), call('type'), 'Done.']);
      const run = { model, tools, policy, journal, runId: 'run', killProcess };
      const { waiting } = await runLoop({ ...run, kept, input: 'Go.' });
      expect([log, [...left.keys()]]).toEqual([['open 1', 'use shell 1'], ['run paused']]);
      return { log, left, others, killed, run, kept, answers: [approve(waiting[0]!)] };
    }

    test('is given back when the run is resumed, and is not killed', async () => {
      const { log, left, killed, run, kept, answers } = await paused();
      const result = await runLoop({ ...run, kept, answers });
      expect(resultTexts(result)).toEqual(['shell 1, new', 'shell 1']);
      expect([log.at(-1), killed, [...left.keys()]]).toEqual(['use shell 1', [], ['run']]);
    });

    test('is kept if the run cannot be resumed', async () => {
      const { left, killed, run, kept, answers } = await paused();
      const unfit = [{ ...answers[0]!, digest: 'other' } as Answer];
      await expect(runLoop({ ...run, kept, answers: unfit })).rejects.toMatchObject({ code: 'answer-unfit' });
      expect([killed, [...left.keys()]]).toEqual([[], ['run paused']]);
    });

    test('is not given back if another process has driven the run, and has killed it', async () => {
      const { others, killed, run, kept, answers } = await paused();
      // It is resumed elsewhere, and still waits.
      await runLoop(run);
      expect(killed).toEqual([PROCESS]);
      const result = await runLoop({ ...run, kept, answers });
      expect(resultTexts(result)).toEqual(['shell 1, new', 'shell 2, new']);
      expect(others).toEqual(['shell']);
    });
  });

  test('passes on if the run is cancelled, and is closed if it is detached', async () => {
    const { log, tools } = shells(held);
    const { kept, names } = shelf();
    const hang = tool({ name: 'hang', description: '', execute: () => new Promise(() => {}) });
    const stopped = async (stop: (live: ReturnType<typeof streamLoop>) => unknown): Promise<void> => {
      const model = scriptedModel([call('run'), call('hang')]);
      const live = streamLoop({ model, tools: [...tools, hang], kept, input: 'Go.' });
      for await (const item of live) if (item.type === 'call-started' && item.call.name === 'hang') stop(live);
      await live.result;
    };
    await stopped((live) => live.cancel());
    expect(names()).toEqual(['shell']);
    await stopped((live) => void live.detach());
    expect([names(), log.at(-1)]).toEqual([[], 'close shell 1']);
  });

  test('is killed if the run that has taken it over is resumed, and not by a fork of it', async () => {
    const { tools } = shells(held);
    const journal = memoryJournal();
    const taken = { name: 'shell', value: 'shell 0', close: () => {}, process: PROCESS };
    const kept: KeptResources = { take: () => [taken], keep: async () => {} };
    const fail: ScriptStep = { type: 'failure', error: { code: 'network', message: 'gone', retryable: false } };
    await runLoop({ model: scriptedModel([fail]), tools, journal, runId: 'b', kept, input: 'Go.' });
    const killed: HeldProcess[] = [];
    const killProcess = (process: HeldProcess): boolean => (killed.push(process), true);
    await forkRun({ journal, runId: 'b', at: 0, newRunId: 'f' });
    const resumed = { model: scriptedModel(['Done.', 'Done.']), tools, journal, killProcess };
    await runLoop({ ...resumed, runId: 'f' });
    expect(killed).toEqual([]);
    await runLoop({ ...resumed, runId: 'b' });
    expect(killed).toEqual([PROCESS]);
  });

  test('is closed when the next run does not use it for holdIdleMs', async () => {
    const { log, tools } = shells(held);
    const { kept } = shelf();
    const clock = manualClock(0);
    await runLoop({ model: scriptedModel([call('run'), 'Done.']), tools, kept, clock, input: 'Go.' });
    const wait = tool({ name: 'wait', description: '', execute: () => (clock.advance(300_000), nextTick()) });
    const model = scriptedModel([call('wait'), call('run'), 'Done.']);
    const result = await runLoop({ model, tools: [...tools, wait], kept, clock, input: 'Go.', toolTimeoutMs: 1e9 });
    expect(resultTexts(result).at(-1)).toBe('shell 2, new');
    expect(log.slice(0, 4)).toEqual(['open 1', 'use shell 1', 'close shell 1', 'open 2']);
  });
});
