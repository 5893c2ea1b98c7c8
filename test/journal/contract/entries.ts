import { describe, expect, test } from 'vitest';
import { messageEntry, startEntry } from '../entries.ts';
import { code, type Subject } from './subject.ts';

/** Appending and reading entries. */
export function entriesContract(subject: Subject): void {
  describe('entries', () => {
    test('are read unchanged and in order, from any position', async () => {
      const entries = [
        startEntry('a'),
        messageEntry(1),
        messageEntry(2, { text: 'é 💡 \0 \ud800 "\\ \u2028' }),
        messageEntry(3, { status: 'paused' }),
      ];
      await subject.append('a', entries.slice(0, 1));
      await subject.append('a', entries.slice(1, 3));
      await subject.append('a', entries.slice(3));
      expect(await subject.store.read('a')).toEqual(entries);
      expect(await subject.store.read('a', 2)).toEqual(entries.slice(2));
      expect(await subject.store.read('a', 4)).toEqual([]);
      expect(await subject.store.read('a', 9)).toEqual([]);
    });

    test('of different runs do not mix', async () => {
      await Promise.all(
        ['a', 'b', 'A', 'a '].map((runId) =>
          subject.append(runId, [startEntry(runId), messageEntry(1, { text: runId })]),
        ),
      );
      for (const runId of ['a', 'b', 'A', 'a ']) {
        expect(await subject.store.read(runId)).toEqual([startEntry(runId), messageEntry(1, { text: runId })]);
      }
    });

    test('of an unknown run are an empty list', async () => {
      expect(await subject.store.read('nobody')).toEqual([]);
    });

    test('are appended in the order of the calls without awaiting them', async () => {
      const all = [startEntry('a'), ...Array.from({ length: 50 }, (_, i) => messageEntry(i + 1))];
      await Promise.all(all.map((entry) => subject.append('a', [entry])));
      expect(await subject.store.read('a')).toEqual(all);
    });

    test('do not change when the caller changes the array later', async () => {
      const entries = [startEntry('a')];
      const added = subject.append('a', entries);
      entries.push(messageEntry(1));
      await added;
      expect(await subject.store.read('a')).toEqual([startEntry('a')]);
    });

    test('are read as soon as they are written, in the order of the calls', async () => {
      await subject.store.append('a', [startEntry('a')], undefined, 'written');
      expect(await subject.store.read('a')).toEqual([startEntry('a')]);
      const all = Array.from({ length: 6 }, (_, i) => messageEntry(i + 1));
      await Promise.all(
        all.map((entry, i) => subject.store.append('a', [entry], undefined, i % 2 ? 'written' : 'durable')),
      );
      await subject.append('a', []);
      expect(await subject.store.read('a', 1)).toEqual(all);
    });

    test('an empty append does not create a run', async () => {
      await subject.append('a', []);
      expect(await subject.store.list()).toEqual([]);
      expect(await subject.store.delete('a')).toBe(false);
    });

    test.each([
      ['that already exist', [messageEntry(1)]],
      ['after a gap', [messageEntry(3)]],
      ['with a gap between them', [messageEntry(2), messageEntry(4)]],
      ['with a duplicate position', [messageEntry(2), messageEntry(2)]],
      ['of which only the first has the right position', [messageEntry(2), messageEntry(0)]],
    ])('entries %s are all rejected', async (_, entries) => {
      await subject.append('a', [startEntry('a'), messageEntry(1)]);
      await expect(subject.append('a', entries)).rejects.toEqual(code('run-exists'));
      expect(await subject.store.read('a')).toEqual([startEntry('a'), messageEntry(1)]);
      await subject.append('a', [messageEntry(2)]);
      expect(await subject.store.read('a', 2)).toEqual([messageEntry(2)]);
    });

    test('of a new run start at 0', async () => {
      await expect(subject.append('a', [messageEntry(1)])).rejects.toEqual(code('run-exists'));
      expect(await subject.store.list()).toEqual([]);
    });

    test('the error reports the number of entries and the rejected position', async () => {
      await subject.append('a', [startEntry('a'), messageEntry(1)]);
      await expect(subject.append('a', [messageEntry(7)])).rejects.toThrow(
        'Run "a" has 2 entries, so entry 7 cannot be appended.',
      );
      await expect(subject.append('a', [startEntry('a')])).rejects.toThrow(
        'Run "a" already exists. To resume it, pass its runId and journal without "input", or resume: "auto".',
      );
    });
  });
}
