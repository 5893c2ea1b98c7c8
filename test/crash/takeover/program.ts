/**
 * A process that starts or resumes a run with one payment: `node --conditions=treadle-source program.ts OPTIONS`. It
 * prints a line for each step. If another process drives the run, it tries again for `tryMs` milliseconds.
 */
import { appendFileSync, existsSync, readFileSync, writeSync } from 'node:fs';
import path from 'node:path';
import { runLoop, tool, TreadleError, type LoopResult } from '@treadle/core';
import { postgresStore, sqliteStore } from '@treadle/store';
import { keyedModel } from '../keyed-model.ts';

export interface ProgramOptions {
  readonly folder: string;
  /** The URL of the store. */
  readonly store: string;
  readonly ttlMs: number;
  readonly tryMs: number;
  /** The host that the process claims to be on; by default this one. */
  readonly host?: string;
  /** What the tool does before it pays: nothing, wait for a message, or block the event loop until a file exists. */
  readonly before: 'pay' | 'message' | 'block';
  /** Pays although the signal of the call is aborted. */
  readonly ignoresSignal?: boolean;
}

const options = JSON.parse(process.argv[2]!) as ProgramOptions;
const { folder, ttlMs, tryMs, host } = options;
const file = (name: string): string => path.join(folder, name);
const report = (line: string): void => void writeSync(1, `${line}\n`);
const message = new Promise((resolve) => process.once('message', resolve));
// The process ends with the run, also if no message was sent.
process.channel?.unref();

/** The system that is paid. It refuses a payment with a lower token than it has seen. */
const bank = {
  payments: (): readonly string[] => (existsSync(file('paid')) ? readFileSync(file('paid'), 'utf8').split('\n') : []),
  pay(key: string, token: number | undefined): string {
    const seen = existsSync(file('tokens')) ? readFileSync(file('tokens'), 'utf8').split('\n').map(Number) : [];
    if (token !== undefined && token < Math.max(...seen)) return 'refused by the bank';
    if (token !== undefined) appendFileSync(file('tokens'), `${token}\n`);
    appendFileSync(file('paid'), `${key}\n`);
    return 'paid';
  },
};

function block(): void {
  while (!existsSync(file('unblock'))) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5);
}

const pay = tool({
  name: 'pay',
  description: 'Pays',
  effect: 'once',
  timeoutMs: 3_600_000,
  verify(_, { key }) {
    const paid = bank.payments().includes(key);
    report(`verified ${paid}`);
    return paid ? { type: 'done', result: 'paid' } : { type: 'not-done' };
  },
  async execute(_, { key, signal, lease }) {
    signal.addEventListener('abort', () => report('aborted'));
    report('paying');
    process.channel?.ref();
    if (options.before === 'message') await message;
    if (options.before === 'block') block();
    process.channel?.unref();
    if (signal.aborted && !options.ignoresSignal) throw new Error('aborted');
    const answer = bank.pay(key, options.ignoresSignal || host !== undefined ? lease : undefined);
    report(answer);
    return answer;
  },
});

const leases = { leaseTtlMs: ttlMs, ...(host !== undefined && { holder: { host, pid: process.pid } }) };
const { store: url } = options;
const store = url.startsWith('sqlite:')
  ? sqliteStore(url.slice('sqlite:'.length), leases)
  : await postgresStore(url, leases);
const model = keyedModel({ 't1.model.0': { calls: [['pay', {}]] }, 't2.model.0': 'Done.' });

async function drive(): Promise<LoopResult> {
  return runLoop({ model, tools: [pay], journal: store, runId: 'run', input: 'Pay the bill.', resume: 'auto' });
}

async function driveWhenPossible(): Promise<string> {
  const until = performance.now() + tryMs;
  for (;;) {
    try {
      const { outcome } = await drive();
      return outcome!.type;
    } catch (error) {
      if (!(error instanceof TreadleError)) throw error;
      if (error.code !== 'run-driven' || performance.now() > until) return error.code;
    }
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

report(`end ${await driveWhenPossible()}`);
await store.close();
process.disconnect?.();
