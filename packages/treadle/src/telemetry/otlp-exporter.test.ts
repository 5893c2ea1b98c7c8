import { expect, test } from 'vitest';
import { openOutbox } from './otlp-exporter.ts';

/** A collector that answers when it is told to. */
function slowCollector() {
  const bodies: number[][] = [];
  const answers: ((isTaken: boolean) => void)[] = [];
  const outbox = openOutbox(
    (json) => {
      bodies.push(JSON.parse(json) as number[]);
      return new Promise((resolve) => void answers.push(resolve));
    },
    (records) => `[${records}]`,
  );
  const numbers = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, index) => from + index);
  const add = (from: number, to: number): void => {
    for (const number of numbers(from, to)) outbox.add(number as unknown as object);
  };
  return { bodies, answers, outbox, add, numbers };
}

test('sends a full batch at once, and keeps the order when one could not be sent', async () => {
  const { bodies, answers, outbox, add, numbers } = slowCollector();
  add(0, 600);
  expect(bodies).toEqual([numbers(0, 512)]);
  answers[0]!(false);
  const flushed = outbox.flush();
  await expect.poll(() => bodies.length).toBe(2);
  answers[1]!(true);
  await expect.poll(() => bodies.length).toBe(3);
  answers[2]!(true);
  await flushed;
  expect(bodies.slice(1)).toEqual([numbers(0, 512), numbers(512, 600)]);
});

test('a collector that does not answer costs at most 2,048 records of memory, and only spans', async () => {
  const { bodies, answers, outbox, add, numbers } = slowCollector();
  add(0, 10_000);
  expect(bodies).toEqual([numbers(0, 512)]);
  answers[0]!(false);
  const flushed = outbox.flush();
  for (let batch = 1; batch <= 4; batch++) {
    await expect.poll(() => answers.length).toBe(batch + 1);
    answers[batch]!(true);
  }
  await flushed;
  expect(bodies.slice(1).flat()).toEqual(numbers(0, 2_048));
});
