import { audience, memoryOn, quantised, type MemoryReader, type Observation } from '@treadle/core/memory';
import { openStore, type Store } from '@treadle/store';
import { startEntry } from '../../test/journal/entries.ts';

const PER_RUN = 1_000;
const DIMENSIONS = 768;
/** Of two tenants one has most of them, and in it one of two keys. */
const TENANTS = ['large', 'large', 'large', 'large', 'small'] as const;
const SEARCHES = 200;
const NEAREST = 20;

/** The same numbers in each run. */
function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Some words are in most texts, and most words in few. */
const wordAt = (share: number): string => `word${Math.floor(20_000 ** share)}`;

function observation(index: number, random: () => number): Observation {
  const tenant = TENANTS[Math.floor(index / PER_RUN) % TENANTS.length]!;
  return {
    id: `run ${Math.floor(index / PER_RUN)}/${index}`,
    type: 'llm_response',
    runId: `run ${Math.floor(index / PER_RUN)}`,
    subject: index % 2 === 0 ? 'ann' : 'bob',
    tenant,
    content: Array.from({ length: 40 }, () => wordAt(random())).join(' '),
    tags: [],
    metadata: { turn: 1 },
    at: index,
  };
}

async function fill(store: Store, count: number): Promise<void> {
  const random = randomFrom(1);
  for (let from = 0; from < count; from += PER_RUN) {
    const observations = Array.from({ length: PER_RUN }, (_, n) => observation(from + n, random));
    const { runId, tenant } = observations[0]!;
    await store.append(runId, [startEntry(runId)]);
    const known = { runId, notes: [], counted: 0, target: 0, remembered: 0, next: 1, hours: new Map(), tenant };
    await store.metrics.add([{ ...known, memory: { next: 1, observations } }]);
  }
  for (;;) {
    const rows = await store.memory.unembedded('m', 5_000);
    if (rows.length === 0) return;
    await store.memory.addVectors(
      'm',
      rows.map(({ row }) => ({ row, vector: vector(random) })),
    );
  }
}

const vector = (random: () => number): Int8Array => quantised(Array.from({ length: DIMENSIONS }, () => random() - 0.5));

/** How long it takes to find among so many observations, with a vector for each. */
export async function memory(urls: Readonly<Record<string, string>>, count: number): Promise<void> {
  const readers: Readonly<Record<string, MemoryReader>> = {
    'a tenant with 80 %': { tenant: 'large' },
    'a key with 40 %': { tenant: 'large', audiences: [audience('tenant', ''), audience('user', 'ann')] },
    'a tenant with 20 %': { tenant: 'small' },
  };
  for (const [name, url] of Object.entries(urls)) {
    const store = await openStore(url);
    const from = performance.now();
    await fill(store, count);
    console.log(`\n${name}: filled ${count} observations in ${Math.round((performance.now() - from) / 1_000)} s`);
    console.log(
      '| p50 (p99), and CPU time of this process, ms | rare words | any words | 20,000 words | vectors |\n| --- | ---: | ---: | ---: | ---: |',
    );
    const random = randomFrom(2);
    const found = memoryOn({ port: store.memory });
    const rare = (): string =>
      `word${5_000 + Math.floor(random() * 15_000)} word${10_000 + Math.floor(random() * 9_000)}`;
    const any = (): string => Array.from({ length: 8 }, () => wordAt(random())).join(' ');
    const hostile = (): string => Array.from({ length: 20_000 }, () => wordAt(random())).join(' " OR * ');
    for (const [who, reader] of Object.entries(readers)) {
      const cells = [
        await times(SEARCHES, () => found.search(reader, rare())),
        await times(SEARCHES, () => found.search(reader, any())),
        await times(NEAREST, () => found.search(reader, hostile())),
        await times(NEAREST, () => store.memory.nearest(reader, { model: 'm', vector: vector(random), limit: 10 })),
      ];
      console.log(`| ${who} | ${cells.join(' | ')} |`);
    }
    await store.close();
  }
}

async function times(count: number, find: () => Promise<unknown>): Promise<string> {
  const all: number[] = [];
  const used = process.cpuUsage();
  for (let n = 0; n < count; n++) {
    const from = performance.now();
    await find();
    all.push(performance.now() - from);
  }
  const sorted = all.toSorted((a, b) => a - b);
  const at = (share: number): string => sorted[Math.min(count - 1, Math.floor(count * share))]!.toFixed(1);
  const { user, system } = process.cpuUsage(used);
  return `${at(0.5)} (${at(0.99)}), ${((user + system) / 1_000 / count).toFixed(1)}`;
}
