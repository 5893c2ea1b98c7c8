import { defineConfig } from 'vitest/config';
import base from './vitest.config.ts';

export default defineConfig({
  ...base,
  test: { include: ['test/long/**/*.test.ts'], testTimeout: 600_000 },
});
