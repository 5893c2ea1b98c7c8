/** Writes the pictures of runs in docs/images: part of `npm run docs:page`. */
import path from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { tool, type Tool } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { newLog, treadleServer } from '@treadle/server';
import { sqliteStore } from '@treadle/store';
import { launch, openPage } from '../test/page/browser.ts';

const OUT = path.resolve(import.meta.dirname, '../docs/images');
const TASK = 'Change the port of the server to 8080, and tell me what you did.';

/** A tool that takes a moment, so that the timeline has something to show. */
function slow(name: string, ms: number, text: string): Tool {
  return tool({
    name,
    description: `The tool ${name}`,
    effect: 'pure',
    input: { type: 'object', properties: { path: { type: 'string' } } },
    async execute() {
      await setTimeout(ms);
      return text;
    },
  });
}
const read = slow('read', 120, 'import { serve } from "./serve.ts";\n\nserve({ port: 3210 });\n');
const grep = slow('grep', 260, 'src/main.ts:3: serve({ port: 3210 })\nsrc/serve.ts:10: export function serve');
const web = tool({
  name: 'fetch',
  description: 'Fetches a page',
  execute: () => Promise.reject(new Error('The host docs.example cannot be resolved.')),
});
const write = tool({
  name: 'write',
  description: 'Writes a file',
  needsApproval: true,
  input: { type: 'object', properties: { path: { type: 'string' }, content: { type: 'string' } } },
  execute: () => 'Wrote 24 bytes.',
});
const tools = [read, grep, web, write];
const writing = (file: string, text: string) => ({
  text,
  calls: [{ name: 'write', arguments: { path: file, content: 'serve({ port: 8080 });\n' } }],
  usage: { inputTokens: 1_890, outputTokens: 64, cost: 0.0029 },
});
const model = scriptedModel([
  {
    text: 'I look at the files first.',
    calls: [
      { name: 'read', arguments: { path: 'src/main.ts' } },
      { name: 'grep', arguments: { path: 'src' } },
      { name: 'fetch', arguments: {} },
    ],
    usage: { inputTokens: 1_210, outputTokens: 88, cost: 0.0021 },
  },
  writing('src/main.ts', 'Now I change the port.'),
  { text: 'The server now listens on port 8080.', usage: { inputTokens: 2_004, outputTokens: 21, cost: 0.0023 } },
  writing('src/config.ts', 'I write a new file instead.'),
  { text: 'The new file src/config.ts sets port 8080.', usage: { inputTokens: 2_020, outputTokens: 30, cost: 0.0024 } },
]);

const store = sqliteStore(':memory:');
const server = treadleServer({
  models: { default: 'main', models: new Map([['main', model]]) },
  store,
  tools,
  defaultTools: tools.map(({ name }) => name),
  waitForAnswers: true,
  port: 0,
  log: newLog({ level: 'silent' }),
});
const launched = await launch();
const { url } = await server.listen();
const { page } = await openPage(launched, `${url}/#/runs`, { reducedMotion: 'reduce' });
const save = (name: string): Promise<unknown> => page.screenshot({ path: path.join(OUT, `${name}.png`) });
const approve = async (): Promise<void> => {
  await page.getByRole('button', { name: 'Approve', exact: true }).click();
  await page.getByRole('region', { name: /^Approval needed/ }).waitFor({ state: 'detached' });
};

await fetch(`${url}/v1/responses`, {
  method: 'POST',
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify({ input: TASK }),
});
await page.getByRole('region', { name: /^Approval needed/ }).waitFor();
await save('runs');
await approve();
await page.getByRole('main').getByRole('link', { name: TASK }).click();
await page.getByText('Completed').first().waitFor();
const { runId } = (await store.list())[0]!;
await page.goto(`${url}/#/runs/${runId}/at/7`);
await page.getByRole('tab', { name: 'State' }).click();
await page.getByText('Decided by the rule').waitFor();
await save('run');
await page.emulateMedia({ colorScheme: 'dark' });
await save('run-dark');
await page.setViewportSize({ width: 390, height: 844 });
await save('run-phone');
await page.emulateMedia({ colorScheme: 'light' });
await page.setViewportSize({ width: 1180, height: 800 });
await page.goto(`${url}/#/runs/${runId}/at/4`);
await page.getByRole('button', { name: 'Fork here' }).click();
await page.getByLabel('Instructions').fill('Never overwrite a file.');
await page.getByText('calls the model again').waitFor();
await save('fork');
await page.getByRole('button', { name: /Start the fork/ }).click();
await approve();
await page.getByText('The new file').waitFor();
await save('compare');
if ('browser' in launched) await launched.browser.close();
await server.close(0);
await store.close();
