/** Shared by the programs that are killed: they print a line for each step, and write a ledger. */
import { writeSync } from 'node:fs';
import { setImmediate } from 'node:timers/promises';
import { tool, type Model, type RunStore, type Tool, type ToolEffect } from '@treadle/core';
import { keyedModel, type Script } from '../keyed-model.ts';
import { ledger } from './ledger.ts';

const [folder, url, lines] = process.argv.slice(2);
/** The URL of the store. */
export const storeUrl: string = url!;
export const toolLedger = ledger(folder!);
let printed = 0;

export function report(line: string): void {
  writeSync(1, `${line}\n`);
  if (++printed === Number(lines)) process.kill(process.pid, 'SIGKILL');
}

/** Reports each append before and after it is accepted, written or durable, as the run asks. */
export function reportingStore(store: RunStore): RunStore {
  return {
    ...store,
    async append(runId, entries, lease, until = 'durable') {
      const facts = entries.map(({ seq, event }) => `${runId}@${seq} ${event.type}`).join(', ');
      report(`append ${facts}`);
      await store.append(runId, entries, lease, until);
      report(`${until} ${facts}`);
    },
  };
}

export const WHAT = { type: 'object', properties: { what: { type: 'string' } }, required: ['what'] } as const;

/** Acts in two steps with a pause in between. */
export async function act(effect: ToolEffect, key: string): Promise<void> {
  toolLedger.write({ type: 'begin', effect, key });
  report(`begin ${key}`);
  await setImmediate();
  toolLedger.write({ type: 'end', effect, key });
  report(`end ${key}`);
  await setImmediate();
}

export function acting(name: string, effect: ToolEffect, more: Partial<Tool> = {}): Tool {
  const made = tool({
    name,
    description: name,
    input: WHAT,
    effect,
    async execute({ what }, { key }) {
      await act(effect, key);
      return `${name} ${String(what)}`;
    },
  });
  return { ...made, ...more };
}

/** Reports each request, and replies asynchronously. */
export function reportingModel(script: Script): Model {
  const model = keyedModel(script);
  return {
    ...model,
    async reply(request, emit, signal) {
      report(`ask ${request.key}`);
      await setImmediate();
      return model.reply(request, emit, signal);
    },
  };
}
