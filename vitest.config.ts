import { defineConfig } from 'vitest/config';

export default defineConfig({
  resolve: { conditions: ['treadle-source'] },
  ssr: { resolve: { conditions: ['treadle-source'] } },
  test: {
    include: ['packages/*/src/**/*.test.ts', 'test/**/*.test.ts'],
    exclude: ['test/long/**', '**/node_modules/**'],
    setupFiles: ['test/seed.ts'],
  },
});
