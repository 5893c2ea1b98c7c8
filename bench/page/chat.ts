/**
 * Measures the chat of the page: `npm run bench:page-chat`. An answer of 200 kB streams in, and a conversation of 1,000 messages
 * is opened.
 */
import type { Model } from '@treadle/core';
import { scriptedModel } from '@treadle/core/testing';
import type { CDPSession } from 'playwright-core';
import { launch, openPage } from '../../test/page/browser.ts';
import { startInProcess } from '../../test/server/support/in-process.ts';

const CHARS = 200_000;
/** The length of a delta, and how many arrive in a second: three times what fast models send. */
const DELTA = 20;
const PER_SECOND = 1_000;
const ROUNDS = 500;
/** How often the conversation is opened. The rows are medians. */
const OPENED = 5;

const PARAGRAPH = `## A heading

Some **bold** text with \`code\`, a [link](https://example.com) and more words that make the paragraph longer than one line.

- one item
- another item with *emphasis*

\`\`\`ts
export const sum = (numbers: readonly number[]): number => numbers.reduce((a, b) => a + b, 0);
\`\`\`

| a | b |
|---|---|
| 1 | 2 |

`;
const TEXT = PARAGRAPH.repeat(Math.ceil(CHARS / PARAGRAPH.length)).slice(0, CHARS);

/** Streams the text at a fixed rate. */
const streaming: Model = {
  ...scriptedModel([]),
  async reply(_, emit) {
    const began = performance.now();
    for (let at = 0; at < TEXT.length;) {
      const due = Math.floor(((performance.now() - began) / 1_000) * PER_SECOND) * DELTA;
      for (; at < Math.min(due, TEXT.length); at += DELTA)
        emit({ type: 'text-delta', text: TEXT.slice(at, at + DELTA) });
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
    const usage = { inputTokens: 1, outputTokens: 1 };
    return { type: 'reply', content: [{ type: 'text', text: TEXT }], finish: 'stop', usage, model: 'streaming' };
  },
};

async function metric(session: CDPSession, wanted: string): Promise<number> {
  const { metrics } = await session.send('Performance.getMetrics');
  return metrics.find(({ name }) => name === wanted)!.value;
}

const launched = await launch();
{
  await using server = await startInProcess(streaming);
  await using opened = await openPage(launched, server.url);
  const { page } = opened;
  const session = await page.context().newCDPSession(page);
  // CPU of the thread, so that other programs do not count.
  await session.send('Performance.enable', { timeDomain: 'threadTicks' });
  await page.getByRole('textbox', { name: 'Message' }).fill('Write');
  const before = await metric(session, 'TaskDuration');
  await page.evaluate(() => {
    const count = { frames: 0, slowest: 0, began: performance.now(), last: performance.now() };
    Object.assign(globalThis, { count });
    const frame = (): void => {
      const now = performance.now();
      count.frames += 1;
      count.slowest = Math.max(count.slowest, now - count.last);
      count.last = now;
      if (!document.querySelector('[aria-label="Copy the answer"]')) requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  });
  await page.keyboard.press('Enter');
  await page.getByLabel('Copy the answer').waitFor({ timeout: 120_000 });
  const cpu = (await metric(session, 'TaskDuration')) - before;
  const { frames, slowest, began, last } = await page.evaluate(
    () => (globalThis as unknown as { count: Record<'frames' | 'slowest' | 'began' | 'last', number> }).count,
  );
  console.log(`200 kB stream in, frames a second:    ${((frames * 1_000) / (last - began)).toFixed(0)}`);
  console.log(`200 kB stream in, slowest frame, ms:  ${slowest.toFixed(0)}`);
  console.log(`200 kB stream in, us of a delta:      ${((cpu * 1e6) / (CHARS / DELTA)).toFixed(0)}`);
}
{
  const model = scriptedModel(Array.from({ length: ROUNDS }, (_, index) => `${PARAGRAPH}Answer ${index}.`));
  await using server = await startInProcess(model);
  let id: string | undefined;
  for (let round = 0; round < ROUNDS; round++) {
    const answer = await fetch(`${server.url}/v1/chat`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ ...(id !== undefined && { conversation_id: id }), message: `Message ${round}` }),
    });
    id ??= /conv_\w+/.exec(await answer.clone().text())![0];
    await answer.text();
  }
  const rows: Record<'shown' | 'all' | 'heap' | 'empty', number>[] = [];
  for (let round = 0; round < OPENED; round++) {
    await using opened = await openPage(launched, server.url);
    const { page } = opened;
    const session = await page.context().newCDPSession(page);
    await session.send('Performance.enable', { timeDomain: 'threadTicks' });
    const heap = async (): Promise<number> => {
      await session.send('HeapProfiler.collectGarbage');
      return (await metric(session, 'JSHeapUsedSize')) / 1e6;
    };
    const empty = await heap();
    const before = await metric(session, 'TaskDuration');
    const cpu = async (): Promise<number> => ((await metric(session, 'TaskDuration')) - before) * 1e3;
    await page.goto(`${server.url}/#/chat/${id}`);
    await page.getByText(`Answer ${ROUNDS - 1}.`).waitFor();
    const shown = await cpu();
    await page.waitForFunction((count) => document.querySelectorAll('.message').length === count, 2 * ROUNDS);
    rows.push({ shown, all: await cpu(), heap: await heap(), empty });
  }
  const median = (name: keyof (typeof rows)[number]): number =>
    rows.map((row) => row[name]).toSorted((a, b) => a - b)[Math.floor(OPENED / 2)]!;
  console.log(`1,000 messages, CPU until shown, ms:  ${median('shown').toFixed(0)}`);
  console.log(`1,000 messages, CPU for all, ms:      ${median('all').toFixed(0)}`);
  console.log(
    `1,000 messages, heap of the page, MB: ${median('heap').toFixed(1)} (empty: ${median('empty').toFixed(1)})`,
  );
}
if ('browser' in launched) await launched.browser.close();
