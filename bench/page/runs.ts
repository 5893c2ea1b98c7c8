/**
 * Measures the view of a long run in the page: `npm run bench:page-runs`. A run of 5,000 entries is opened, the slider is moved
 * over all of it, one step for each frame, entries are searched, and the timeline is zoomed.
 */
import { memoryJournal, runLoop, tool, type Model } from '@treadle/core';
import { sqliteStore } from '@treadle/store';
import type { CDPSession, Page } from 'playwright-core';
import { launch, openPage } from '../../test/page/browser.ts';
import { startInProcess } from '../../test/server/support/in-process.ts';

const ENTRIES = 5_000;
/** Each turn has the reply and three results. */
const TURNS = ENTRIES / 4;
const MOVES = 100;
const ROUNDS = 3;

const read = tool({
  name: 'read',
  description: 'Reads a file',
  effect: 'pure',
  input: { type: 'object', properties: { path: { type: 'string' } } },
  execute: ({ path }) => `The file ${String(path)}: ${'Some lines of a file. '.repeat(20)}`,
});
/** Does not keep the requests, which would take most of the time. */
function longModel(): Model {
  let turn = 0;
  return {
    id: 'long',
    async reply() {
      const number = turn++;
      const calls = [1, 2, 3].map((call) => ({
        type: 'tool-call' as const,
        id: `call_${number}_${call}`,
        name: 'read',
        arguments: JSON.stringify({ path: `src/${number}/${call}.ts` }),
      }));
      const isLast = turn >= TURNS;
      const text = { type: 'text' as const, text: isLast ? 'Done.' : `Step ${number}.` };
      return {
        type: 'reply',
        content: isLast ? [text] : [text, ...calls],
        finish: isLast ? 'stop' : 'tool-calls',
        usage: { inputTokens: 10, outputTokens: 5 },
        model: 'long',
      };
    },
  };
}

// The run is made without the server, and then stored at once.
const id = 'resp_long';
const journal = memoryJournal();
const principal = { subject: '', tenant: 'default', scopes: [] };
await runLoop({
  model: longModel(),
  tools: [read],
  input: 'Read all',
  journal,
  runId: id,
  maxTurns: 2 * TURNS,
  principal,
});
const made = await journal.read(id);
const store = sqliteStore(':memory:');
await store.append(id, made);
const entries = made.length;
const server = await startInProcess(longModel(), { store });
const launched = await launch();

interface Moves {
  readonly frames: number;
  readonly ms: number;
  readonly slowest: number;
}

/** Moves the slider over the whole run, with one input event for each frame. */
function scrub(page: Page): Promise<Moves> {
  return page.evaluate(async (moves) => {
    const slider = document.querySelector<HTMLInputElement>('.scrubber input')!;
    const last = Number(slider.max);
    let slowest = 0;
    const began = performance.now();
    let before = began;
    for (let move = 0; move < moves; move++) {
      slider.value = String(Math.round((last * move) / moves));
      slider.dispatchEvent(new Event('input', { bubbles: true }));
      await new Promise((resolve) => requestAnimationFrame(resolve));
      const now = performance.now();
      slowest = Math.max(slowest, now - before);
      before = now;
    }
    return { frames: moves, ms: performance.now() - began, slowest };
  }, MOVES);
}

/** Milliseconds from an input event to the frame after it. */
function timeOf(page: Page, selector: string, value: string): Promise<number> {
  return page.evaluate(
    async ([found, text]) => {
      const element = document.querySelector<HTMLInputElement | HTMLButtonElement>(found!)!;
      const began = performance.now();
      if (element instanceof HTMLButtonElement) element.click();
      else {
        element.value = text!;
        element.dispatchEvent(new Event('input', { bubbles: true }));
      }
      await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
      return performance.now() - began;
    },
    [selector, value],
  );
}

async function cpuSeconds(session: CDPSession): Promise<number> {
  const { metrics } = await session.send('Performance.getMetrics');
  return metrics.find(({ name }) => name === 'TaskDuration')!.value;
}

const series: Record<string, number[]> = {};
const note = (name: string, value: number): void => void (series[name] ??= []).push(value);
for (let round = 0; round < ROUNDS; round++) {
  await using opened = await openPage(launched, server.url);
  const { page } = opened;
  const session = await page.context().newCDPSession(page);
  await session.send('Performance.enable');
  const began = performance.now();
  await page.goto(`${server.url}/#/runs/${id}`);
  await page.locator(`.scrubber input[max="${entries - 1}"]`).waitFor();
  note('open, ms', performance.now() - began);
  const before = await cpuSeconds(session);
  const { frames, ms, slowest } = await scrub(page);
  note('scrub, frames a second', (frames * 1_000) / ms);
  note('scrub, browser time for each step, ms', ((await cpuSeconds(session)) - before) * (1_000 / frames));
  note('scrub, slowest frame, ms', slowest);
  note('search for the first time, ms', await timeOf(page, '#entry-search', 'src/700/'));
  note('search again, ms', await timeOf(page, '#entry-search', 'src/70'));
  note('zoom in, ms', await timeOf(page, '[aria-label="Zoom in"]', ''));
  const { usedSize } = await session.send('Runtime.getHeapUsage');
  note('heap, MB', usedSize / 1e6);
}
console.log(`A run of ${entries} entries, medians of ${ROUNDS} rounds:`);
for (const [name, values] of Object.entries(series)) {
  console.log(`  ${name.padEnd(40)} ${values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!.toFixed(1)}`);
}
if ('browser' in launched) await launched.browser.close();
await server[Symbol.asyncDispose]();
await store.close();
