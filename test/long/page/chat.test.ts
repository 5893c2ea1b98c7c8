import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { tool } from '@treadle/core';
import { scriptedModel, type ScriptStep } from '@treadle/core/testing';
import { sqliteStore } from '@treadle/store';
import { afterAll, describe, expect, test } from 'vitest';
import { needs } from '../../needs.ts';
import { chromiumNeed, openPage } from '../../page/browser.ts';
import { button, DOT, hugePng, launched, openChat, PAY, POLL, TIME, TOOLS } from '../../page/chat-fixture.ts';
import { startInProcess } from '../../server/support/in-process.ts';

describe.runIf(needs(...chromiumNeed(launched))).concurrent('the chat', () => {
  afterAll(async () => {
    if ('browser' in launched) await launched.browser.close();
  });

  test('renders the end of a long conversation first, then the rest without moving what is shown', async () => {
    await using chat = await openChat([]);
    const { page, server } = chat;
    const { body } = await server.send('POST', '/v1/conversations', {});
    for (let start = 0; start < 100; start += 20) {
      const items = Array.from({ length: 20 }, (_, index) => ({
        type: 'message',
        role: index % 2 === 0 ? 'user' : 'assistant',
        content: `Number ${start + index}.\n\n${'Some words. '.repeat(40)}`,
      }));
      await server.send('POST', `/v1/conversations/${body.id}/items`, { items });
    }
    await page.addInitScript(() => {
      const idle: (() => void)[] = [];
      Object.assign(globalThis, { idle, requestIdleCallback: (work: () => void) => idle.push(work) });
    });
    await page.goto(`${server.url}/#/chat/${body.id}`);
    await page.reload();
    const messages = page.locator('.message');
    await messages.getByText('Number 99.').waitFor();
    expect(await messages.count()).toBe(40);
    const top = async (): Promise<number> =>
      Math.round((await messages.filter({ hasText: 'Number 60.' }).boundingBox())!.y);
    const scroller = page.getByRole('region', { name: 'Messages' });
    await scroller.evaluate((element) => (element.scrollTop = 0));
    await button(page, 'Go to the end').waitFor();
    const before = await top();
    const runIdle = (): Promise<void> =>
      page.evaluate(() => {
        const { idle } = globalThis as unknown as { idle: (() => void)[] };
        for (const work of idle.splice(0)) work();
      });
    await runIdle();
    await expect.poll(() => messages.count(), POLL).toBe(80);
    expect(await top()).toBe(before);
    await runIdle();
    await expect.poll(() => messages.count(), POLL).toBe(100);
    expect(await top()).toBe(before);
    expect(await messages.first().textContent()).toContain('Number 0.');
    expect(await messages.nth(60).textContent()).toContain('Number 60.');
    // What grows before the scroll event is followed.
    await scroller.evaluate((element) => {
      document.querySelector<HTMLElement>('.to-end')!.click();
      const more = document.createElement('div');
      more.style.height = '500px';
      element.firstElementChild!.append(more);
    });
    const below = (): Promise<number> =>
      scroller.evaluate(({ scrollHeight, scrollTop, clientHeight }) => scrollHeight - scrollTop - clientHeight);
    await expect.poll(below, POLL).toBeLessThan(2);
    await messages.last().getByRole('button', { name: 'Copy the answer' }).waitFor();
    await expect.poll(() => button(page, 'Go to the end').count(), POLL).toBe(0);
  });

  test('shows images and files of a result, now and after a reload', async () => {
    const data = (text: string): { type: 'data'; data: string } => ({ type: 'data', data: text });
    const look = tool({
      name: 'look',
      description: 'Looks',
      effect: 'pure',
      execute: () => ({
        content: [
          { type: 'text', text: 'A dot:' },
          DOT,
          { type: 'image', mediaType: 'image/png', source: data(btoa('<svg onload="alert(1)"/>')) },
          { type: 'image', mediaType: 'image/png', name: 'huge.png', source: data(hugePng()) },
          { type: 'file', mediaType: 'text/html', name: 'page.html', source: data(btoa('<script>alert(1)</script>')) },
        ],
      }),
    });
    const server = { tools: [look], defaultTools: ['look'] };
    await using chat = await openChat([{ calls: [{ name: 'look' }] }, 'I see.'], { server });
    const { page } = chat;
    await chat.send('Look');
    await page.getByText('I see.').waitFor();
    await chat.ended();
    for (const isReloaded of [false, true]) {
      if (isReloaded) await page.reload();
      const image = page.getByRole('img', { name: 'Image 1 of look' });
      await image.waitFor();
      expect(await image.evaluate((one: HTMLImageElement) => one.decode().then(() => one.naturalWidth))).toBe(1);
      // What is no image, or needs too much memory, can be saved.
      for (const name of [/image-2/, /huge\.png/])
        await page.locator('.result-images').getByRole('button', { name }).waitFor();
    }
    await button(page, 'Image 1 of look').click();
    await page.getByRole('dialog', { name: 'Image 1 of look' }).getByRole('img').waitFor();
    await page.keyboard.press('Escape');
    await page.locator('.call summary').click();
    expect(await page.locator('.call .result').allTextContents()).toEqual(['A dot:']);
    const saved = page.waitForEvent('download');
    await page.getByRole('button', { name: /page\.html/ }).click();
    expect((await saved).suggestedFilename()).toBe('page.html');
  });

  test('wraps the tools on a phone, and scrolls tables instead of breaking their words', async () => {
    const names = Array.from({ length: 24 }, (_, index) => `tool_with_a_name_${index}`);
    const tools = names.map((name) => tool({ name, description: '', effect: 'pure', execute: () => '' }));
    const text = 'A sentence with antidisestablishmentarianism in it, which is long enough for several lines.';
    const table = [
      '| Date | Amount | Account | Remark |',
      '|---|--:|---|---|',
      `| 2026-11-15 | 1 234 567.89 € | DE89-3704-0044-0532-0130-00 | ${text} |`,
    ];
    const nested = table.map((line, index) => (index === 0 ? `- ${line}` : `  ${line}`));
    const answer = `${table.join('\n')}\n\n${nested.join('\n')}`;
    const viewport = { width: 390, height: 780 };
    await using chat = await openChat([answer], { viewport, server: { tools, defaultTools: [] } });
    const { page } = chat;
    await page.getByText(names.at(-1)!).waitFor();
    const isWide = (selector: string): Promise<boolean[]> =>
      page.locator(selector).evaluateAll((all) => all.map(({ scrollWidth, clientWidth }) => scrollWidth > clientWidth));
    expect(await isWide('.messages, .offer, html')).toEqual([false, false, false]);
    await chat.send('Show me');
    await chat.ended();
    expect(await isWide('.table-scroll, li table')).toEqual([true, true]);
    expect(await isWide('.messages, .answer, html')).toEqual([false, false, false]);
    // On how many lines each cell is, and each word of the long ones.
    const lines = await page.locator('.answer td').evaluateAll((cells) =>
      cells.map((cell) => {
        const node = cell.firstChild as Text;
        const linesOf = (from: number, to: number): number => {
          const range = document.createRange();
          range.setStart(node, from);
          range.setEnd(node, to);
          return new Set([...range.getClientRects()].map(({ top }) => top)).size;
        };
        const words = [...node.data.matchAll(/\S+/g)].map(({ index, 0: word }) => linesOf(index, index + word.length));
        return { all: linesOf(0, node.data.length), word: Math.max(...words) };
      }),
    );
    const whole = { all: 1, word: 1 };
    const wrapped = { all: expect.toSatisfy((count: number) => count > 1), word: 1 };
    expect(lines).toEqual([whole, whole, whole, wrapped, whole, whole, whole, wrapped]);
  });

  test('renders a long call when it is unfolded', async () => {
    const command = 'echo a line\n'.repeat(2_000);
    await using chat = await openChat([{ calls: [{ name: 'time', arguments: { command } }] }, 'I see.']);
    const { page } = chat;
    await chat.send('Look');
    await chat.ended();
    expect(await page.locator('.call .command').count()).toBe(0);
    await page.locator('.call summary').click();
    expect(await page.locator('.call .command').textContent()).toBe(command);
  });

  test('steers and stops an answer that the server has not begun', async () => {
    const stuck: ScriptStep = (_, signal) =>
      new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(new Error('aborted'))));
    await using chat = await openChat([stuck, stuck]);
    const { page } = chat;
    const held: (() => void)[] = [];
    await page.route('**/v1/chat', async (route) => {
      if (route.request().method() === 'POST') await new Promise<void>((resolve) => held.push(resolve));
      await route.continue();
    });
    // The stream of the first answer ends later than its last event.
    const endStream = await page.evaluateHandle(() => {
      const { promise: ended, resolve } = Promise.withResolvers<void>();
      const original = globalThis.fetch;
      globalThis.fetch = async (...request) => {
        const response = await original(...request);
        if (request[1]?.method !== 'POST') return response;
        globalThis.fetch = original;
        return new Response(response.body!.pipeThrough(new TransformStream({ flush: () => ended })), response);
      };
      return { resolve };
    });
    await chat.send('What time is it?');
    await expect.poll(() => held.length, POLL).toBe(1);
    await chat.send('Answer in French');
    held[0]!();
    await page.getByText('While it worked:').waitFor();
    // Escape leaves the search, and stops nothing.
    await page.getByRole('searchbox').press('Escape');
    await chat.send('In short');
    await page.getByText('In short').waitFor();
    await chat.message.press('Escape');
    await page.getByText('The answer was cancelled.').waitFor();
    await chat.send('And now?');
    await expect.poll(() => held.length, POLL).toBe(2);
    const listed = page.waitForResponse((response) => /\/v1\/chat\?/.test(response.url()));
    await endStream.evaluate(({ resolve }) => resolve());
    await listed;
    await button(page, 'Stop').click();
    held[1]!();
    await expect.poll(() => page.getByText('The answer was cancelled.').count(), POLL).toBe(2);
  });

  test('stays where the user has gone while a conversation is created', async () => {
    await using chat = await openChat(['Hello.']);
    const { page } = chat;
    const held = Promise.withResolvers<void>();
    await page.route('**/v1/chat', async (route) => {
      if (route.request().method() === 'POST') await held.promise;
      await route.continue();
    });
    await chat.send('Hi');
    await page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name: 'Runs' }).click();
    await page.getByText('No runs yet').waitFor();
    held.resolve();
    await page.getByRole('row', { name: /Hi/ }).getByText('Completed').waitFor();
    expect(page.url()).toMatch(/#\/runs$/);
  });

  test('keeps a message that is sent while the conversation is read', async () => {
    await using chat = await openChat(['One.', 'Two.', PAY]);
    const { page } = chat;
    await chat.send('First');
    await chat.ended();
    const held: (() => void)[] = [];
    // The answers were made before the message.
    await page.route(/\/v1\/chat\/conv_\w+$/, async (route) => {
      const response = await route.fetch();
      await new Promise<void>((resolve) => held.push(resolve));
      await route.fulfill({ response });
    });
    await page.reload();
    await chat.send('Second');
    await expect.poll(() => held.length, POLL).toBe(1);
    held.pop()!();
    await page.getByText('Two.').waitFor();
    await chat.ended();
    const bubbles = page.locator('.bubble');
    expect(await bubbles.allTextContents()).toEqual(['First', 'Second']);
    // A retry reads the branch twice. The first answer is late.
    await button(page, 'Retry in a branch').last().click();
    await expect.poll(() => held.length, POLL).toBe(2);
    held.pop()!();
    await button(page, 'Approve').waitFor();
    const late = page.waitForResponse(/\/conv_\w+$/);
    held.pop()!();
    await (await late).finished();
    await button(page, 'Approve').waitFor();
    expect(await bubbles.allTextContents()).toEqual(['First', 'Second']);
  });

  test('continues after a restart of the server, and shows that the connection is lost', async () => {
    const folder = await mkdtemp(path.join(tmpdir(), 'treadle-page-'));
    const hung: ScriptStep = (_, signal) =>
      new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(new Error('aborted'))));
    const before = sqliteStore(path.join(folder, 'a.db'));
    const first = await startInProcess(scriptedModel([TIME, hung]), {
      store: before,
      tools: TOOLS,
      defaultTools: ['time'],
    });
    const opened = await openPage(launched, first.url, { allow: /ERR_/ });
    const { page } = opened;
    await page.getByRole('textbox', { name: 'Message' }).fill('What time is it?');
    await page.keyboard.press('Enter');
    await page.locator('.call.done').waitFor();
    await first[Symbol.asyncDispose]();
    await before.close();
    await page.getByText('The connection to the server is lost.').waitFor();
    const store = sqliteStore(path.join(folder, 'a.db'));
    const port = Number(new URL(first.url).port);
    const second = await startInProcess(scriptedModel(['It is noon.']), {
      store,
      port,
      tools: TOOLS,
      defaultTools: ['time'],
    });
    await page.getByText('It is noon.').waitFor();
    expect(await page.getByText('The connection to the server is lost.').count()).toBe(0);
    expect(await page.locator('.call').count()).toBe(1);
    await opened[Symbol.asyncDispose]();
    await second[Symbol.asyncDispose]();
    await store.close();
    await rm(folder, { recursive: true });
  });

  test('keeps one draft for each conversation over a reload, until it is sent', async () => {
    const later = Promise.withResolvers<string>();
    await using chat = await openChat(['One.', 'Two.', () => later.promise]);
    const { page } = chat;
    const draft = (): Promise<string> => chat.message.inputValue();
    await chat.send('First');
    await chat.ended();
    await chat.message.fill('And then?');
    await page.getByRole('link', { name: 'New chat' }).click();
    await expect.poll(draft, POLL).toBe('');
    await chat.message.fill('Something else');
    await page.reload();
    await expect.poll(draft, POLL).toBe('Something else');
    await page.goBack();
    await expect.poll(draft, POLL).toBe('And then?');
    await chat.message.press('Enter');
    await page.getByText('Two.').waitFor();
    await page.reload();
    await page.getByText('Two.').waitFor();
    expect(await draft()).toBe('');
    await page.getByRole('link', { name: 'New chat' }).click();
    await expect.poll(draft, POLL).toBe('Something else');
    // What is written before the conversation has an id belongs to it.
    await chat.message.press('Enter');
    await chat.message.fill('In short');
    await page.waitForURL(/conv_/);
    expect(await draft()).toBe('In short');
    later.resolve('Three.');
    await chat.ended();
    expect(await page.evaluate(() => Object.values(sessionStorage))).toEqual(['In short']);
  });

  test('shows what another tab has done', async () => {
    const paid = Promise.withResolvers<string>();
    const slow = tool({ name: 'pay', description: 'Pays', needsApproval: true, execute: () => paid.promise });
    const server = { tools: [slow], defaultTools: ['pay'] };
    await using chat = await openChat(['One.', PAY, 'Thank you.'], { server });
    const { page } = chat;
    await chat.send('First');
    await chat.ended();
    const other = await page.context().newPage();
    await other.goto(page.url());
    await other.getByText('One.').waitFor();
    const focus = (): Promise<unknown> => other.evaluate(() => dispatchEvent(new Event('focus')));
    await chat.send('Pay');
    await button(page, 'Approve').waitFor();
    await focus();
    await button(other, 'Approve').waitFor();
    await button(page, 'Approve').click();
    await page.locator('.call.running').waitFor();
    await focus();
    await other.locator('.call.running').waitFor();
    paid.resolve('paid');
    await other.getByText('Thank you.').waitFor();
  });

  test('shows what programs do with a conversation', async () => {
    const late = Promise.withResolvers<string>();
    const waits: ScriptStep = async () => await late.promise;
    await using chat = await openChat(['From the chat.', waits, { calls: [{ name: 'lookup' }] }], {
      allow: /status of 409/,
    });
    const { page, server } = chat;
    await chat.send('First');
    await chat.ended();
    const [{ id }] = (await server.send('GET', '/v1/chat')).body.data;
    const items = [
      { type: 'message', role: 'assistant', content: 'Added by a program.' },
      { type: 'function_call', call_id: 'call_1', name: 'find', arguments: '{}' },
      { type: 'function_call_output', call_id: 'call_1', output: 'found' },
    ];
    await server.send('POST', `/v1/conversations/${id}/items`, { items });
    await page.reload();
    const added = page.locator('.answer').nth(1);
    await added.getByText('Added by a program.').waitFor();
    expect(await added.locator('.call-time').textContent()).toBe('');
    // It belongs to no run.
    expect(await added.getByRole('button').evaluateAll((all) => all.map(({ ariaLabel }) => ariaLabel))).toEqual([
      'Copy the answer',
    ]);
    expect(await added.getByRole('link').count()).toBe(0);

    const posted = server.post({ input: 'From a program', conversation: id });
    await expect.poll(async () => (await server.send('GET', `/v1/chat/${id}`)).body.messages.length, POLL).toBe(5);
    await page.reload();
    await page.getByText('From a program').waitFor();
    await button(page, 'Stop').waitFor();
    late.resolve('An answer for the program.');
    await posted;
    await page.getByText('An answer for the program.').waitFor();
    await chat.ended();
    expect(await page.locator('.bubble').allTextContents()).toEqual(['First', 'From a program']);

    await server.post({
      input: 'Look it up',
      conversation: id,
      tools: [{ type: 'function', name: 'lookup', parameters: { type: 'object', properties: {} }, strict: false }],
    });
    await page.reload();
    await page.getByText('waits for the program that asked for it').waitFor();
    await chat.send('Now?');
    await page.locator('.toast').getByText('waits for the results of calls').waitFor();
    expect(await chat.message.inputValue()).toBe('Now?');
  });

  test('shows the beginning of a long change, says how much it is not, and shows the rest on request', async () => {
    const content = Array.from({ length: 700 }, (_, line) => `line ${line}\n`).join('');
    const write = tool({ name: 'write', description: '', needsApproval: true, execute: () => 'written' });
    const server = { tools: [write], defaultTools: ['write'] };
    const script = [{ calls: [{ name: 'write', arguments: { path: 'a.txt', content } }] }, 'Done.'];
    await using chat = await openChat(script, { server });
    const { page } = chat;
    await chat.send('Write');
    const ask = page.getByLabel('Approval of write');
    await ask.getByText('200 of 700 lines are not shown.').waitFor();
    expect(await ask.locator('.diff-line').count()).toBe(500);
    await ask.getByRole('button', { name: 'Show the rest' }).click();
    await expect.poll(() => ask.locator('.diff-line').count(), POLL).toBe(700);
    expect(await ask.locator('.diff-more').count()).toBe(0);
  });
});
