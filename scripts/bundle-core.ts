/**
 * Bundles @treadle/core with its dependencies, to measure its size: `npm run size`. What is loaded later, when it is first
 * used, does not count.
 */
import { rm } from 'node:fs/promises';
import { build } from 'rolldown';

const FOLDER = '.cache/size';

await rm(FOLDER, { recursive: true, force: true });
await build({
  input: 'packages/core/dist/index.js',
  platform: 'browser',
  preserveEntrySignatures: 'allow-extension',
  output: {
    dir: FOLDER,
    minify: true,
    codeSplitting: { groups: [{ name: 'initial', tags: ['$initial'] }] },
    entryFileNames: 'core.js',
    chunkFileNames: ({ isDynamicEntry }) => (isDynamicEntry ? 'later/[name].js' : 'core-[name].js'),
  },
});
