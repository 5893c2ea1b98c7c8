import { expect, test } from 'vitest';
import { interruptible } from './interrupt.ts';
import type { Io } from './io.ts';

test("the first Ctrl-C cancels, the second quits, and afterwards it is nobody's", () => {
  const listeners = new Set<() => void>();
  const quits: number[] = [];
  const io = {
    onInterrupt(listener: () => void) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    quit: (code: number) => quits.push(code),
  } as unknown as Io;
  const press = (): void => listeners.forEach((listener) => listener());

  const interrupt = interruptible(io);
  expect(interrupt.signal.aborted).toBe(false);
  press();
  expect(interrupt.signal.aborted).toBe(true);
  expect(quits).toEqual([]);
  press();
  expect(quits).toEqual([130]);
  interrupt.release();
  expect(listeners.size).toBe(0);
});
