/** Bundles @treadle/core with its dependencies, to measure its size: `npm run size`. */
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
      preserveEntrySignatures: 'strict',
      output: { entryFileNames: 'core.js' },
    },
  },
});
