import { scriptedModel } from '@treadle/core/testing';
import { hashKey, newKey, serverMemory } from '@treadle/server';
import { afterAll, describe, expect, test } from 'vitest';
import { needs } from '../needs.ts';
import { startInProcess } from '../server/support/in-process.ts';
import { storeOfTest } from '../server/support/test-store.ts';
import { axeViolations, chromiumNeed, launch, openPage } from './browser.ts';

const launched = await launch();
/** As long as the browser waits. */
const POLL = { timeout: 20_000 };

async function remembering(replies: readonly string[], options: object = {}) {
  const store = await storeOfTest();
  const memory = serverMemory({ store });
  const server = await startInProcess(scriptedModel(replies), { store, memory, tools: [...memory.tools], ...options });
  return { ...server, store, memory, [Symbol.asyncDispose]: () => server[Symbol.asyncDispose]() };
}

describe.runIf(needs(...chromiumNeed(launched)))('the memory of the page', () => {
  afterAll(async () => {
    if ('browser' in launched) await launched.browser.close();
  });

  test('is listed, searched, changed and deleted', async () => {
    await using server = await remembering(['The harbour is <b>blue</b>.', 'The barn is red.']);
    await server.post({ input: 'Which colour has the harbour?' });
    await server.post({ input: 'And the barn?' });
    const note = { key: 'pet', text: 'Ann has a dog. '.repeat(100), tags: ['home'] };
    await server.send('PUT', '/v1/memory', note);
    await using opened = await openPage(launched, `${server.url}/#/memory`);
    const { page } = opened;
    const items = page.getByRole('list', { name: 'What is remembered' }).getByRole('listitem');
    await items.filter({ hasText: 'The harbour is <b>blue</b>.' }).waitFor();
    expect(await items.count()).toBe(3);
    expect(await axeViolations(page)).toEqual([]);

    await page.getByRole('searchbox', { name: 'Search what is remembered' }).fill('barn');
    await expect.poll(() => items.allTextContents(), POLL).toEqual([expect.stringContaining('The barn is red.')]);
    await page.getByRole('searchbox').fill('');
    await page.getByRole('combobox', { name: 'Kind' }).selectOption('Notes');
    await expect.poll(() => items.count(), POLL).toBe(1);
    await items.getByRole('button', { name: 'Edit' }).click();
    const text = page.getByLabel('Text');
    await expect.poll(() => text.inputValue(), POLL).toBe(note.text);
    await text.fill('Ann has a cat.');
    await page.getByRole('button', { name: 'Save' }).click();
    await items.filter({ hasText: 'Ann has a cat.' }).waitFor();

    await page.getByRole('combobox', { name: 'Kind' }).selectOption('Everything');
    await items.filter({ hasText: 'harbour' }).getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete for ever' }).click();
    await expect.poll(() => items.count(), POLL).toBe(2);
    const { data } = (await server.send('GET', '/v1/memory?level=full')).body;
    const left = (data as readonly { readonly content: string }[]).map(({ content }) => content);
    expect(left.toSorted()).toEqual(['Ann has a cat.', 'Asked: And the barn?\nAnswered: The barn is red.']);
  });

  test('a key that may only read gets no buttons, and a server without memory says how to switch it on', async () => {
    const key = newKey();
    const keys = [{ name: 'ann', hash: hashKey(key), scopes: ['memory:read', 'agents:invoke'] }] as const;
    await using server = await remembering(['Hello.'], { keys });
    await server.post({ input: 'Hi' }, { authorization: `Bearer ${key}` });
    await using opened = await openPage(launched, `${server.url}/#/memory`, { allow: /status of 401/ });
    const { page } = opened;
    await page.getByLabel('API key').fill(key);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByText('Answered: Hello.').waitFor();
    expect(await page.getByRole('button', { name: 'Delete' }).count()).toBe(0);
    await using without = await startInProcess(scriptedModel([]));
    await page.goto(`${without.url}/#/memory`);
    await page.getByText('enabled = true').waitFor();
  });

  test('a chat switches it off, and stays incognito', async () => {
    await using server = await remembering(['One.', 'Two.', 'Three.', 'Four.', 'Five.']);
    await using opened = await openPage(launched, server.url);
    const { page } = opened;
    const choice = page.getByRole('combobox', { name: 'Memory' });
    const send = async (text: string, answer: string): Promise<void> => {
      await page.getByRole('textbox', { name: 'Message' }).fill(text);
      await page.keyboard.press('Enter');
      await page.getByText(answer, { exact: true }).waitFor();
    };
    await send('Hello', 'One.');
    await choice.selectOption('Memory: off');
    await send('And now?', 'Two.');
    await page.reload();
    await expect.poll(() => choice.inputValue(), POLL).toBe('off');
    await choice.selectOption('Incognito');
    await send('My secret is kiwi.', 'Three.');
    await expect.poll(() => choice.isDisabled(), POLL).toBe(true);
    expect(await axeViolations(page)).toEqual([]);
    // An edited message is in a branch.
    await page.goto(`${server.url}/#/chat`);
    await choice.selectOption('Incognito');
    await send('My secret is a kiwi.', 'Four.');
    await page.getByRole('button', { name: 'Edit the message' }).click();
    await page.getByRole('textbox', { name: /^Edit the message/ }).fill('My secret is a green kiwi.');
    await page.getByRole('button', { name: 'Send in a branch' }).click();
    await page.getByText('Five.', { exact: true }).waitFor();
    const { data } = (await server.send('GET', '/v1/memory')).body;
    expect(JSON.stringify(data)).toContain('Two.');
    expect(JSON.stringify(data)).not.toContain('kiwi');
  });
});
