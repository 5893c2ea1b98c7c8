import type { DatabaseSync } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { entries, entry } from '../../test/entries.ts';
import { tempStore } from '../../test/temp-store.ts';

// What holds on every store is in `test/journal/contract/entries.ts`. Here: damage in the tables and pages of SQLite, and how a run is
// searched in parts.

const code = (expected: string): object => expect.objectContaining({ name: 'TreadleError', code: expected });

test('finds the entries with a value of a field, over many entries, without reading them', async () => {
  await using temp = tempStore();
  const store = temp.open();
  const all = entries(5_003).map((one, seq) => ({
    ...one,
    ...(seq % 5_000 === 2 && { value: { effect: 't1.tool.1', text: 'x'.repeat(600) } }),
    ...(seq === 7 && { value: { effect: 't1.tool.10', text: '"effect":"t1.tool.1"' } }),
  }));
  await store.append('a', all);
  expect(await store.entriesWith('a', 'effect', 't1.tool.1')).toEqual([2, 5_002]);
  expect(await store.entriesWith('a', 'effect', 't2.tool.1')).toEqual([]);
  expect(await store.entriesWith('b', 'effect', 't1.tool.1')).toEqual([]);
});

/** Changes a stored entry directly in the database. */
type Damage = (db: DatabaseSync, runId: string, seq: number) => void;

function change(set: string): Damage {
  return (db, runId, seq) => {
    const where = 'WHERE run = (SELECT id FROM runs WHERE run = ?) AND seq = ?';
    expect(db.prepare(`${set} ${where}`).run(runId, seq).changes).toBe(1);
  };
}

/** Stores another text with the sum that the store would have computed for it. */
function rewrite(text: string): Damage {
  return (db, runId, seq) => {
    const before = db.prepare(
      'SELECT entries.chain FROM entries JOIN runs ON runs.id = entries.run WHERE runs.run = ? AND seq = ?',
    );
    const chain = crc32(text, Number(before.get(runId, seq - 1)?.['chain'] ?? 0));
    change(`UPDATE entries SET entry = '${text}', chain = ${chain}`)(db, runId, seq);
  };
}

const damages: Readonly<Record<string, Damage>> = {
  torn: change('UPDATE entries SET entry = substr(entry, 1, 20)'),
  emptied: change("UPDATE entries SET entry = ''"),
  altered: change("UPDATE entries SET entry = replace(entry, 'entry ', 'Entry ')"),
  'stored with a wrong sum': change('UPDATE entries SET chain = chain + 1'),
  missing: change('DELETE FROM entries'),
  'a copy of the entry before': change(
    'UPDATE entries SET (entry, chain) = (SELECT e.entry, e.chain FROM entries e WHERE e.run = entries.run AND e.seq = entries.seq - 1)',
  ),
  'of another run': change(
    "UPDATE entries SET (entry, chain) = (SELECT e.entry, e.chain FROM entries e JOIN runs ON runs.id = e.run AND runs.run = 'b' WHERE e.seq = entries.seq)",
  ),
};

const others = Array.from({ length: 5 }, (_, seq) => entry(seq, `other ${seq}`));

describe.each(Object.entries(damages))('an entry that is %s', (_, damage) => {
  test.each([
    ['in the middle', 2],
    ['last', 4],
  ])('and %s makes reading fail with its position; other runs are not affected', async (_, seq) => {
    await using temp = tempStore();
    const store = temp.open();
    await store.append('a', entries(5));
    await store.append('b', others);
    damage(temp.raw(), 'a', seq);
    await expect(store.read('a')).rejects.toEqual(code('journal-damaged'));
    for (const from of [0, seq, seq + 1, 9]) {
      await expect(store.read('a', from)).rejects.toThrow(`Entry ${seq} of run "a" is `);
    }
    expect(await store.read('b')).toEqual(others);
    expect(await store.list()).toHaveLength(2);
    await store.append('b', [entry(5)]);
    expect(await store.delete('a')).toBe(true);
  });

  test('cannot be replaced when it is the last', async () => {
    await using temp = tempStore();
    const store = temp.open();
    await store.append('b', others);
    await store.append('a', entries(4));
    damage(temp.raw(), 'a', 3);
    await expect(store.append('a', [entry(3, 'replaced')])).rejects.toEqual(code('run-exists'));
    await expect(store.read('a')).rejects.toThrow('Entry 3 of run "a" is ');
  });

  test('is found after entries were appended to it', async () => {
    await using temp = tempStore();
    const store = temp.open();
    await store.append('b', others);
    await store.append('a', entries(4));
    damage(temp.raw(), 'a', 3);
    await store.append('a', [entry(4)]);
    await expect(store.read('a', 4)).rejects.toThrow('Entry 3 of run "a" is ');
  });
});

test.each([
  ['all entries are missing', 'DELETE FROM entries', 'Entry 0 of run "a" is missing'],
  ['the first entry is missing', 'DELETE FROM entries WHERE seq = 0', 'Entry 0 of run "a" is missing'],
  ['two entries at the end are missing', 'DELETE FROM entries WHERE seq > 1', 'Entry 2 of run "a" is missing'],
  [
    'entries are numbered anew after one is missing',
    'DELETE FROM entries WHERE seq = 1; UPDATE entries SET seq = seq - 1 WHERE seq > 1',
    'Entry 1 of run "a" is damaged',
  ],
  [
    'two entries are swapped',
    'UPDATE entries SET seq = 9 WHERE seq = 1; UPDATE entries SET seq = 1 WHERE seq = 2; UPDATE entries SET seq = 2 WHERE seq = 9',
    'Entry 1 of run "a" is damaged',
  ],
  [
    'an entry is stored twice',
    'INSERT INTO entries SELECT run, 4, entry, chain FROM entries WHERE seq = 3',
    'Entry 4 of run "a" is not in the count of entries',
  ],
  ['the count is too low', 'UPDATE runs SET entries = 3', 'Entry 3 of run "a" is not in the count of entries'],
  ['the count is too high', 'UPDATE runs SET entries = 5', 'Entry 4 of run "a" is missing'],
  [
    'the sum of the run is wrong',
    'UPDATE runs SET last_chain = 1',
    'Entry 3 of run "a" does not match the sum of the run',
  ],
])('reading fails if %s', async (_, damage, message) => {
  await using temp = tempStore();
  const store = temp.open();
  await store.append('a', entries(2));
  await store.append('a', entries(4).slice(2));
  temp.raw().exec(damage);
  await expect(store.read('a')).rejects.toEqual(code('journal-damaged'));
  await expect(store.read('a')).rejects.toThrow(message);
  await expect(store.read('a', 3)).rejects.toThrow(message);
});

test.each([
  ['not JSON', '{"seq":'],
  ['null', 'null'],
  ['one of another position', JSON.stringify(entry(0))],
  ['another one', JSON.stringify(entry(3, 'other'))],
])('reading fails if the last entry is %s with a correct sum', async (_, text) => {
  await using temp = tempStore();
  const store = temp.open();
  await store.append('a', entries(4));
  rewrite(text)(temp.raw(), 'a', 3);
  await expect(store.read('a')).rejects.toEqual(code('journal-damaged'));
  await expect(store.read('a')).rejects.toThrow('Entry 3 of run "a" ');
  await expect(store.read('a', 4)).rejects.toThrow('Entry 3 of run "a" ');
});

test('reading fails at the next entry if an entry is another one with a correct sum', async () => {
  await using temp = tempStore();
  const store = temp.open();
  await store.append('a', entries(4));
  rewrite(JSON.stringify(entry(1, 'other')))(temp.raw(), 'a', 1);
  await expect(store.read('a')).rejects.toThrow('Entry 2 of run "a" is damaged');
});

test('appending fails if the row of the run has a lower count than there are entries', async () => {
  await using temp = tempStore();
  const store = temp.open();
  await store.append('a', entries(3));
  temp.raw().exec('UPDATE runs SET entries = 2');
  await expect(store.append('a', [entry(2)])).rejects.toEqual(code('journal-damaged'));
});

test('an intact last entry cannot be replaced', async () => {
  await using temp = tempStore();
  const store = temp.open();
  await store.append('a', entries(3));
  await expect(store.append('a', [entry(2, 'other')])).rejects.toEqual(code('run-exists'));
  expect(await store.read('a')).toEqual(entries(3));
});

test.each([
  ['covers an entry that is damaged', 'UPDATE entries SET chain = chain + 1 WHERE seq = 1'],
  ['has another position', 'UPDATE snapshots SET seq = 3 WHERE seq = 2'],
  [
    'belongs to another run',
    'UPDATE snapshots SET run = 9 - run WHERE run = 1; UPDATE snapshots SET run = 1 WHERE run = 2',
  ],
])('a snapshot that %s is ignored', async (_, damage) => {
  await using temp = tempStore();
  const store = temp.open();
  await store.append('a', entries(4));
  await store.append('b', [entry(0, 'other'), entry(1, 'other')]);
  await store.writeSnapshot('a', { seq: 2, state: { of: 'a' } });
  await store.writeSnapshot('b', { seq: 2, state: { of: 'b' } });
  expect(await store.readSnapshot('a')).toEqual({ seq: 2, state: { of: 'a' } });
  temp.raw().exec(damage);
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
  temp.damageText('damage me ');
  const damaged = temp.open();
  await expect(damaged.read('a')).rejects.toThrow('Entry 1 of run "a" is damaged');
  expect(await damaged.read('b')).toEqual(entries(3));
  await damaged.append('b', [entry(3)]);
});
