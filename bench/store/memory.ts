import { audience, memoryOn, quantised, type MemoryReader, type Observation } from '@treadle/core/memory';
import { openStore, type Store } from '@treadle/store';
import { startEntry } from '../../test/journal/entries.ts';
import { withClient } from '../../test/store/postgres-server.ts';

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

const READERS: Readonly<Record<string, MemoryReader>> = {
  'a tenant with 80 %': { tenant: 'large' },
  'a key with 40 %': { tenant: 'large', audiences: [audience('tenant', ''), audience('user', 'ann')] },
  'a tenant with 20 %': { tenant: 'small' },
};

/** How long it takes to find among so many observations, with a vector for each. */
export async function memory(urls: Readonly<Record<string, string>>, count: number): Promise<void> {
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
    for (const [who, reader] of Object.entries(READERS)) {
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

/** The nearest vectors in a database with pgvector: with it, and without it, in turns. */
export async function nearest(url: string, count: number): Promise<void> {
  const store = await openStore(url);
  await fill(store, count);
  // The vectors that are not copied yet are with the next one that is added.
  const counts = (): Promise<{ readonly vectors: string; readonly near: string }> =>
    withClient(url, async (client) => {
      const { rows } = await client.query(
        'SELECT (SELECT count(*) FROM treadle.memory_vectors) AS vectors, (SELECT count(*) FROM treadle.memory_near) AS near',
      );
      return rows[0] as { readonly vectors: string; readonly near: string };
    });
  for (let { vectors, near } = await counts(); vectors !== near; { vectors, near } = await counts()) {
    await store.memory.addVectors('m', []);
  }
  await withClient(url, (client) => client.query('VACUUM ANALYZE'));
  const rename = (from: string, to: string): Promise<unknown> =>
    withClient(url, (client) => client.query(`ALTER TABLE treadle.${from} RENAME TO ${to}`));
  const random = randomFrom(3);
  console.log(
    '\n| p50 (p99), and CPU time of this process, ms | in this process | pgvector | found the same |\n| --- | ---: | ---: | ---: |',
  );
  for (const [who, reader] of Object.entries(READERS)) {
    const vectors = Array.from({ length: NEAREST }, () => vector(random));
    const found: Record<'apart' | 'near', string[]> = { apart: [], near: [] };
    const all = { apart: timer(), near: timer() };
    for (const one of vectors) {
      for (const way of ['near', 'apart'] as const) {
        if (way === 'apart') await rename('memory_near', 'memory_hidden');
        const items = await all[way].time(() => store.memory.nearest(reader, { model: 'm', vector: one, limit: 10 }));
        found[way].push(items.map(({ id }) => id).join());
        if (way === 'apart') await rename('memory_hidden', 'memory_near');
      }
    }
    const same = found.near.filter((ids, index) => ids === found.apart[index]).length;
    console.log(`| ${who} | ${all.apart.text()} | ${all.near.text()} | ${same} of ${NEAREST} |`);
  }
  await store.close();
}

async function times(count: number, find: () => Promise<unknown>): Promise<string> {
  const { time, text } = timer();
  for (let n = 0; n < count; n++) await time(find);
  return text();
}

interface Timer {
  readonly time: <T>(work: () => Promise<T>) => Promise<T>;
  readonly text: () => string;
}

function timer(): Timer {
  const all: number[] = [];
  let cpu = 0;
  return {
    async time(work) {
      const [from, used] = [performance.now(), process.cpuUsage()];
      const value = await work();
      all.push(performance.now() - from);
      const { user, system } = process.cpuUsage(used);
      cpu += user + system;
      return value;
    },
    text() {
      const sorted = all.toSorted((a, b) => a - b);
      const at = (share: number): string =>
        sorted[Math.min(all.length - 1, Math.floor(all.length * share))]!.toFixed(1);
      return `${at(0.5)} (${at(0.99)}), ${(cpu / 1_000 / all.length).toFixed(1)}`;
    },
  };
}
