import { tool, type Model, type Policy } from '@treadle/core';
import { scriptedModel, type ScriptStep } from '@treadle/core/testing';
import { hashKey, newKey } from '@treadle/server';
import type { Route } from 'playwright-core';
import { afterAll, describe, expect, test } from 'vitest';
import { needs } from '../needs.ts';
import { useServeFixture } from '../serve/serve-command.ts';
import { axeViolations, chromiumNeed, openPage } from './browser.ts';
import { button, DOT, HIDDEN, launched, openChat, pay, PAY, PNG, POLL, SKILL, time, TIME } from './chat-fixture.ts';

/* Those that take longest are in test/long/page/chat.test.ts. */

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

  test('approves the same calls for the rest of the chat', async () => {
    await using chat = await openChat([PAY, 'Thank you.', PAY, 'Thanks again.']);
    const { page } = chat;
    await chat.send('Pay');
    await button(page, 'Approve for this chat').click();
    await page.getByText('Thank you.').waitFor();
    await chat.send('Pay again');
    await page.getByText('Thanks again.').waitFor();
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
