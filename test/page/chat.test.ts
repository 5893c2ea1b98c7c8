import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { crc32, deflateSync } from 'node:zlib';
import { tool, type Model, type Policy } from '@treadle/core';
import { scriptedModel, type ScriptStep } from '@treadle/core/testing';
import { hashKey, newKey } from '@treadle/server';
import { sqliteStore } from '@treadle/store';
import type { Locator, Page, Route } from 'playwright-core';
import { afterAll, describe, expect, test, vi } from 'vitest';
import { needs } from '../needs.ts';
import { useServeFixture } from '../serve/serve-command.ts';
import { startInProcess, type InProcessServer } from '../server/support/in-process.ts';
import { axeViolations, chromiumNeed, launch, openPage, type OpenOptions, type OpenPage } from './browser.ts';

const time = tool({ name: 'time', description: 'The time', effect: 'pure', execute: () => '12:00' });
const pay = tool({ name: 'pay', description: 'Pays', needsApproval: true, execute: () => 'paid' });
const order = tool({
  name: 'order',
  description: 'Orders',
  execute: async (_, { ask }) => {
    const size = await ask({ prompt: 'Which size?', choices: ['S', 'L'] });
    return `ordered ${String(size)} ${String(await ask({ prompt: 'What colour?' }))}`;
  },
});
const TOOLS = [time, pay, order];
const TIME = { text: 'One moment.', calls: [{ name: 'time' }] };
const PAY = { calls: [{ name: 'pay', arguments: { amount: 5 } }] };
const HIDDEN = { calls: [{ name: 'pay', arguments: { to: 'a\u202Eb\u200B' } }] };
const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==';

/** A valid image of one colour: a small file, and 64 million pixels. */
function hugePng(): string {
  const chunk = (type: string, data: Buffer): Buffer => {
    const body = Buffer.concat([Buffer.from(type), data]);
    const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
    length.writeUInt32BE(data.length);
    sum.writeUInt32BE(crc32(body));
    return Buffer.concat([length, body, sum]);
  };
  // 8,000 by 8,000 pixels of one bit.
  const header = Buffer.from([0, 0, 0x1f, 0x40, 0, 0, 0x1f, 0x40, 1, 0, 0, 0, 0]);
  const data = deflateSync(Buffer.alloc(1_001 * 8_000));
  const chunks = [chunk('IHDR', header), chunk('IDAT', data), chunk('IEND', Buffer.alloc(0))];
  return Buffer.concat([Buffer.from(PNG, 'base64').subarray(0, 8), ...chunks]).toString('base64');
}

const DOT = { type: 'image', mediaType: 'image/png', source: { type: 'data', data: PNG } } as const;

const SKILL = {
  name: '',
  description: 'A skill',
  text: 'Look closely.',
  folder: '/skills',
  files: [],
  invocation: 'both',
  execution: 'inline',
  dependencies: [],
  status: 'active',
} as const;

/** As long as the browser waits. */
const POLL = { timeout: 20_000 };

const launched = await launch();
// Each test has a server and a page of its own, and waits most of the time.
vi.setConfig({ maxConcurrency: 2 });

interface ChatPage extends OpenPage {
  readonly server: InProcessServer;
  readonly message: Locator;
  send(text: string): Promise<void>;
  /** Waits until the last answer has ended. */
  ended(): Promise<void>;
}

async function openChat(
  steps: readonly ScriptStep[],
  options: OpenOptions & { readonly server?: Parameters<typeof startInProcess>[1] } = {},
): Promise<ChatPage> {
  const { server: serverOptions, ...rest } = options;
  const tools = { tools: TOOLS, defaultTools: TOOLS.map(({ name }) => name) };
  const server = await startInProcess(scriptedModel(steps), { ...tools, ...serverOptions });
  const opened = await openPage(launched, server.url, rest);
  return withChat(opened, server);
}

function withChat(opened: OpenPage, server: InProcessServer): ChatPage {
  const { page } = opened;
  const message = page.getByRole('textbox', { name: 'Message' });
  return {
    ...opened,
    server,
    message,
    async send(text) {
      await message.fill(text);
      await message.press('Enter');
    },
    ended: () => page.locator('.answer:last-child').getByLabel('Copy the answer').waitFor(),
    async [Symbol.asyncDispose]() {
      await opened[Symbol.asyncDispose]();
      await server[Symbol.asyncDispose]();
    },
  };
}

const button = (page: Page, name: string): Locator => page.getByRole('button', { name, exact: true });

describe.runIf(needs(...chromiumNeed(launched))).concurrent('the chat', () => {
  afterAll(async () => {
    if ('browser' in launched) await launched.browser.close();
  });

  test('asks the model that is chosen', async () => {
    const models = new Map([
      ['first', scriptedModel(['From the first.'])],
      ['second', scriptedModel(['From the second.'])],
    ]);
    await using chat = await openChat([], { server: { models: { default: 'first', models } } });
    const { page } = chat;
    await chat.send('Hi');
    await page.getByText('From the first.').waitFor();
    await page.getByRole('combobox', { name: 'Model' }).selectOption('second');
    await chat.send('And now?');
    await page.getByText('From the second.').waitFor();
    await chat.ended();
  });

  test('lists the skills after a slash, and activates the one that is taken', async () => {
    const model = scriptedModel(['Reviewed.']);
    await using chat = await openChat([], {
      server: {
        models: { default: 'm', models: new Map([['m', model]]) },
        skills: [
          { ...SKILL, name: 'release-notes', description: 'Writes notes' },
          { ...SKILL, name: 'review', description: 'Reviews <b>changes</b>' },
          { ...SKILL, name: 'hidden', invocation: 'model' },
        ],
      },
    });
    const { page, message } = chat;
    const choices = page.getByRole('list', { name: 'Skills' }).getByRole('button');
    await message.fill('/');
    await expect
      .poll(() => choices.allTextContents(), POLL)
      .toEqual(['/release-notes Writes notes', '/review Reviews <b>changes</b>']);
    expect(await axeViolations(page)).toEqual([]);
    await message.fill('/rev');
    await expect.poll(() => choices.count(), POLL).toBe(1);
    await message.press('Tab');
    await expect.poll(() => message.inputValue(), POLL).toBe('/review ');
    await expect.poll(() => choices.count(), POLL).toBe(0);
    await message.pressSequentially('this');
    await message.press('Enter');
    await page.getByText('Reviewed.').waitFor();
    expect(JSON.stringify(model.requests[0]!.messages)).toContain('Look closely.');
  });

  const plan = tool({
    name: 'plan',
    description: 'Plans',
    execute: () => ({ content: 'ok', narrow: { source: 'plan', without: ['time'] } }),
  });

  test('shows what limits the next answer to a key that cannot lift it', async () => {
    const key = newKey();
    const scopes = ['chat:read', 'chat:write', 'tools:execute'] as const;
    const keys = [{ name: 'ann', hash: hashKey(key), scopes }];
    const server = { keys, tools: [plan], defaultTools: ['plan'] };
    const steps = [{ calls: [{ name: 'plan' }] }, 'Planned.'];
    await using chat = await openChat(steps, { allow: /status of 401/, server });
    const { page } = chat;
    await page.getByLabel('API key').fill(key);
    await button(page, 'Sign in').click();
    await chat.send('Plan.');
    await page.getByText('Limited by plan').waitFor();
    expect(await page.getByRole('button', { name: 'Lift' }).count()).toBe(0);
  });

  test('shows what limits the next answer, and lifts it', async () => {
    const call = (name: string): ScriptStep => ({ calls: [{ name }] });
    const tools = { tools: [plan, time], defaultTools: ['plan', 'time'] };
    await using chat = await openChat([call('plan'), 'Planned.', call('time'), 'It is noon.'], { server: tools });
    const { page } = chat;
    await chat.send('Plan.');
    await chat.ended();
    await page.getByRole('list', { name: 'What limits the next answer' }).getByText('Limited by plan').waitFor();
    await page.reload();
    await button(page, 'Lift the limits of plan').click();
    await button(page, 'Keep the limits of plan').click();
    await button(page, 'Lift the limits of plan').click();
    await page.getByText('from the next message on').waitFor();
    expect(await axeViolations(page)).toEqual([]);
    await chat.send('What time is it?');
    await page.getByText('It is noon.').waitFor();
    await chat.ended();
    expect(await page.getByText('Limited by').count()).toBe(0);
    expect(await page.locator('.answer').last().innerText()).not.toContain('not allowed');
  });

  test('streams Markdown, code, reasoning and calls, and shows the same after a reload', async () => {
    const reasoned: ScriptStep = {
      type: 'reply',
      content: [
        { type: 'reasoning', text: 'I look at the clock.' },
        { type: 'text', text: '# Noon\n\nIt is **12:00**.\n\n```ts\nconst noon: number = 12;\n```\n' },
      ],
      finish: 'stop',
      usage: { inputTokens: 1_200, outputTokens: 34, cost: 0.0123 },
      model: 'scripted',
    };
    await using chat = await openChat([TIME, reasoned]);
    const { page } = chat;
    await chat.send('What time is it?');
    await chat.ended();
    await page.locator('.hljs-keyword').first().waitFor();
    const shown = async (): Promise<string> => await page.locator('.answer').innerText();
    const first = await shown();
    expect(first).toContain('One moment.');
    expect(first).toContain('It is 12:00.');
    expect(first).toContain('1,249 tokens · $0.012');
    expect(await page.locator('.answer strong').textContent()).toBe('12:00');
    await page.getByText('Reasoning').click();
    await page.getByText('I look at the clock.').waitFor();
    await page.locator('.call summary').click();
    expect(await page.locator('.call .result').textContent()).toBe('12:00');
    await page.getByRole('link', { name: 'Show this step in the run' }).click();
    await page.waitForURL(/#\/runs\/resp_\w+\/at\/\d+$/);
    await page.goBack();
    await page.reload();
    await page.locator('.hljs-keyword').first().waitFor();
    expect(await shown()).toBe(first);
  });

  test('keeps an open approval over a reload; approves, denies with a reason, and answers questions', async () => {
    await using chat = await openChat([
      PAY,
      'Thank you.',
      PAY,
      'As you like.',
      { calls: [{ name: 'order' }] },
      'Done.',
    ]);
    const { page } = chat;
    await chat.send('Pay');
    await button(page, 'Approve').waitFor();
    await page.reload();
    const ask = page.getByRole('region', { name: 'Approval of pay' });
    expect(await ask.locator('pre').textContent()).toBe('{\n  "amount": 5\n}');
    await button(page, 'Approve').click();
    await page.getByText('Thank you.').waitFor();
    await page.getByText('approved', { exact: true }).waitFor();
    await chat.send('Pay again');
    await button(page, 'Deny').click();
    const why = page.getByLabel(/^Why not/);
    await why.fill('Too exp');
    // Enter ends the composition of a character.
    await why.dispatchEvent('keydown', { key: 'Enter', isComposing: true });
    await why.fill('Too expensive');
    await button(page, 'Deny the call').click();
    await page.getByText('As you like.').waitFor();
    await page.locator('.call summary').last().click();
    expect(await page.locator('.call .result').last().textContent()).toContain('Too expensive');
    await chat.send('Order');
    await button(page, 'L').click();
    await page.getByLabel('Your answer').fill('red');
    await button(page, 'Answer').click();
    await page.getByText('Done.').waitFor();
    await page.locator('.call summary').last().click();
    expect(await page.locator('.call .result').last().textContent()).toBe('ordered L red');
    // What was decided is there after a reload.
    const marks = async (): Promise<string[]> => await page.locator('.call .chip').allTextContents();
    expect(await marks()).toEqual(['approved', 'denied']);
    await chat.ended();
    await page.reload();
    await page.getByText('Done.').waitFor();
    expect(await marks()).toEqual(['approved', 'denied']);
    await page.locator('.call summary').nth(1).click();
    expect(await page.locator('.call .decision').nth(1).textContent()).toBe(
      'Denied: Too expensive · rule needsApproval',
    );
  });

  test('shows the newest output of a call that runs, and since when, also after a reload', async ({ expect }) => {
    const released = Promise.withResolvers<string>();
    let reportLines = (_from: number, _to: number): void => {};
    const build = tool({
      name: 'build',
      description: 'Builds',
      needsApproval: true,
      async execute(_, { report }) {
        reportLines = (from, to) => {
          for (let line = from; line <= to; line++) report(`compiling ${line}\n`);
        };
        reportLines(1, 2);
        return await released.promise;
      },
    });
    const server = { tools: [build], defaultTools: ['build'] };
    await using chat = await openChat([{ calls: [{ name: 'build' }] }, 'Built.'], { server });
    const { page } = chat;
    await page.clock.install();
    await page.reload();
    await chat.send('Build');
    await button(page, 'Approve').click();
    const output = page.getByLabel('Output so far');
    await expect.poll(() => output.textContent(), POLL).toBe('compiling 1\ncompiling 2\n');
    await page.clock.fastForward('10:00');
    await page.reload();
    await expect.poll(() => output.textContent(), POLL).toBe('compiling 1\ncompiling 2\n');
    await page.locator('.call.running .chip').getByText('approved').waitFor();
    await expect.poll(() => page.locator('.call-time').textContent(), POLL).toMatch(/^10 min/);
    // The end is followed, unless the user has scrolled up.
    const below = (): Promise<number> =>
      output.evaluate(({ scrollHeight, scrollTop, clientHeight }) => scrollHeight - scrollTop - clientHeight);
    const shows = (line: number): Promise<unknown> =>
      expect.poll(() => output.textContent(), POLL).toMatch(new RegExp(`compiling ${line}\n$`));
    reportLines(3, 60);
    await shows(60);
    expect(await below()).toBeLessThan(2);
    await output.hover();
    await page.mouse.wheel(0, -200);
    await expect.poll(below, POLL).toBeGreaterThan(100);
    const top = await output.evaluate((element) => element.scrollTop);
    reportLines(61, 2_500);
    await shows(2_500);
    expect(await output.evaluate((element) => element.scrollTop)).toBe(top);
    expect(await output.textContent()).toMatch(/^compiling 1\n/);
    await output.press('End');
    await expect.poll(below, POLL).toBeLessThan(2);
    reportLines(2_501, 2_502);
    await shows(2_502);
    expect(await below()).toBeLessThan(2);
    expect((await output.textContent())!.length).toBe(20_000);
    released.resolve('built');
    await page.getByText('Built.').waitFor();
    await chat.ended();
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

  test('steers an answer in progress, and stops one', async () => {
    const released = Promise.withResolvers<void>();
    const waits: ScriptStep = async () => {
      await released.promise;
      return TIME;
    };
    const stuck: ScriptStep = (_, signal) =>
      new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(new Error('aborted'))));
    const script = scriptedModel([waits, 'In French: midi.', stuck]);
    const model: Model = {
      ...script,
      reply(request, emit, signal) {
        if (script.requests.length === 2) emit({ type: 'text-delta', text: 'It is **still** no' });
        return script.reply(request, emit, signal);
      },
    };
    await using chat = await openChat([], { server: { models: { default: 'm', models: new Map([['m', model]]) } } });
    const { page } = chat;
    await chat.send('What time is it?');
    await button(page, 'Stop').waitFor();
    await chat.send('Answer in French');
    await page.getByText('While it worked:').waitFor();
    await page.reload();
    // The stream, which follows, does not have it.
    await page.waitForResponse(/\/stream\?/);
    await page.getByText('While it worked:').waitFor();
    released.resolve();
    await page.getByText('In French: midi.').waitFor();
    await chat.ended();
    // Where it took effect: after the call.
    await page.waitForFunction(() =>
      /time[\s\S]*12:00[\s\S]*Answer in French[\s\S]*midi/.test(document.querySelector('.answer')!.textContent),
    );
    await chat.send('And now?');
    const partial = page.locator('.answer', { hasText: 'It is still no' });
    await partial.waitFor();
    await button(page, 'Stop').click();
    await partial.getByText('stopped here').waitFor();
    await page.getByText('The answer was cancelled.').waitFor();
    await page.reload();
    await partial.getByText('stopped here').waitFor();
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

  test('edits and retries in branches, and never changes the original', async () => {
    await using chat = await openChat(['One.', 'Two.', 'Two again.', 'Three.']);
    const { page, server } = chat;
    await chat.send('First');
    await page.getByText('One.').waitFor();
    await chat.ended();
    await chat.send('Second');
    await page.getByText('Two.').waitFor();
    await chat.ended();
    const original = page.url();
    await button(page, 'Retry in a branch').last().click();
    await page.getByText('Two again.').waitFor();
    expect(page.url()).not.toBe(original);
    expect(await page.locator('.answer').count()).toBe(2);
    await chat.ended();
    await button(page, 'Edit the message').last().click();
    await page.getByRole('textbox', { name: /^Edit the message/ }).fill('Third');
    await button(page, 'Send in a branch').click();
    await page.getByText('Three.').waitFor();
    expect(await page.locator('.bubble').allTextContents()).toEqual(['First', 'Third']);
    await chat.ended();
    await button(page, 'Branch from here').first().click();
    await page.waitForFunction(() => document.querySelectorAll('.answer').length === 1);
    expect((await server.send('GET', '/v1/chat')).body.data).toHaveLength(4);
    await page.goto(original);
    await page.getByText('Two.').waitFor();
    expect(await page.locator('.answer').count()).toBe(2);
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

  test('attaches files by paste, drop and choice, and shows images after a reload', async () => {
    const texts: string[] = [];
    const look: ScriptStep = ({ messages }) => {
      texts.push(JSON.stringify(messages.at(-1)));
      return 'I see.';
    };
    await using chat = await openChat([look]);
    const { page } = chat;
    await chat.message.waitFor();
    const fire = (
      type: 'paste' | 'drop',
      name: string,
      mediaType: string,
      base64: string,
      place = '#message',
    ): Promise<void> =>
      page.evaluate(
        ([event, file, media, data, where]) => {
          const bytes = Uint8Array.from(atob(data!), (character) => character.charCodeAt(0));
          const transfer = new DataTransfer();
          transfer.items.add(new File([bytes], file!, { type: media! }));
          const target = document.querySelector(where!)!;
          const options = { bubbles: true, cancelable: true };
          target.dispatchEvent(
            event === 'paste'
              ? new ClipboardEvent('paste', { ...options, clipboardData: transfer })
              : new DragEvent('drop', { ...options, dataTransfer: transfer }),
          );
        },
        [type, name, mediaType, base64, place],
      );
    await fire('paste', 'dot.png', 'image/png', PNG);
    await page.getByText('dot.png').waitFor();
    // Anywhere: the browser would open the file, and leave the page.
    await fire('drop', 'notes.md', 'text/markdown', btoa('remember the milk'), '.side');
    await page.getByText('notes.md').waitFor();
    await page.locator('input[type=file]').setInputFiles([
      { name: 'more.txt', mimeType: 'text/plain', buffer: Buffer.from('and eggs') },
      { name: 'bad.zip', mimeType: 'application/zip', buffer: Buffer.from([0x50, 0x4b, 0, 0]) },
    ]);
    await page.getByText(/^bad\.zip: images/).waitFor();
    await button(page, 'Remove more.txt').click();
    await chat.message.press('Enter');
    await page.getByText('I see.').waitFor();
    await page.getByRole('heading', { name: 'Image', level: 1 }).waitFor();
    expect(texts[0]).toContain('remember the milk');
    expect(texts[0]).not.toContain('and eggs');
    await page.reload();
    await page.locator('.bubble img').waitFor();
    expect(await page.locator('.attachment-name').allTextContents()).toEqual(['dot.png', 'notes.md']);
    expect(
      await page
        .locator('.bubble img')
        .evaluate((image: HTMLImageElement) => image.decode().then(() => image.naturalWidth)),
    ).toBe(1);
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

  test('does not lose a message that the server did not get', async ({ expect }) => {
    await using chat = await openChat(['One.', 'Two.'], { allow: /ERR_/ });
    const { page } = chat;
    const posts: Route[] = [];
    const isNotSent = (): Promise<void> => page.locator('.toast').getByText('may not have arrived').last().waitFor();
    const draft = (): Promise<string> => chat.message.inputValue();
    const bubbles = page.locator('.bubble');
    // Nothing reaches the server: an answer to anything would show that it can be reached.
    await page.route(/\/v1\/|\/healthz$/, (route) => route.abort('connectionrefused'));
    await chat.send('First');
    await isNotSent();
    await page.getByText('The connection to the server is lost.').waitFor();
    expect(await draft()).toBe('First');
    expect(await bubbles.count()).toBe(0);
    await page.unrouteAll();
    await page.getByText('The connection to the server is lost.').waitFor({ state: 'detached' });
    await chat.message.press('Enter');
    await page.getByText('One.').waitFor();
    await chat.ended();
    expect(await draft()).toBe('');

    await page.reload();
    await page.getByText('One.').waitFor();
    await page.route('**/v1/chat', (route) =>
      route.request().method() === 'POST' ? void posts.push(route) : route.continue(),
    );
    await chat.send('Second');
    await expect.poll(() => posts.length, POLL).toBe(1);
    await posts.pop()!.abort('connectionrefused');
    await isNotSent();
    await expect.poll(draft, POLL).toBe('Second');
    expect(await bubbles.allTextContents()).toEqual(['First']);

    // The user does not wait for the server: opens another conversation, or reloads the page.
    await chat.message.press('Enter');
    await expect.poll(() => posts.length, POLL).toBe(1);
    await page.getByRole('link', { name: 'New chat' }).click();
    await page.getByRole('heading', { name: 'New chat', level: 1 }).waitFor();
    await posts.pop()!.abort('connectionrefused');
    await isNotSent();
    expect(await draft()).toBe('');
    await page.goBack();
    await expect.poll(draft, POLL).toBe('Second');
    await chat.message.press('Enter');
    await expect.poll(() => posts.length, POLL).toBe(1);
    await page.reload();
    await expect.poll(draft, POLL).toBe('Second');
    await page.unrouteAll();
    await page.getByText('One.').waitFor();

    // An edited message stays where it was written.
    await page.route('**/branch', (route) => route.abort('connectionrefused'));
    await button(page, 'Edit the message').click();
    await page.getByRole('textbox', { name: /^Edit the message/ }).fill('Changed');
    await button(page, 'Send in a branch').click();
    await page.locator('.toast').getByText('cannot be reached').waitFor();
    expect(await page.getByRole('textbox', { name: /^Edit the message/ }).inputValue()).toBe('Changed');
    await page.unrouteAll();
    await button(page, 'Send in a branch').click();
    await page.getByText('Two.').waitFor();
    expect(await bubbles.allTextContents()).toEqual(['Changed']);
    await chat.ended();
    expect(await page.evaluate(() => Object.values(sessionStorage))).toEqual(['Second']);
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

  test('does not ask again for what was answered before a reload', async () => {
    const paid = Promise.withResolvers<string>();
    const slow = tool({ name: 'pay', description: 'Pays', needsApproval: true, execute: () => paid.promise });
    await using chat = await openChat([PAY, 'Thank you.'], { server: { tools: [slow], defaultTools: ['pay'] } });
    const { page } = chat;
    await chat.send('Pay');
    await button(page, 'Approve').click();
    await page.locator('.call.running').waitFor();
    // The page asks whether the approval in the stream is open.
    let reads = 0;
    page.on('requestfinished', (request) => void (/\/conv_\w+$/.test(request.url()) && reads++));
    await page.reload();
    await expect.poll(() => reads, POLL).toBe(2);
    await page.locator('.call.running .spinner').waitFor();
    expect(await button(page, 'Approve').count()).toBe(0);
    paid.resolve('paid');
    await page.getByText('Thank you.').waitFor();
    await chat.ended();
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

  test('answers an approval of a response of the API, in which nothing is hidden', async () => {
    await using chat = await openChat(['One.', HIDDEN, 'Thank you.'], { server: { waitForAnswers: true } });
    const { page, server } = chat;
    await chat.send('First');
    await chat.ended();
    const [{ id }] = (await server.send('GET', '/v1/chat')).body.data;
    await server.post({ input: 'Pay', conversation: id, background: true });
    await page.reload();
    const ask = page.getByRole('region', { name: 'Approval of pay' });
    expect(await ask.locator('pre').textContent()).toContain(String.raw`"a\u202eb\u200b"`);
    await button(page, 'Approve').click();
    await page.getByText('Thank you.').waitFor();
    await chat.ended();
    await page.locator('.call .chip').getByText('approved').waitFor();
    expect(await page.locator('.call-summary').textContent()).toBe(String.raw`a\u202eb\u200b`);
  });

  test('shows the command of an approval once, and counts it on all parts of the page while it waits', async () => {
    const command = 'rm -rf build && npm run "build all"';
    const bash = tool({
      name: 'bash',
      description: 'Runs a command',
      input: { type: 'object', properties: { command: { type: 'string' } } },
      touches: (input) => [{ type: 'command', command: String((input as { command: string }).command) }],
      execute: () => 'done',
    });
    const reason = `at level 1 (supervised) it is asked about, because it would run ${JSON.stringify(command)}`;
    const policy: Policy = { judge: (calls) => calls.map(() => ({ type: 'ask', reason, rule: 'autonomy' })) };
    const server = { policy, tools: [bash], defaultTools: ['bash'], waitForAnswers: true };
    const calls = [{ name: 'bash', arguments: { command } }];
    await using chat = await openChat([{ calls }, { calls }, 'One.', 'Two.'], { server });
    const { page } = chat;
    const badge = page.getByRole('navigation', { name: 'Main' }).locator('.badge');
    const count = async (text: string): Promise<number> => {
      const shown = await page.getByRole('main').innerText();
      return shown.split(text).length - 1;
    };
    const why = 'At level 1 (supervised) it is asked about, because it would run this command.';
    await chat.message.waitFor();
    expect(await badge.count()).toBe(0);
    const background = chat.server.post({ input: 'From a program', background: true });
    await badge.getByText('1').waitFor();
    await background;
    await chat.send('Build');
    await button(page, 'Approve').waitFor();
    await badge.getByText('2').waitFor();
    // Also if the call is unfolded.
    await page.locator('.call summary').click();
    expect([await count('rm -rf build'), await count(why)]).toEqual([1, 1]);
    await button(page, 'Approve').click();
    await page.getByText('One.').waitFor();
    await badge.getByText('1').waitFor();
    await page.getByRole('navigation', { name: 'Main' }).getByRole('link', { name: 'Runs' }).click();
    await button(page, 'Approve').waitFor();
    expect([await count('rm -rf build'), await count(why)]).toEqual([1, 1]);
    await page.getByRole('link', { name: 'From a program' }).last().click();
    await page.getByRole('heading', { name: 'From a program' }).waitFor();
    const card = page.getByRole('region', { name: 'Approval needed: bash' });
    expect((await card.innerText()).split('rm -rf build').length).toBe(2);
    await button(page, 'Approve').click();
    await badge.waitFor({ state: 'detached' });
    await chat.server.getEnded(page.url().split('/').at(-1)!);
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

  test('finds, renames and deletes conversations', async () => {
    await using chat = await openChat(['Lions roar.', 'Planes fly.']);
    const { page, server } = chat;
    const setInstructions = async (text: string): Promise<void> => {
      await page.getByLabel('Actions for the conversation').click();
      await page.locator('.menu').getByRole('button', { name: 'Instructions' }).click();
      await page.getByLabel('What the model is told').fill(text);
      await button(page, 'Save').click();
      await page.getByRole('dialog').waitFor({ state: 'detached' });
    };
    // A menu closes when the focus leaves it.
    await page.waitForFunction(() => document.activeElement?.id === 'message');
    await setInstructions('Be wild.');
    await chat.send('Tell me about lions');
    await chat.ended();
    const instructions = async (): Promise<unknown> => {
      const { body } = await server.send('GET', `/v1/chat/${new URL(page.url()).hash.split('/').at(-1)}`);
      return body.instructions;
    };
    expect(await instructions()).toBe('Be wild.');
    await page.locator('header').getByRole('button', { name: 'Instructions', exact: true }).click();
    await page.getByRole('dialog').waitFor();
    expect(await page.getByLabel('What the model is told').inputValue()).toBe('Be wild.');
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await setInstructions('Be tame.');
    expect(await instructions()).toBe('Be tame.');
    await page.getByRole('link', { name: 'New chat' }).click();
    await page.getByRole('heading', { name: 'New chat', level: 1 }).waitFor();
    await chat.send('Tell me about planes');
    await page.getByText('Planes fly.').waitFor();
    await chat.ended();
    await page.getByRole('heading', { name: 'Tell me about planes', level: 1 }).waitFor();
    const list = page.getByRole('navigation', { name: 'Conversations' });
    await list.getByRole('link', { name: 'Tell me about lions' }).waitFor();
    await page.getByLabel('Actions for the conversation').click();
    await button(page, 'Rename').click();
    await page.getByLabel('Title').fill('Aviation');
    await button(page, 'Rename').click();
    await list.getByRole('link', { name: 'Aviation' }).waitFor();
    await page.getByRole('searchbox').fill('roar');
    await page.waitForFunction(() => document.querySelectorAll('.conversations li').length === 1);
    await list.getByRole('link').click();
    await page.getByText('Lions roar.').waitFor();
    await page.getByLabel('Actions for the conversation').click();
    await button(page, 'Delete').click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await page.waitForURL(/#\/chat$/);
    await page.getByText('Nothing was found.').waitFor();
    expect((await server.send('GET', '/v1/chat')).body.data).toMatchObject([{ title: 'Aviation' }]);
  });

  test('shows errors of the model and of the server, and a message that was refused is not lost', async () => {
    const failure: ScriptStep = {
      type: 'failure',
      error: { code: 'auth', message: 'wrong key', retryable: false },
    };
    const busy = Promise.withResolvers<void>();
    const waits: ScriptStep = async () => {
      await busy.promise;
      return 'Late.';
    };
    const script = scriptedModel([failure, waits]);
    const model: Model = {
      ...script,
      reply(request, emit, signal) {
        if (script.requests.length === 0) emit({ type: 'text-delta', text: 'It is **no' });
        return script.reply(request, emit, signal);
      },
    };
    await using chat = await openChat([], {
      allow: /status of 409|status of 404/,
      server: { models: { default: 'm', models: new Map([['m', model]]) } },
    });
    const { page, server } = chat;
    await chat.send('Hello');
    await page.getByRole('alert').getByText('The model rejects the credentials of this server.').waitFor();
    await chat.ended();
    // What the model had sent stays, and is marked.
    for (const isReloaded of [false, true]) {
      if (isReloaded) await page.reload();
      const partial = page.locator('.answer', { hasText: 'It is **no' });
      await partial.locator('.chip').getByText('incomplete').waitFor();
    }
    const [conversation] = (await server.send('GET', '/v1/chat')).body.data;
    const other = fetch(`${server.url}/v1/chat`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ conversation_id: conversation.id, message: 'From elsewhere', on_disconnect: 'continue' }),
    });
    await other;
    await chat.send('Second');
    await page.locator('.toast').waitFor();
    expect(await chat.message.inputValue()).toBe('Second');
    busy.resolve();
    await page.goto(`${server.url}/#/chat/conv_none`);
    await page.getByText('There is no such conversation').waitFor();
  });

  test('can be used with the keyboard alone', async () => {
    await using chat = await openChat([PAY, 'Thank you.']);
    const { page } = chat;
    const { keyboard } = page;
    await page.waitForFunction(() => document.activeElement?.id === 'message');
    await keyboard.type('Pay');
    await keyboard.press('Shift+Enter');
    await keyboard.type('now');
    await keyboard.press('Enter');
    await button(page, 'Approve').waitFor();
    expect(await page.locator('.bubble').textContent()).toBe('Pay\nnow');
    await page.locator('.messages').focus();
    await keyboard.press('a');
    expect(await page.evaluate(() => document.activeElement?.textContent)).toBe('Approve');
    await keyboard.press('Enter');
    await page.getByText('Thank you.').waitFor();
    await chat.ended();
    expect(await page.evaluate(() => document.activeElement?.className)).toBe('messages');
    await keyboard.press('Shift+?');
    await page.getByRole('dialog', { name: 'Keyboard shortcuts' }).waitFor();
    await keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await keyboard.press('n');
    await page.getByRole('heading', { name: 'New chat', level: 1 }).waitFor();
    await page.waitForFunction(() => document.activeElement?.id === 'message');
    await keyboard.press('Control+k');
    expect(await page.evaluate(() => document.activeElement?.id)).toBe('search');
    await keyboard.press('Control+2');
    await page.waitForURL(/#\/runs$/);
  });

  test('shows what the policy gives for an approval, and who has approved so far', async () => {
    const [ann, bob] = [newKey(), newKey()];
    const scopes = ['chat:read', 'chat:write', 'runs:read', 'runs:write', 'tools:execute'] as const;
    const keys = Object.entries({ ann, bob }).map(([name, key]) => ({ name, hash: hashKey(key), scopes }));
    const policy: Policy = {
      judge: (calls) => calls.map(() => ({ type: 'ask', required: 2, rule: 'money', shown: 'balance: -5' })),
    };
    const server = { keys, policy, tools: [pay], defaultTools: ['pay'], waitForAnswers: true };
    await using chat = await openChat([PAY, 'Thank you.'], { allow: /status of 401/, server });
    const { page } = chat;
    await page.getByLabel('API key').fill(ann);
    await button(page, 'Sign in').click();
    await chat.send('Pay');
    const ask = page.getByRole('region', { name: 'Approval of pay' });
    await ask.getByText('balance: -5').waitFor();
    await ask.getByText('2 people have to approve it. So far: nobody.').waitFor();
    await button(page, 'Approve').click();
    await ask.getByText('So far: ann.').waitFor();
    const headers = { authorization: `Bearer ${bob}` };
    const address = `/v1/chat/${page.url().split('/').at(-1)}`;
    const { id, digest } = (await chat.server.send('GET', address, undefined, headers)).body.messages[1].waiting[0];
    await chat.server.send('POST', `${address}/answers`, { id, digest, approved: true }, headers);
    await page.getByText('Thank you.').waitFor();
    await page.locator('.call summary').click();
    expect(await page.locator('.decision').textContent()).toBe('Approved by ann and bob · rule money');
  });

  test('shows nothing of another tenant', async () => {
    const [ann, bob] = [newKey(), newKey()];
    const scopes = ['chat:read', 'chat:write', 'runs:read', 'runs:write', 'tools:execute'] as const;
    const keys = [
      { name: 'ann', hash: hashKey(ann), tenant: 'a', scopes },
      { name: 'bob', hash: hashKey(bob), tenant: 'b', scopes },
    ];
    await using chat = await openChat(['A secret of a.'], { allow: /status of (401|404)/, server: { keys } });
    const { page } = chat;
    const signIn = async (key: string): Promise<void> => {
      await page.getByLabel('API key').fill(key);
      await button(page, 'Sign in').click();
      await chat.message.waitFor();
    };
    await signIn(ann);
    await chat.send('Tell me');
    await chat.ended();
    await chat.message.fill('My draft');
    await button(page, 'Sign out').click();
    await signIn(bob);
    await page.getByText('There is no such conversation').waitFor();
    expect(await chat.message.inputValue()).toBe('');
    await page.getByText('No conversations yet.').waitFor();
    expect(await page.locator('body').innerText()).not.toContain('secret');
    // The same after the server refuses a key that it had accepted.
    await button(page, 'Sign out').click();
    await signIn(ann);
    await page.getByText('A secret of a.').waitFor();
    await chat.message.fill('My draft');
    await page.route('**/v1/chat?*', (route) =>
      route.continue({ headers: { ...route.request().headers(), authorization: 'Bearer revoked' } }),
    );
    await page.getByRole('searchbox').fill('x');
    await page.getByLabel('API key').waitFor();
    await page.unroute('**/v1/chat?*');
    await signIn(bob);
    await page.getByText('There is no such conversation').waitFor();
    expect(await page.locator('body').innerText()).not.toContain('secret');
    expect(await chat.message.inputValue()).toBe('');
  });

  describe('with treadle serve', { concurrent: false }, () => {
    const fixture = useServeFixture();

    test('the demo model leads through a call, an approval, a step back in time, a device and a real model', async () => {
      const server = await fixture.serve();
      await using opened = await openPage(launched, server.url);
      const { page } = opened;
      const main = page.getByRole('navigation', { name: 'Main' });
      await button(page, 'Ask “List the files”').click();
      await page.locator('.call.done').waitFor();
      await button(page, 'Ask “Read "../"”').click();
      await button(page, 'Approve').click();
      await page.locator('.call.done').nth(1).waitFor();
      await button(page, 'Go to the approval').click();
      await page.waitForURL(/#\/runs\/resp_\w+\/at\/\d+$/);
      await main.getByRole('link', { name: 'Chat' }).click();
      await page.getByText('treadle serve --demo-device').waitFor();
      await button(page, 'Show devices').click();
      await page.getByRole('heading', { name: 'No devices yet' }).waitFor();
      await main.getByRole('link', { name: 'Chat' }).click();
      // The demo model writes no titles.
      const list = page.getByRole('navigation', { name: 'Conversations' });
      await list.getByRole('link', { name: 'List the files' }).waitFor();
      await button(page, 'Show how').click();
      const dialog = page.getByRole('dialog', { name: 'Models' });
      await dialog.getByText('OPENAI_API_KEY').first().waitFor();
      await dialog.getByRole('button', { name: 'Test' }).click();
      await dialog.getByText(/^It works: it replies, calls tools and streams/).waitFor();
      expect(await axeViolations(page)).toEqual([]);
    });
  });

  // Last, and alone: axe slows the browser down for seconds.
  test(
    'has no accessibility violations in light, dark and on a phone, and fits a phone',
    { concurrent: false },
    async () => {
      const text =
        '### Deep first\n\n# Then high\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n- [x] done\n\n```json\n{"a": 1}\n```';
      const look = tool({ name: 'look', description: 'Looks', effect: 'pure', execute: () => ({ content: [DOT] }) });
      const server = { tools: [pay, look], defaultTools: ['pay', 'look'] };
      const script: ScriptStep[] = [{ calls: [{ name: 'look' }] }, text, PAY, 'Paid.', PAY, 'Thank you.'];
      await using chat = await openChat(script, { server, reducedMotion: 'reduce' });
      const { page } = chat;
      await page.getByRole('heading', { name: 'New chat', level: 1 }).waitFor();
      expect(await axeViolations(page)).toEqual([]);
      await chat.send('Everything');
      await chat.ended();
      await page.getByRole('img', { name: 'Image of look' }).waitFor();
      await page.locator('.call summary').click();
      await chat.send('Pay');
      await button(page, 'Approve').click();
      await page.getByText('Paid.').waitFor();
      await chat.ended();
      await page.locator('.call summary').last().click();
      await chat.send('Pay');
      await button(page, 'Approve').waitFor();
      await page.locator('.call summary').last().click();
      expect(await axeViolations(page)).toEqual([]);
      await page.emulateMedia({ colorScheme: 'dark' });
      expect(await axeViolations(page)).toEqual([]);
      await page.setViewportSize({ width: 390, height: 780 });
      expect(await axeViolations(page)).toEqual([]);
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(390);
      await button(page, 'Navigation').click();
      await page.getByRole('link', { name: 'New chat' }).click();
      await page.getByRole('heading', { name: 'New chat', level: 1 }).waitFor();
      await page.locator('.side').waitFor({ state: 'hidden' });
      expect(await axeViolations(page)).toEqual([]);
    },
  );
});
