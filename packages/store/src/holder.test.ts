import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { hostname } from 'node:os';
import { expect, test } from 'vitest';
import { fateOf, thisProcess } from './holder.ts';

test('a process knows itself', () => {
  const self = thisProcess();
  expect(self).toEqual({ host: expect.stringContaining(hostname()), pid: process.pid, startedAt: expect.any(String) });
  expect(thisProcess()).toBe(self);
  expect(fateOf(self)).toBe('alive');
});

test('the same pid with another start is another process', () => {
  expect(fateOf({ ...thisProcess(), startedAt: 'long ago' })).toBe('dead');
});

test('without a start there is no telling', () => {
  const { host, pid } = thisProcess();
  expect(fateOf({ host, pid })).toBe('unknown');
});

test('a process that has ended is dead, also with its parent not looking', async () => {
  const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)']);
  const holder = { ...thisProcess(), pid: child.pid! };
  expect(fateOf({ host: holder.host, pid: child.pid! })).toBe('unknown');
  child.kill('SIGKILL');
  await once(child, 'exit');
  expect(fateOf(holder)).toBe('dead');
  expect(fateOf({ host: holder.host, pid: child.pid! })).toBe('dead');
});

test('a process that ended and was not yet waited for is dead', async () => {
  // A shell that has a child and then becomes a program that never waits for it. The child ends with its input.
  const script = `cat <&3 & echo $!; exec "$0" -e 'console.log("ready"); setInterval(() => {}, 1000)'`;
  const shell = spawn('sh', ['-c', script, process.execPath], { stdio: ['ignore', 'pipe', 'ignore', 'pipe'] });
  const exited = once(shell, 'exit');
  try {
    let said = '';
    while (!said.includes('ready')) said += String((await once(shell.stdout!, 'data'))[0]);
    const holder = { host: thisProcess().host, pid: Number.parseInt(said, 10) };
    expect(fateOf(holder)).toBe('unknown');
    shell.stdio[3]!.destroy();
    await expect.poll(() => fateOf(holder), { interval: 5, timeout: 10_000 }).toBe('dead');
    expect(process.kill(holder.pid, 0)).toBe(true);
  } finally {
    shell.kill('SIGKILL');
    await exited;
  }
});
