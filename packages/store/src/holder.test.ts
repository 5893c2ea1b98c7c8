import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { hostname } from 'node:os';
import { describe, expect, test } from 'vitest';
import { holderState, parseWhere, processState, thisProcess, whereText, type Holder } from './holder.ts';

test('identifies this process as alive', () => {
  const self = thisProcess();
  expect(self).toMatchObject({
    host: expect.stringContaining(hostname()),
    pid: process.pid,
    startedAt: expect.any(String),
  });
  expect(thisProcess()).toBe(self);
  expect(processState(self)).toBe('alive');
  expect(holderState(self)).toBe('alive');
});

/** By the boot, and in a container by its namespaces. */
const HERE: Holder = { host: 'box', pid: 7, startedAt: 'boot-1 70', place: 'boot-1' };
const CONTAINER: Holder = { ...HERE, host: 'box pid:[12]', place: 'boot-1 pid:[12]' };

test.each<readonly [string, other: Holder, self: Holder, expected: 'seen' | 'dead' | 'elsewhere']>([
  ['of this place', { ...HERE, pid: 8 }, HERE, 'seen'],
  ['after the name of the host has changed', { ...HERE, pid: 8 }, { ...HERE, host: 'new-name' }, 'seen'],
  ['of a container that shares pids and has another host name', { ...HERE, host: '3f2a91' }, HERE, 'seen'],
  ['of the same container', { ...CONTAINER, pid: 8 }, CONTAINER, 'seen'],
  ['of another container with the same host name', { ...CONTAINER, place: 'boot-1 pid:[13]' }, CONTAINER, 'elsewhere'],
  ['of a container, seen from its machine', CONTAINER, HERE, 'elsewhere'],
  ['of the machine, seen from a container', HERE, CONTAINER, 'elsewhere'],
  ['with the same pids and another time', { ...HERE, place: 'boot-1 time:[5]' }, HERE, 'elsewhere'],
  ['of another machine', { ...HERE, host: 'other', place: 'boot-2' }, HERE, 'elsewhere'],
  ['of an earlier boot of this machine', { ...HERE, place: 'boot-0' }, HERE, 'dead'],
  ['of a container of another boot', { ...CONTAINER, place: 'boot-0 pid:[12]' }, CONTAINER, 'elsewhere'],
  ['of an earlier version, with this host name', { host: 'box', pid: 8 }, HERE, 'seen'],
  [
    'of an earlier version, with another host name',
    { host: 'old-name', pid: 8, startedAt: 'boot-1 80' },
    HERE,
    'elsewhere',
  ],
  ['where the system does not tell the boot', HERE, { host: 'box', pid: 9 }, 'seen'],
])('a holder %s is compared, or is not', (_, other, self, expected) => {
  for (const state of ['alive', 'dead', 'unknown'] as const) {
    expect(holderState(other, self, () => state)).toBe(expected === 'seen' ? state : expected);
  }
});

test('the host and the place are one text in records of processes', () => {
  for (const { host, place } of [HERE, CONTAINER, { host: 'a @ b', place: 'boot-1' }]) {
    expect(parseWhere(whereText({ host, ...(place !== undefined && { place }) }))).toEqual({ host, place });
  }
  expect(parseWhere('box pid:[12]')).toEqual({ host: 'box pid:[12]' });
});

test('treats the same pid with another start time as a dead process', () => {
  expect(processState({ ...thisProcess(), startedAt: 'long ago' })).toBe('dead');
});

test('reports unknown for a pid without a start time', () => {
  const { host, pid } = thisProcess();
  expect(processState({ host, pid })).toBe('unknown');
});

test('reports an ended process as dead', async () => {
  const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)']);
  const holder = { ...thisProcess(), pid: child.pid! };
  expect(processState({ host: holder.host, pid: child.pid! })).toBe('unknown');
  child.kill('SIGKILL');
  await once(child, 'exit');
  expect(processState(holder)).toBe('dead');
  expect(processState({ host: holder.host, pid: child.pid! })).toBe('dead');
});

test('reports a zombie as dead', async () => {
  // The shell starts a child and then replaces itself by a program that never waits for it. The child ends with its input.
  const script = `cat <&3 & echo $!; exec "$0" -e 'console.log("ready"); setInterval(() => {}, 1000)'`;
  const shell = spawn('sh', ['-c', script, process.execPath], { stdio: ['ignore', 'pipe', 'ignore', 'pipe'] });
  const exited = once(shell, 'exit');
  try {
    let output = '';
    while (!output.includes('ready')) output += String((await once(shell.stdout!, 'data'))[0]);
    const holder = { host: thisProcess().host, pid: Number.parseInt(output, 10) };
    expect(processState(holder)).toBe('unknown');
    shell.stdio[3]!.destroy();
    await expect.poll(() => processState(holder), { interval: 5, timeout: 10_000 }).toBe('dead');
    expect(process.kill(holder.pid, 0)).toBe(true);
  } finally {
    shell.kill('SIGKILL');
    await exited;
  }
});

describe('a process of a container', () => {
  const [namespace, ...common] = ['unshare', '--user', '--map-root-user', '--fork'] as const;
  const inContainer = (...args: readonly string[]): { status: number | null; stdout: string } =>
    spawnSync(namespace, [...common, ...args], { encoding: 'utf8' });
  const code = `import { thisProcess } from '${new URL('holder.ts', import.meta.url).href}';
    console.log(JSON.stringify(thisProcess()))`;
  const node = [process.execPath, '--conditions=treadle-source', '--input-type=module', '-e', code];

  for (const [what, expected, ...flags] of [
    ['with pids of its own', 'elsewhere', '--pid', '--mount-proc'],
    ['with a time of its own', 'elsewhere', '--time'],
    ['with only a host name of its own', 'dead', '--uts'],
  ] as const) {
    const isAvailable = inContainer(...flags, 'true').status === 0;
    if (!isAvailable)
      process.stderr.write(`\nSKIPPED: a test uses unshare ${flags[0]}, which is not available here.\n`);
    test.runIf(isAvailable)(`${what} that has ended is ${expected}`, () => {
      expect(holderState(JSON.parse(inContainer(...flags, ...node).stdout) as Holder)).toBe(expected);
    });
  }
});
