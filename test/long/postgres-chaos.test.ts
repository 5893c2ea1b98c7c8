import { afterEach, expect, test } from 'vitest';
import { stopLeftovers } from '../command/treadle-process.ts';
import { chaos, describeChaos } from '../store/chaos/chaos.ts';

afterEach(stopLeftovers);

/** `TREADLE_SEED` and `TREADLE_CHAOS_RUNS` choose others. */
const SEED = Number(process.env['TREADLE_SEED'] ?? Date.now() % 1_000_000);
const RUNS = Number(process.env['TREADLE_CHAOS_RUNS'] ?? 1_000);

test(
  'three servers on PostgreSQL lose nothing and do nothing twice, whatever is disturbed',
  {
    timeout: 3_600_000,
  },
  async ({ annotate }) => {
    const report = await chaos({
      seed: SEED,
      runs: RUNS,
      atOnce: 20,
      onProgress: (line) => void process.stdout.write(`${line}\n`),
    });
    const described = `seed ${SEED}: ${describeChaos(report)}`;
    process.stdout.write(`${described}\n`);
    await annotate(described);
    const { twice, lost, stuck, untrue, wrong, acted, recovered } = report;
    expect({ twice, lost, stuck, untrue, wrong }).toEqual({ twice: [], lost: [], stuck: [], untrue: [], wrong: [] });
    // Otherwise too little was tried.
    expect(acted).toBeGreaterThan(RUNS);
    expect(recovered).toBeGreaterThan(0);
    for (const times of Object.values(report.faults)) expect(times).toBeGreaterThan(0);
  },
);
