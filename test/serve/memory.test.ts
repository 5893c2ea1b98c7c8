import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import { command, type Printed } from '../command/in-process.ts';
import { useServeFixture } from './serve-command.ts';

/* [memory] of treadle.toml, and `treadle memory` with a server and with its store. */

const fixture = useServeFixture();

const memory = (...args: readonly string[]): Promise<Printed> => command(['memory', ...args], fixture.play.folder);

let embeddings: Server | undefined;

afterEach(async () => {
  await new Promise((resolve) => (embeddings ? embeddings.close(resolve) : resolve(undefined)));
  embeddings = undefined;
});

/** Texts about animals have one direction, others another one. */
async function serveEmbeddings(): Promise<string> {
  embeddings = createServer(async (request, response) => {
    const { input } = (await new Response(request as never).json()) as { readonly input: readonly string[] };
    const data = input.map((text, index) => ({ index, embedding: /hound|dog/.test(text) ? [1, 0] : [0, 1] }));
    response.setHeader('content-type', 'application/json').end(JSON.stringify({ data }));
  });
  await new Promise<void>((resolve) => embeddings!.listen(0, '127.0.0.1', resolve));
  return `http://127.0.0.1:${(embeddings.address() as AddressInfo).port}/v1`;
}

const ids = ({ stdout }: Printed): readonly string[] =>
  (JSON.parse(stdout) as readonly { readonly id: string }[]).map(({ id }) => id);

test('a server with [memory] remembers, its agents are told, and the command lists, finds and forgets', async () => {
  await fixture.play.write('agents/helper.md', '---\nname: helper\ndescription: Helps.\nmemory: true\n---\nHelp.\n');
  await fixture.configure(
    '[memory]\nenabled = true\n[server]\ndefault_tools = ["recall", "remember"]\n[agents]\npath = ["agents"]',
    { calls: [{ name: 'remember', arguments: '{"key":"pet","text":"Ann has a dog."}' }] },
    { text: ['Noted.'] },
    { text: ['It is a dog.'] },
  );
  const serve = await fixture.serve();
  expect((await serve.respond({ input: 'My pet is a dog.' })).status).toBe(200);
  expect((await serve.respond({ model: 'agent/helper', input: 'Which pet?' })).status).toBe(200);
  const told = JSON.stringify(fixture.provider.requests.at(-1)!.messages);
  expect(told).toContain('Ann has a dog.');
  expect(told).toContain('My pet is a dog.');

  const both = async (...args: readonly string[]): Promise<Printed> => {
    const asked = await memory(...args);
    expect(asked.code).toBe(0);
    return asked;
  };
  const listed = await both('list', '--json');
  const notes = await both('list', '--type', 'note');
  expect(notes.stdout).toMatch(/^ID +TYPE +AGE +TEXT\nnote:\S+ +note +\d+ s +pet: Ann has a dog\.\n$/);
  expect((await both('search', 'dog', '--json')).stdout).toContain('Ann has a dog.');
  const [id] = ids(await both('list', '--type', 'note', '--json'));
  expect((await both('show', id!)).stdout).toMatch(
    /^note:.*\nnote · .* · run .* · scope user\npet: Ann has a dog\.\n\n$/,
  );
  const exported = await both('export');
  await serve.stop();

  // The same of the store.
  expect(ids(await both('list', '--json'))).toEqual(ids(listed));
  expect((await both('export')).stdout).toBe(exported.stdout);
  expect((await both('forget', id!, '--yes')).stderr).toBe('Forgot 1 item.\n');
  expect((await both('list', '--type', 'note')).stderr).toBe('Nothing was found.\n');
  const left = await both('list', '--json');
  expect((await both('rebuild')).stderr).toBe('The observations of all runs were made again.\n');
  expect(ids(await both('list', '--json')).toSorted()).toEqual(ids(left).toSorted());
  expect((await both('forget', '--older-than', '1d', '--yes')).stderr).toBe('Forgot 0 items.\n');
  expect((await both('list', '--tenant', 'other')).stdout).toBe('');
  expect((await both('forget', '--all', '--yes')).stderr).toMatch(/^Forgot \d items\.\n$/);
  await both('rebuild');
  expect((await both('export')).stdout).toBe('');
  expect((await both('list')).stderr).toContain('Nothing is remembered.');
});

test('with a model for embeddings, the command finds by meaning what the server has remembered', async () => {
  const url = await serveEmbeddings();
  await fixture.configure(
    `[memory]\nenabled = true\n[memory.embeddings]\nprovider = "openai-compatible"\nmodel = "toy"\nbase_url = "${url}"`,
    { text: ['A fine hound.'] },
    { text: ['It rains.'] },
  );
  const serve = await fixture.serve();
  await serve.respond({ input: 'Look' });
  await serve.respond({ input: 'And now?' });
  await serve.stop();
  expect((await memory('rebuild')).code).toBe(0);
  expect((await memory('search', 'dog', '-n', '1')).stdout).toContain('A fine hound.');
});

test.each([
  [['forget'], 'Say what to forget'],
  [['forget', 'x', '--all'], 'Say what to forget'],
  [['forget', '--all'], 'There is no terminal to confirm this on.'],
  [['forget', '--older-than', 'soon'], '--older-than cannot be "soon".'],
  [['forget', 'x', '--yes'], 'There is nothing with the id "x".'],
  [['show', 'x'], 'There is nothing with the id "x".'],
  [['list', '--since', 'soon'], '--since must be an age'],
  [['list', '--level', 'all'], '--level'],
  [['search'], 'TEXT'],
  [['list', '--url', 'http://127.0.0.1:9', '--tenant', 'a'], 'Use a key of it'],
])('%j is refused', async (args, message) => {
  await fixture.configure('');
  await (await fixture.serve()).stop();
  const { code, stderr } = await memory(...args);
  expect([code, stderr]).toEqual([2, expect.stringContaining(message)]);
});

test('an agent with memory and a server without one is told so, and settings are checked', async () => {
  await fixture.play.write('agents/helper.md', '---\nname: helper\ndescription: Helps.\nmemory: true\n---\nHelp.\n');
  await fixture.configure('[agents]\npath = ["agents"]');
  const serve = await fixture.serve();
  expect((await serve.stop()).stderr).toContain('Set enabled = true in [memory].');
  for (const [lines, message] of [
    ['[memory.embeddings]\nprovider = "anthropic"', 'memory.embeddings.provider'],
    ['[memory.embeddings]\nprovider = "ollama"', 'memory.embeddings.model is missing'],
    ['[memory.embeddings]\nmodel = "m"\nprovider = "openai-compatible"', 'memory.embeddings.base_url is missing'],
    ['[memory]\nenabled = true\n[memory.embeddings]\nmodel = "m"', 'There is no key for m'],
    ['[server]\ndefault_tools = ["recall"]', '"recall", which is not a tool'],
  ]) {
    await fixture.configure(lines!);
    const { code, stderr } = await command(['serve', '--port', '0'], fixture.play.folder);
    expect([code, stderr]).toEqual([2, expect.stringContaining(message!)]);
  }
});
