import { createHash } from 'node:crypto';
import { beforeEach, describe, expect, test } from 'vitest';
import { messageEntry, startEntry } from '../entries.ts';
import { code, type Subject } from './subject.ts';

/** Data that is stored for a run besides its entries. */
export function snapshotsAndBlobsContract(subject: Subject): void {
  describe('snapshots', () => {
    beforeEach(() => subject.append('a', [startEntry('a'), messageEntry(1), messageEntry(2)]));

    test('are read unchanged, and a later one replaces an earlier one', async () => {
      expect(await subject.store.readSnapshot('a')).toBeUndefined();
      await subject.store.writeSnapshot('a', { seq: 1, state: { turn: 1, text: 'é💡\ud800' } });
      expect(await subject.store.readSnapshot('a')).toEqual({ seq: 1, state: { turn: 1, text: 'é💡\ud800' } });
      await subject.store.writeSnapshot('a', { seq: 3, state: { turn: 2 } });
      await subject.store.writeSnapshot('a', { seq: 2, state: { turn: 'late' } });
      expect(await subject.store.readSnapshot('a')).toEqual({ seq: 3, state: { turn: 2 } });
      await subject.store.writeSnapshot('a', { seq: 3, state: null });
      expect(await subject.store.readSnapshot('a')).toEqual({ seq: 3, state: null });
    });

    test('need an existing run', async () => {
      await expect(subject.store.writeSnapshot('b', { seq: 1, state: {} })).rejects.toEqual(code('unknown-run'));
      expect(await subject.store.readSnapshot('b')).toBeUndefined();
    });
  });

  describe('blobs', () => {
    beforeEach(async () => {
      await subject.append('a', [startEntry('a')]);
      await subject.append('b', [startEntry('b')]);
    });

    const read = async (id: string, from: number, to: number): Promise<string | undefined> =>
      (await subject.store.blobs.read('a', id, from, to))?.text;

    test('have an id derived from their content', async () => {
      const text = 'Grüße, 💡!';
      const id = await subject.store.blobs.put('a', text);
      expect(id).toBe(createHash('sha256').update(Buffer.from(text, 'utf16le')).digest('hex'));
      expect(await subject.store.blobs.put('b', text)).toBe(id);
      expect(await subject.store.blobs.put('a', text)).toBe(id);
      expect(await subject.store.blobs.put('a', `${text} `)).not.toBe(id);
    });

    test('are listed for the run that they were stored for', async () => {
      expect(await subject.store.blobs.list('a')).toEqual([]);
      const ids = [await subject.store.blobs.put('a', 'one'), await subject.store.blobs.put('a', 'two')];
      await subject.store.blobs.put('a', 'one');
      await subject.store.blobs.put('b', 'three');
      expect(await subject.store.blobs.list('a')).toEqual(ids.toSorted());
      expect(await subject.store.blobs.list('nobody')).toEqual([]);
    });

    test('are read in pages', async () => {
      const id = await subject.store.blobs.put('a', '0123456789');
      expect(await subject.store.blobs.read('a', id, 2, 5)).toEqual({ text: '234', length: 10 });
      expect(await read(id, 0, 10)).toBe('0123456789');
      expect(await read(id, 8, 99)).toBe('89');
      expect(await read(id, 10, 20)).toBe('');
      expect(await read(id, 50, 60)).toBe('');
      expect(await read(id, 5, 2)).toBe('');
      expect(await read(id, -5, 2)).toBe('01');
      expect(await read(id, 4, Infinity)).toBe('456789');
    });

    test('store any string unchanged', async () => {
      for (const text of ['', '\0', 'a\0b', '\ud83d', '\udca1\ud83d', '\ufffd', '\ufeffx', '💡'.repeat(3)]) {
        const id = await subject.store.blobs.put('a', text);
        expect(await subject.store.blobs.read('a', id, 0, text.length)).toEqual({ text, length: text.length });
      }
      expect(await subject.store.blobs.put('a', '\ud83d')).not.toBe(await subject.store.blobs.put('a', '\ufffd'));
    });

    test('hold bytes with a media type, and are read in pages', async () => {
      const bytes = Uint8Array.from({ length: 70_001 }, (_, index) => index % 251);
      const content = { bytes: bytes.slice(), mediaType: 'image/png' };
      const putting = subject.store.blobs.put('a', content);
      content.bytes.fill(0);
      const id = await putting;
      const [mediaType, length] = ['image/png', 70_001];
      for (const [from, to] of [
        [0, 3],
        [32_766, 32_770],
        [65_535, 99_999],
        [5, 2],
        [80_000, 90_000],
        [0, Infinity],
      ] as const) {
        const part = { bytes: bytes.slice(from, Math.max(from, to)), mediaType, length };
        expect(await subject.store.blobs.read('a', id, from, to)).toEqual(part);
      }
      expect(await subject.store.blobs.put('b', { bytes, mediaType })).toBe(id);
      expect(await subject.store.blobs.list('b')).toEqual([id]);
    });

    test('bytes differ from a text and from bytes of another type', async () => {
      const { blobs } = subject.store;
      const bytes = new TextEncoder().encode('text/plain');
      const contents = [
        'text/plain',
        { bytes, mediaType: 'text/plain' },
        { bytes, mediaType: 'application/json' },
        { bytes: new Uint8Array(), mediaType: 'text/plain' },
        '',
      ];
      const ids = await Promise.all(contents.map((content) => blobs.put('a', content)));
      expect(new Set(ids).size).toBe(contents.length);
      expect(await blobs.read('a', ids[3]!, 0, 9)).toEqual({
        bytes: new Uint8Array(),
        mediaType: 'text/plain',
        length: 0,
      });
      expect(await blobs.read('a', ids[4]!, 0, 9)).toEqual({ text: '', length: 0 });
    });

    test.each([
      { bytes: new Uint8Array(1), mediaType: '' },
      { bytes: new Uint8Array(1), mediaType: 'image/png\nx' },
      { bytes: new Uint8Array(1) },
      { bytes: [1], mediaType: 'image/png' },
      undefined,
    ])('reject %j', async (content) => {
      await expect(subject.store.blobs.put('a', content as never)).rejects.toEqual(code('invalid-input'));
    });

    test('can be long', async () => {
      // The odd length places characters across every part boundary.
      const text = `${'x💡é'.repeat(60_000)}!`;
      const id = await subject.store.blobs.put('a', text);
      for (const [from, to] of [
        [0, 1],
        [32_766, 32_770],
        [65_535, 65_537],
        [100_000, 200_000],
        [239_999, 240_001],
        [0, text.length],
      ] as const) {
        expect(await subject.store.blobs.read('a', id, from, to)).toEqual({
          text: text.slice(from, to),
          length: text.length,
        });
      }
    });

    test('belong to the runs that they were stored for, and are deleted with the last of them', async () => {
      const id = await subject.store.blobs.put('a', 'shared');
      expect(await subject.store.blobs.read('b', id, 0, 9)).toBeUndefined();
      await subject.store.blobs.put('b', 'shared');
      await subject.store.delete('b');
      expect(await subject.store.blobs.read('b', id, 0, 9)).toBeUndefined();
      expect(await read(id, 0, 9)).toBe('shared');
      await subject.store.delete('a');
      await subject.append('a', [startEntry('a')]);
      expect(await read(id, 0, 9)).toBeUndefined();
    });

    test('need an existing run', async () => {
      await expect(subject.store.blobs.put('c', 'text')).rejects.toEqual(code('unknown-run'));
      const lease = await subject.store.acquire('c');
      await expect(subject.store.blobs.put('c', 'text')).rejects.toEqual(code('unknown-run'));
      await lease.release();
    });

    test('that do not exist are read as undefined', async () => {
      expect(await subject.store.blobs.read('a', 'unknown', 0, 1)).toBeUndefined();
      expect(await subject.store.blobs.read('nobody', await subject.store.blobs.put('a', 'x'), 0, 1)).toBeUndefined();
    });
  });
}
