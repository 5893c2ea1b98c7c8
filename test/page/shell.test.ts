import { scriptedModel } from '@treadle/core/testing';
import { hashKey, newKey } from '@treadle/server';
import { afterAll, describe, expect, test } from 'vitest';
import { needs } from '../needs.ts';
import { startInProcess } from '../server/support/in-process.ts';
import { axeViolations, chromiumNeed, launch, openPage } from './browser.ts';

const launched = await launch();

describe.runIf(needs(...chromiumNeed(launched)))('the page', () => {
  afterAll(async () => {
    if ('browser' in launched) await launched.browser.close();
  });

  test('has a navigation, and goes to the parts of the page', async () => {
    await using server = await startInProcess(scriptedModel([]));
    await using opened = await openPage(launched, server.url);
    const { page } = opened;
    const nav = page.getByRole('navigation', { name: 'Main' });
    await nav.getByRole('link', { name: 'Runs' }).click();
    await page.waitForURL(`${server.url}/#/runs`);
    await page.getByRole('heading', { name: 'Runs', level: 1 }).waitFor();
    // The browser would open the file, and leave the page.
    const isOpened = await page.evaluate(() =>
      ['dragover', 'drop'].map((type) => {
        const dataTransfer = new DataTransfer();
        dataTransfer.items.add(new File(['x'], 'x.txt'));
        return document.body.dispatchEvent(new DragEvent(type, { bubbles: true, cancelable: true, dataTransfer }));
      }),
    );
    expect(isOpened).toEqual([false, false]);
    await page.goBack();
    await nav.getByRole('link', { name: 'Chat', exact: true }).waitFor();
    expect(await nav.locator('[aria-current]').textContent()).toBe('Chat');
    await page.goto(`${server.url}/#/nothing/of/this`);
    await page.getByRole('heading', { name: 'New chat', level: 1 }).waitFor();
  });

  test('loads less than 80 kB for the chat, and nothing from elsewhere', async () => {
    await using server = await startInProcess(scriptedModel([]));
    await using opened = await openPage(launched, 'about:blank');
    const { page } = opened;
    const sizes = new Map<string, number>();
    page.on('response', (response) => {
      const { pathname } = new URL(response.url());
      if (!pathname.startsWith('/v1/')) sizes.set(pathname, Number(response.headers()['content-length']));
    });
    // The last request of the page. It never ends, so the network does not become idle.
    const isComplete = page.waitForRequest((request) => request.headers()['accept'] === 'text/event-stream');
    await page.goto(server.url);
    await page.getByRole('textbox', { name: 'Message' }).waitFor();
    await isComplete;
    const total = [...sizes.values()].reduce((sum, size) => sum + size, 0);
    expect(total).toBeGreaterThan(20_000);
    expect(total).toBeLessThan(80_000);
  });

  test('asks for a key where keys are configured, and keeps it in the tab', async () => {
    const key = newKey();
    // The page does not ask for runs, which the server would refuse.
    const scopes = ['chat:read', 'chat:write'] as const;
    const keys = [{ name: 'ann', hash: hashKey(key), scopes }];
    await using server = await startInProcess(scriptedModel([]), { keys });
    await using opened = await openPage(launched, server.url, { allow: /status of 401/ });
    const { page } = opened;
    await page.getByLabel('API key').fill('wrong');
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('alert').getByText('not valid').waitFor();
    await page.getByLabel('API key').fill(key);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByText('ann', { exact: true }).waitFor();
    await page.reload();
    await page.getByText('ann', { exact: true }).waitFor();
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByLabel('API key').waitFor();
    expect(await page.evaluate(() => sessionStorage.length)).toBe(0);
    expect(await axeViolations(page)).toEqual([]);
  });
});

describe('the files of the page', () => {
  test('have strict headers, need no key, and are refused for foreign hosts and origins', async () => {
    await using server = await startInProcess(scriptedModel([]));
    const index = await fetch(server.url);
    expect(index.status).toBe(200);
    expect(Object.fromEntries(index.headers)).toMatchObject({
      'content-type': 'text/html; charset=utf-8',
      'cache-control': 'no-cache',
      'x-content-type-options': 'nosniff',
      'content-security-policy': expect.stringMatching(
        /default-src 'none'; script-src 'self'; style-src 'self';.*frame-ancestors 'none'.*require-trusted-types-for 'script'/,
      ),
    });
    const html = await index.text();
    const [, script] = /src="\.?(\/assets\/[^"]+\.js)"/.exec(html)!;
    const asset = await fetch(server.url + script);
    expect(asset.headers.get('cache-control')).toBe('public, max-age=31536000, immutable');
    expect(asset.headers.get('content-encoding')).toBe('gzip');
    expect(asset.headers.get('content-type')).toBe('text/javascript; charset=utf-8');
    const etag = index.headers.get('etag')!;
    expect((await fetch(server.url, { headers: { 'if-none-match': etag } })).status).toBe(304);
    const head = await fetch(server.url, { method: 'HEAD' });
    expect([head.status, head.headers.get('etag'), await head.text()]).toEqual([200, etag, '']);
    expect((await fetch(`${server.url}/assets/none.js`)).status).toBe(404);
    expect((await fetch(`${server.url}/assets/..%2findex.html`)).status).toBe(404);
    expect((await fetch(`${server.url}/nothing`)).status).toBe(404);
    expect((await fetch(server.url, { method: 'POST' })).status).toBe(405);
    const foreign = { headers: { origin: 'https://evil.example' } };
    expect((await fetch(server.url, foreign)).status).toBe(403);
    const { port } = new URL(server.url);
    const { promise, resolve } = Promise.withResolvers<number>();
    const { request } = await import('node:http');
    request({ port, path: '/', headers: { host: 'evil.example' } }, (answer) => resolve(answer.statusCode!)).end();
    expect(await promise).toBe(403);
  });

  test('are served without a key to clients of any host on a server with keys', async () => {
    const keys = [{ name: 'ann', hash: hashKey(newKey()) }];
    await using server = await startInProcess(scriptedModel([]), { keys });
    expect((await fetch(server.url)).status).toBe(200);
    expect((await fetch(`${server.url}/v1/server`)).status).toBe(401);
  });
});
