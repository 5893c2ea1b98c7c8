import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, open, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { ToolContext } from '@treadle/core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { local } from '../local/local.ts';
import type { FileOps } from '../ops.ts';
import { readTool } from './read.ts';

let base: string;
let folder: string;

async function put(path: string, content: string | Uint8Array): Promise<void> {
  await mkdir(dirname(join(folder, path)), { recursive: true });
  await writeFile(join(folder, path), content);
}

beforeAll(async () => {
  base = await mkdtemp(join(tmpdir(), 'treadle-read-'));
  folder = join(base, 'work');
  await put('notes.txt', 'first\nsecond\r\nthird');
  await put('src/main.ts', 'const a = 1;\n');
  await writeFile(join(base, 'secret.txt'), 'secret');
});

afterAll(() => rm(base, { recursive: true }));

async function read(
  path: string,
  options: { offset?: number; limit?: number } = {},
  signal: AbortSignal = new AbortController().signal,
  report: (progress: unknown) => void = () => {},
): Promise<string> {
  const context = { signal, memory: {}, report } as unknown as ToolContext;
  return (await readTool(local(folder)).execute!({ path, ...options }, context)) as string;
}

describe('texts', () => {
  test('returns numbered lines', async () => {
    expect(await read('notes.txt')).toBe('1\tfirst\n2\tsecond\n3\tthird');
    await put('empty.txt', '');
    expect(await read('empty.txt')).toBe('[the file is empty]');
    await put('newlines.txt', '\n\n');
    expect(await read('newlines.txt')).toBe('1\t\n2\t');
  });

  test('returns a part, and says how to get the next one', async () => {
    expect(await read('notes.txt', { offset: 2, limit: 1 })).toBe(
      '2\tsecond\n[the file continues: read again with offset 3]',
    );
    expect(await read('notes.txt', { offset: 3 })).toBe('3\tthird');
    await expect(read('notes.txt', { offset: 4 })).rejects.toMatchObject({
      message: '"notes.txt" has only 3 lines: give an offset up to that.',
      errorType: 'invalid_params',
    });
  });

  test('returns a long file in parts without gaps', async () => {
    const lines = Array.from({ length: 5000 }, (_, i) => `${i + 1}\tline ${'ü'.repeat(i % 7)}`);
    await put('long.txt', lines.map((line) => line.slice(line.indexOf('\t') + 1)).join('\n'));
    const got: string[] = [];
    for (let offset: number | undefined = 1; offset;) {
      const part: string = await read('long.txt', { offset });
      expect(part.length).toBeLessThan(13_000);
      const more = /\n\[the file continues: read again with offset (\d+)\]$/.exec(part);
      got.push(...(more ? part.slice(0, more.index) : part).split('\n'));
      offset = more ? Number(more[1]) : undefined;
    }
    expect(got).toEqual(lines);
  });

  test('cuts a line of 1 MB', async () => {
    await put('minified.js', `${'a'.repeat(1_000_000)}\nend\n`);
    expect(await read('minified.js')).toBe(`1\t${'a'.repeat(2000)} [cut: the line has 1000000 characters]\n2\tend`);
  });

  test('reads only the beginning of a large file, finds lines far inside, and reports progress', async () => {
    const large = await open(join(folder, 'large.log'), 'w');
    // Characters of several bytes, so that some are split between chunks.
    await large.write('ä🙂\n'.repeat(800_000));
    await large.truncate(1024 ** 3);
    await large.close();
    expect(await read('large.log', { limit: 1 })).toBe('1\tä🙂\n[the file continues: read again with offset 2]');
    const progress: unknown[] = [];
    const far = await read('large.log', { offset: 700_000, limit: 3 }, undefined, (one) => progress.push(one));
    expect(progress).toEqual([expect.stringMatching(/^passed 20\d{5} characters of a file of 1073741824 bytes$/)]);
    expect(far.split('\n').slice(0, 3)).toEqual(['700000\tä🙂', '700001\tä🙂', '700002\tä🙂']);
    await rm(join(folder, 'large.log'));
  });

  test.each([
    ['UTF-8 with a byte order mark', Buffer.from('\uFEFFü\n'), '1\tü'],
    ['UTF-16 LE', Buffer.from('\uFEFFü\nb', 'utf16le'), '1\tü\n2\tb\n[the file is encoded as UTF-16LE]'],
    ['UTF-16 BE', Buffer.from('\uFEFFü', 'utf16le').swap16(), '1\tü\n[the file is encoded as UTF-16BE]'],
    [
      'invalid UTF-8',
      Buffer.from([0x61, 0xff, 0x62]),
      '1\ta\uFFFDb\n[the file is not valid UTF-8: bytes that cannot be decoded are shown as \uFFFD]',
    ],
    ['U+FFFD itself', Buffer.from('\uFFFD'), '1\t\uFFFD'],
  ])('decodes %s', async (_, bytes, text) => {
    await put('encoded.txt', bytes);
    expect(await read('encoded.txt')).toBe(text);
  });
});

test.each([
  ['image/png', '\x89PNG\r\n\x1a\n\0\0'],
  ['image/jpeg', '\xff\xd8\xff\xe0\0'],
  ['image/gif', 'GIF89a\0'],
  ['image/webp', 'RIFF\0\0\0\0WEBPVP8 '],
])('returns an image block for %s', async (mediaType, head) => {
  const bytes = Buffer.from(head, 'latin1');
  await put('picture', bytes);
  expect(await read('picture')).toEqual({
    content: [
      { type: 'text', text: `picture: ${mediaType}, ${bytes.length} bytes` },
      { type: 'image', mediaType, source: { type: 'data', data: bytes.toString('base64') } },
    ],
  });
});

test('rejects an image that providers do not take', async () => {
  const file = await open(join(folder, 'huge.png'), 'w');
  await file.write(Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'));
  await file.truncate(10_000_000);
  await file.close();
  await expect(read('huge.png')).rejects.toThrow(/an image of 10000000 bytes.*make it smaller/);
});

describe('PDF', () => {
  test('returns the text by pages', async () => {
    const long = Array.from({ length: 100 }, (_, i) => `${i} ${'x'.repeat(90)}`).join('\n');
    await put('doc.pdf', pdf(['Hello (you)', long, '', long]));
    expect(await read('doc.pdf', { limit: 1 })).toBe(
      '[page 1 of 4]\nHello (you)\n[the file continues: read again with offset 2, which counts pages]',
    );
    const second = await read('doc.pdf', { offset: 2 });
    expect(second).toContain('[page 3 of 4]\n[no text: the page may be an image]');
    expect(second).toMatch(/read again with offset 4, which counts pages\]$/);
    expect(await read('doc.pdf', { offset: 4 })).toBe(`[page 4 of 4]\n${long}`);
    await expect(read('doc.pdf', { offset: 5 })).rejects.toThrow(/has only 4 pages/);
  });

  test('rejects a broken one', async () => {
    await put('broken.pdf', '%PDF-1.4\nnothing');
    await expect(read('broken.pdf')).rejects.toMatchObject({
      message: expect.stringMatching(/The text of "broken.pdf" cannot be read: /),
      errorType: 'execution_failed',
    });
  });
});

test('lists a folder', async () => {
  await put('listed/b.txt', '');
  await put('listed/-a "q"', '');
  await put('listed/line\nend', '');
  await put('listed/sub/x', '');
  await mkdir(join(folder, 'listed/empty'));
  await symlink('b.txt', join(folder, 'listed/link'));
  expect(await read('listed')).toBe(
    ['[folder listed]', '"line\\nend"', '-a "q"', 'b.txt', 'empty/', 'link (link)', 'sub/'].join('\n'),
  );
  expect(await read('listed', { offset: 3, limit: 2 })).toBe(
    '[folder listed]\nb.txt\nempty/\n[2 more entries: read again with offset 5]',
  );
  expect(await read('listed/empty')).toBe('[the folder listed/empty is empty]');
  await expect(read('listed', { offset: 9 })).rejects.toThrow(/only 6 entries/);
});

test.each([
  ['note.txt', 'notes.txt'],
  ['SRC/main.ts', 'src'],
  ['src/mian.ts', 'src/main.ts'],
  ['scr/main.ts', 'src'],
])('suggests what is similar to %s', async (path, meant) => {
  await expect(read(path)).rejects.toMatchObject({
    message: `There is no ${JSON.stringify(path)}. Did you mean "${meant}"?`,
    errorType: 'not_found',
  });
});

test('suggests nothing that is outside or not similar', async () => {
  await expect(read('quite-different')).rejects.toThrow(/Use glob to see what is there/);
  await expect(read('../secret.tx')).rejects.toThrow(/is outside/);
});

test.each([
  ['zeros', Buffer.alloc(100), /is a binary file of 100 bytes\. Only text/],
  ['program', Buffer.from('\x7fELF\0\0', 'latin1'), /of 6 bytes: a Linux program or library\./],
  ['archive.tar', Buffer.from(`${'\0'.repeat(257)}ustar`), /a tar archive/],
])('rejects binary files: %s', async (name, bytes, message) => {
  await put(name, bytes);
  await expect(read(name)).rejects.toMatchObject({
    message: expect.stringMatching(message),
    errorType: 'execution_failed',
  });
});

test('rejects a sparse file of 1 GB without reading it', async () => {
  const file = await open(join(folder, 'sparse'), 'w');
  await file.truncate(1024 ** 3);
  await file.close();
  await expect(read('sparse')).rejects.toThrow(/binary file of 1073741824 bytes/);
});

test.skipIf(process.platform === 'win32')('does not block on a pipe', async () => {
  execFileSync('/usr/bin/env', ['mkfifo', join(folder, 'pipe')]);
  await expect(read('pipe')).rejects.toThrow(/is a pipe, a socket or a device/);
  await rm(join(folder, 'pipe'));
});

test('reports files that are unreadable or vanish before they are opened, and reads one that shrinks', async () => {
  const { files, exec } = local(folder);
  const use = (changed: Partial<FileOps>): Promise<unknown> =>
    Promise.resolve(
      readTool({ files: { ...files, ...changed }, exec } as never).execute!({ path: 'gone.txt' }, {
        signal: new AbortController().signal,
      } as ToolContext),
    );
  await put('gone.txt', 'here');
  const vanishing = (path: string) => rm(join(folder, 'gone.txt'), { force: true }).then(() => files.open(path));
  await expect(use({ open: vanishing })).rejects.toMatchObject({ errorType: 'not_found' });
  await put('gone.txt', 'here');
  const unreadable = (): Promise<never> => Promise.reject(Object.assign(new Error('EACCES'), { code: 'EACCES' }));
  await expect(use({ open: unreadable })).rejects.toMatchObject({ errorType: 'permission_denied' });
  const shrinking = async (path: string) => ({ ...(await files.open(path)), size: 1_000 });
  expect(await use({ open: shrinking })).toBe('1\there');
});

test.each(['../secret.txt', '/etc/passwd', '~/x', 'a\0b', ''])('does not leave the folder: %j', async (path) => {
  await expect(read(path)).rejects.toMatchObject({ errorType: 'permission_denied' });
});

test('stops when it is aborted', async () => {
  await expect(read('notes.txt', {}, AbortSignal.abort(new Error('enough')))).rejects.toThrow('enough');
});

/** A document with a text per page. */
function pdf(pages: readonly string[]): string {
  const escaped = (text: string): string => text.replaceAll(/[()\\]/g, '\\$&');
  const kids = pages.map((_, i) => `${2 * i + 5} 0 R`);
  const objects = [
    '<< /Type /Catalog /Pages 2 0 R >>',
    `<< /Type /Pages /Kids [${kids.join(' ')}] /Count ${pages.length} >>`,
    '<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>',
    ...pages.flatMap((text, i) => {
      // Small, because text beyond the edge of the page is left out.
      const shown = text.split('\n').map((line) => `(${escaped(line)}) Tj T*`);
      const stream = `BT /F1 4 Tf 5 TL 50 700 Td ${shown.join(' ')} ET`;
      return [
        `<< /Length ${stream.length} >>\nstream\n${stream}\nendstream`,
        `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents ${2 * i + 4} 0 R ` +
          `/Resources << /Font << /F1 3 0 R >> >> >>`,
      ];
    }),
  ];
  let text = '%PDF-1.4\n';
  const places = objects.map((object, i) => {
    const at = text.length;
    text += `${i + 1} 0 obj\n${object}\nendobj\n`;
    return `${String(at).padStart(10, '0')} 00000 n \n`;
  });
  const size = objects.length + 1;
  return (
    `${text}xref\n0 ${size}\n0000000000 65535 f \n${places.join('')}trailer << /Size ${size} /Root 1 0 R >>\n` +
    `startxref\n${text.length}\n%%EOF`
  );
}
