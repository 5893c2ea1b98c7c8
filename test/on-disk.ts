import { afterAll, beforeAll } from 'vitest';

/** For tests that depend on the place of temporary files, which are in memory otherwise (`vitest.config.ts`). */
export function useDisk(): void {
  const { TMPDIR, TREADLE_DISK } = process.env;
  if (TREADLE_DISK === undefined) return;
  beforeAll(() => void (process.env['TMPDIR'] = TREADLE_DISK));
  afterAll(() => void (process.env['TMPDIR'] = TMPDIR));
}
