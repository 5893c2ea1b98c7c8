/**
 * The environment of processes that tests start. A key in the environment of the tests must not reach them. What all processes
 * cache is in the same folders (`vitest.config.ts`), so that each starts in less than half the time.
 */
export const PROCESS_ENV = {
  PATH: process.env['PATH'] ?? '',
  NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'] ?? '',
  XDG_CACHE_HOME: process.env['XDG_CACHE_HOME'] ?? '',
};
