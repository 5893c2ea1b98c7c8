import { defineConfig } from 'vitest/config';
import base from './vitest.config.ts';

export default defineConfig({
  ...base,
  test: { ...base.test, include: ['test/long/**/*.test.ts'], exclude: ['**/node_modules/**'], testTimeout: 600_000 },
});
