import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { scriptedModel } from '@treadle/core/testing';
import { deviceExecutor, edgeLink, openBroker } from '@treadle/edge';
import { openLedger, startAgent } from '@treadle/edge/device';
import { inProcessRunner } from '@treadle/edge/device-tools';
import { afterAll, describe, expect, test } from 'vitest';
import { needs } from '../needs.ts';
import { startInProcess } from '../server/support/in-process.ts';
import { axeViolations, chromiumNeed, launch, openPage } from './browser.ts';

const launched = await launch();
const PI_TOOLS = fileURLToPath(new URL('../../skills/pi-tools', import.meta.url));

/** A broker, a device and the link of an orchestrator. */
async function openEdge() {
  const folder = mkdtempSync(join(tmpdir(), 'treadle-page-'));
  const broker = await openBroker({ prefix: 'treadle', port: 0 });
  const agent = await startAgent({
    id: 'pi',
    prefix: 'treadle',
    broker: { url: broker.url },
    ledger: await openLedger({ folder: join(folder, 'store') }),
    runner: inProcessRunner({
      folder,
      capabilities: ['shell', 'file_read'],
      offer: ['bash', 'packages'],
      skills: [PI_TOOLS],
      sandboxing: 'none',
      timeoutMs: 30_000,
      rules: {},
      onAsk: 'allow',
      ops: false,
      hide: [],
    }),
  });
  const link = edgeLink({
    prefix: 'treadle',
    broker: { url: broker.url },
    devices: [{ name: 'pi' }, { name: 'other' }],
  });
  await link.whenReady('pi', 10_000);
  return {
    link,
    agent,
    folder,
    async [Symbol.asyncDispose]() {
      await link.close();
      await agent.close(0);
      await broker.close();
      rmSync(folder, { recursive: true });
    },
  };
}

describe.runIf(needs(...chromiumNeed(launched)))('the devices of the page', () => {
  afterAll(async () => {
    if ('browser' in launched) await launched.browser.close();
  });

  test('are listed with their state, and their tools are tried with a form', async () => {
    await using edge = await openEdge();
    const { link, agent } = edge;
    const policy = {
      judge: (calls: readonly unknown[]) =>
        calls.map((call) => ({ type: JSON.stringify(call).includes('reboot') ? 'ask' : 'allow' }) as const),
    };
    await using server = await startInProcess(scriptedModel([]), {
      executors: [deviceExecutor(link)],
      devices: link,
      policy,
    });
    // Closed after the page, which would report that it cannot reach it.
    await using without = await startInProcess(scriptedModel([]));
    await using opened = await openPage(launched, `${server.url}/#/devices`, { allow: /status of 50[34]/ });
    const { page } = opened;
    await page.getByText('not connected').waitFor();
    await page.getByText('online').waitFor();
    expect(await axeViolations(page)).toEqual([]);
    await page.getByRole('link', { name: 'pi', exact: true }).click();
    const state = page.getByRole('region', { name: 'State' });
    await state.getByText('pi-tools').waitFor();
    await state.getByText('shell, file_read').waitFor();
    await state.getByRole('button', { name: 'Measure' }).click();
    await state.getByText(/^[\d.]+ ms$/).waitFor();
    await state.getByText('0 of 4 running, 0 waiting').waitFor();

    await page.getByLabel('Tool', { exact: true }).selectOption('bash');
    await page.getByLabel('command').fill('echo "<b>out</b>"; echo bad >&2; exit 3');
    await page.getByRole('button', { name: 'Call' }).click();
    const result = page.getByRole('region', { name: 'Result' });
    await result.getByText('<b>out</b>').waitFor();
    await page.getByRole('region', { name: 'Last calls' }).getByText('bash').waitFor();
    expect(await axeViolations(page)).toEqual([]);

    await page.getByLabel('command').fill('reboot');
    await page.getByRole('button', { name: 'Call' }).click();
    await result.getByText('It needs an approval.').waitFor();
    await agent.close(0);
    await page.getByText('offline').first().waitFor();
    await page.getByLabel('command').fill('true');
    await page.getByRole('button', { name: 'Call' }).click();
    await result.getByText("The device 'pi' is offline").waitFor();

    await page.goto(`${without.url}/#/devices`);
    await page.getByText('treadle serve --demo-device').waitFor();
  });

  test('are used in a chat, which they are chosen for', async () => {
    await using edge = await openEdge();
    const { link } = edge;
    const model = scriptedModel([{ calls: [{ name: 'temperature', arguments: {} }] }, 'It is warm.', 'I am here.']);
    await using server = await startInProcess(model, { executors: [deviceExecutor(link)], devices: link });
    await using opened = await openPage(launched, `${server.url}/#/devices/pi`);
    const { page } = opened;
    await page.getByRole('link', { name: 'Chat with its tools' }).click();
    expect(await page.getByLabel('Device').inputValue()).toBe('pi');
    const say = async (text: string): Promise<void> => {
      await page.locator('#message').fill(text);
      await page.getByRole('button', { name: 'Send' }).click();
    };
    await say('How warm is it?');
    await page.getByText('It is warm.').waitFor();
    expect(JSON.stringify(model.requests[1]!.messages.at(-1))).toContain('temp=');
    expect(await axeViolations(page)).toEqual([]);
    await page.getByLabel('Device').selectOption('This server');
    await say('And you?');
    await page.getByText('I am here.').waitFor();
    expect(model.requests[2]!.tools).toEqual([]);
  });

  test('show the output of a call while it runs, and the load of the device', async () => {
    await using edge = await openEdge();
    const { link, folder } = edge;
    const command = 'echo begun; until [ -e go ]; do sleep 0.05; done; echo ended';
    const model = scriptedModel([{ calls: [{ name: 'bash', arguments: { command } }] }, 'It is done.']);
    await using server = await startInProcess(model, { executors: [deviceExecutor(link)], devices: link });
    await using opened = await openPage(launched, `${server.url}/#/devices/pi`);
    const { page } = opened;
    await page.getByRole('link', { name: 'Chat with its tools' }).click();
    await page.locator('#message').fill('Begin');
    await page.getByRole('button', { name: 'Send' }).click();
    await page.getByText('begun', { exact: true }).waitFor();
    await using other = await openPage(launched, `${server.url}/#/devices/pi`);
    await other.page.getByText('1 of 4 running, 0 waiting').waitFor();
    writeFileSync(join(folder, 'go'), '');
    await page.getByText('It is done.').waitFor();
    expect(JSON.stringify(model.requests[1]!.messages.at(-1))).toContain('begun\\nended');
  });
});
