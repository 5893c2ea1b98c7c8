import { expect, test } from 'vitest';
import { pixelsIn } from './image-size.ts';

const bytes = (base64: string): ArrayBuffer => Uint8Array.from(Buffer.from(base64, 'base64')).buffer;

// Images of 3 by 2 pixels, some only the beginning.
const IMAGES = {
  PNG: 'iVBORw0KGgoAAAANSUhEUgAAAAMAAAACCAYAAACddGYaAAAAGElEQVR4AWJiYGD4D8RgBOIwglkMDAwAAAAA//9rwbXWAAAABklEQVQDABZbAQXKiGeyAAAAAElFTkSuQmCC',
  GIF: 'R0lGODlhAwACAIAAAA==',
  JPEG: '/9j/4AAQSkZJRgABAQAAAQABAAD//9sAQwBQNzxGPDJQRkFGWlVQX3jIgnhubnj1r7mRyP///////////////////////////////////////////////////9sAQwFVWlp4aXjrgoLr/////////////////////////////////////////////////////////////////////////8AAEQgAAgADAwEiAAIRAQMRAQ==',
  'lossy WebP': 'UklGRiQAAABXRUJQVlA4IBgAAAAwAQCdASoDAAIAB0CWJaQAA3AA/u+5AAA=',
  'lossless WebP': 'UklGRhwAAABXRUJQVlA4TBAAAAAvAkAAEA8QEfMfYgIi+h8B',
  'extended WebP': 'UklGRhYCAABXRUJQVlA4WAoAAAAwAAAAAgAAAQAA',
};

test.each(Object.entries(IMAGES))('the pixels of a %s are in its header', (_, image) => {
  expect(pixelsIn(bytes(image))).toBe(6);
});

test('what is not an image, or ends early, has no pixels', () => {
  expect(pixelsIn(new ArrayBuffer(0))).toBeUndefined();
  expect(pixelsIn(bytes(btoa('<html><script>alert(1)</script>')))).toBeUndefined();
  for (const image of Object.values(IMAGES)) {
    const whole = bytes(image);
    for (let end = 0; end < 20; end++) expect(() => pixelsIn(whole.slice(0, end))).not.toThrow();
  }
});
