import { expect, it } from 'vitest';
import { bubblewrap } from './bubblewrap.ts';
import type { Box } from './engine.ts';

const engine = bubblewrap({
  program: '/usr/bin/bwrap',
  version: 'any',
  disablesNamespaces: true,
  nsenter: '/usr/bin/nsenter',
});

function boxWith(box: Partial<Box>): Box {
  return {
    folder: '/tmp',
    workdir: '/tmp',
    home: '/home/me',
    readable: ['/usr', '/etc'],
    writable: [],
    pinned: [],
    protected: [],
    masked: [],
    files: [],
    room: { tmp: '/tmp', home: '/tmp', scratch: '/tmp' },
    blank: { file: '/tmp/file', folder: '/tmp/folder' },
    limits: {
      cpuSeconds: 1,
      memoryBytes: 1,
      fileBytes: 1,
      processes: 1,
      reserveBytes: 1,
      reserveFiles: 1,
      reserveMemoryBytes: 1,
    },
    ...box,
  };
}

it.runIf(process.platform === 'linux')('uses the mounts of the keeper only if they contain all that is shown', () => {
  const first = boxWith({});
  // This process, which has the mounts of the host.
  const { pid } = process;
  const joins = { pid, box: first };
  const join = (box: Partial<Box>): readonly string[] => engine.wrap({ argv: ['true'] }, boxWith(box)).argv;
  const begin = ['/usr/bin/nsenter', '--target', String(pid), '--user', '--net'];
  const joined = (box: Partial<Box>): readonly string[] => {
    const argv = join(box);
    return argv.slice(argv.indexOf(begin[0]!)).slice(0, 6);
  };
  expect(joined({ joins })).toEqual([...begin, '--mount']);
  expect(joined({ joins, writable: ['/var/tmp'] })).toEqual([...begin, '--preserve-credentials']);
  expect(join({ joins: { pid, box: boxWith({ writable: ['/var/tmp'] }) }, writable: ['/var/tmp'] })).toContain(
    '--mount',
  );
  // A process that has ended has nothing.
  expect(join({ joins: { pid: 4_194_305, box: first } })).not.toContain('--mount');
  const kept = engine.keeper!(first).argv;
  for (const path of ['/usr', '/etc', '/tmp']) expect(kept).toContain(path);
  expect(kept).not.toContain('/var');
  expect(kept).not.toContain('/sys');
});

it.runIf(process.platform === 'linux')('lets the keeper change nothing but what programs may change', () => {
  const { argv } = engine.keeper!(boxWith({ folder: '/var/tmp' }));
  const text = argv.join(' ');
  for (const option of ['--ro-bind /var /var', '--ro-bind /tmp /tmp', '--bind /var/tmp /var/tmp', '--bind /tmp /tmp'])
    expect(text).toContain(option);
  expect(text.indexOf('--ro-bind /var /var')).toBeLessThan(text.indexOf('--bind /var/tmp /var/tmp'));
});

it.runIf(process.platform === 'linux')('gives the keeper /tmp also if temporary files are elsewhere', () => {
  const box = boxWith({ folder: '/dev/shm', room: { tmp: '/dev/shm', home: '/dev/shm', scratch: '/dev/shm' } });
  const { argv } = engine.keeper!(box);
  expect(argv.join(' ')).toContain('--ro-bind /tmp /tmp');
});

it.runIf(process.platform === 'linux')('masks in the keeper what no program can replace', () => {
  const masked = [
    { path: '/etc/shadow', type: 'file' },
    { path: '/tmp/.env', type: 'file' },
    { path: '/var/tmp/.env', type: 'file' },
  ] as const;
  const { argv } = engine.keeper!(boxWith({ masked, writable: ['/var/tmp'] }));
  expect(argv.join(' ')).toContain('--ro-bind /tmp/file /etc/shadow --');
  expect(argv.filter((text) => text.endsWith('.env'))).toEqual([]);
});
