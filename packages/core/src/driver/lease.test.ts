import { describe, expect, test } from 'vitest';
import { agentTool } from '../agents/agent-tool.ts';
import { TreadleError } from '../errors.ts';
import { memoryJournal } from '../journal/memory.ts';
import type { Journal, Lease, RunStore } from '../journal/port.ts';
import { scriptedModel } from '../testing/scripted-model.ts';
import { tool, type ToolContext } from '../tools/tool.ts';
import { runLoop, startLoop } from './run.ts';

const LOST = new TreadleError('lease-lost', 'The lease is lost.');

/** A journal in memory whose leases can be lost, and have to be confirmed if `confirm` is passed. */
function leasedJournal(confirm?: () => void | Promise<void>): RunStore & { readonly lose: () => void } {
  const journal = memoryJournal();
  const lost = new AbortController();
  const acquire = async (runId: string): Promise<Lease> => ({
    ...(await journal.acquire(runId)),
    lost: lost.signal,
    ...(confirm && { confirm }),
  });
  return { ...journal, acquire, lose: () => lost.abort(LOST) };
}

/** A tool that never returns, and its context when it was called. */
function endlessTool(name: string): { made: ReturnType<typeof tool>; called: Promise<ToolContext> } {
  const { promise: called, resolve } = Promise.withResolvers<ToolContext>();
  const made = tool({
    name,
    description: name,
    execute(_, context) {
      resolve(context);
      return new Promise(() => {});
    },
  });
  return { made, called };
}

const calling = (...names: readonly string[]): { calls: readonly { name: string }[] } => ({
  calls: names.map((name) => ({ name })),
});

describe('a driver that loses its lease', () => {
  test('aborts its tools at once, stops with the reason, and appends nothing more', async () => {
    const journal = leasedJournal();
    const [one, two] = [endlessTool('one'), endlessTool('two')];
    const run = startLoop({
      model: scriptedModel([calling('one', 'two')]),
      tools: [one.made, two.made],
      input: 'Go.',
      journal,
      runId: 'r',
    });
    const signals = [(await one.called).signal, (await two.called).signal];
    const { length } = await journal.read('r');
    journal.lose();
    expect(signals.map(({ aborted }) => aborted)).toEqual([true, true]);
    await expect(run.result).rejects.toBe(LOST);
    expect(await journal.read('r')).toHaveLength(length);
    expect(await run.send('More.')).toBe(false);
  });

  test('aborts its model call', async () => {
    const journal = leasedJournal();
    const { promise: asked, resolve } = Promise.withResolvers<AbortSignal>();
    const model = { id: 'slow', reply: (_: unknown, __: unknown, signal: AbortSignal) => never(signal) };
    function never(signal: AbortSignal): Promise<never> {
      resolve(signal);
      return new Promise(() => {});
    }
    const { result } = startLoop({ model, input: 'Go.', journal });
    const signal = await asked;
    journal.lose();
    expect(signal.aborted).toBe(true);
    await expect(result).rejects.toBe(LOST);
  });

  test('detaches its child runs, which can be resumed', async () => {
    const journal = leasedJournal();
    const inner = endlessTool('inner');
    const helper = agentTool({
      name: 'helper',
      description: 'Helps',
      model: scriptedModel([calling('inner')]),
      tools: [inner.made],
    });
    const model = scriptedModel([{ calls: [{ name: 'helper', arguments: { task: 'Help.' } }] }]);
    const { result } = startLoop({ model, tools: [helper], input: 'Go.', journal, runId: 'r' });
    const { signal } = await inner.called;
    journal.lose();
    expect(signal.aborted).toBe(true);
    await expect(result).rejects.toBe(LOST);
    expect((await journal.read('r.t1.tool.0')).at(-1)).not.toHaveProperty('status');
  });

  test('starts nothing if the lease was lost before the first entry', async () => {
    const journal = leasedJournal();
    journal.lose();
    await expect(runLoop({ model: scriptedModel(['Hi.']), input: 'Go.', journal, runId: 'r' })).rejects.toBe(LOST);
    expect(await journal.read('r')).toEqual([]);
  });

  test('is told by a journal in memory that is closed', async () => {
    const journal = memoryJournal();
    const { made, called } = endlessTool('one');
    const { result } = startLoop({ model: scriptedModel([calling('one')]), tools: [made], input: 'Go.', journal });
    const { signal } = await called;
    await journal.close();
    expect(signal.aborted).toBe(true);
    await expect(result).rejects.toMatchObject({ code: 'lease-lost' });
  });
});

describe('before each effect', () => {
  test('the lease is confirmed', async () => {
    const log: string[] = [];
    const journal = leasedJournal(() => void log.push('confirm'));
    const pay = tool({ name: 'pay', description: 'Pays', execute: () => void log.push('pay') });
    const model = scriptedModel([calling('pay'), 'Done.']);
    await runLoop({ model, tools: [pay], input: 'Go.', journal });
    expect(log).toEqual(['confirm', 'confirm', 'pay', 'confirm']);
  });

  test('a confirmation that takes time is waited for', async () => {
    const { promise: confirmation, resolve: confirm } = Promise.withResolvers<void>();
    let stalled = false;
    const journal = leasedJournal(() => (stalled ? confirmation : undefined));
    const paid: string[] = [];
    const pay = tool({ name: 'pay', description: 'Pays', execute: () => void paid.push('paid') });
    const { promise: planned, resolve } = Promise.withResolvers<void>();
    const { result } = startLoop({
      model: scriptedModel([calling('pay'), 'Done.']),
      tools: [pay],
      input: 'Go.',
      journal,
      onItem(item) {
        if (item.type !== 'fact' || item.event.type !== 'model-replied' || stalled) return;
        stalled = true;
        resolve();
      },
    });
    await planned;
    await settled();
    expect(paid).toEqual([]);
    confirm();
    expect((await result).outcome?.type).toBe('completed');
    expect(paid).toEqual(['paid']);
  });

  test('a rejected confirmation stops the run, and the effect does not start', async () => {
    let asked = 0;
    const journal = leasedJournal(() => (++asked > 1 ? Promise.reject(LOST) : undefined));
    const paid: string[] = [];
    const pay = tool({ name: 'pay', description: 'Pays', execute: () => void paid.push('paid') });
    const { result } = startLoop({
      model: scriptedModel([calling('pay', 'pay')]),
      tools: [pay],
      input: 'Go.',
      journal,
    });
    await expect(result).rejects.toBe(LOST);
    expect(paid).toEqual([]);
  });

  test('a cancel during the confirmation ends the run without the effect', async () => {
    const { promise: confirmation, resolve: confirm } = Promise.withResolvers<void>();
    const { promise: asked, resolve: onAsk } = Promise.withResolvers<void>();
    let waiting = true;
    const journal = leasedJournal(() => {
      if (!waiting) return undefined;
      onAsk();
      return confirmation;
    });
    const model = scriptedModel(['Hi.']);
    const run = startLoop({ model, input: 'Go.', journal });
    await asked;
    run.cancel();
    waiting = false;
    confirm();
    expect((await run.result).outcome?.type).toBe('cancelled');
    expect(model.requests).toEqual([]);
  });

  test('the deadline passes during the confirmation: the run ends without the effect', async () => {
    const { promise: confirmation, resolve: confirm } = Promise.withResolvers<void>();
    const { promise: asked, resolve: onAsk } = Promise.withResolvers<void>();
    let now = 0;
    const journal = leasedJournal(() => {
      onAsk();
      return confirmation;
    });
    const model = scriptedModel(['Hi.']);
    // No timer fires: the process is suspended.
    const clock = { now: () => now, timer: () => () => {} };
    const { result } = startLoop({ model, input: 'Go.', journal, clock, limits: { durationMs: 1_000 }, runId: 'r' });
    await asked;
    now = 2_000;
    confirm();
    expect((await result).outcome).toEqual({ type: 'exhausted', limit: 'duration' });
    expect(model.requests).toEqual([]);
    expect((await journal.read('r')).at(-1)).toMatchObject({ event: { type: 'deadline-passed' }, status: 'exhausted' });
  });

  test('a call whose arguments are validated asynchronously is confirmed after the validation', async () => {
    const log: string[] = [];
    const journal = leasedJournal(() => void log.push('confirm'));
    const input = {
      '~standard': {
        version: 1,
        vendor: 'test',
        validate: async (value: unknown) => {
          await settled();
          log.push('validated');
          return { value };
        },
      },
    } as const;
    const pay = tool({
      name: 'pay',
      description: 'Pays',
      input,
      parameters: { type: 'object' },
      effect: 'idempotent',
      execute: () => void log.push('pay'),
    });
    const { made: endless, called } = endlessTool('endless');
    const options = { tools: [pay, endless], journal, runId: 'r' };
    const first = startLoop({
      ...options,
      model: scriptedModel([calling('endless', 'pay')]),
      input: 'Go.',
      parallel: false,
    });
    await called;
    await first.detach();
    log.length = 0;
    await runLoop({ ...options, model: scriptedModel(['Done.']) });
    expect(log.slice(log.indexOf('validated'))).toEqual(['validated', 'confirm', 'pay', 'confirm']);
  });
});

describe('the fencing token', () => {
  test('is passed to tools and to verify, and is higher for the next driver', async () => {
    const journal = memoryJournal();
    const tokens: (number | undefined)[] = [];
    const { promise: called, resolve } = Promise.withResolvers<void>();
    const pay = tool({
      name: 'pay',
      description: 'Pays',
      effect: 'once',
      verify(_, { lease }) {
        tokens.push(lease);
        return { type: 'not-done' };
      },
      execute(_, { lease }) {
        tokens.push(lease);
        resolve();
        return tokens.length === 1 ? new Promise(() => {}) : 'paid';
      },
    });
    const first = startLoop({
      model: scriptedModel([calling('pay')]),
      tools: [pay],
      input: 'Go.',
      journal,
      runId: 'r',
    });
    await called;
    await first.detach();
    await runLoop({ model: scriptedModel(['Done.']), tools: [pay], journal, runId: 'r' });
    expect(tokens).toEqual([1, 2, 2]);
  });

  test('is undefined if the journal has no leases', async () => {
    const tokens: unknown[] = [];
    const pay = tool({ name: 'pay', description: 'Pays', execute: (_, { lease }) => void tokens.push(lease) });
    const { append, read } = memoryJournal();
    for (const journal of [undefined, { append, read } satisfies Journal]) {
      const model = scriptedModel([calling('pay'), 'Done.']);
      await runLoop({ model, tools: [pay], input: 'Go.', ...(journal && { journal }) });
    }
    expect(tokens).toEqual([undefined, undefined]);
  });
});

/** Resolves after all pending promise callbacks have run. */
function settled(): Promise<void> {
  return new Promise((resolve) => void setImmediate(resolve));
}
