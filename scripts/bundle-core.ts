/**
 * Bundles @treadle/core with its dependencies, to measure its size: `npm run size`. What is loaded later, when it is first
 * used, does not count.
 */
import { build } from 'vite';

await build({
  configFile: false,
  logLevel: 'warn',
  build: {
    target: 'esnext',
    outDir: '.cache/size',
    emptyOutDir: true,
    modulePreload: false,
    rolldownOptions: {
      input: 'packages/core/dist/index.js',
      preserveEntrySignatures: 'allow-extension',
      output: {
        entryFileNames: 'core.js',
        chunkFileNames: ({ isDynamicEntry }) => (isDynamicEntry ? 'later/[name].js' : 'core-[name].js'),
      },
    },
  },
});
