import { forkRun, memoryJournal, runLoop, userText, type JournalEntry, type Message } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { entry, response as responseTo, startedWith } from '../entries.ts';
import type { TempStores } from './temp-stores.ts';
import type { RequestRecord } from '@treadle/store';

/** Strings of so many characters are stored once. */
const MIN_CHARS = 512;

/** What is stored once: long strings, messages of inputs, and long results. */
export function textsContract(tempStore: () => Promise<TempStores>, cases: number): void {
  /** No two are equal, and none is part of another one. */
  const long = (name: string): string => `${name}, `.repeat(MIN_CHARS);
  /** Message `n` of a conversation. */
  const message = (n: number): Message => {
    const text = `${n} `.repeat(2_000).slice(0, 2_000);
    return n % 2 === 0 ? userText(text) : { role: 'assistant', content: [{ type: 'text', text }] };
  };
  const conversation = (count: number): Message[] => Array.from({ length: count }, (_, n) => message(n));
  const response = (id: string, request: unknown): RequestRecord => responseTo(id, { request });

  test('a text in an event, a request, a response and the input of the next run is stored once', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    const [asked, said] = [long('asked'), long('said')];
    const record = response('r', { input: [{ role: 'user', text: asked }] });
    await store.requests.create(record);
    await store.append('r', [startedWith([userText(asked)]), entry(1, said)]);
    await store.requests.finish('r', { status: 'completed', response: { output: said }, at: 2_000 });
    const next = startedWith([userText(asked), userText(said), userText(long('more'))]);
    await store.append('next', [next]);
    expect(await temp.count('texts')).toBe(3);
    expect(await store.read('r')).toEqual([startedWith([userText(asked)]), entry(1, said)]);
    expect(await store.read('next')).toEqual([next]);
    const ended = { status: 'completed', updatedAt: 2_000, response: { output: said } };
    expect(await store.requests.get('acme', 'r')).toEqual({ ...record, ...ended });
    await store.requests.delete('acme', 'r');
    expect(await store.read('next')).toEqual([next]);
    await store.delete('next');
    for (const table of ['texts', 'text_uses', 'messages']) expect(await temp.count(table)).toBe(0);
  });

  test('sizes count a text as often as it is in the JSON, and the events of a stream', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    const said = long('said');
    const bytes = (value: unknown): number => Buffer.byteLength(JSON.stringify(value));
    const isSize = (size: number, expected: number): boolean => Math.abs(size - expected) < 300;
    const request = { input: [{ text: [said, said] }, { text: 'short' }] };
    await store.requests.create(response('r', request), undefined, request.input);
    await store.requests.finish('r', { status: 'completed', response: [said, said, 'é'], at: 2_000 });
    expect(isSize(await store.requests.sizeOf('acme', 'r'), bytes(request) + bytes([said, said, 'é']))).toBe(true);
    expect(await store.requests.sizeOf('bolt', 'r')).toBe(0);
    const many = Array.from({ length: 1_200 }, (_, index) => entry(index + 1, index % 100 === 0 ? said : 'é'));
    const all = [startedWith([userText(said), userText(said)]), ...many];
    await store.append('r', all);
    const sizeOf = (some: readonly JournalEntry[]): number => some.reduce((sum, one) => sum + bytes(one), 0);
    expect(isSize(await store.sizeOf('r'), sizeOf(all))).toBe(true);
    expect(isSize(await store.pageSize('r', 0), sizeOf(await store.readPage('r', 0)))).toBe(true);
    expect([await store.pageSize('r', all.length), await store.sizeOf('none')]).toEqual([0, 0]);
    expect(await store.requests.headOfRun('r')).toEqual({
      id: 'r',
      kind: 'response',
      tenant: 'acme',
      runId: 'r',
      status: 'completed',
      updatedAt: 2_000,
    });
    await store.streams.append('s', 1, [{ said }, { said }]);
    expect(await store.streams.pageSize('s', 0)).toBe(bytes([{ said }, { said }]));
    expect(await store.streams.pageSize('s', 2)).toBe(0);
  });

  test('the items that requests have in common are stored once, also if they are short', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    const items = Array.from({ length: 100 }, (_, n) => ({ role: 'user', text: `short ${n} `.repeat(10) }));
    const records = [50, 100].map((count) => response(`r${count}`, { input: items.slice(0, count), x: [] }));
    for (const record of records) {
      await store.requests.create(record, undefined, (record.request as { input: object[] }).input);
    }
    expect(await temp.count('messages')).toBe(100);
    for (const record of records) expect(await store.requests.get('acme', record.id)).toEqual(record);
    await store.requests.delete('acme', 'r100');
    expect(await temp.count('messages')).toBe(50);
    expect(await store.requests.get('acme', 'r50')).toEqual(records[0]);
    await store.requests.finish('r50', { status: 'completed', response: null, at: 2_000 });
    expect(await store.requests.prune(Infinity)).toBe(1);
    expect(await temp.count('messages')).toBe(0);
  });

  test('a response that is rejected stores no texts', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    await store.requests.create(response('r', {}));
    const again = response('r', { input: long('again') });
    await expect(store.requests.create(again)).rejects.toMatchObject({ code: 'run-exists' });
    expect(await store.requests.finish('other', { status: 'failed', response: long('said'), at: 0 })).toBe(false);
    expect(await temp.count('texts')).toBe(0);
  });

  test('a short string stays where it is', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    await store.append('a', [entry(0, 'x'.repeat(MIN_CHARS - 1)), entry(1, 'x'.repeat(MIN_CHARS))]);
    expect(await temp.count('texts')).toBe(1);
  });

  test('entries are the same as in memory, with any characters in their strings', async () => {
    const pads = ['', 'x'.repeat(MIN_CHARS), '\\'.repeat(MIN_CHARS), '"'.repeat(MIN_CHARS)];
    const specials = ['"', '\\', '\\"', '\u0001', '\u00011\u0001', '\ud800', '\u2028', '😀', '\0', '{"a":"'];
    const special = fc.constantFrom(...specials);
    const text = fc
      .tuple(fc.array(fc.oneof(special, fc.string())), fc.constantFrom(...pads), fc.array(special))
      .map((parts) => parts.flat().join(''));
    await using temp = await tempStore();
    const store = await temp.open();
    await fc.assert(
      fc.asyncProperty(fc.array(text, { minLength: 1, maxLength: 5 }), async (texts) => {
        const memory = memoryJournal();
        const added = texts.map((one, seq) => entry(seq, one));
        for (const one of [store, memory]) await one.append('a', added);
        expect(JSON.stringify(await store.read('a'))).toBe(JSON.stringify(await memory.read('a')));
        await store.delete('a');
        expect(await temp.count('texts')).toBe(0);
      }),
      { numRuns: 10 * cases },
    );
  });

  test('inputs are the same as in memory, with any text in the messages', async () => {
    await using temp = await tempStore();
    const [store, memory] = [await temp.open(), memoryJournal()];
    const odd = ['\ud800 alone', '[{"role":"user"}]', '"input":[]', '\0', '\u2028 😀', '$& $1', '\\"'];
    const texts = odd.map((one) => one + 'x'.repeat(600));
    const tools = [{ name: 'same', parameters: { input: [], enum: texts.map((one) => userText(one)) } }];
    const first = startedWith(texts.map((one) => userText(one)));
    const event = { ...first.event, tools } as unknown as JournalEntry['event'];
    for (const one of [store, memory]) await one.append('a', [{ ...first, event }, entry(1)]);
    expect(JSON.stringify(await store.read('a'))).toBe(JSON.stringify(await memory.read('a')));
  });

  test('equal messages after different conversations are different messages', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    const [one, two, three] = [0, 2, 4].map((n) => message(n)) as [Message, Message, Message];
    const inputs = { a: [one, three], b: [two, three], c: [three, three] };
    for (const [runId, input] of Object.entries(inputs)) await store.append(runId, [startedWith(input)]);
    expect(await temp.count('messages')).toBe(6);
    for (const [runId, input] of Object.entries(inputs)) expect(await store.read(runId)).toEqual([startedWith(input)]);
  });

  test('a fork shares the input and the long results of its original', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    const input = conversation(9);
    await runLoop({ model: scriptedModel(['Done.']), journal: store, runId: 'a', input });
    const content = { bytes: new Uint8Array(100_000).fill(7), mediaType: 'application/octet-stream' };
    const id = await store.blobs.put('a', content);
    const fork = await forkRun({ journal: store, runId: 'a', at: 0 });
    expect(await temp.count('messages')).toBe(9);
    expect((await store.read(fork))[0]!.event).toMatchObject({ type: 'run-started', runId: fork, input });
    const end = { ...content, bytes: Uint8Array.from([7, 7]), length: 100_000 };
    expect(await store.blobs.read(fork, id, 99_998, Infinity)).toEqual(end);
    expect(await store.delete('a')).toBe(true);
    expect(await store.blobs.read(fork, id, 99_998, Infinity)).toEqual(end);
    expect((await runLoop({ model: scriptedModel([]), journal: store, runId: fork })).text).toBe('Done.');
  });

  test('a long result is stored once for all runs, and deleted with the last of them', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    const sizes = (): Promise<readonly number[]> =>
      Promise.all(['blobs', 'blob_parts', 'blob_runs'].map((table) => temp.count(table)));
    for (const runId of ['a', 'b']) {
      await store.append(runId, [entry(0), entry(1, '', 'completed')]);
      await store.blobs.put(runId, 'x'.repeat(100_000));
      await store.blobs.put(runId, 'x'.repeat(100_000));
      await store.blobs.put(runId, runId);
    }
    expect(await sizes()).toEqual([3, 6, 4]);
    await store.delete('a');
    expect(await sizes()).toEqual([2, 5, 2]);
    await store.prune(Infinity);
    expect(await sizes()).toEqual([0, 0, 0]);
  });

  test('deleting an early run does not affect later ones, and the last one frees all messages', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    const branch = startedWith([...conversation(3), message(99)]);
    for (const n of [2, 4, 6]) await store.append(`run ${n}`, [startedWith(conversation(n))]);
    await store.append('branch', [branch]);
    await store.delete('run 2');
    expect(await store.read('run 4')).toEqual([startedWith(conversation(4))]);
    await store.delete('run 6');
    expect(await temp.count('messages')).toBe(5);
    expect(await store.read('branch')).toEqual([branch]);
    await store.delete('run 4');
    expect(await temp.count('messages')).toBe(4);
    await store.delete('branch');
    expect(await temp.count('messages')).toBe(0);
  });

  test('deleting leaves the messages that the remaining runs need, and no others', async () => {
    const step = fc.record({ path: fc.array(fc.nat(2), { minLength: 1, maxLength: 4 }), drop: fc.option(fc.nat(9)) });
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 12 }), async (steps) => {
        await using temp = await tempStore();
        const store = await temp.open();
        const runs = new Map<string, readonly number[]>();
        for (const [n, { path, drop }] of steps.entries()) {
          await store.append(`${n}`, [startedWith(path.map((one) => message(one)))]);
          runs.set(`${n}`, path);
          const dropped = [...runs.keys()][drop ?? Infinity];
          if (dropped === undefined) continue;
          await store.delete(dropped);
          runs.delete(dropped);
        }
        const prefixes = [...runs.values()].flatMap((path) => path.map((_, end) => path.slice(0, end + 1).join()));
        expect(await temp.count('messages')).toBe(new Set(prefixes).size);
        for (const [runId, path] of runs) {
          expect(await store.read(runId)).toEqual([startedWith(path.map((one) => message(one)))]);
        }
      }),
      { numRuns: 5 * cases },
    );
  });

  test('what runs and responses share is gone when two processes have deleted the last of them at once', async () => {
    await using temp = await tempStore();
    const [one, other] = [await temp.open(), await temp.open()];
    for (let round = 0; round < 8; round++) {
      const input = Array.from({ length: 4 }, (_, n) => userText(`${round} ${n} `.repeat(300)));
      for (const id of ['a', 'b']) {
        await one.requests.create(responseTo(id, { status: 'completed', request: { input } }), [], input);
        await one.append(id, [startedWith(input, id), entry(1, `${round} `.repeat(600), 'completed')]);
        await one.blobs.put(id, `${round} `.repeat(600));
      }
      await Promise.all([
        one.requests.delete('acme', 'a'),
        round % 2 ? other.requests.delete('acme', 'b') : other.requests.prune(Infinity),
      ]);
      const rows: Record<string, number> = {};
      for (const table of ['runs', 'requests', 'texts', 'messages', 'blobs', 'blob_parts'])
        rows[table] = await temp.count(table);
      expect(rows).toEqual({ runs: 0, requests: 0, texts: 0, messages: 0, blobs: 0, blob_parts: 0 });
    }
  });
}
