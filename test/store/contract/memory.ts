import { runLoop, tool, type RunFacts, type RunStore } from '@treadle/core';
import {
  embedItems,
  memoryOn,
  observationsOf,
  quantised,
  readerFor,
  type Embedder,
  type Memory,
  type MemoryItem,
  type MemoryOwner,
  type Observation,
} from '@treadle/core/memory';
import { manualClock, scriptedModel } from '@treadle/core/testing';
import { countNotedRuns, findMetrics, type Store } from '@treadle/store';
import { expect, test } from 'vitest';
import { OTHER_WORDS, OTHERS, SAME_WORDS, toyEmbedder, type Fact } from '../../memory/facts.ts';
import type { TempStores } from './temp-stores.ts';

const look = tool({ name: 'look', description: '', effect: 'pure', execute: () => 'The harbour is blue.' });
/** The client executes it: the run waits. */
const asked = tool({ name: 'asked', description: '' });

interface RunOptions extends RunFacts {
  readonly tenant?: string;
  readonly subject?: string;
  readonly at?: number;
  readonly input?: string;
  readonly answer?: string;
  readonly calls?: readonly string[];
}

async function run(journal: RunStore, runId: string, options: RunOptions = {}): Promise<void> {
  const { tenant = 'acme', subject = 'ann', at = 0, input = 'go', answer = 'Done.', calls = [], ...facts } = options;
  const replies =
    calls.length > 0 ? [{ calls: calls.map((name, index) => ({ name, id: `${index}` })) }, answer] : [answer];
  await runLoop({
    input,
    model: scriptedModel(replies),
    tools: [look, asked],
    runId,
    journal,
    clock: manualClock(at),
    principal: { subject, tenant, scopes: [] },
    ...facts,
  });
}

const ALL = 1_000;
const ANN: MemoryOwner = { tenant: 'acme', subject: 'ann' };
const BOB: MemoryOwner = { tenant: 'acme', subject: 'bob' };

async function keep(store: Store): Promise<void> {
  while ((await countNotedRuns(store, { keepsMemory: true })) > 0);
}

const byId = (items: readonly MemoryItem[]): readonly MemoryItem[] => items.toSorted((a, b) => (a.id < b.id ? -1 : 1));

async function stored(store: Store, tenant = 'acme'): Promise<readonly MemoryItem[]> {
  return byId(await store.memory.list({ tenant, limit: ALL }));
}

/** What the journals say. */
async function derived(store: Store, ...runIds: readonly string[]): Promise<readonly Observation[]> {
  const all = await Promise.all(runIds.map(async (runId) => (await observationsOf(await store.read(runId)))!));
  return byId(all.flat()) as readonly Observation[];
}

const found = async (store: Store, owner: MemoryOwner, text: string): Promise<readonly string[]> =>
  (await memoryOn({ port: store.memory }).search(readerFor(owner), text, { level: 'full', topK: 50 })).map(
    ({ content }) => content,
  );

export function memoryContract(tempStore: () => Promise<Pick<TempStores, 'open'> & AsyncDisposable>): void {
  test('contains what the journals say, once, also if several processes keep it', async () => {
    await using temp = await tempStore();
    const stores = [await temp.open(), await temp.open()];
    const names = Array.from({ length: 6 }, (_, index) => `run ${index}`);
    for (const name of names) await run(stores[0]!, name, { calls: ['look'], input: `Ask ${name}` });
    await Promise.all(stores.flatMap((store) => [keep(store), keep(store)]));
    expect(await stored(stores[1]!)).toEqual(await derived(stores[0]!, ...names));
    // The sums are those of a store without memory.
    expect((await findMetrics(stores[0]!)).metrics.loop).toMatchObject({ runs: { completed: 6 }, turns: 12 });
  });

  test('a run that waits is remembered so far, and the rest of it when it stops again', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    await run(store, 'a', { calls: ['look', 'asked'] });
    await keep(store);
    expect(await stored(store)).toEqual(await derived(store, 'a'));
    const answers = [{ type: 'result', effect: 't1.client.1', content: 'yes' }] as const;
    const model = scriptedModel(['Done.']);
    await runLoop({ model, tools: [look, asked], runId: 'a', journal: store, clock: manualClock(9), answers });
    await keep(store);
    expect(await stored(store)).toEqual(await derived(store, 'a'));
    expect((await stored(store)).map(({ type }) => type)).toEqual([
      'llm_response',
      'tool_call',
      'tool_call',
      'llm_response',
    ]);
  });

  test('what a run did has the tags of its label, by which it is listed and found', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    const odd = String.raw`a "b" \ [c] ^$.*|() ü-\u0000`;
    await run(store, 'a', {
      labels: { tags: `home, pets,,home,${odd}` },
      answer: 'has "tags":["fake"], \0 and \uD800',
    });
    await run(store, 'b', { labels: { tags: 'pets' }, answer: 'home' });
    await run(store, 'c', { labels: { tags: `${'x'.repeat(300)},${[...'abcdefghijklmnopqrstuvwxyz'].join(',')}` } });
    for (const tags of ['private', 'home, Private', `${'y,'.repeat(30)}private`]) {
      await run(store, tags, { labels: { tags } });
    }
    const memory = memoryOn({ port: store.memory, now: () => 0 });
    await memory.remember({ key: 'k', scope: 'user', content: 'A note.', tags: ['pets', odd], ...ANN });
    await keep(store);
    const tagged = async (tag: string): Promise<readonly string[]> =>
      byId(await store.memory.list({ tenant: 'acme', tag, limit: ALL })).map((item) => item.runId ?? item.content);
    expect(await tagged('home')).toEqual(['a']);
    expect((await tagged('pets')).toSorted()).toEqual(['A note.', 'a', 'b']);
    expect((await tagged(odd)).toSorted()).toEqual(['A note.', 'a']);
    for (const none of ['hom', 'fake', 'private', 'Private', 'llm_response', '.*', '', ' pets']) {
      expect(await tagged(none)).toEqual([]);
    }
    const rows = await store.memory.unembedded('e', ALL);
    const vector = quantised([1, 2, 3]);
    await store.memory.addVectors(
      'e',
      rows.map(({ row }) => ({ row, vector })),
    );
    const foundWith = async (tag: string): Promise<readonly (readonly string[])[]> => {
      const reader = { tenant: 'acme', tag };
      const rankings = [
        await store.memory.matching(reader, 'has home note', ALL),
        await store.memory.nearest(reader, { model: 'e', vector, limit: ALL }),
      ];
      return rankings.map((items) => items.map((item) => item.runId ?? item.content).toSorted());
    };
    expect(await foundWith('home')).toEqual([['a'], ['a']]);
    expect(await foundWith('pets')).toEqual([
      ['A note.', 'a', 'b'],
      ['A note.', 'a', 'b'],
    ]);
    expect(await foundWith(odd)).toEqual([
      ['A note.', 'a'],
      ['A note.', 'a'],
    ]);
    for (const none of ['fake', '.*', '']) expect(await foundWith(none)).toEqual([[], []]);
    const [one] = await memory.search({ tenant: 'acme', tag: 'pets' }, 'home', { topK: 1 });
    expect(one?.runId).toBe('b');
    const all = await stored(store);
    expect(all.find(({ runId }) => runId === 'a')?.tags).toEqual(['home', 'pets', odd]);
    const { tags } = all.find(({ runId }) => runId === 'c')!;
    expect([tags.length, tags[0]]).toEqual([20, 'x'.repeat(200)]);
    const kept = byId(all.filter(({ type }) => type !== 'note'));
    await store.memory.restart();
    await keep(store);
    expect(byId((await stored(store)).filter(({ type }) => type !== 'note'))).toEqual(kept);
  });

  test('finds items by their words, the best first, and only those that a reader may see', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    await run(store, 'a', { input: 'My dog is called Rex.', answer: 'A fine name.', session: 's1' });
    await run(store, 'b', { input: 'Rex the dog likes the sea and dogs like Café.', answer: 'Nice.' });
    await run(store, 'c', { input: 'My dog is called Bello.', subject: 'bob' });
    await run(store, 'd', { input: 'My dog is called Fido.', tenant: 'other' });
    await keep(store);
    const [best, ...others] = await found(store, ANN, 'What is my dog called?');
    expect([best, others.length]).toEqual(['Asked: My dog is called Rex.\nAnswered: A fine name.', 1]);
    expect(await found(store, BOB, 'dog called')).toEqual(['Asked: My dog is called Bello.\nAnswered: Done.']);
    expect(await found(store, { tenant: 'other', subject: 'ann' }, 'dog')).toHaveLength(1);
    expect(await found(store, { subject: 'ann' }, 'dog')).toEqual([]);
    expect(await found(store, ANN, 'CAFE')).toHaveLength(1);
    expect(await store.memory.matching({ tenant: 'acme' }, 'dog', 10)).toHaveLength(3);
    expect(await store.memory.get(readerFor(BOB), (await stored(store))[0]!.id)).toBeUndefined();
    expect(await store.memory.get({ tenant: 'acme' }, (await stored(store))[0]!.id)).toBeDefined();
  });

  test('a text to search for is only words, whatever it contains', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    await run(store, 'a', { input: 'A plain text with a word.' });
    await keep(store);
    const hostile = [
      '"',
      "'",
      '* OR *',
      'word" OR owners : x',
      "word' & !'plain",
      'NEAR(word, 3)',
      ') OR 1=1 --',
      '\u0000word\ud800',
      '{words} : ^word',
      "\\' | ''",
      'x'.repeat(100_000),
      'word '.repeat(50_000),
      '<->',
      ':*',
    ];
    for (const text of hostile) {
      const isFound = /word/.test(text);
      expect([text.slice(0, 40), (await found(store, ANN, text)).length]).toEqual([text.slice(0, 40), isFound ? 1 : 0]);
      expect(await found(store, { tenant: 'other', subject: 'ann' }, text)).toEqual([]);
    }
    // Names, too.
    for (const subject of ["ann' OR 'a'='a", '"]', 'x\u0000', '\ud800']) {
      expect(await found(store, { tenant: 'acme', subject }, 'word')).toEqual([]);
    }
  });

  test('notes are replaced by those with the same key and scope, and are for whom they were written', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    let now = 1;
    const memory = memoryOn({ port: store.memory, now: () => now++ });
    await memory.remember({ ...ANN, key: 'colour', scope: 'user', content: 'Ann likes green.' });
    await memory.remember({
      ...ANN,
      key: 'colour',
      scope: 'user',
      content: 'Ann likes blue.',
      runId: 'r',
      tags: ['x'],
    });
    await memory.remember({ ...ANN, key: 'colour', scope: 'tenant', content: 'All walls are white.' });
    await memory.remember({ ...ANN, agent: 'painter', key: 'colour', scope: 'agent', content: 'Use red.' });
    await memory.remember({ ...ANN, session: 's', key: 'colour', scope: 'session', content: 'Today: pink.' });
    expect((await found(store, ANN, 'colour')).toSorted()).toEqual(['All walls are white.', 'Ann likes blue.']);
    expect(await found(store, BOB, 'colour')).toEqual(['All walls are white.']);
    expect(await found(store, { ...BOB, agent: 'painter', session: 's' }, 'colour')).toHaveLength(3);
    expect(await found(store, { tenant: 'other', subject: 'ann', agent: 'painter' }, 'colour')).toEqual([]);
    const [note] = await store.memory.list({ tenant: 'acme', type: 'note', runId: 'r', limit: 5 });
    expect(note).toMatchObject({ content: 'Ann likes blue.', runId: 'r', tags: ['x'], at: 2 });
  });

  test('lists the newest first, in pages, with filters', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    for (const index of [1, 2, 3]) await run(store, `${index}`, { at: index, session: index === 2 ? 'other' : 's' });
    await keep(store);
    const first = await store.memory.list({ tenant: 'acme', limit: 2 });
    const rest = await store.memory.list({ tenant: 'acme', limit: 2, after: first[1]! });
    expect([...first, ...rest].map(({ runId }) => runId)).toEqual(['3', '2', '1']);
    const runs = async (filter: object): Promise<readonly (string | undefined)[]> =>
      (await store.memory.list({ tenant: 'acme', limit: 9, ...filter })).map(({ runId }) => runId);
    expect(await runs({ session: 's' })).toEqual(['3', '1']);
    expect(await runs({ since: 2, until: 3 })).toEqual(['2']);
    expect(await runs({ type: 'note' })).toEqual([]);
    expect(await runs({ subject: 'bob' })).toEqual([]);
    expect(await runs({ audiences: readerFor(BOB).audiences })).toEqual([]);
  });

  test('what was forgotten is gone with all that was derived from it, and does not come back', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    const embedder: Embedder = { id: 'e', embed: async (texts) => texts.map(() => [1, 2, 3]) };
    for (const [name, session] of [
      ['a', 'one'],
      ['b', 'one'],
      ['c', 'two'],
      ['d', 'two'],
    ] as const) {
      await run(store, name, { session, at: 10, input: `The word of ${name}`, subject: name === 'd' ? 'bob' : 'ann' });
    }
    await run(store, 'elsewhere', { tenant: 'other', session: 'one', input: 'The word of others' });
    await keep(store);
    const memory = memoryOn({ port: store.memory, embedder, now: () => 10 });
    await memory.remember({ ...ANN, key: 'k', scope: 'user', session: 'one', content: 'A word.' });
    const rows = await store.memory.unembedded('e', ALL);
    await store.memory.addVectors(
      'e',
      rows.map(({ row }) => ({ row, vector: quantised([1, 2, 3]) })),
    );
    expect(
      await store.memory.nearest({ tenant: 'acme' }, { model: 'e', vector: quantised([1, 2, 3]), limit: ALL }),
    ).toHaveLength(5);

    expect(await store.memory.forget({ tenant: 'acme', session: 'one', until: 10 })).toBe(3);
    const [ofC] = await store.memory.list({ tenant: 'acme', runId: 'c', limit: 1 });
    expect(await store.memory.forget({ tenant: 'acme', id: ofC!.id, until: 10 })).toBe(1);
    const left = async (): Promise<readonly (string | undefined)[]> => [
      ...(await store.memory.matching({ tenant: 'acme' }, 'word', ALL)).map(({ runId }) => runId),
      ...(await store.memory.nearest({ tenant: 'acme' }, { model: 'e', vector: quantised([1, 2, 3]), limit: ALL })).map(
        ({ runId }) => runId,
      ),
      ...(await stored(store)).map(({ runId }) => runId),
    ];
    expect(await left()).toEqual(['d', 'd', 'd']);
    await store.memory.restart();
    await keep(store);
    expect((await stored(store)).map(({ runId }) => runId)).toEqual(['d']);
    expect(await stored(store, 'other')).toEqual(await derived(store, 'elsewhere'));

    // Nothing that is younger.
    await run(store, 'later', { session: 'one', at: 11 });
    await keep(store);
    expect((await stored(store)).map(({ runId }) => runId)).toEqual(['d', 'later']);
    expect(await store.memory.forget({ tenant: 'acme', subject: 'bob', until: 100 })).toBe(1);
    expect(await store.memory.forget({ tenant: 'acme', until: 100 })).toBe(1);
    await store.memory.restart();
    await keep(store);
    expect(await stored(store)).toEqual([]);
    expect(await stored(store, 'other')).toHaveLength(1);
  });

  test('observations that are made again are the same, and notes stay', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    for (const name of ['a', 'b']) await run(store, name, { calls: ['look'] });
    await run(store, 'waits', { calls: ['asked'] });
    await keep(store);
    const note = await memoryOn({ port: store.memory }).remember({ ...ANN, key: 'k', scope: 'user', content: 'x' });
    const before = await stored(store);
    const { metrics } = await findMetrics(store);
    await store.memory.restart();
    expect(await stored(store)).toEqual([note]);
    await keep(store);
    expect(await stored(store)).toEqual(before);
    expect(await findMetrics(store)).toEqual({ metrics, waiting: 0 });
  });

  test('what a process without memory has counted is remembered when it is made again', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    await run(store, 'a');
    const { metrics } = await findMetrics(store);
    expect(await stored(store)).toEqual([]);
    await store.memory.restart();
    await keep(store);
    expect(await stored(store)).toEqual(await derived(store, 'a'));
    expect((await findMetrics(store)).metrics).toEqual(metrics);
  });

  test('the observations of a run that is deleted go with it, and its notes stay', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    await run(store, 'a', { input: 'A word.' });
    await keep(store);
    await memoryOn({ port: store.memory }).remember({ ...ANN, key: 'k', scope: 'user', content: 'Note', runId: 'a' });
    await store.delete('a');
    expect((await stored(store)).map(({ type }) => type)).toEqual(['note']);
    expect(await found(store, ANN, 'word')).toEqual([]);
    // Another run with its name.
    await run(store, 'a', { input: 'Another.' });
    await keep(store);
    expect(await found(store, ANN, 'another')).toHaveLength(1);
  });

  test('nothing private is stored', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    await run(store, 'secret', { input: 'A secret word.', labels: { memory: 'private' } });
    await run(store, 'exposed', {
      input: 'A word.',
      carried: { exposure: { private: { what: '.env' } } },
    } as RunOptions);
    await keep(store);
    expect(await stored(store)).toEqual([]);
  });

  test('a note of a run that had seen private data is found by its words, and its text is sent nowhere', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    const memory = memoryOn({ port: store.memory, now: () => 1 });
    await memory.remember({ ...ANN, key: 'secret', scope: 'user', content: 'The code is 1234.', private: true });
    await memory.remember({ ...ANN, key: 'open', scope: 'user', content: 'As JSON: {"private":true}' });
    const open = await store.memory.unembedded('e', ALL);
    expect(open.map(({ content }) => content)).toEqual(['As JSON: {"private":true}']);
    expect(await found(store, ANN, 'code')).toEqual(['The code is 1234.']);
  });

  test('recalls what was told in 50 earlier sessions, by words alone and by meaning too', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    const facts = [...SAME_WORDS, ...OTHER_WORDS];
    for (const [index, input] of [...facts.map(({ told }) => told), ...OTHERS].entries()) {
      await run(store, `run ${index}`, { input, answer: 'Noted.', session: `session ${index}` });
    }
    await keep(store);
    await embedItems(store.memory, toyEmbedder);
    const recalled = async (memory: Memory, asked: readonly Fact[]): Promise<number> => {
      let count = 0;
      for (const one of asked) {
        const items = await memory.search(readerFor(ANN), one.asked, { topK: 5 });
        if (items.some(({ content }) => content.includes(one.told))) count++;
      }
      return count;
    };
    const words = memoryOn({ port: store.memory });
    const meaning = memoryOn({ port: store.memory, embedder: toyEmbedder });
    expect({
      words: [await recalled(words, SAME_WORDS), await recalled(words, OTHER_WORDS)],
      meaning: [await recalled(meaning, SAME_WORDS), await recalled(meaning, OTHER_WORDS)],
    }).toEqual({ words: [25, 9], meaning: [25, 21] });
  });

  test('ranks by words and by meaning together', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    const meanings: Readonly<Record<string, readonly number[]>> = { hound: [1, 0.1, 0], car: [0, 1, 0.1] };
    const embedder: Embedder = {
      id: 'toy',
      embed: async (texts) =>
        texts.map((text) =>
          /hound|dog/.test(text) ? meanings['hound']! : /car|vehicle/.test(text) ? meanings['car']! : [0, 0, 1],
        ),
    };
    for (const text of ['The hound sleeps.', 'The vehicle is red.', 'It rains.'])
      await run(store, text, { input: text });
    await keep(store);
    const memory = memoryOn({ port: store.memory, embedder });
    const rows = await store.memory.unembedded('toy', ALL);
    const vectors = await embedder.embed(rows.map(({ content }) => content));
    await store.memory.addVectors(
      'toy',
      rows.map(({ row }, index) => ({ row, vector: quantised(vectors[index]!) })),
    );
    expect(await store.memory.unembedded('toy', ALL)).toEqual([]);
    const first = async (text: string): Promise<string | undefined> =>
      (await memory.search(readerFor(ANN), text, { topK: 1 }))[0]?.runId;
    expect([await first('a dog'), await first('my car'), await first('rains')]).toEqual([
      'The hound sleeps.',
      'The vehicle is red.',
      'It rains.',
    ]);
    // One of a tenant that has nothing finds nothing, however near.
    expect(await memory.search(readerFor({ tenant: 'other', subject: 'ann' }), 'a dog')).toEqual([]);
  });
}
