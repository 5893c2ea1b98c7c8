import { existsSync, readFileSync, statfsSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
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
  /test\/(invariants|simulation|crash|docs|store|journal|agents\/properties|policy\/swaps|policy\/commands|server\/(load|backpressure))/;

const MEMORY = '/dev/shm';

/** Whether tests can make their folders in memory, and run programs there: a commit of a store waits for the disk. */
function hasMemoryFolder(): boolean {
  if (!existsSync('/proc/mounts')) return false;
  const mounts = readFileSync('/proc/mounts', 'utf8').split('\n');
  const [, , , options] = mounts.findLast((line) => line.split(' ')[1] === MEMORY)?.split(' ') ?? [];
  if (options === undefined || !/^rw\b/.test(options) || /\bnoexec\b/.test(options)) return false;
  const { bavail, bsize } = statfsSync(MEMORY);
  return bavail * bsize > 4 * 1024 ** 3;
}

/** `TREADLE_DISK` is for what is large and stays, such as an unpacked browser. */
const FOLDERS = hasMemoryFolder() ? { TMPDIR: MEMORY, TREADLE_DISK: tmpdir() } : {};

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
    // Processes that tests start take the compiled modules of earlier ones, and start in less than half the time. What the engines of
    // sandboxes keep is tested once, and not for each home folder that a test makes. Nothing is written to the home folder of people.
    env: {
      NODE_COMPILE_CACHE: fileURLToPath(new URL('.cache/node', import.meta.url)),
      XDG_CACHE_HOME: fileURLToPath(new URL('.cache/tests', import.meta.url)),
    },
    // Only to end tests that hang: a test must not fail because the machine is busy.
    testTimeout: 60_000,
    hookTimeout: 60_000,
    expect: { poll: { timeout: 60_000 } },
    // Some tests wait for a timer, a lease or a process. More workers than cores make use of that time.
    maxWorkers: availableParallelism() + 2,
    sequence: { sequencer: LongFilesFirst },
    projects: [
      {
        extends: true,
        test: {
          name: 'shared',
          include: TESTS,
          exclude: [...NO_TESTS, ...ISOLATED],
          isolate: false,
          env: FOLDERS,
        },
      },
      { extends: true, test: { name: 'isolated', include: ISOLATED, exclude: NO_TESTS } },
    ],
  },
});
