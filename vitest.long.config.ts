import { defineConfig } from 'vitest/config';
import base from './vitest.config.ts';

const { projects: _, ...shared } = base.test!;

export default defineConfig({
  ...base,
  test: { ...shared, include: ['test/long/**/*.test.ts'], exclude: ['**/node_modules/**'], testTimeout: 600_000 },
});
