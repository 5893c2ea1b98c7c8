import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

const TESTS = ['packages/*/src/**/*.test.ts', 'test/**/*.test.ts'];
const NO_TESTS = ['test/long/**', '**/node_modules/**'];

/** Test files that need a process of their own. All others share processes, which saves loading the same modules again. */
const ISOLATED = [
  // Counts executed blocks by V8 coverage, which is exact only for code that has not run before.
  'packages/core/src/**/long-run.test.ts',
  // Collects garbage many times, which takes long in a process with the objects of other tests.
  'packages/core/src/**/large-result.test.ts',
];

/** Test files that take long. They run first, so that at the end no worker waits for the one that has such a file. */
const LONG =
  /test\/(invariants|simulation|crash|docs|policy\/swaps|policy\/commands|server\/(load|memory|backpressure))/;

class LongFilesFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const isLong = ({ moduleId, project }: TestSpecification): boolean => project.config.isolate || LONG.test(moduleId);
    return [...sorted.filter(isLong), ...sorted.filter((file) => !isLong(file))];
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
