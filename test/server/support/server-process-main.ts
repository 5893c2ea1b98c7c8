/** The process that `startServer` forks: the real server with test tools. Every script of the provider is a model. */
import { appendFileSync } from 'node:fs';
import { setImmediate } from 'node:timers/promises';
import { getHeapSpaceStatistics } from 'node:v8';
import { Parked, tool, type Model, type Tool } from '@treadle/core';
import { anthropic, google, ollama, openaiChat, openaiResponses } from '@treadle/models';
import { newLog, treadleServer } from '@treadle/server';
import type { ResourceUsage, ServerMessage, ServerOrder, StartParameters } from './server-process.ts';
import { openNamedStore } from './test-store.ts';

const FORMS = { 'openai-chat': openaiChat, 'openai-responses': openaiResponses, anthropic, google, ollama } as const;

const { provider, store: storeName, settings } = JSON.parse(process.env['TREADLE_TEST_SERVER']!) as StartParameters;
const { store: _, logLevel = 'error', hangsOnAppend = false, ...options } = settings;

/** `s3/openai-chat` is script s3, requested in that wire form. With the suffix `/whole` the model does not stream. */
class ScriptModels extends Map<string, Model> {
  override get(name: string): Model | undefined {
    const [script, form, whole] = name.split('/');
    const make = FORMS[form as keyof typeof FORMS];
    if (!make) return undefined;
    return make({
      model: 'm',
      apiKey: 'k',
      baseURL: `${provider}/${script}/${form}/v1`,
      stream: whole === undefined,
      maxRetries: 0,
    });
  }
}

const sendMessage = (message: ServerMessage): void => void process.send!(message);
const { tools, release } = testTools((tag) => sendMessage({ type: 'held', tag }));
const store = await openNamedStore(storeName);
const server = treadleServer({
  port: 0,
  models: { default: 's0/openai-chat', models: new ScriptModels() },
  store: hangsOnAppend ? { ...store, append: () => new Promise(() => {}) } : store,
  tools,
  log: newLog({ level: logLevel }),
  ...options,
});

process.on('message', async (order: ServerOrder) => {
  if (order.type === 'release') release(order.tag);
  else if (order.type === 'heap') sendMessage({ type: 'heap', bytes: await heapAfterCollection() });
  else if (order.type === 'usage') sendMessage({ type: 'usage', ...(await resourceUsage()) });
  else await shutDown(order.graceMs);
});
process.on('disconnect', () => process.exit());

const { url, recovered } = await server.listen();
sendMessage({ type: 'listening', url, recovered });

async function shutDown(graceMs?: number): Promise<void> {
  await server.close(graceMs);
  await store.close();
  process.disconnect();
}

/**
 * Collects several times: some objects are only freed after others have been collected. Compiled code is not counted,
 * because V8 compiles more of the program over the first thousands of requests.
 */
async function heapAfterCollection(): Promise<number> {
  const { gc } = globalThis as { readonly gc?: (how: object) => void };
  for (let i = 0; i < 6; i++) {
    gc!({ type: 'major', execution: 'sync', flavor: 'last-resort' });
    await setImmediate();
  }
  const objects = getHeapSpaceStatistics().filter(({ space_name: name }) => !/^(shared_)?(code|trusted)_/.test(name));
  return objects.reduce((sum, { space_used_size: bytes }) => sum + bytes, 0);
}

/** The CPU time that collecting garbage for `resourceUsage` took. */
let collectionMs = 0;

function cpuTime(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

async function resourceUsage(): Promise<ResourceUsage> {
  const cpuMs = cpuTime() - collectionMs;
  const heap = await heapAfterCollection();
  collectionMs = cpuTime() - cpuMs;
  const { external, rss } = process.memoryUsage();
  const connections = process.getActiveResourcesInfo().filter((name) => name === 'TCPSocketWrap').length;
  return { heap, external, rss, connections, cpuMs };
}

/** The tools of the test server. `onHeld` is called when a call of `hold` is waiting. */
function testTools(onHeld: (tag: string) => void): {
  readonly tools: readonly Tool[];
  readonly release: (tag: string) => void;
} {
  const waiting = new Map<string, () => void>();
  const released = new Set<string>();
  const text = { type: 'string' } as const;
  const all = [
    tool({
      name: 'add',
      description: 'The sum of two numbers',
      input: {
        type: 'object',
        properties: { a: { type: 'number' }, b: { type: 'number' } },
        required: ['a', 'b'],
        additionalProperties: false,
      },
      effect: 'pure',
      execute: (input) => String(Number(input['a']) + Number(input['b'])),
    }),
    tool({
      name: 'fail',
      description: 'Always fails',
      input: { type: 'object', properties: { why: text } },
      effect: 'pure',
      execute(input) {
        throw new Error(String(input['why'] ?? 'it always does'));
      },
    }),
    tool({
      name: 'big',
      description: 'A text of that many characters',
      input: { type: 'object', properties: { length: { type: 'number' } }, required: ['length'] },
      effect: 'pure',
      execute: (input) => 'x'.repeat(Number(input['length'])),
    }),
    tool({
      name: 'wait_until',
      description: 'Waits until a time, and adds the process id to a file whenever it is called',
      input: {
        type: 'object',
        properties: { time: { type: 'number' }, file: text },
        required: ['time', 'file'],
      },
      effect: 'idempotent',
      execute(input, { parked }) {
        appendFileSync(String(input['file']), `${process.pid}\n`);
        const time = Number(input['time']);
        // The first call always waits, so that the number of calls does not depend on how fast the test is.
        return parked && Date.now() >= time ? 'The time has come.' : new Parked('a time', [], { wakeAt: time });
      },
    }),
    tool({
      name: 'hold',
      description: 'Waits until the test releases it',
      input: { type: 'object', properties: { tag: text }, required: ['tag'] },
      effect: 'idempotent',
      execute: async (input, { signal }) => {
        const tag = String(input['tag']);
        onHeld(tag);
        await new Promise<void>((resolve, reject) => {
          if (released.delete(tag)) return resolve();
          waiting.set(tag, resolve);
          signal.addEventListener(
            'abort',
            () => {
              waiting.delete(tag);
              reject(signal.reason as Error);
            },
            { once: true },
          );
        });
        return `released ${tag}`;
      },
    }),
  ];
  return {
    tools: all,
    release(tag) {
      const resume = waiting.get(tag);
      if (resume) resume();
      else released.add(tag);
      waiting.delete(tag);
    },
  };
}
