import { PassThrough } from 'node:stream';
import { expect, test } from 'vitest';
import type { Io } from './io.ts';
import { askLine } from './prompt.ts';
import { catchInterrupt, type Interrupt } from './signals.ts';

function terminal(): { io: Io; type: (keys: string) => void; interrupt: Interrupt; shown: () => string } {
  const stdin = new PassThrough();
  let shown = '';
  const stderr = new PassThrough().setEncoding('utf8').on('data', (text: string) => (shown += text));
  const onSignal = () => () => {};
  const io = { stdin, stderr, onInterrupt: onSignal, onTerminate: onSignal, quit() {} } as unknown as Io;
  return { io, type: (keys) => stdin.write(keys), interrupt: catchInterrupt(io), shown: () => shown };
}

test('returns the typed line, and can ask again', async () => {
  const { io, type, interrupt, shown } = terminal();
  for (const answer of ['y', 'no']) {
    const asked = askLine(io, interrupt, 'Allow it? ');
    type(`${answer}\r`);
    expect(await asked).toBe(answer);
  }
  expect(shown()).toContain('Allow it? ');
});

test('returns undefined at Ctrl-D', async () => {
  const { io, type, interrupt } = terminal();
  const asked = askLine(io, interrupt, 'Allow it? ');
  type('\u0004');
  expect(await asked).toBeUndefined();
  expect(interrupt.signal.aborted).toBe(false);
});

test('returns undefined at Ctrl-C, and aborts the signal', async () => {
  const { io, type, interrupt } = terminal();
  const asked = askLine(io, interrupt, 'Allow it? ');
  type('\u0003');
  expect(await asked).toBeUndefined();
  expect(interrupt.signal.aborted).toBe(true);
});

test('returns undefined when the interrupt is pressed elsewhere', async () => {
  const { io, interrupt } = terminal();
  const asked = askLine(io, interrupt, 'Allow it? ');
  interrupt.press();
  expect(await asked).toBeUndefined();
});
