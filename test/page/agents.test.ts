import { tool } from '@treadle/core';
import { agentRegistry } from '@treadle/core/named-agents';
import { scriptedModel } from '@treadle/core/testing';
import { hashKey } from '@treadle/server';
import { afterAll, describe, expect, test } from 'vitest';
import { needs } from '../needs.ts';
import { startInProcess } from '../server/support/in-process.ts';
import { axeViolations, chromiumNeed, launch, openPage } from './browser.ts';

const launched = await launch();

const pay = tool({ name: 'pay', description: 'Pays', touches: () => [], execute: () => 'paid' });
const namedAgents = agentRegistry([
  {
    name: 'writer',
    role: 'editor',
    description: 'Explains words.',
    inputs: {
      word: { type: 'string', required: true, description: 'The word' },
      tone: { type: 'string', enum: ['plain', 'warm'], default: 'plain' },
      deep: { type: 'boolean' },
      tags: { type: 'array' },
    },
    outputs: { text: { type: 'string' } },
  },
  { name: 'payer', description: 'Pays bills.', tools: ['pay'] },
]);

describe.runIf(needs(...chromiumNeed(launched)))('the agents of the page', () => {
  afterAll(async () => {
    if ('browser' in launched) await launched.browser.close();
  });

  test('are listed, run with a form, and show their result and their runs', async () => {
    const answer = '{"text": "A pedal. <img src=x onerror=alert(1)>"}';
    const model = scriptedModel([answer, 'Hello from the agent.']);
    await using server = await startInProcess(model, { namedAgents, tools: [pay] });
    await using opened = await openPage(launched, `${server.url}/#/agents`);
    const { page } = opened;
    await page.getByRole('link', { name: 'writer' }).click();
    const form = page.getByRole('form', { name: 'Inputs of writer' });
    await form.getByLabel('tags').fill('a, b');
    await form.getByLabel('word').fill('treadle');
    await form.getByRole('button', { name: 'Run' }).click();
    await form.getByText('tags is not valid JSON').waitFor();
    await form.getByLabel('tags').fill('["a"]');
    await form.getByLabel('deep').check();
    await form.getByRole('button', { name: 'Run' }).click();
    const result = page.getByRole('region', { name: 'Result' });
    await result.getByText('A pedal. <img src=x onerror=alert(1)>').waitFor();
    expect(JSON.stringify(model.requests[0]!.messages)).toContain(
      String.raw`{\"tone\":\"plain\",\"word\":\"treadle\",\"deep\":true,\"tags\":[\"a\"]}`,
    );
    expect(await axeViolations(page)).toEqual([]);
    const runs = page.getByRole('region', { name: 'Runs' });
    await runs.getByText('Completed').waitFor();
    await page.getByRole('link', { name: 'Chat with it' }).click();
    await expect.poll(() => page.getByLabel('Model').inputValue(), { timeout: 60_000 }).toBe('agent/writer');
    await page.getByRole('textbox', { name: 'Message' }).fill('Hi');
    await page.getByRole('button', { name: 'Send' }).click();
    await page.getByText('Hello from the agent.').waitFor();
    expect(model.requests[1]!.instructions).toContain('writer');
  });

  test('keep their conversations, and get no others', async () => {
    const model = scriptedModel(['First.', 'Second.', 'Third.']);
    await using server = await startInProcess(model, { namedAgents });
    await using opened = await openPage(launched, `${server.url}/#/chat?model=agent/writer`);
    const { page } = opened;
    const say = async (text: string, answer: string): Promise<void> => {
      await page.getByRole('textbox', { name: 'Message' }).fill(text);
      await page.getByRole('button', { name: 'Send' }).click();
      await page.getByText(answer, { exact: true }).waitFor();
    };
    await say('One', 'First.');
    await page.reload();
    await page.getByText('First.', { exact: true }).waitFor();
    await say('Two', 'Second.');
    await page.getByRole('link', { name: 'New chat' }).click();
    await page.getByText('What can I do for you?').waitFor();
    await say('Three', 'Third.');
    expect(model.requests.map(({ instructions = '' }) => instructions.includes('You are "writer"'))).toEqual([
      true,
      true,
      false,
    ]);
  });

  test('answer the chats of a key that may use nothing else', async () => {
    const model = scriptedModel(['Hello from the agent.']);
    const scopes = ['agents:invoke:writer', 'chat:read', 'chat:write'] as const;
    const keys = [{ name: 'ann', hash: hashKey('tk_ann'), scopes }];
    await using server = await startInProcess(model, { namedAgents, keys });
    await using opened = await openPage(launched, `${server.url}/#/chat`, { allow: /status of 40[13]/ });
    const { page } = opened;
    await page.getByLabel('API key').fill('tk_ann');
    await page.getByLabel('API key').press('Enter');
    await page.getByRole('textbox', { name: 'Message' }).fill('Hi');
    await page.getByRole('button', { name: 'Send' }).click();
    await page.getByText('Hello from the agent.').waitFor();
  });

  test('show results and failures also to a key that may not read runs', async () => {
    const released = Promise.withResolvers<string>();
    const slow = tool({ ...pay, execute: () => released.promise });
    const error = { code: 'network', message: 'no route', retryable: false } as const;
    const call = { calls: [{ name: 'pay', arguments: {} }] };
    const model = scriptedModel([call, 'Paid.', 'It is paid.', { type: 'failure', error }]);
    const keys = [{ name: 'ann', hash: hashKey('tk_ann'), scopes: ['agents:invoke', 'tools:execute'] as const }];
    await using server = await startInProcess(model, { namedAgents, tools: [slow], keys });
    await using opened = await openPage(launched, `${server.url}/#/agents/payer`, { allow: /status of (40[13]|502)/ });
    const { page } = opened;
    await page.getByLabel('API key').fill('tk_ann');
    await page.getByLabel('API key').press('Enter');
    await page.getByRole('region', { name: 'Runs' }).getByText('runs:read').waitFor();
    await page.getByLabel('task').fill('Pay the bill');
    await page.getByRole('button', { name: 'Run' }).click();
    const result = page.getByRole('region', { name: 'Result' });
    await result.getByText('Running…').waitFor();
    released.resolve('paid');
    await result.getByText('It is paid.').waitFor();
    await page.getByRole('button', { name: 'Run' }).click();
    await result.getByRole('alert').waitFor();
    expect(await result.getByText('Running…').count()).toBe(0);
  });

  test('that wait for an approval lead to it, and an empty list says how to add one', async () => {
    const model = scriptedModel([{ calls: [{ name: 'pay', arguments: {} }] }]);
    const policy = { judge: (calls: readonly unknown[]) => calls.map(() => ({ type: 'ask' }) as const) };
    await using server = await startInProcess(model, { namedAgents, tools: [pay], policy });
    // Closed after the page, which would report that it cannot reach it.
    await using without = await startInProcess(scriptedModel([]));
    await using opened = await openPage(launched, `${server.url}/#/agents/payer`);
    const { page } = opened;
    await page.getByLabel('task').fill('Pay the bill');
    await page.getByRole('button', { name: 'Run' }).click();
    await page.getByText('It waits for pay.').waitFor();
    await page.getByRole('link', { name: 'Answer it' }).click();
    await page.getByRole('button', { name: 'Approve' }).first().waitFor();
    await page.goto(`${without.url}/#/agents`);
    await page.getByText('treadle agents new').waitFor();
  });
});
