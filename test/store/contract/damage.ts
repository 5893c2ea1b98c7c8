import { userText } from '@treadle/core';
import { describe, expect, test } from 'vitest';
import { entries, entry, response, startedWith } from '../entries.ts';
import { fillStore } from '../full-store.ts';
import type { TempStores } from './temp-stores.ts';

/** What the test needs of the inside of the package. */
const { CONVERSATIONS, TABLES } = (await import(
  new URL('../../../packages/store/src/migrate/tables.ts', import.meta.url).href
)) as { readonly CONVERSATIONS: TableColumns; readonly TABLES: readonly TableColumns[] };

interface TableColumns {
  readonly name: string;
  readonly columns: Readonly<Record<string, string>>;
}

/**
 * What is changed in the tables is found when it is read, and affects only what contains it. The columns that only one store has are
 * in its own tests.
 */
export function damageContract(tempStore: () => Promise<TempStores>): void {
  const damaged = (message: string): object =>
    expect.objectContaining({ code: 'journal-damaged', message: expect.stringContaining(message) });
  const OF_A = `run = (SELECT id FROM runs WHERE run = 'a')`;
  const OF_B = `run = (SELECT id FROM runs WHERE run = 'b')`;
  const others = Array.from({ length: 5 }, (_, seq) => entry(seq, `other ${seq}`));

  describe.each([
    ['torn', (seq: number) => `UPDATE entries SET entry = substr(entry, 1, 20) WHERE ${OF_A} AND seq = ${seq}`],
    ['emptied', (seq: number) => `UPDATE entries SET entry = '' WHERE ${OF_A} AND seq = ${seq}`],
    [
      'altered',
      (seq: number) => `UPDATE entries SET entry = replace(entry, 'entry ', 'Entry ') WHERE ${OF_A} AND seq = ${seq}`,
    ],
    ['missing', (seq: number) => `DELETE FROM entries WHERE ${OF_A} AND seq = ${seq}`],
    [
      'of another run',
      (seq: number) => `DELETE FROM entries WHERE ${OF_A} AND seq = ${seq};
        UPDATE entries SET run = (SELECT id FROM runs WHERE run = 'a') WHERE ${OF_B} AND seq = ${seq}`,
    ],
  ])('an entry that is %s', (name, damage) => {
    test.each([
      ['in the middle', 2],
      ['last', 4],
    ])('and %s makes reading fail with its position', async (_, seq) => {
      await using temp = await tempStore();
      const store = await temp.open();
      await store.append('a', entries(5));
      await store.append('b', others);
      await temp.exec(damage(seq));
      for (const from of [0, seq, seq + 1, 9])
        await expect(store.read('a', from)).rejects.toEqual(damaged(`Entry ${seq} of run "a" is `));
      if (name !== 'of another run') expect(await store.read('b')).toEqual(others);
      else await expect(store.read('b')).rejects.toEqual(damaged(`Entry ${seq} of run "b" is missing`));
      expect(await store.list()).toHaveLength(2);
      expect(await store.delete('a')).toBe(true);
    });

    test('cannot be replaced when it is the last, and is found after entries were appended to it', async () => {
      await using temp = await tempStore();
      const store = await temp.open();
      await store.append('b', others);
      await store.append('a', entries(4));
      await temp.exec(damage(3));
      await expect(store.append('a', [entry(3, 'replaced')])).rejects.toMatchObject({ code: 'run-exists' });
      await expect(store.read('a')).rejects.toEqual(damaged('Entry 3 of run "a" is '));
      await store.append('a', [entry(4)]);
      await expect(store.read('a', 4)).rejects.toEqual(damaged('Entry 3 of run "a" is '));
    });
  });

  test.each([
    ['all entries are missing', 'DELETE FROM entries', 0],
    ['two entries at the end are missing', 'DELETE FROM entries WHERE seq > 1', 2],
    [
      'entries are numbered anew after one is missing',
      'DELETE FROM entries WHERE seq = 1; UPDATE entries SET seq = 1 WHERE seq = 2; UPDATE entries SET seq = 2 WHERE seq = 3',
      1,
    ],
    [
      'two entries are swapped',
      'UPDATE entries SET seq = 9 WHERE seq = 1; UPDATE entries SET seq = 1 WHERE seq = 2; UPDATE entries SET seq = 2 WHERE seq = 9',
      1,
    ],
    ['an entry is stored again after the last', 'UPDATE entries SET seq = 4 WHERE seq = 2', 2],
  ])('reading a run fails if %s', async (_, damage, seq) => {
    await using temp = await tempStore();
    const store = await temp.open();
    await store.append('a', entries(4));
    await temp.exec(damage);
    for (const from of [0, 3]) await expect(store.read('a', from)).rejects.toEqual(damaged(`Entry ${seq} of run "a"`));
  });

  const long = (name: string): string => `${name}, `.repeat(512);

  test.each([
    ['changed', `UPDATE texts SET text = replace(text, 'shared', 'Shared')`],
    ['missing', `DELETE FROM text_uses; DELETE FROM texts WHERE text LIKE 'shared%'`],
  ])('a text that is %s damages exactly what contains it, and can be stored again', async (_, damage) => {
    await using temp = await tempStore();
    const store = await temp.open();
    await store.append('a', [entry(0), entry(1, long('shared'))]);
    await store.append('b', [entry(0), entry(1, long('own'))]);
    await store.requests.create(response('r', { request: long('shared') }));
    await store.requests.create(response('s', { request: long('own') }));
    await temp.exec(damage);
    await expect(store.read('a')).rejects.toEqual(damaged('Entry 1 of run "a" is damaged'));
    await expect(store.requests.get('acme', 'r')).rejects.toMatchObject({
      code: 'store-failed',
      message: expect.stringContaining('Response "r" is damaged'),
    });
    expect(await store.read('b')).toHaveLength(2);
    expect(await store.requests.get('acme', 's')).toMatchObject({ request: long('own') });
    await store.append('c', [entry(0, long('shared'))]);
    expect(await store.read('c')).toEqual([entry(0, long('shared'))]);
    for (const runId of ['a', 'b', 'c']) expect(await store.delete(runId)).toBe(true);
  });

  test.each([
    ['changed', `UPDATE messages SET text = replace(text, 'user', 'assistant') WHERE text LIKE '%[3]%'`],
    ['torn', `UPDATE messages SET text = substr(text, 1, 50) WHERE text LIKE '%[3]%'`],
    ['after no message', `UPDATE messages SET previous = NULL WHERE text LIKE '%[3]%'`],
  ])('a message that is %s damages exactly the runs that contain it', async (_, damage) => {
    await using temp = await tempStore();
    const store = await temp.open();
    // Short enough to be in its row, and several of them long enough to be shared.
    const conversation = Array.from({ length: 20 }, (__, n) => userText(`[${n}] ${'x'.repeat(400)}`));
    const branch = [...conversation.slice(0, 3), ...conversation.slice(4)];
    await store.append('a', [startedWith(conversation, 'a'), entry(1)]);
    await store.append('branch', [startedWith(branch, 'branch'), entry(1)]);
    await temp.exec(damage);
    for (const from of [0, 1])
      await expect(store.read('a', from)).rejects.toEqual(damaged('Entry 0 of run "a" is damaged'));
    expect(await store.read('branch')).toEqual([startedWith(branch, 'branch'), entry(1)]);
    for (const runId of ['a', 'branch']) expect(await store.delete(runId)).toBe(true);
  });

  /** Four parts, of which the last is short. */
  const LONG = Array.from({ length: 10_000 }, (_, i) => String(i).padStart(10, '.')).join('');

  test.each([
    ['the first part is missing', 'DELETE FROM blob_parts WHERE part = 0', 'part 0 is missing'],
    ['the last part is missing', 'DELETE FROM blob_parts WHERE part = 3', 'part 3 is missing'],
    ['the sum of a part is wrong', 'UPDATE blob_parts SET sum = sum + 1 WHERE part = 1', 'part 1 is damaged'],
    [
      'two parts are swapped',
      'UPDATE blob_parts SET part = 9 WHERE part = 1; UPDATE blob_parts SET part = 1 WHERE part = 2; UPDATE blob_parts SET part = 2 WHERE part = 9',
      'part 1 is damaged',
    ],
    ['its length is wrong', 'UPDATE blobs SET length = length - 1', 'part 3 is damaged'],
  ])('reading a long result fails if %s, and storing it again repairs it', async (_, damage, message) => {
    await using temp = await tempStore();
    const store = await temp.open();
    await store.append('a', [entry(0)]);
    const id = await store.blobs.put('a', LONG);
    await temp.exec(damage);
    await expect(store.blobs.read('a', id, 0, Infinity)).rejects.toEqual(damaged(message));
    expect(await store.blobs.put('a', LONG)).toBe(id);
    expect(await store.blobs.read('a', id, 0, Infinity)).toEqual({ text: LONG, length: 100_000 });
  });

  test('a damaged snapshot is ignored and can be replaced', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    await store.append('a', entries(2));
    for (const damage of [`state = '{}'`, 'seq = 2']) {
      await store.writeSnapshot('a', { seq: 1, state: { turn: 1 } });
      expect(await store.readSnapshot('a')).toEqual({ seq: 1, state: { turn: 1 } });
      await temp.exec(`UPDATE snapshots SET ${damage}`);
      expect(await store.readSnapshot('a')).toBeUndefined();
    }
  });

  test('a damaged response is reported, does not affect others, and can be deleted', async () => {
    await using temp = await tempStore();
    const { requests } = await temp.open();
    for (const id of ['one', 'two', 'three']) await requests.create(response(id));
    await requests.finish('three', { status: 'completed', response: {}, at: 2_000 });
    await temp.exec(`UPDATE requests SET request = replace(request, 'asked', 'baked') WHERE response = 'one';
      UPDATE requests SET answer = '{' WHERE response = 'three'`);
    for (const id of ['one', 'three']) {
      await expect(requests.get('acme', id)).rejects.toThrow(
        `Response "${id}" is damaged. Restore the store from a backup, or delete the response; other responses are not affected.`,
      );
      // Another tenant does not even get the error.
      expect(await requests.get('other', id)).toBeUndefined();
    }
    expect((await requests.unfinished()).map(({ id }) => id)).toEqual(['one', 'two']);
    expect(await requests.delete('acme', 'one')).toBe(true);
    expect(await requests.get('acme', 'one')).toBeUndefined();
  });

  test('damaged events of a stream are reported, and later ones are read', async () => {
    await using temp = await tempStore();
    const { streams } = await temp.open();
    await streams.append('s', 1, [{ text: 'first' }]);
    await streams.append('s', 2, [{ text: 'second' }]);
    await temp.exec(`UPDATE stream_events SET events = replace(events, 'first', 'First')`);
    await expect(streams.read('s', 0)).rejects.toMatchObject({ code: 'store-failed' });
    expect(await streams.read('s', 1)).toEqual([{ seq: 2, event: { text: 'second' } }]);
  });

  test('a check reads every table, and names the rows that are damaged', async () => {
    await using temp = await tempStore();
    await fillStore(await temp.open());
    const rows = async (): Promise<readonly string[]> =>
      (await temp.check()).problems.filter(({ part }) => part === 'row').map(({ message }) => message);
    expect(await rows()).toEqual([]);
    await temp.exec(`UPDATE stream_events SET events = '[]' WHERE last = 10`);
    expect(await rows()).toEqual([expect.stringMatching(/the column events of the row {"stream":\d+,"last":10} /)]);
    const columns = [CONVERSATIONS, ...TABLES].flatMap(({ name, columns: types }) =>
      Object.keys(types)
        .filter((column) => types[column] === 'json')
        .map((column) => [name, column] as const),
    );
    expect(columns.length).toBeGreaterThan(10);
    for (const [table, column] of columns) await temp.exec(`UPDATE ${table} SET ${column} = '{'`);
    const problems = (await rows()).join('\n');
    for (const [table, column] of columns)
      expect(problems).toContain(`In the table ${table}, the column ${column} of the row {`);
  });

  test('a check reports a use of a text that is not recorded', async () => {
    await using temp = await tempStore();
    const store = await temp.open();
    const input = [
      userText(long('in a message')),
      ...Array.from({ length: 20 }, (_, n) => userText(`[${n}] ${'x'.repeat(400)}`)),
    ];
    await store.append('a', [startedWith(input, 'a'), entry(1, long('in an entry'))]);
    await store.requests.create(response('r', { request: long('request') }));
    await store.requests.finish('r', { status: 'completed', response: long('answer'), at: 2_000 });
    const lost = async (): Promise<number> =>
      (await temp.check()).problems.filter(({ message }) => /^A use of text .* is not recorded/.test(message)).length;
    expect(await lost()).toBe(0);
    await temp.exec('DELETE FROM text_uses');
    expect(await lost()).toBe(4);
  });
}
