/** Writes the pictures of the page in docs/images: `npm run docs:page`. */
import path from 'node:path';
import { tool } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { demo } from '@treadle/models';
import { newLog, treadleServer } from '@treadle/server';
import { sqliteStore } from '@treadle/store';
import { launch, openPage } from '../test/page/browser.ts';

const OUT = path.resolve(import.meta.dirname, '../docs/images');

const ANSWER = `The rounding happens twice: \`price\` rounds each line, and \`total\` rounds the sum again.

\`\`\`ts
export function total(lines: readonly Line[]): number {
  return round(lines.reduce((sum, line) => sum + price(line), 0));
}
\`\`\`

I will round **once**, at the end:

| invoice | before | after |
| ------- | -----: | ----: |
| 1041    |  19.98 | 19.99 |
| 1042    |  40.00 | 40.00 |`;

const read = tool({
  name: 'read',
  description: 'Reads a file',
  effect: 'pure',
  execute: () => 'export function total…',
});
const edit = tool({
  name: 'edit',
  description: 'Edits a file',
  execute: () => 'Edited "src/price.ts": 1 replacement.',
});
const bash = tool({ name: 'bash', description: 'Runs a command', execute: () => '12 tests passed' });
const tools = [read, edit, bash];

const model = scriptedModel([
  {
    type: 'reply',
    content: [
      { type: 'reasoning', text: 'The difference is one cent, so I look at where amounts are rounded.' },
      { type: 'tool-call', id: '1', name: 'read', arguments: '{"path":"src/price.ts"}' },
      { type: 'tool-call', id: '2', name: 'bash', arguments: '{"command":"npm test -- price"}' },
    ],
    finish: 'tool-calls',
    usage: { inputTokens: 2_140, outputTokens: 96, cost: 0.0031 },
    model: 'main',
  },
  { text: ANSWER, usage: { inputTokens: 2_890, outputTokens: 310, cost: 0.0064 } },
  {
    calls: [
      {
        name: 'edit',
        arguments: {
          path: 'src/price.ts',
          old_text: 'export function price(line: Line): number {\n  return round(line.amount * line.rate);\n}',
          new_text: 'export function price(line: Line): number {\n  return line.amount * line.rate;\n}',
        },
      },
    ],
  },
]);

const store = sqliteStore(':memory:');
const asking = {
  judge: (calls: readonly { readonly name: string }[]) => calls.map(({ name }) => (name === 'edit' ? ASK : ALLOW)),
};
const ASK = {
  type: 'ask',
  reason: 'At level 1 (supervised) it is asked about, because it would change a file.',
  ttlMs: 1e9,
} as const;
const ALLOW = { type: 'allow' } as const;
const server = treadleServer({
  models: { default: 'main', models: new Map([['main', model]]) },
  store,
  tools,
  defaultTools: tools.map(({ name }) => name),
  policy: asking,
  chatTitles: false,
  port: 0,
  log: newLog({ level: 'silent' }),
});
const demoStore = sqliteStore(':memory:');
const demoServer = treadleServer({
  models: { default: 'demo', models: new Map([['demo', demo()]]) },
  store: demoStore,
  tools: [read],
  port: 0,
  log: newLog({ level: 'silent' }),
});
const launched = await launch();
const { url } = await server.listen();
const { page } = await openPage(launched, url, { reducedMotion: 'reduce' });
const message = page.getByRole('textbox', { name: 'Message' });

async function ask(text: string, done: string): Promise<void> {
  await message.fill(text);
  await message.press('Enter');
  await page.getByLabel(done).last().waitFor();
}

const save = (name: string): Promise<unknown> => page.screenshot({ path: path.join(OUT, `${name}.png`) });

await ask('Invoice 1041 is one cent too low. Why?', 'Copy the answer');
const { data } = (await (await fetch(`${url}/v1/chat`)).json()) as { data: { id: string }[] };
await fetch(`${url}/v1/chat/${data[0]!.id}`, {
  method: 'PATCH',
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify({ title: 'A missing cent' }),
});
await page.reload();
await page.locator('.hljs-keyword').first().waitFor();
await save('chat');
await ask('Fix it', 'Approval of edit');
await page.locator('.nav .badge').waitFor();
await save('approval');
await page.emulateMedia({ colorScheme: 'dark' });
await save('approval-dark');
await page.setViewportSize({ width: 390, height: 780 });
await save('approval-phone');
await page.emulateMedia({ colorScheme: 'light' });
await page.setViewportSize({ width: 1180, height: 800 });
await page.goto((await demoServer.listen()).url);
await page.getByText('First steps').waitFor();
await save('first-steps');
await page.getByRole('button', { name: 'Demo model' }).click();
await page.getByRole('dialog').waitFor();
await save('models');
if ('browser' in launched) await launched.browser.close();
await server.close(0);
await demoServer.close(0);
await store.close();
await demoStore.close();
