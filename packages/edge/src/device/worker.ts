import { messageOf } from '@treadle/core';
import { inProcessRunner } from './tools.ts';
import type { FromWorker, ToWorker } from './process-runner.ts';
import type { Runner } from './runner.ts';

/* The process that runs the tools of a device. It ends with the agent that started it. */

let runner: Runner | undefined;
const calls = new Map<number, AbortController>();

process.on('message', (message: ToWorker) => void receive(message));
process.once('disconnect', () => void end());
// The agent decides when it ends. A terminal sends Ctrl-C to both.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => {});

async function receive(message: ToWorker): Promise<void> {
  switch (message.type) {
    case 'open':
      runner = inProcessRunner(message.settings);
      return;
    case 'describe':
    case 'reload':
    case 'operate':
      return answer(message.id, async () => {
        if (message.type === 'operate') return runner!.operate(message.op, message.args);
        return message.type === 'describe' ? runner!.describe() : runner!.reload();
      });
    case 'call': {
      const { id, call } = message;
      const controller = new AbortController();
      calls.set(id, controller);
      const outcome = await runner!.call({ ...call, signal: controller.signal }, (progress) =>
        send({ type: 'progress', id, progress }),
      );
      calls.delete(id);
      return send({ type: 'answer', id, value: outcome });
    }
    case 'cancel':
      calls.get(message.id)?.abort();
      return;
    case 'close':
      return end();
    default:
      message satisfies never;
  }
}

async function answer(id: number, work: () => Promise<unknown>): Promise<void> {
  try {
    send({ type: 'answer', id, value: await work() });
  } catch (error) {
    const { code, name, path } = error as NodeJS.ErrnoException;
    const facts = { ...(typeof code === 'string' && { code }), ...(typeof path === 'string' && { path }) };
    send({ type: 'failed', id, problem: messageOf(error), name, ...facts });
  }
}

function send(message: FromWorker): void {
  if (process.connected) process.send!(message);
}

async function end(): Promise<void> {
  for (const controller of calls.values()) controller.abort();
  await runner?.close();
  // Programs that are still there are killed at the exit.
  process.exit(0);
}
