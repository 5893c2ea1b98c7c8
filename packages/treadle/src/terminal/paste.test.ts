import { once } from 'node:events';
import { expect, test } from 'vitest';
import { pasteFilter } from './paste.ts';

const START = '\u001b[200~';
const END = '\u001b[201~';

/** The keys after a filter that replaces each paste by `<text>`. */
async function filtered(...chunks: readonly (string | Buffer)[]): Promise<string> {
  const filter = pasteFilter((text) => `<${text}>`);
  for (const chunk of chunks) filter.write(chunk);
  filter.end();
  return Buffer.concat(await filter.toArray()).toString('utf8');
}

test('passes keys on, and replaces each pasted text', async () => {
  expect(await filtered(`a\r${START}one\r\ntwo\rthree\n${END}b${START}${END}\u001b[A`)).toBe(
    'a\r<one\ntwo\nthree\n>b<>\u001b[A',
  );
});

test('gives the same however the bytes are cut', async () => {
  const bytes = Buffer.from(`x${START}ä\n€\u001b[20${END}y\u001b[2~`);
  for (let at = 1; at < bytes.length; at++) {
    expect(await filtered(bytes.subarray(0, at), bytes.subarray(at))).toBe('x<ä\n€\u001b[20>y\u001b[2~');
  }
  expect(await filtered(...[...bytes].map((byte) => Buffer.of(byte)))).toBe('x<ä\n€\u001b[20>y\u001b[2~');
});

test('passes an escape on that is a key', async () => {
  const filter = pasteFilter(() => '').setEncoding('utf8');
  filter.write('\u001b');
  expect(await once(filter, 'data')).toEqual(['\u001b']);
});
