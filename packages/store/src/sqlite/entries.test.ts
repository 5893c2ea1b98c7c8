import { closeSync, openSync, readFileSync, writeSync } from 'node:fs';
import type { DatabaseSync } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { entries, entry } from '../../test/entries.ts';
import { tempStore } from '../../test/temp-store.ts';

const code = (expected: string): object => expect.objectContaining({ name: 'TreadleError', code: expected });

/** Changes a stored entry directly in the database. */
type Damage = (db: DatabaseSync, runId: string, seq: number) => void;

function change(set: string): Damage {
  return (db, runId, seq) => {
    const where = 'WHERE run = (SELECT id FROM runs WHERE run = ?) AND seq = ?';
    expect(db.prepare(`${set} ${where}`).run(runId, seq).changes).toBe(1);
  };
}

const damages: Readonly<Record<string, Damage>> = {
  torn: change('UPDATE entries SET entry = substr(entry, 1, 20)'),
  emptied: change("UPDATE entries SET entry = ''"),
  altered: change("UPDATE entries SET entry = replace(entry, 'entry ', 'Entry ')"),
  'stored with a wrong checksum': change('UPDATE entries SET sum = sum + 1'),
  missing: change('DELETE FROM entries'),
  'not JSON but has a correct checksum': (db, runId, seq) =>
    change(`UPDATE entries SET entry = '{"seq":', sum = ${crc32('{"seq":')}`)(db, runId, seq),
  'a copy of another position': (db, runId, seq) => {
    const text = JSON.stringify(entry(seq + 1));
    change(`UPDATE entries SET entry = '${text}', sum = ${crc32(text)}`)(db, runId, seq);
  },
};

describe.each(Object.entries(damages))('an entry that is %s', (_, damage) => {
  test('is ignored and can be replaced when it is the last', async () => {
    await using temp = tempStore();
    const store = temp.open();
    await store.append('a', entries(4));
    damage(temp.raw(), 'a', 3);
    expect(await store.read('a')).toEqual(entries(3));
    expect(await store.read('a', 3)).toEqual([]);
    await store.append('a', [entry(3, 'other'), entry(4)]);
    expect(await store.read('a')).toEqual([...entries(3), entry(3, 'other'), entry(4)]);
    expect(await store.list()).toMatchObject([{ entries: 5 }]);
  });

  test('in the middle makes reading fail with its position; other runs are not affected', async () => {
    await using temp = tempStore();
    const store = temp.open();
    await store.append('a', entries(5));
    await store.append('b', entries(3));
    damage(temp.raw(), 'a', 2);
    await expect(store.read('a')).rejects.toEqual(code('journal-damaged'));
    await expect(store.read('a')).rejects.toThrow('Entry 2 of run "a" is damaged');
    await expect(store.read('a', 2)).rejects.toThrow('Entry 2 of run "a" is damaged');
    expect(await store.read('a', 3)).toEqual([entry(3), entry(4)]);
    expect(await store.read('b')).toEqual(entries(3));
    expect(await store.list()).toHaveLength(2);
    await store.append('b', [entry(3)]);
    expect(await store.delete('a')).toBe(true);
  });
});

test('an intact last entry cannot be replaced', async () => {
  await using temp = tempStore();
  const store = temp.open();
  await store.append('a', entries(3));
  await expect(store.append('a', [entry(2, 'other')])).rejects.toEqual(code('run-exists'));
  expect(await store.read('a')).toEqual(entries(3));
});

test('two damaged entries at the end make reading fail', async () => {
  await using temp = tempStore();
  const store = temp.open();
  await store.append('a', entries(4));
  for (const seq of [2, 3]) damages['torn']!(temp.raw(), 'a', seq);
  await expect(store.read('a')).rejects.toThrow('Entry 2 of run "a" is damaged');
});

test('replacing a damaged entry deletes the snapshot that includes it', async () => {
  await using temp = tempStore();
  const store = temp.open();
  await store.append('a', entries(4));
  await store.writeSnapshot('a', { seq: 4, state: 'includes the damaged entry' });
  damages['torn']!(temp.raw(), 'a', 3);
  await store.append('a', [entry(3, 'other')]);
  expect(await store.readSnapshot('a')).toBeUndefined();
});

test('a damaged snapshot is ignored and can be replaced', async () => {
  await using temp = tempStore();
  const store = temp.open();
  await store.append('a', entries(1));
  await store.writeSnapshot('a', { seq: 1, state: { turn: 1 } });
  temp.raw().exec("UPDATE snapshots SET state = '{}'");
  expect(await store.readSnapshot('a')).toBeUndefined();
  await store.writeSnapshot('a', { seq: 1, state: { turn: 1 } });
  expect(await store.readSnapshot('a')).toEqual({ seq: 1, state: { turn: 1 } });
});

test('a damaged page of the file affects only the run that it belongs to', async () => {
  await using temp = tempStore();
  const store = temp.open();
  await store.append('a', [entry(0, 'x'.repeat(50_000)), entry(1, 'damage me '.repeat(5_000)), entry(2), entry(3)]);
  await store.append('b', entries(3));
  await store.close();
  // A long text is a chain of pages, each of which starts with the number of the next. This breaks a link in the middle.
  const page = Math.floor((readFileSync(temp.file).lastIndexOf('damage me ') - 20_000) / 4_096);
  const file = openSync(temp.file, 'r+');
  writeSync(file, Buffer.alloc(4, 0xff), 0, 4, page * 4_096);
  closeSync(file);
  const damaged = temp.open();
  await expect(damaged.read('a')).rejects.toThrow('Entry 1 of run "a" is damaged');
  expect(await damaged.read('b')).toEqual(entries(3));
  await damaged.append('b', [entry(3)]);
});
