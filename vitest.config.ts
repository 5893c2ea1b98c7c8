import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

const TESTS = ['packages/*/src/**/*.test.ts', 'test/**/*.test.ts'];
const NO_TESTS = ['test/long/**', '**/node_modules/**'];

/** Test files that need a process of their own. All others share processes, which saves loading the same modules again. */
const ISOLATED = [
  // Counts executed blocks by V8 coverage, which is exact only for code that has not run before.
  'test/work/**/*.test.ts',
  // Collects garbage many times, which takes long in a process with the objects of other tests.
  'packages/core/src/**/large-result.test.ts',
];

/**
 * Test files that start many processes. They run before all others: starting a process takes several times as long in a
 * worker whose memory has grown.
 */
const MANY_PROCESSES =
  /src\/(git|files\/search|local\/exec|shell\/bash)|test\/(tasks|sandbox|policy\/commands|crash\/kill)/;

/** Test files that take long. They run next, so that at the end no worker waits for the one that has such a file. */
const LONG =
  /test\/(invariants|simulation|crash|docs|policy\/swaps|policy\/commands|server\/(load|memory|backpressure))/;

class LongFilesFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const place = ({ moduleId, project }: TestSpecification): number => {
      if (project.config.isolate) return 0;
      if (MANY_PROCESSES.test(moduleId)) return 1;
      return LONG.test(moduleId) ? 2 : 3;
    };
    return (await super.sort(files)).sort((a, b) => place(a) - place(b));
  }
}

export default defineConfig({
  resolve: { conditions: ['treadle-source'] },
  ssr: { resolve: { conditions: ['treadle-source'] } },
  test: {
    setupFiles: ['test/seed.ts'],
    // Processes that tests start take the compiled modules of earlier ones, and start in less than half the time.
    env: { NODE_COMPILE_CACHE: fileURLToPath(new URL('.cache/node', import.meta.url)) },
    // Only to end tests that hang: a test must not fail because the machine is busy.
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // Vitest leaves one core idle by default, which is half of a machine with two.
    maxWorkers: '100%',
    sequence: { sequencer: LongFilesFirst },
    projects: [
      { extends: true, test: { name: 'shared', include: TESTS, exclude: [...NO_TESTS, ...ISOLATED], isolate: false } },
      { extends: true, test: { name: 'isolated', include: ISOLATED, exclude: NO_TESTS } },
    ],
  },
});
