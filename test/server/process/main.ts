/** The server of the tests: the real one, with tools of its own, and any script of the provider as a model. */
import { setImmediate } from 'node:timers/promises';
import { getHeapSpaceStatistics } from 'node:v8';
import type { Model } from '@treadle/core';
import { anthropic, openaiChat, openaiResponses } from '@treadle/models';
import { newLog, treadleServer } from '@treadle/server';
import { sqliteStore } from '@treadle/store';
import type { Order, Start, Told, Usage } from './settings.ts';
import { serverTools } from './tools.ts';

const FORMS = { 'openai-chat': openaiChat, 'openai-responses': openaiResponses, anthropic } as const;

const { provider, settings } = JSON.parse(process.env['TREADLE_TEST_SERVER']!) as Start;
const { store: file = ':memory:', logLevel = 'error', ...options } = settings;

/** The model `s3/openai-chat` is script s3 of the provider, spoken to in that form; with `/whole` it does not stream. */
class Scripts extends Map<string, Model> {
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

const tell = (told: Told): void => void process.send!(told);
const { tools, release } = serverTools((tag) => tell({ type: 'held', tag }));
const store = sqliteStore(file);
const server = treadleServer({
  port: 0,
  models: { default: 's0/openai-chat', models: new Scripts() },
  store,
  tools,
  log: newLog({ level: logLevel }),
  ...options,
});

process.on('message', async (order: Order) => {
  if (order.type === 'release') release(order.tag);
  else if (order.type === 'heap') tell({ type: 'heap', bytes: await heapAfterCollection() });
  else if (order.type === 'usage') tell({ type: 'usage', ...(await usage()) });
  else await end(order.graceMs);
});
process.on('disconnect', () => process.exit());

const { url, recovered } = await server.listen();
tell({ type: 'listening', url, recovered });

async function end(graceMs?: number): Promise<void> {
  await server.close(graceMs);
  await store.close();
  process.disconnect();
}

/**
 * What objects take after a collection: also of what V8 keeps for a while, and of what is let go when something else is
 * collected. Compiled code is left out: V8 compiles more and more of the program for some thousands of requests.
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

async function usage(): Promise<Usage> {
  const heap = await heapAfterCollection();
  const { external, rss } = process.memoryUsage();
  const connections = process.getActiveResourcesInfo().filter((name) => name === 'TCPSocketWrap').length;
  return { heap, external, rss, connections };
}
