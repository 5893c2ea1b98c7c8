import { globSync, readFileSync } from 'node:fs';
import { defineConfig } from 'vitest/config';
import base from './vitest.config.ts';

const { projects: _, ...shared } = base.test!;

/** Files with properties, of which `npm test` tries a part of the cases. */
const PROPERTIES = globSync(['packages/*/src/**/*.test.ts', 'test/**/*.test.ts'], { cwd: import.meta.dirname }).filter(
  (file) => readFileSync(new URL(file, import.meta.url), 'utf8').includes('TREADLE_CASES'),
);

export default defineConfig({
  ...base,
  test: {
    ...shared,
    exclude: ['**/node_modules/**'],
    testTimeout: 600_000,
    projects: [
      {
        extends: true,
        test: {
          name: 'long',
          include: ['test/long/**/*.test.ts', ...PROPERTIES],
          env: { ...shared.env, TREADLE_CASES: '10' },
        },
      },
      {
        extends: true,
        // What `npm test` runs on SQLite.
        test: {
          name: 'postgres',
          include: [
            'test/{server,mcp,memory}/**/*.test.ts',
            'test/budgets/killed.test.ts',
            'test/crash/{crash-loop,family}.test.ts',
          ],
          isolate: false,
          env: { ...shared.env, TREADLE_TEST_STORE: 'PostgreSQL' },
        },
      },
    ],
  },
});
