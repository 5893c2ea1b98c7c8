import { expect, test } from 'vitest';
import { fileBlock, imageBlock, type FileSource } from './media.ts';

const image = (url: string): unknown => imageBlock(url);
const inline = (type: string, mediaType: string, data: string): unknown => ({
  type,
  mediaType,
  source: { type: 'data', data },
});

test('converts images, and guesses their type from the URL', () => {
  expect(image('data:image/png;base64,AAAA')).toEqual(inline('image', 'image/png', 'AAAA'));
  expect(image('DATA:IMAGE/PNG;charset=x;BASE64,AA\nAA')).toEqual(inline('image', 'image/png', 'AAAA'));
  expect(image('data:image/png;base64,AAA')).toEqual(inline('image', 'image/png', 'AAA='));
  expect(image('data:image/svg+xml,%3Csvg/%3E')).toEqual(
    inline('image', 'image/svg+xml', Buffer.from('<svg/>').toString('base64')),
  );
  const at = (url: string, mediaType: string): void =>
    expect(image(url)).toEqual({ type: 'image', mediaType, source: { type: 'url', url } });
  at('https://a.example/cat.JPG?size=2', 'image/jpeg');
  at('https://a.example/cat.png', 'image/png');
  at('https://a.example/cat', 'image/*');
  at('https://a.example/cat.constructor', 'image/*');
});

test('converts files, and guesses their type from the name or the content', () => {
  const pdf = Buffer.from('%PDF-1.7').toString('base64');
  const file = (source: FileSource): unknown => fileBlock(source);
  expect(file({ data: `data:application/pdf;base64,${pdf}` })).toEqual(inline('file', 'application/pdf', pdf));
  expect(file({ data: pdf })).toEqual(inline('file', 'application/pdf', pdf));
  expect(file({ data: 'AAAA' })).toEqual(inline('file', 'application/octet-stream', 'AAAA'));
  expect(file({ data: 'AAAA', name: 'notes.md' })).toEqual({
    type: 'file',
    mediaType: 'text/markdown',
    name: 'notes.md',
    source: { type: 'data', data: 'AAAA' },
  });
  const url = 'https://a.example/a.pdf?x=1';
  expect(file({ url })).toEqual({ type: 'file', mediaType: 'application/pdf', source: { type: 'url', url } });
});
