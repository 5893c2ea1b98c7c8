import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { tool } from '@treadle/core';
import { scriptedModel, type ScriptStep } from '@treadle/core/testing';
import type { Page } from 'playwright-core';
import { rolldown } from 'rolldown';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { needs } from '../needs.ts';
import { chromiumNeed, launchBrowser } from '../page/browser.ts';
import { snippetsOf } from '../snippets.ts';
import { startInProcess, type InProcessServer } from './support/in-process.ts';

const root = path.resolve(import.meta.dirname, '../..');
const launched = await launchBrowser();

/** The component of docs/use-chat.md in a page. */
async function bundlePage(): Promise<string> {
  const files: Record<string, string> = {
    'chat.tsx': snippetsOf('', readFileSync(path.join(root, 'docs/use-chat.md'), 'utf8')).find(
      ({ language, code }) => language === 'tsx' && code.includes('export function Chat('),
    )!.code,
    'page.tsx': `
      import { createRoot } from 'react-dom/client';
      import { Chat } from './chat.tsx';
      createRoot(document.body).render(<Chat id="my-chat" />);`,
  };
  const bundle = await rolldown({
    input: 'page.tsx',
    logLevel: 'silent',
    cwd: root,
    platform: 'browser',
    transform: { define: { 'process.env.NODE_ENV': '"production"' } },
    plugins: [
      {
        name: 'files',
        // In the root, so that packages are found.
        resolveId: (id) => (path.basename(id) in files ? path.join(root, path.basename(id)) : undefined),
        load: (id) => files[path.relative(root, id)],
      },
    ],
  });
  const { output } = await bundle.generate({ format: 'esm', codeSplitting: false });
  await bundle.close();
  return output[0].code;
}

interface ChatPage extends AsyncDisposable {
  readonly page: Page;
  readonly server: InProcessServer;
  send(text: string): Promise<void>;
  /** The paragraphs that the page shows, once the last of them is `last`. */
  shown(last: string): Promise<string[]>;
}

describe.runIf(needs(...chromiumNeed(launched)))('a page with useChat', () => {
  let script: string;

  beforeAll(async () => {
    if (!('browser' in launched)) throw launched.error;
    script = await bundlePage();
  });
  afterAll(async () => {
    if ('browser' in launched) await launched.browser.close();
  });

  /** Opens the page. It has another origin than the server. */
  async function openPage(steps: readonly ScriptStep[]): Promise<ChatPage> {
    if (!('browser' in launched)) throw launched.error;
    const { browser } = launched;
    await using stack = new AsyncDisposableStack();
    const model = stack.use(scriptedModel(steps));
    const pages = createServer(({ url }, response) => {
      const isScript = url === '/page.js';
      response.setHeader('content-type', isScript ? 'text/javascript' : 'text/html; charset=utf-8');
      response.end(
        isScript
          ? script.replaceAll('http://127.0.0.1:3210', server.url)
          : '<!doctype html><body></body><script type="module" src="/page.js"></script>',
      );
    });
    pages.listen(0, '127.0.0.1');
    await once(pages, 'listening');
    stack.defer(() => {
      pages.closeAllConnections();
      pages.close();
    });
    const origin = `http://127.0.0.1:${(pages.address() as AddressInfo).port}`;
    const tools = [time, pay];
    const server = stack.use(
      await startInProcess(model, { tools, defaultTools: tools.map(({ name }) => name), corsOrigins: [origin] }),
    );
    const page = await browser.newPage();
    stack.defer(() => page.close());
    const problems: string[] = [];
    page.on('pageerror', ({ message }) => void problems.push(message));
    page.on('console', (message) => void (message.type() === 'error' && problems.push(message.text())));
    stack.defer(() => expect(problems).toEqual([]));
    // A message that is sent before the answer to the resume request would be read twice.
    await Promise.all([page.waitForResponse((response) => response.url().endsWith('/stream')), page.goto(origin)]);
    const opened = stack.move();
    return {
      page,
      server,
      send: async (text) => {
        await page.getByLabel('Message').fill(text);
        await page.getByLabel('Message').press('Enter');
      },
      shown: async (last) => {
        await page.locator('section:last-of-type p:last-of-type').getByText(last, { exact: true }).waitFor();
        return await page.locator('p').allTextContents();
      },
      [Symbol.asyncDispose]: () => opened.disposeAsync(),
    };
  }

  test('shows text and calls, and continues after an approval and a denial', async () => {
    await using chat = await openPage([TIME, 'It is noon.', PAY, 'Thank you.', PAY, 'As you like.']);
    await chat.send('What time is it?');
    expect(await chat.shown('It is noon.')).toEqual(['What time is it?', 'One moment. ', 'time: 12:00', 'It is noon.']);
    await chat.send('Pay');
    await chat.page.getByRole('button', { name: 'Approve' }).click();
    expect((await chat.shown('Thank you.')).slice(4)).toEqual(['Pay', 'pay: paid', 'Thank you.']);
    await chat.send('Pay again');
    await chat.page.getByRole('button', { name: 'Deny' }).click();
    expect((await chat.shown('As you like.')).slice(7)).toEqual(['Pay again', 'pay: output-denied', 'As you like.']);
    const { data } = (await chat.server.send('GET', '/v1/chat')).body;
    expect(data).toHaveLength(1);
  });

  test('that is reloaded resumes the answer in progress, and an approval that waits', async () => {
    const released = Promise.withResolvers<void>();
    const last: ScriptStep = async () => {
      await released.promise;
      return PAY;
    };
    await using chat = await openPage([TIME, last, 'Thank you.']);
    await chat.send('Pay at noon');
    expect(await chat.shown('time: 12:00')).toEqual(['Pay at noon', 'One moment. ', 'time: 12:00']);
    await chat.page.reload();
    expect(await chat.shown('time: 12:00')).toEqual(['One moment. ', 'time: 12:00']);
    released.resolve();
    await chat.page.getByRole('button', { name: 'Approve' }).waitFor();
    await chat.page.reload();
    await chat.page.getByRole('button', { name: 'Approve' }).click();
    expect(await chat.shown('Thank you.')).toEqual(['One moment. ', 'time: 12:00', 'pay: paid', 'Thank you.']);
  });
});

const time = tool({ name: 'time', description: '', effect: 'pure', execute: () => '12:00' });
const pay = tool({ name: 'pay', description: '', needsApproval: true, touches: () => [], execute: () => 'paid' });
const TIME = { text: 'One moment. ', calls: [{ name: 'time' }] };
const PAY = { calls: [{ name: 'pay', arguments: { amount: 5 } }] };
