import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { afterEach, expect, test } from 'vitest';
import { processState, thisProcess, whereText } from './holder.ts';
import { allProcesses, readPs } from './process-table.ts';
import { heldProcess, killProcess, markVariable } from './processes.ts';

const started: ChildProcess[] = [];

afterEach(() => {
  for (const child of started.splice(0)) child.kill('SIGKILL');
});

function startSleep(): ChildProcess {
  const child = spawn('sleep', ['1000'], { stdio: 'ignore' });
  started.push(child);
  return child;
}

const isAlive = (pid: number): boolean => heldState(pid) !== 'dead';
const heldState = (pid: number): string => processState({ host: thisProcess().host, pid });

test('kills a process, and waits until it has ended', async () => {
  const child = startSleep();
  const exited = once(child, 'exit');
  const held = heldProcess(child.pid);
  expect(held).toEqual({ host: whereText(thisProcess()), pid: child.pid, startedAt: expect.any(String) });
  expect(await killProcess(held)).toBe(true);
  expect(isAlive(child.pid!)).toBe(false);
  expect(await exited).toEqual([null, 'SIGKILL']);
  expect(await killProcess(held)).toBe(true);
});

test('does not kill another process that has the pid by now', async () => {
  const { pid } = startSleep();
  expect(await killProcess({ ...heldProcess(pid), startedAt: 'long ago' })).toBe(true);
  expect(isAlive(pid!)).toBe(true);
});

test('kills a process that was recorded before the name of the host changed, and one that an earlier version recorded', async () => {
  const self = thisProcess();
  for (const host of [whereText({ ...self, host: 'old-name' }), self.host]) {
    const { pid } = startSleep();
    expect(await killProcess({ ...heldProcess(pid), host })).toBe(true);
    expect(isAlive(pid!)).toBe(false);
  }
});

test('a process that was recorded before this machine was started again does not run any more', async () => {
  const { pid } = startSleep();
  const { host } = thisProcess();
  const earlier = { ...heldProcess(pid), startedAt: 'earlier 7', host: whereText({ host, place: 'earlier' }) };
  // In a container nobody knows.
  expect(await killProcess(earlier)).toBe(!host.includes(' '));
  expect(isAlive(pid!)).toBe(true);
});

test('does not kill a process that it cannot identify, or of another host', async () => {
  const { pid } = startSleep();
  const { startedAt: _, ...unidentified } = heldProcess(pid);
  expect(await killProcess(unidentified)).toBe(false);
  expect(await killProcess({ ...heldProcess(pid), host: 'elsewhere' })).toBe(false);
  expect(isAlive(pid!)).toBe(true);
});

test('kills the whole group of a process that leads one', async () => {
  const shell = spawn('sh', ['-c', 'sleep 1000 & echo $!; wait'], {
    detached: true,
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  started.push(shell);
  const inner = Number.parseInt(String((await once(shell.stdout!, 'data'))[0]), 10);
  expect(isAlive(inner)).toBe(true);
  expect(await killProcess(heldProcess(shell.pid, { group: true }))).toBe(true);
  await expect.poll(() => isAlive(inner), { interval: 5, timeout: 10_000 }).toBe(false);
});

test('kills the descendants of a process that leads no group', async () => {
  const shell = spawn('sh', ['-c', 'sleep 1000 & echo $!; wait'], { stdio: ['ignore', 'pipe', 'ignore'] });
  started.push(shell);
  const inner = Number.parseInt(String((await once(shell.stdout!, 'data'))[0]), 10);
  expect(await killProcess(heldProcess(shell.pid))).toBe(true);
  expect(isAlive(inner)).toBe(false);
});

test.runIf(process.platform === 'linux')('kills marked processes, even if the marked process has ended', async () => {
  const shell = spawn('sh', ['-c', 'setsid sleep 1000 >/dev/null & echo $!; read line'], {
    detached: true,
    stdio: ['pipe', 'pipe', 'ignore'],
    env: { ...process.env, ...markVariable('m1') },
  });
  const held = { ...heldProcess(shell.pid, { group: true }), mark: 'm1' };
  const exited = once(shell, 'exit');
  const inner = Number.parseInt(String((await once(shell.stdout!, 'data'))[0]), 10);
  shell.stdin!.end();
  await exited;
  // A process has no environment for a moment when it becomes another program.
  const seen = (): string[] => ['comm', 'environ'].map((name) => readFileSync(`/proc/${inner}/${name}`, 'utf8'));
  await expect.poll(() => seen().join(), { interval: 5, timeout: 10_000 }).toMatch(/^sleep\n,[^]*m1=1/);
  expect(await killProcess({ ...held, mark: 'm' })).toBe(true);
  expect(isAlive(inner)).toBe(true);
  expect(await killProcess(held)).toBe(true);
  expect(isAlive(inner)).toBe(false);
});

test('reads processes with ps where there is no /proc', () => {
  const { pid } = process;
  const [self] = readPs(['-p', String(pid)]);
  const { parent, group } = allProcesses().find((one) => one.pid === pid)!;
  const startedAt = expect.stringMatching(/^\w{3} \w{3} \d+ [\d:]+ \d{4}$/);
  expect(self).toEqual({ pid, parent, group, session: undefined, isEnded: false, startedAt });
  expect(readPs(['-A'])).toContainEqual(self);
});

test('rejects a process that does not run', async () => {
  expect(() => heldProcess(undefined)).toThrow('There is no process with the pid undefined.');
  const child = startSleep();
  child.kill('SIGKILL');
  await once(child, 'exit');
  expect(() => heldProcess(child.pid)).toThrow(`There is no process with the pid ${child.pid}.`);
});
