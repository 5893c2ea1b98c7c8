/**
 * A process that makes CALLS calls on the device `pi`, and prints the results as JSON: `node orchestrator.ts BROKER STORE`. Started
 * again with the same store, it resumes the run.
 */
import { runLoop, textOf, type LoopResult, type Model, type ModelReply } from '@treadle/core';
import { deviceTools, edgeLink } from '@treadle/edge';
import { killProcess, sqliteStore } from '@treadle/store';

const [url = '', file = ''] = process.argv.slice(2);
const CALLS = 4;
const runId = 'marking';

const link = edgeLink({
  prefix: 'treadle',
  broker: { url },
  devices: [{ name: 'pi', onOffline: 'wait', waitMs: 60_000, timeoutMs: 10_000 }],
  offlineGraceMs: 100,
  random: () => 0,
});

/** The history decides what is called next, so it goes on where another process has ended. */
const model: Model = {
  id: 'marker',
  async reply({ messages }): Promise<ModelReply> {
    const done = messages.filter(({ role }) => role === 'tool').length;
    const content =
      done < CALLS
        ? ([{ type: 'tool-call', id: `c${done}`, name: 'mark', arguments: JSON.stringify({ number: done }) }] as const)
        : ([{ type: 'text', text: 'Done.' }] as const);
    return {
      type: 'reply',
      content: [...content],
      finish: done < CALLS ? 'tool-calls' : 'stop',
      model: 'marker',
      usage: { inputTokens: 0, outputTokens: 0 },
    };
  },
};

const journal = sqliteStore(file);
let isNew = (await journal.list({ runId, limit: 1 })).length === 0;
let result: LoopResult;
do {
  while (!(await link.whenReady('pi', 1_000)));
  const options = { runId, journal, model, tools: deviceTools(link, 'pi'), killProcess, errorLimit: 0, repeatLimit: 0 };
  result = await runLoop(isNew ? { ...options, input: 'Mark.' } : options);
  isNew = false;
  // Parked: the device was away. It is asked again when it is back.
} while (!result.outcome);

const results = result.messages.flatMap((message) =>
  message.role === 'tool' ? message.content.map(({ content, isError }) => ({ isError, text: textOf(content) })) : [],
);
process.stdout.write(`${JSON.stringify({ outcome: result.outcome.type, results })}\n`);
await link.close();
await journal.close();
