import { tool } from '@treadle/core';
import type { AgentRegistry, NamedAgent } from '@treadle/core/named-agents';
import { scriptedModel } from '@treadle/core/testing';
import { checkWorkflow } from '@treadle/tools/workflows';
import { afterAll, describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { needs } from '../needs.ts';
import { startInProcess } from '../server/support/in-process.ts';
import { axeViolations, chromiumNeed, launch, openPage } from './browser.ts';

const launched = await launch();

const PUBLISH = `
name: publish
description: Publishes a text
inputs: { topic: { type: string, required: true } }
undo_on: [cancelled]
steps:
  - { id: draft, action: run_tool, tool: note, inputs: { text: "draft of \${{ inputs.topic }}" }, undo: discard }
  - { id: discard, action: run_tool, tool: note, inputs: { text: discard } }
  - { id: ok, action: wait_approval, message: "Publish \${{ inputs.topic }}?", depends_on: draft }
  - { id: count, action: run_tool, tool: note, inputs: { text: count }, depends_on: draft }
  - { id: out, action: run_tool, tool: note, inputs: { text: out }, depends_on: [ok, count] }
`;

const note = tool({
  name: 'note',
  description: 'Notes',
  input: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] },
  effect: 'idempotent',
  touches: () => [],
  execute: ({ text }) => `noted ${String(text)}`,
});

function registry(): AgentRegistry {
  const checked = checkWorkflow(parse(PUBLISH) as Record<string, unknown>);
  if (checked.type === 'invalid') throw new Error(JSON.stringify(checked.problems));
  const all = new Map<string, NamedAgent>([[checked.agent.name, checked.agent]]);
  return { list: () => [...all.values()], get: (name) => all.get(name), onChange: () => () => {} };
}

describe.runIf(needs(...chromiumNeed(launched)))('the workflows of the page', () => {
  afterAll(async () => {
    if ('browser' in launched) await launched.browser.close();
  });

  test('are drawn, run, show the states of their steps as they change, and lead to the runs of steps', async () => {
    await using server = await startInProcess(scriptedModel([]), {
      namedAgents: registry(),
      tools: [note],
      waitForAnswers: true,
    });
    await using opened = await openPage(launched, `${server.url}/#/workflows`);
    const { page } = opened;
    await page.getByRole('link', { name: 'publish' }).click();
    const steps = page.getByRole('group', { name: 'Steps' });
    const step = (id: string, status: string) => steps.getByRole('button', { name: new RegExp(`^${id} ?${status}$`) });
    await step('draft', 'note').click();
    await page.getByText('Choose a run').waitFor();
    await page.getByLabel('topic').fill('tides');
    await page.getByRole('button', { name: 'Run', exact: true }).click();
    for (const [id, status] of Object.entries({ draft: 'done', count: 'done', ok: 'waiting', out: 'pending' })) {
      await step(id, status).waitFor();
    }
    await step('draft', 'done').click();
    const panel = page.getByRole('region', { name: 'Step draft' });
    await panel.getByText('"text": "draft of tides"').waitFor();
    await panel.getByText('noted draft of tides').waitFor();
    expect(await axeViolations(page)).toEqual([]);
    const address = page.url();
    await panel.getByRole('link', { name: 'Show its run' }).click();
    await page.getByRole('button', { name: 'Approve' }).first().click();
    await page.goto(address);
    await step('out', 'done').waitFor();
    await page.getByRole('status').getByText('completed').waitFor();
  });

  test('are forked from a step, with the definition as it is now', async () => {
    await using server = await startInProcess(scriptedModel([]), {
      namedAgents: registry(),
      tools: [note],
      waitForAnswers: true,
    });
    const inputs = { topic: 'tides' };
    const { body } = await server.send('POST', '/v1/workflows/publish/execute', { inputs, background: true });
    const waits = async () => (await server.send('GET', `/v1/workflows/publish/runs/${body.run_id}`)).body.status;
    await expect.poll(waits, { timeout: 60_000 }).toBe('waiting');
    await using opened = await openPage(launched, `${server.url}/#/runs/${body.run_id}`);
    const { page } = opened;
    await page.getByRole('button', { name: 'Fork here' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Begin with the step').selectOption('draft');
    await dialog.getByLabel('With the definition as it is now').check();
    await dialog.getByText(/^It shares \d+ entr/).waitFor();
    expect(await axeViolations(page)).toEqual([]);
    const sent = page.waitForRequest((one) => one.url().endsWith('/fork') && !one.postData()?.includes('preview'));
    await dialog.getByRole('button', { name: /Start the fork/ }).click();
    expect((await sent).postDataJSON()).toEqual({ step: 'draft', definition: 'current' });
    await page.getByRole('heading', { name: 'Comparison' }).waitFor();
  });

  test('are cancelled, and show what is undone', async () => {
    await using server = await startInProcess(scriptedModel([]), {
      namedAgents: registry(),
      tools: [note],
      waitForAnswers: true,
    });
    await using opened = await openPage(launched, `${server.url}/#/workflows/publish`);
    const { page } = opened;
    await page.getByLabel('topic').fill('<img src=x onerror=alert(1)>');
    await page.getByRole('button', { name: 'Run', exact: true }).click();
    const steps = page.getByRole('group', { name: 'Steps' });
    await steps.getByRole('button', { name: /^ok ?waiting$/ }).waitFor();
    const before = page.url();
    await page.getByRole('button', { name: 'Cancel' }).click();
    await page.getByRole('status').getByText('completed').waitFor();
    expect(page.url()).not.toBe(before);
    await steps.getByRole('button', { name: /^discard ?done$/ }).waitFor();
  });
});
