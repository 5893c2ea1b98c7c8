import { expect, vi } from 'vitest';
import { countWork, type Work, type WorkCounter } from './counted-work.ts';

/*
 * The property "twice the input, at most 2.5 times the work", for every place of the code.
 *
 * Work is counted for each place and not in total, so that a place with little work is found with small inputs, and named. Three
 * sizes are measured, and a place is reported if it grows too fast twice: some work begins only above a size, which is not growth.
 */

/** Elements of the smallest input. */
const SIZE = 24;
/** The characters of a text in the inputs. */
const TEXT_CHARS = 50;

export const TEXT = 'x'.repeat(TEXT_CHARS);

export function times<T>(count: number, make: (index: number) => T): T[] {
  return Array.from({ length: count }, (_, index) => make(index));
}

/** Counts the work of all packages, and what the libraries that they use make built-in functions do. */
export function workOfPackages(): WorkCounter {
  return countWork({ files: /packages\/\w+\/src\/(?!.*\.test\.ts)|node_modules\/(?!vite|@vitest|chai)/, places: true });
}

/**
 * Expects that the work of `run` grows no faster than its input, of which `run` gets the number of elements. `except`: places that
 * may, because another limit bounds their work.
 */
export async function expectLinear(
  counter: WorkCounter,
  run: (size: number) => Promise<unknown>,
  { except }: { readonly except?: RegExp } = {},
): Promise<void> {
  // On a busy machine the two clocks disagree now and then, and what a run does about that would be counted.
  using _wall = vi.spyOn(Date, 'now').mockReturnValue(Date.now());
  using _monotonic = vi.spyOn(performance, 'now').mockReturnValue(performance.now());
  // Without what is done only once, such as filling caches.
  await run(2);
  counter.reset();
  const works: Work[] = [];
  for (const size of [SIZE, 2 * SIZE, 4 * SIZE]) {
    await run(size);
    works.push(counter.read());
  }
  const [small, middle, large] = works as [Work, Work, Work];
  const before = new Set(fastPlaces(small, middle, SIZE).map(({ place }) => place));
  const fast = fastPlaces(middle, large, 2 * SIZE).filter(({ place }) => before.has(place) && !except?.test(place));
  expect(fast).toEqual([]);
}

interface FastPlace {
  readonly place: string;
  readonly growth: string;
}

/** The places with more than 2.5 times the work. `size`: the elements of the smaller input. */
function fastPlaces(small: Work, large: Work, size: number): FastPlace[] {
  const places: FastPlace[] = [];
  const compare = (place: string, counts: readonly [number, number], kind: string, slack: number): void => {
    const [before, after] = counts;
    if (after > 2.5 * before + slack) places.push({ place, growth: `${before} ${kind}, then ${after}` });
  };
  for (const [name, blocks] of large.blocks) {
    if (name.includes('/node_modules/')) continue;
    const blocksBefore = small.blocks.get(name) ?? [];
    for (const { start, end, count } of blocks) {
      // A block that is not listed was entered as often as the one around it.
      const before = blocksBefore.findLast((block) => block.start <= start && block.end >= end)?.count ?? 0;
      compare(`${name} [${start}, ${end}]`, [before, count], 'blocks', size);
    }
  }
  for (const kind of ['elements', 'json', 'chars'] as const) {
    const slack = kind === 'elements' ? size : size * 2 * TEXT_CHARS;
    for (const [place, count] of large[kind]) compare(place, [small[kind].get(place) ?? 0, count], kind, slack);
  }
  return places;
}
