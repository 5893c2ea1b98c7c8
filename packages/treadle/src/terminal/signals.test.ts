import { expect, test } from 'vitest';
import type { Io } from './io.ts';
import { processIo } from './process-io.ts';
import { catchInterrupt, catchStopSignal } from './signals.ts';

function fakeSignals() {
  const listeners = { SIGINT: new Set<() => void>(), SIGTERM: new Set<() => void>() };
  const quits: number[] = [];
  const on = (name: keyof typeof listeners) => (listener: () => void) => {
    listeners[name].add(listener);
    return () => listeners[name].delete(listener);
  };
  const io = {
    onInterrupt: on('SIGINT'),
    onTerminate: on('SIGTERM'),
    outliveReaders() {},
    quit: (code: number) => quits.push(code),
  } as unknown as Io;
  let time = 0;
  return {
    io,
    now: () => time,
    quits,
    listeners,
    send: (name: keyof typeof listeners, after: number) => {
      time += after;
      for (const listener of listeners[name]) listener();
    },
  };
}

function stopping() {
  const signals = fakeSignals();
  return { ...signals, stop: catchStopSignal(signals.io, signals.now) };
}

test.each(['SIGINT', 'SIGTERM'] as const)('%s asks to stop, and a later signal of either kind quits', async (name) => {
  const { stop, quits, send } = stopping();
  send(name, 1_000);
  await stop.received;
  expect(quits).toEqual([]);
  send(name === 'SIGINT' ? 'SIGTERM' : 'SIGINT', 300);
  expect(quits).toEqual([1]);
});

test('ignores the duplicate of a Ctrl-C that npm sends', async () => {
  const { stop, quits, send } = stopping();
  send('SIGINT', 0);
  send('SIGINT', 5);
  send('SIGINT', 294);
  await stop.received;
  expect(quits).toEqual([]);
  send('SIGINT', 1);
  expect(quits).toEqual([1]);
});

test('removes the signal listeners when released', () => {
  const { stop, listeners } = stopping();
  stop.release();
  expect([listeners.SIGINT.size, listeners.SIGTERM.size]).toEqual([0, 0]);
});

test('aborts at the first Ctrl-C, quits at the second, and removes the listeners when released', () => {
  const { io, listeners, quits, send } = fakeSignals();
  const interrupt = catchInterrupt(io);
  expect(interrupt.signal.aborted).toBe(false);
  send('SIGINT', 0);
  expect([interrupt.signal.aborted, interrupt.isTerminated]).toEqual([true, false]);
  expect(quits).toEqual([]);
  send('SIGINT', 0);
  expect(quits).toEqual([130]);
  interrupt.release();
  expect([listeners.SIGINT.size, listeners.SIGTERM.size]).toEqual([0, 0]);
});

test('SIGTERM aborts without quitting, also the second time', () => {
  const { io, quits, send } = fakeSignals();
  const interrupt = catchInterrupt(io);
  send('SIGTERM', 0);
  send('SIGTERM', 0);
  expect([interrupt.signal.aborted, interrupt.isTerminated, quits]).toEqual([true, true, []]);
});

test('SIGHUP reloads a process without a terminal until the listener is removed, and stops one with a terminal', () => {
  const streams = [process.stdin, process.stdout, process.stderr];
  const before = streams.map(({ isTTY }) => isTTY);
  const io = processIo();
  let reloads = 0;
  let stops = 0;
  for (const isTTY of [false, true]) {
    for (const stream of streams) stream.isTTY = isTTY;
    const releases = [io.onReload!(() => void reloads++), io.onTerminate(() => void stops++)];
    process.emit('SIGHUP');
    expect([reloads, stops]).toEqual(isTTY ? [1, 1] : [1, 0]);
    for (const release of releases) release();
  }
  for (const [index, stream] of streams.entries()) stream.isTTY = before[index]!;
});
