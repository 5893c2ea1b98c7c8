import { expect, test } from 'vitest';
import { fileBlock, imageBlock } from './media.ts';

const image = (image_url: string): unknown => imageBlock({ type: 'input_image', image_url, detail: 'auto' });
const inline = (type: string, mediaType: string, data: string): unknown => ({
  type,
  mediaType,
  source: { type: 'data', data },
});

test('images', () => {
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

test('files', () => {
  const pdf = Buffer.from('%PDF-1.7').toString('base64');
  const file = (fields: object): unknown => fileBlock({ type: 'input_file', ...fields });
  expect(file({ file_data: `data:application/pdf;base64,${pdf}` })).toEqual(inline('file', 'application/pdf', pdf));
  expect(file({ file_data: pdf })).toEqual(inline('file', 'application/pdf', pdf));
  expect(file({ file_data: 'AAAA' })).toEqual(inline('file', 'application/octet-stream', 'AAAA'));
  expect(file({ file_data: 'AAAA', filename: 'notes.md' })).toEqual({
    type: 'file',
    mediaType: 'text/markdown',
    name: 'notes.md',
    source: { type: 'data', data: 'AAAA' },
  });
  const url = 'https://a.example/a.pdf?x=1';
  expect(file({ file_url: url })).toEqual({ type: 'file', mediaType: 'application/pdf', source: { type: 'url', url } });
});
