import { expect, test } from 'vitest';
import { touchFrom } from './touches.ts';

const PI = { type: 'device', name: 'pi' } as const;

test('touchFrom copies a touch with its place and amounts', () => {
  for (const touch of [
    { type: 'read', path: 'a' },
    { type: 'write', path: 'a', lines: 0, on: PI },
    { type: 'command', command: 'ls', on: { type: 'ssh', name: 'build' } },
    { type: 'url', url: 'https://a.example', bytes: 12, on: { type: 'container', name: 'ci' } },
    { type: 'session', session: 's', on: { type: 'sandbox', name: 'x' } },
    { type: 'device', device: 'pi' },
    { type: 'unknown' },
  ]) {
    const copy = touchFrom(touch);
    expect(copy).toEqual(touch);
    expect(copy).not.toBe(touch);
    if (copy && 'on' in copy) expect(copy.on).not.toBe((touch as { on?: unknown }).on);
  }
  expect(touchFrom({ type: 'read', path: 'a', on: undefined })).toEqual({ type: 'read', path: 'a' });
});

test.each([
  [undefined],
  [null],
  [7],
  ['write'],
  [{}],
  [{ type: 'write' }],
  [{ type: 'toString' }],
  [{ type: 'url', url: 7 }],
  [{ type: 'write', path: 'a', since: 1 }],
  [{ type: 'unknown', path: 'a' }],
  [{ type: 'read', path: 'a', lines: 1 }],
  [{ type: 'write', path: 'a', lines: -1 }],
  [{ type: 'write', path: 'a', lines: 1.5 }],
  [{ type: 'write', path: 'a', lines: '1' }],
  [{ type: 'write', path: 'a', bytes: 1 }],
  [{ type: 'url', url: 'https://a.example', bytes: Infinity }],
  [{ type: 'read', path: 'a', on: 'pi' }],
  [{ type: 'read', path: 'a', on: null }],
  [{ type: 'read', path: 'a', on: { type: 'device' } }],
  [{ type: 'read', path: 'a', on: { type: 'device', name: '' } }],
  [{ type: 'read', path: 'a', on: { type: 'moon', name: 'x' } }],
  [{ type: 'read', path: 'a', on: { ...PI, port: 22 } }],
  [{ type: 'device', device: 'pi', on: PI }],
])('touchFrom refuses %j', (value) => {
  expect(touchFrom(value)).toBeUndefined();
});
