import { describe, expect, test } from 'vitest';
import { said, started } from '../entries.ts';
import { code, type Subject } from './subject.ts';

/** Adding to runs, and reading them. */
export function entriesContract(subject: Subject): void {
  describe('entries', () => {
    test('come back as they were, in order, and from a position on', async () => {
      const entries = [
        started('a'),
        said(1),
        said(2, { text: 'é 💡 \0 \ud800 "\\ \u2028' }),
        said(3, { status: 'paused' }),
      ];
      await subject.append('a', entries.slice(0, 1));
      await subject.append('a', entries.slice(1, 3));
      await subject.append('a', entries.slice(3));
      expect(await subject.store.read('a')).toEqual(entries);
      expect(await subject.store.read('a', 2)).toEqual(entries.slice(2));
      expect(await subject.store.read('a', 4)).toEqual([]);
      expect(await subject.store.read('a', 9)).toEqual([]);
    });

    test('of one run are not those of another', async () => {
      await Promise.all(
        ['a', 'b', 'A', 'a '].map((runId) => subject.append(runId, [started(runId), said(1, { text: runId })])),
      );
      for (const runId of ['a', 'b', 'A', 'a ']) {
        expect(await subject.store.read(runId)).toEqual([started(runId), said(1, { text: runId })]);
      }
    });

    test('of a run that is not there are none', async () => {
      expect(await subject.store.read('nobody')).toEqual([]);
    });

    test('are added in the order of the calls, without waiting', async () => {
      const all = [started('a'), ...Array.from({ length: 50 }, (_, i) => said(i + 1))];
      await Promise.all(all.map((entry) => subject.append('a', [entry])));
      expect(await subject.store.read('a')).toEqual(all);
    });

    test('are what they were when they were added', async () => {
      const entries = [started('a')];
      const added = subject.append('a', entries);
      entries.push(said(1));
      await added;
      expect(await subject.store.read('a')).toEqual([started('a')]);
    });

    test('none at all make no run', async () => {
      await subject.append('a', []);
      expect(await subject.store.list()).toEqual([]);
      expect(await subject.store.delete('a')).toBe(false);
    });

    test.each([
      ['that are there already', [said(1)]],
      ['after a gap', [said(3)]],
      ['with a gap between them', [said(2), said(4)]],
      ['twice', [said(2), said(2)]],
      ['of which only the first is next', [said(2), said(0)]],
    ])('%s are refused, all of them', async (_, entries) => {
      await subject.append('a', [started('a'), said(1)]);
      await expect(subject.append('a', entries)).rejects.toEqual(code('run-exists'));
      expect(await subject.store.read('a')).toEqual([started('a'), said(1)]);
      await subject.append('a', [said(2)]);
      expect(await subject.store.read('a', 2)).toEqual([said(2)]);
    });

    test('of a new run begin at 0', async () => {
      await expect(subject.append('a', [said(1)])).rejects.toEqual(code('run-exists'));
      expect(await subject.store.list()).toEqual([]);
    });

    test('a refusal says what is there and what was wanted', async () => {
      await subject.append('a', [started('a'), said(1)]);
      await expect(subject.append('a', [said(7)])).rejects.toThrow(
        'Run "a" has 2 entries, so entry 7 cannot be added.',
      );
    });
  });
}
