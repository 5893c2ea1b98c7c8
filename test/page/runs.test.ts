import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { agentTool, forkRun, Parked, tool, type Model } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import { hashKey, type TreadleServerOptions } from '@treadle/server';
import { sqliteStore } from '@treadle/store';
import type { Locator, Page, Request } from 'playwright-core';
import { afterAll, describe, expect, test, vi } from 'vitest';
import { scriptedOpenAi } from '../command/scripted-openai.ts';
import { needs } from '../needs.ts';
import { useServeFixture } from '../serve/serve-command.ts';
import { responseIdIn, startInProcess, type InProcessServer } from '../server/support/in-process.ts';
import { startServer } from '../server/support/server-process.ts';
import { axeViolations, chromiumNeed, launch, openPage } from './browser.ts';

const launched = await launch();
// Each test has a server and a page of its own, and waits most of the time.
vi.setConfig({ maxConcurrency: 2 });

const read = tool({ name: 'read', description: 'Reads a file', effect: 'pure', execute: () => 'port = 3210' });
const broken = tool({ name: 'broken', description: '', execute: () => Promise.reject(new Error('no such host')) });
const write = tool({
  name: 'write',
  description: 'Writes a file',
  needsApproval: true,
  input: { type: 'object', properties: { text: { type: 'string' } } },
  execute: () => 'written',
});
const TOOLS = { tools: [read, broken, write], defaultTools: ['read', 'broken', 'write'], waitForAnswers: true };
const writing = (text: string) => ({ calls: [{ name: 'write', arguments: { text } }] });
const SCRIPT = [
  { text: 'I look first.', calls: [{ name: 'read' }, { name: 'read' }, { name: 'broken' }] },
  // The page shows texts of models as texts.
  writing('port = 8080</pre><img src=x onerror=alert(1)>'),
  'It listens on port 8080. <script>alert(1)</script><img src=//outside.example/x>',
];

/** A server with a run that waits for the approval of its last call. */
async function startWaiting(
  more: readonly (string | object)[] = [],
  options: Partial<TreadleServerOptions> = TOOLS,
): Promise<{ server: InProcessServer; id: string }> {
  const model: Model = scriptedModel([...SCRIPT, ...more] as never);
  const server = await startInProcess(model, options);
  const id = responseIdIn((await server.post({ input: 'Change the port', stream: true })).text);
  return { server, id };
}

async function approve(server: InProcessServer, id: string): Promise<void> {
  const [{ effect, digest }] = (await server.send('GET', `/v1/runs/${id}`)).body.waiting;
  const answers = [{ type: 'approval', effect, digest, approved: true }];
  await server.send('POST', `/v1/runs/${id}/answers`, { answers });
  await server.getEnded(id);
}

/** What the browser does when the user goes to another tab and back. */
const show = (page: Page, state: 'hidden' | 'visible') =>
  page.evaluate((given) => {
    Object.defineProperty(document, 'visibilityState', { value: given, configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));
  }, state);
/** Like `vi.waitFor`, also on a machine that is busy. */
const eventually = (check: () => void | Promise<void>) => vi.waitFor(check, { timeout: 15_000 });
const slider = (page: Page) => page.getByRole('slider', { name: 'Entry' });
const tab = (page: Page, name: string) => page.getByRole('tab', { name });
const panel = (page: Page) => page.getByRole('tabpanel');

describe.runIf(needs(...chromiumNeed(launched))).concurrent('the runs of the page', () => {
  afterAll(async () => {
    if ('browser' in launched) await launched.browser.close();
  });

  test('are listed with their status, filters and what waits, which is answered there', async () => {
    const park = tool({ name: 'park', description: '', effect: 'pure', execute: () => new Parked('a build') });
    const { server, id } = await startWaiting([{ calls: [{ name: 'park' }] }], {
      ...TOOLS,
      tools: [...TOOLS.tools, park],
      defaultTools: [...TOOLS.defaultTools, 'park'],
    });
    await using _ = server;
    await using opened = await openPage(launched, `${server.url}/#/runs`);
    const { page } = opened;
    const row = page.getByRole('row', { name: /Change the port/ });
    await row.getByText('Waiting').waitFor();
    const asked = page.getByRole('region', { name: 'Approval needed: write' });
    expect(await asked.getByRole('group', { name: 'Arguments' }).textContent()).toContain('"port = 8080</pre><img');
    await page.getByRole('button', { name: 'Failed' }).click();
    await page.getByText('No run matches').waitFor();
    await page.getByRole('link', { name: 'Show all runs' }).click();
    await row.waitFor();
    await page.getByLabel('Search titles').fill('nothing');
    await page.getByText('No run matches').waitFor();
    await page.getByLabel('Search titles').fill('the PORT');
    await row.waitFor();
    // Above a filtered list, it is one line until it is unfolded.
    expect((await asked.boundingBox())!.height).toBeLessThan(60);
    await asked.getByText('Approval needed').click();
    await asked.getByRole('button', { name: 'Approve', exact: true }).click();
    // The status is live.
    await row.getByText('Completed').waitFor();
    await asked.waitFor({ state: 'detached' });
    // A call that is parked waits for nobody.
    await page.getByLabel('Search titles').fill('');
    const looked = page.waitForResponse(
      async (answer) => answer.url().includes('include=waiting') && (await answer.text()).includes('a build'),
    );
    const { text } = await server.post({ input: 'Build it', background: true });
    await page
      .getByRole('row', { name: /Build it/ })
      .getByText('Waiting')
      .waitFor();
    await looked;
    expect(await page.getByText('Waiting for you').count()).toBe(0);
    await server.send('POST', `/v1/runs/${responseIdIn(text)}/cancel`);
    expect((await server.send('GET', `/v1/runs/${id}`)).body.status).toBe('completed');
  });

  test('are live through one stream, over a restart of the server, and while the page is visible', async () => {
    const store = sqliteStore(':memory:');
    const first = await startInProcess(scriptedModel(['One.', 'Two.']), { store });
    await using opened = await openPage(launched, 'about:blank', { allow: /ERR_|Failed to fetch/ });
    const { page } = opened;
    const streams = new Set<Request>();
    page.on('request', (request) => {
      if (request.headers()['accept'] === 'text/event-stream') streams.add(request);
    });
    const ended = (request: Request): unknown => streams.delete(request);
    page.on('requestfailed', ended).on('requestfinished', ended);
    const row = (title: string) => page.getByRole('row', { name: new RegExp(title) });
    await page.goto(`${first.url}/#/runs`);
    await page.getByText('No runs yet').waitFor();
    await first.post({ input: 'The first' });
    await row('The first').getByText('Completed').waitFor();
    await page.getByRole('link', { name: 'The first' }).click();
    await page.getByRole('heading', { name: 'The first' }).waitFor();
    await page.goBack();
    await row('The first').waitFor();
    await eventually(() => expect(streams.size).toBe(1));
    await show(page, 'hidden');
    await eventually(() => expect(streams.size).toBe(0));
    await first.post({ input: 'The second' });
    await show(page, 'visible');
    await row('The second').getByText('Completed').waitFor();
    await first[Symbol.asyncDispose]();
    await page.getByText('The connection to the server is lost').waitFor();
    const port = Number(new URL(first.url).port);
    const second = await startInProcess(scriptedModel(['Three.']), { store, port });
    await second.post({ input: 'The third' });
    await row('The third').getByText('Completed').waitFor();
    await page.goto('about:blank');
    await second[Symbol.asyncDispose]();
    await store.close();
  });

  test('show the exact state at every entry, by slider, keys, jumps and link', async () => {
    const { server, id } = await startWaiting();
    await using _ = server;
    await approve(server, id);
    const { entries } = (await server.send('GET', `/v1/runs/${id}`)).body;
    await using opened = await openPage(launched, `${server.url}/#/runs/${id}`);
    const { page } = opened;
    await page.getByRole('heading', { name: 'Change the port' }).waitFor();
    expect(await slider(page).inputValue()).toBe(String(entries - 1));
    await panel(page).getByText('It listens on port 8080.').waitFor();

    // Back to the beginning: the future is not part of the state.
    await page.keyboard.press('Home');
    expect(await slider(page).inputValue()).toBe('0');
    await page.getByRole('region', { name: 'State after entry 0' }).waitFor();
    expect(await panel(page).textContent()).not.toContain('8080');
    await tab(page, 'Request').click();
    await panel(page).getByText('Tools (3)').waitFor();
    await tab(page, 'Reply').click();
    await panel(page).getByText('has not replied').waitFor();
    await slider(page).press('ArrowRight');
    await panel(page).getByText('I look first.').waitFor();

    await page.getByRole('button', { name: /Next error/ }).click();
    await page.getByRole('option', { selected: true }).getByText('broken error').waitFor();
    await page.getByRole('button', { name: 'Most expensive turn' }).click();
    await page.keyboard.press('End');
    await tab(page, 'State').click();
    await panel(page).getByText('3 of 10').waitFor();
    // The model costs nothing, which is known.
    await panel(page).getByText('$0 ·').waitFor();

    // The link to a moment, also for somebody else.
    await page.goto(`${server.url}/#/runs/${id}/at/6`);
    await page.getByRole('region', { name: 'State after entry 6' }).waitFor();
    await panel(page).getByText('Decided by the rule').waitFor();
    expect(await panel(page).textContent()).toContain('waits for an approval: write');
    await page.getByRole('button', { name: 'Previous entry' }).click();
    await page.waitForURL(`${server.url}/#/runs/${id}/at/5`);

    // The address follows a move a moment later, but not if the user has left.
    await page.evaluate(() => {
      const { setTimeout: original } = globalThis;
      const later: (() => void)[] = [];
      Object.assign(globalThis, {
        setTimeout: (run: () => void, ms?: number) => (ms === 300 ? later.push(run) : original(run, ms)),
        leave(hash: string) {
          location.hash = hash;
          for (const run of later) run();
          globalThis.setTimeout = original;
        },
      });
    });
    await page.getByRole('button', { name: 'Previous entry' }).click();
    await page.getByRole('region', { name: 'State after entry 4' }).waitFor();
    await page.evaluate(() => (globalThis as unknown as { leave(hash: string): void }).leave('#/runs'));
    await page.getByRole('row', { name: /Change the port/ }).waitFor();
    expect(page.url()).toBe(`${server.url}/#/runs`);
    await page.goBack();

    await page.getByLabel('Search in all entries').fill('no such host');
    await page.getByText(`1 of ${entries}`).waitFor();
    expect(await page.getByRole('option').count()).toBe(1);
    const download = page.waitForEvent('download');
    await page.getByRole('button', { name: 'Export' }).click();
    expect((await download).suggestedFilename()).toBe(`${id}.jsonl`);
  });

  test('show their trace: its id, and what failed with a link to the entry', async () => {
    const { server, id } = await startWaiting();
    await using _ = server;
    await approve(server, id);
    const { body: trace } = await server.send('GET', `/v1/traces/${id}`);
    await using opened = await openPage(launched, `${server.url}/#/runs/${id}`);
    const { page } = opened;
    await page.getByText(`Trace ${trace.trace_id.slice(0, 8)} · 1 failure`).click();
    await page.getByText(trace.trace_id, { exact: true }).waitFor();
    const row = page.getByRole('row', { name: /broken/ });
    expect(await row.getByRole('cell').allTextContents()).toEqual([
      String(trace.failures[0].seq),
      'broken',
      'execution_failed',
      'tool',
      'F-EXE',
      'medium',
      'nothing; it can be retried',
    ]);
    expect(await axeViolations(page)).toEqual([]);
    if (process.env['SHOT']) await page.screenshot({ path: process.env['SHOT'] });
    const download = page.waitForEvent('download');
    await page.getByRole('button', { name: 'Download the trace' }).click();
    const file = await (await download).path();
    expect(JSON.parse(await readFile(file, 'utf8'))).toEqual(trace);
    await row.getByRole('link').click();
    await page.getByRole('region', { name: `State after entry ${trace.failures[0].seq}` }).waitFor();
  });

  test('have a timeline with child runs at any depth, a selection by dragging, and a zoom with the wheel', async () => {
    const scout = agentTool({
      name: 'scout',
      description: '',
      model: scriptedModel([{ calls: [{ name: 'read' }] }, 'Found.']),
      tools: [read],
    });
    const research = agentTool({
      name: 'research',
      description: '',
      model: scriptedModel([{ calls: [{ name: 'scout', arguments: { task: 'Look' } }] }, 'It is 3210.']),
      tools: [scout],
    });
    const model = scriptedModel([{ calls: [{ name: 'research', arguments: { task: 'Which port?' } }] }, 'Port 3210.']);
    await using server = await startInProcess(model, { tools: [research], defaultTools: ['research'] });
    const id = responseIdIn((await server.post({ input: 'Ask an agent' })).text);
    await using opened = await openPage(launched, `${server.url}/#/runs/${id}`);
    const { page } = opened;
    const chart = page.getByRole('img', { name: /^Timeline of/ });
    const fit = page.getByRole('button', { name: 'Fit' });
    await chart.getByText(/^research .*\.t1\.tool\.0$/).waitFor();
    await chart.getByText(/^scout .*\.t1\.tool\.0\.t1\.tool\.0$/).waitFor();
    await page.getByRole('button', { name: 'Entries', exact: true }).click();
    const box = (await chart.boundingBox())!;
    const [left, right, y] = [box.x + box.width * 0.3, box.x + box.width * 0.8, box.y + 30] as const;

    await page.mouse.move(right, y);
    await page.mouse.down();
    await page.mouse.move(left, y, { steps: 3 });
    await page.mouse.up();
    await page.getByText(/^Entries 1 to 3:/).waitFor();
    await page.getByText('3 of 5', { exact: true }).waitFor();
    await page.getByRole('button', { name: 'Zoom in' }).last().click();
    await page.getByRole('button', { name: 'Clear' }).click();
    await page.getByText('5 entries').waitFor();
    await fit.click();
    expect(await fit.isDisabled()).toBe(true);

    // The wheel alone scrolls the page.
    await page.mouse.move(left, y);
    await page.mouse.wheel(0, -100);
    await page.keyboard.down('Control');
    expect(await fit.isDisabled()).toBe(true);
    await page.mouse.wheel(0, -100);
    await page.keyboard.up('Control');
    await eventually(async () => expect(await fit.isEnabled()).toBe(true));
    await page.keyboard.press('0');
    await eventually(async () => expect(await fit.isDisabled()).toBe(true));

    // A bar of a child run leads to that run, and from there back.
    const child = (await chart.getByText(/^research/).boundingBox())!;
    await page.mouse.move(box.x + box.width / 2, child.y + 6);
    await page.locator('.timeline-tip').getByText('child run').waitFor();
    await page.mouse.click(box.x + box.width / 2, child.y + 6);
    await page.getByRole('heading', { name: 'Which port?' }).waitFor();
    await page.getByRole('link', { name: /^parent/ }).click();
    await page.getByRole('heading', { name: 'Ask an agent' }).waitFor();
    // With the keyboard too, at any depth.
    for (const [name, title] of [
      [/^research .*\.t1\.tool\.0$/, 'Which port?'],
      [/^scout .*\.t1\.tool\.0\.t1\.tool\.0$/, 'Look'],
    ] as const) {
      await page.getByRole('link', { name }).press('Enter');
      await page.getByRole('heading', { name: title }).waitFor();
    }
  });

  test('that were interrupted by a killed server are resumed at another one, and by its restart', async () => {
    const folder = await mkdtemp(path.join(tmpdir(), 'treadle-page-'));
    const file = path.join(folder, 'runs.db');
    const provider = await scriptedOpenAi([{ hang: 'I begin.' }, { hang: 'I begin.' }]);
    const killed = await startServer({ url: path.dirname(provider.baseURL) }, { store: file });
    const opened = [sqliteStore(file), sqliteStore(file)] as const;
    // The other server does not look for runs to resume, which it would find within a second.
    const requests = { ...opened[0].requests, undriven: async () => [] };
    const stores = [{ ...opened[0], requests }, opened[1]];
    const start = (text: string, index: number, port = 0): Promise<InProcessServer> => {
      const model = { ...scriptedModel([text]), id: 'm' };
      const models = { default: 's0/openai-chat', models: new Map([['s0/openai-chat', model]]) };
      return startInProcess(model, { models, port, store: stores[index]! });
    };
    const other = await start('Had one.', 0);
    for (const input of ['Take one', 'Take two']) {
      await fetch(`${killed.url}/v1/responses`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ input, background: true }),
      });
    }
    await provider.answered(2);
    const allow = { allow: /ERR_/ };
    await using atOther = await openPage(launched, `${other.url}/#/runs`, allow);
    await using atKilled = await openPage(launched, `${killed.url}/#/runs`, allow);
    const [one, two] = [atOther.page, atKilled.page].map((page) => page.getByRole('main')) as [Locator, Locator];
    for (const [main, name] of [
      [one, 'Take one'],
      [two, 'Take two'],
    ] as const) {
      await main.getByRole('link', { name }).click();
      await main.getByRole('heading', { name }).waitFor();
      await main.getByText('Running').waitFor();
    }
    await killed.kill();

    await show(atOther.page, 'hidden');
    await show(atOther.page, 'visible');
    await one.getByText('Interrupted').waitFor();
    await one.getByRole('button', { name: 'Resume' }).click();
    await one.getByText('Completed', { exact: true }).waitFor();
    await one.getByRole('option', { name: /model lost.*the process stopped/ }).waitFor();
    await one.getByText('Had one.').first().waitFor();

    await two.getByText('The connection to the server is lost').waitFor();
    const restarted = await start('Had two.', 1, Number(new URL(killed.url).port));
    expect(restarted.recovered).toBe(1);
    await two.getByText('Completed', { exact: true }).waitFor();
    await two.getByText('Had two.').first().waitFor();
    for (const { page } of [atOther, atKilled]) await page.goto('about:blank');
    for (const server of [other, restarted]) await server[Symbol.asyncDispose]();
    for (const store of opened) await store.close();
    await provider.close();
    await rm(folder, { recursive: true });
  });

  test('that a killed server has left go on at another one, and the page shows it', async () => {
    const folder = await mkdtemp(path.join(tmpdir(), 'treadle-page-'));
    const file = path.join(folder, 'runs.db');
    const provider = await scriptedOpenAi([{ hang: 'I begin.' }]);
    const killed = await startServer({ url: path.dirname(provider.baseURL) }, { store: file });
    const store = sqliteStore(file);
    const model = { ...scriptedModel(['Had it.']), id: 'm' };
    const models = { default: 's0/openai-chat', models: new Map([['s0/openai-chat', model]]) };
    const other = await startInProcess(model, { models, store });
    await fetch(`${killed.url}/v1/responses`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ input: 'Take it', background: true }),
    });
    await provider.answered(1);
    await using opened = await openPage(launched, `${other.url}/#/runs`);
    const main = opened.page.getByRole('main');
    await main.getByRole('link', { name: 'Take it' }).click();
    await main.getByRole('heading', { name: 'Take it' }).waitFor();
    await main.getByText('Running').waitFor();
    await killed.kill();
    await main.getByText('Completed', { exact: true }).waitFor();
    await main.getByText('Had it.').first().waitFor();
    await opened.page.goto('about:blank');
    await other[Symbol.asyncDispose]();
    await store.close();
    await provider.close();
    await rm(folder, { recursive: true });
  });

  test('follow a run in progress, and cancel it', async () => {
    const started = Promise.withResolvers<void>();
    const hold = tool({
      name: 'hold',
      description: '',
      effect: 'pure',
      execute: (_, { signal }) => {
        started.resolve();
        return new Promise((__, reject) => signal.addEventListener('abort', () => reject(new Error('stopped'))));
      },
    });
    const model = scriptedModel([{ calls: [{ name: 'hold' }] }]);
    await using server = await startInProcess(model, { tools: [hold], defaultTools: ['hold'] });
    await using opened = await openPage(launched, `${server.url}/#/runs`);
    const { page } = opened;
    const posted = server.post({ input: 'Wait' });
    await started.promise;
    await page.getByRole('link', { name: 'Wait', exact: true }).click();
    await page.getByText('Running').first().waitFor();
    await tab(page, 'State').click();
    await panel(page).getByText('runs hold').waitFor();
    await page.getByRole('button', { name: 'Cancel' }).click();
    await page.getByRole('main').getByText('Cancelled', { exact: true }).waitFor();
    await panel(page).getByText('None: the run is cancelled.').waitFor();
    await posted;
  });

  test('are forked at an entry after a preview, and compared', async () => {
    const store = sqliteStore(':memory:');
    const { server, id } = await startWaiting(['It stays at 3210.'], { ...TOOLS, store });
    await using _ = server;
    await approve(server, id);
    await using opened = await openPage(launched, `${server.url}/#/runs/${id}/at/4`);
    const { page } = opened;
    await page.getByRole('button', { name: 'Fork here' }).click();
    const dialog = page.getByRole('dialog', { name: 'Fork after entry 4' });
    const preview = dialog.getByRole('region', { name: 'What the fork does' });
    await preview.getByText('takes over').waitFor();
    const start = dialog.getByRole('button', { name: /Start the fork/ });
    await eventually(async () => expect(await start.isEnabled()).toBe(true));
    const asked = Promise.withResolvers<void>();
    await page.route('**/fork', (route) => void asked.promise.then(() => route.continue()));
    await dialog.getByLabel('Instructions').fill('Change nothing.');
    // Nothing starts that was not shown.
    expect(await start.isDisabled()).toBe(true);
    asked.resolve();
    await preview.getByText('calls the model again').waitFor();
    expect(await preview.textContent()).toContain('1 × write (acts each time)');
    await dialog.getByRole('checkbox', { name: 'write' }).uncheck();
    await dialog.getByRole('spinbutton', { name: 'turns' }).fill('5');
    expect(await axeViolations(page)).toEqual([]);
    await dialog.getByRole('spinbutton', { name: 'seconds' }).fill('60');
    await start.click();
    await page.getByRole('heading', { name: 'Comparison' }).waitFor();
    await page.getByText('It stays at 3210.').waitFor();
    await page.getByText('First divergence').waitFor();
    await page.getByText('the fork does not take over its result').waitFor();
    await page.getByRole('row', { name: /^Turns and calls.*3 turns, 4 calls\s*2 turns/ }).waitFor();
    expect(await axeViolations(page)).toEqual([]);
    // Nothing was overwritten.
    expect(JSON.stringify(await server.get(id))).toContain('port 8080');
    const [fork] = (await server.send('GET', `/v1/runs?parent=${id}`)).body.data;
    await page.goto(`${server.url}/#/runs/${fork.id}`);
    await page.getByRole('link', { name: 'Compare with the original' }).waitFor();
    for (let n = 0; n < 8; n++) await forkRun({ journal: store, runId: id, at: 0 });
    await page.goto(`${server.url}/#/runs/${id}`);
    await page.getByText('9 forks').waitFor();
    await page.locator('.forks').getByRole('link', { name: 'Show all' }).click();
    await page.getByText('Forks and child runs of').waitFor();
    await eventually(async () => expect(await page.locator('tbody tr').count()).toBe(9));
  });

  test(
    'are operated with the keyboard alone, and have no violations in light, dark and on a phone',
    { concurrent: false },
    async () => {
      const { server } = await startWaiting();
      await using _ = server;
      await using opened = await openPage(launched, `${server.url}/#/runs`, {
        colorScheme: 'light',
        reducedMotion: 'reduce',
      });
      const { page } = opened;
      /** In light, in dark and on a phone. */
      async function check(): Promise<void> {
        expect(await axeViolations(page)).toEqual([]);
        await page.emulateMedia({ colorScheme: 'dark' });
        expect(await axeViolations(page)).toEqual([]);
        await page.setViewportSize({ width: 390, height: 844 });
        expect(await axeViolations(page)).toEqual([]);
        expect(await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)).toBe(0);
        await page.emulateMedia({ colorScheme: 'light' });
        await page.setViewportSize({ width: 1180, height: 800 });
      }
      const link = page.getByRole('main').getByRole('link', { name: 'Change the port' }).last();
      await link.waitFor();
      await check();
      await link.press('Enter');
      await page.getByRole('listbox', { name: 'Entries' }).waitFor();
      await check();
      for (const name of ['Request', 'Reply', 'State', 'Event']) {
        await page.getByRole('tab', { selected: true }).press('ArrowRight');
        await tab(page, name).and(page.locator('[aria-selected=true]')).waitFor();
        if (name !== 'Event') expect(await axeViolations(page)).toEqual([]);
      }
      const list = page.getByRole('listbox', { name: 'Entries' });
      await list.press('Home');
      await list.press('ArrowDown');
      expect(await slider(page).getAttribute('aria-valuetext')).toMatch(/^Entry 1 of 6, .*: model/);
      await page.keyboard.press('e');
      await page.getByRole('option', { selected: true }).getByText('broken error').waitFor();
      await page.keyboard.press('f');
      await page.getByRole('dialog').waitFor();
      await page.keyboard.press('Escape');
      await page.getByRole('dialog').waitFor({ state: 'detached' });
      await page.getByRole('button', { name: 'Approve', exact: true }).press('Enter');
      await page.getByRole('main').getByText('Completed', { exact: true }).waitFor();
    },
  );

  test('of another tenant are not visible', async () => {
    const store = sqliteStore(':memory:');
    const scopes = ['agents:invoke', 'tools:execute', 'runs:read', 'runs:write', 'chat:read', 'chat:write'] as const;
    const keys = ['ann', 'bob'].map((name) => ({ name, hash: hashKey(`tk_${name}`), tenant: name, scopes }));
    await using server = await startInProcess(scriptedModel(['Hello.']), { store, keys });
    const id = responseIdIn((await server.post({ input: 'A secret' }, { authorization: 'Bearer tk_ann' })).text);
    await using opened = await openPage(launched, `${server.url}/#/runs/${id}`, { allow: /status of 40[14]/ });
    const { page } = opened;
    await page.getByLabel('API key').fill('tk_bob');
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByText('There is no run').waitFor();
    await page.getByRole('main').getByRole('link', { name: 'All runs' }).click();
    await page.getByText('No runs yet').waitFor();
    await setImmediate();
    await store.close();
  });

  describe('of a command with keys', () => {
    const fixture = useServeFixture();

    test('disappear when the key is removed from the configuration', async () => {
      const entry = (name: string): string =>
        [
          '[[server.keys]]',
          `name = "${name}"`,
          `tenant = "${name}"`,
          `hash = "${hashKey(`tk_${name}`)}"`,
          'scopes = ["agents:invoke", "runs:read", "runs:write", "chat:read", "chat:write"]',
          '',
        ].join('\n');
      await fixture.configure(entry('ann') + entry('bob'), { text: ['Hello.'] });
      const server = await fixture.serveProcess();
      const { body } = await server.respond({ input: 'A secret' }, { authorization: 'Bearer tk_ann' });
      await using opened = await openPage(launched, `${server.url}/#/runs/${body.id}`, { allow: /40[14]|ERR_/ });
      const { page } = opened;
      const signIn = async (key: string): Promise<void> => {
        await page.getByLabel('API key').fill(key);
        await page.getByRole('button', { name: 'Sign in' }).click();
      };
      await signIn('tk_ann');
      await page.getByRole('heading', { name: 'A secret' }).waitFor();
      const file = path.join(fixture.play.folder, 'treadle.toml');
      await writeFile(file, (await readFile(file, 'utf8')).replace(entry('ann'), ''));
      server.process.child.kill('SIGHUP');
      await page.getByLabel('API key').waitFor();
      const { html, title } = await page.evaluate(() => ({ html: document.body.outerHTML, title: document.title }));
      expect(html + title).not.toContain('secret');
      await signIn('tk_bob');
      await page.getByText('There is no run').waitFor();
      expect(await page.evaluate(() => document.body.outerHTML)).not.toContain('secret');
      await page.getByRole('main').getByRole('link', { name: 'All runs' }).click();
      await page.getByText('No runs yet').waitFor();
      await page.goto('about:blank');
      await server.stop();
    });
  });
});
