import { defineConfig } from 'vitest/config';

export default defineConfig({
  resolve: { conditions: ['treadle-source'] },
  ssr: { resolve: { conditions: ['treadle-source'] } },
  test: {
    include: ['packages/*/src/**/*.test.ts', 'test/**/*.test.ts'],
    exclude: ['test/long/**', '**/node_modules/**'],
    setupFiles: ['test/seed.ts'],
    // Against hanging only: a machine that is busy with something else makes no test fail.
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
});
