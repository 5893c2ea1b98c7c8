import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { hostname } from 'node:os';
import { expect, test } from 'vitest';
import { processState, thisProcess } from './holder.ts';

test('identifies this process as alive', () => {
  const self = thisProcess();
  expect(self).toEqual({ host: expect.stringContaining(hostname()), pid: process.pid, startedAt: expect.any(String) });
  expect(thisProcess()).toBe(self);
  expect(processState(self)).toBe('alive');
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
