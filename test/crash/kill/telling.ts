/** What the programs that are killed have in common: they print a line for whatever happens, and keep a ledger. */
import { writeSync } from 'node:fs';
import { setImmediate } from 'node:timers/promises';
import { tool, type Model, type RunStore, type Tool, type ToolEffect } from '@treadle/core';
import { keyedModel, type Script } from '../keyed-model.ts';
import { ledger } from './ledger.ts';

const [given, lines] = process.argv.slice(2);
export const folder: string = given!;
export const book = ledger(folder);
let said = 0;

export function say(line: string): void {
  writeSync(1, `${line}\n`);
  if (++said === Number(lines)) process.kill(process.pid, 'SIGKILL');
}

/** Says when something is about to be durable, and when it is. */
export function talking(store: RunStore): RunStore {
  return {
    ...store,
    async append(runId, entries, lease) {
      const facts = entries.map(({ seq, event }) => `${runId}@${seq} ${event.type}`).join(', ');
      say(`append ${facts}`);
      await store.append(runId, entries, lease);
      say(`durable ${facts}`);
    },
  };
}

export const WHAT = { type: 'object', properties: { what: { type: 'string' } }, required: ['what'] } as const;

/** Acts in two steps, and takes its time between them. */
export async function act(effect: ToolEffect, key: string): Promise<void> {
  book.write({ type: 'begin', effect, key });
  say(`begin ${key}`);
  await setImmediate();
  book.write({ type: 'end', effect, key });
  say(`end ${key}`);
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

/** Takes a moment to answer, and says when it is asked. */
export function thinking(script: Script): Model {
  const model = keyedModel(script);
  return {
    ...model,
    async reply(request, emit, signal) {
      say(`ask ${request.key}`);
      await setImmediate();
      return model.reply(request, emit, signal);
    },
  };
}
