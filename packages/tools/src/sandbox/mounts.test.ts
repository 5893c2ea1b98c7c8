import { expect, test } from 'vitest';
import { mountsIn, wrongFinder, type Expected } from './mounts.ts';

const line = (device: string, root: string, at: string, options = 'rw'): string =>
  `10 1 ${device} ${root} ${at} ${options},relatime - ext4 /dev/x rw`;

/** The disk, another one inside the working folder, and temporary files. */
const HOST = mountsIn([line('8:1', '/', '/'), line('8:2', '/data', '/w/disk'), line('0:9', '/', '/tmp')].join('\n'));

const EXPECTED: Expected = new Map([
  ['/w', { from: '/w', isWritable: true }],
  ['/w/sub', { from: '/w/sub', isWritable: true }],
  ['/w/.env', { from: '/tmp/box/file', isWritable: false }],
  ['/w/a b', { from: '/w/a b', isWritable: false }],
  ['/usr', { from: '/usr', isWritable: false }],
  ['/home/me', { from: '/tmp/box/home', isWritable: true }],
]);

function wrong(...lines: readonly string[]): string | undefined {
  return wrongFinder(HOST, EXPECTED, ['/w'])(mountsIn(lines.join('\n')));
}

test('what should be mounted is right: also file systems of its own, and those inside of what is shown', () => {
  const lines = [
    line('0:77', '/newroot', '/', 'ro'),
    line('8:1', '/usr', '/usr', 'ro'),
    line('0:9', '/box/home', '/home/me'),
    line('8:1', '/w', '/w'),
    line('8:1', '/w/sub', '/w/sub'),
    line('8:1', String.raw`/w/a\040b`, String.raw`/w/a\040b`, 'ro'),
    line('0:9', '/box/file', '/w/.env', 'ro'),
    line('8:2', '/data', '/w/disk'),
  ];
  expect(wrong(...lines)).toBeUndefined();
});

test.each([
  ['another folder at the place of one', line('8:1', '/home/me', '/w/sub')],
  ['a folder of the host at its own place', line('8:1', '/home/me', '/home/me')],
  ['what is shown, and can be written', line('8:1', '/usr', '/usr')],
  ['a folder of another disk', line('8:2', '/w/sub', '/w/sub')],
  ['more than the folder that should be shown', line('8:2', '/', '/w/disk')],
  ['a folder that was moved', line('8:1', '/w/other', '/w/sub')],
  ['something at a place where nothing should be', line('8:1', '/etc', '/etc', 'ro')],
])('%s is wrong', (_, mount) => {
  expect(wrong(line('8:1', '/w', '/w'), mount)).toBe(mountsIn(mount)[0]!.at);
});
