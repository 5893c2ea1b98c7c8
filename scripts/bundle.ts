/**
 * Bundles the JavaScript of every package: one file per entry point, and shared chunks. Resolving and reading a hundred
 * small files takes longer than running them, so published packages contain few.
 */
import { cpSync, globSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { rolldown } from 'rolldown';
import { buildPage, PAGE } from './build-page.ts';

interface Manifest {
  readonly private?: boolean;
  /** Without `default`: it has only types. */
  readonly exports: Readonly<Record<string, { readonly 'treadle-source': string; readonly default?: string }>>;
  readonly bin?: Readonly<Record<string, string>>;
}

for (const file of globSync('packages/*/package.json')) {
  const folder = path.dirname(file);
  const { exports, bin = {}, private: isPrivate } = JSON.parse(readFileSync(file, 'utf8')) as Manifest;
  if (isPrivate) continue;
  const sources = Object.values(exports).flatMap(({ 'treadle-source': source, default: out }) => (out ? source : []));
  const commands = Object.values(bin).map((out) => out.replace('./dist/', './src/').replace(/\.js$/, '.ts'));
  // Files that are started as worker threads, by their path.
  const workers = globSync('src/**/worker.ts', { cwd: folder }).map((source) => `./${source.replaceAll('\\', '/')}`);
  const input = Object.fromEntries(
    [...sources, ...commands, ...workers].map((source) => [
      source.replace('./src/', '').replace(/\.ts$/, ''),
      path.resolve(folder, source),
    ]),
  );
  for (const old of globSync(`${folder}/dist/**/*.{js,js.map}`)) rmSync(old);
  const bundle = await rolldown({
    input,
    platform: 'node',
    external: (id) => !id.startsWith('.') && !path.isAbsolute(id),
  });
  await bundle.write({ dir: path.join(folder, 'dist'), sourcemap: true, chunkFileNames: '[name]-[hash].js' });
  await bundle.close();
}

// The server finds it beside its own files.
await buildPage();
rmSync('packages/server/dist/page', { recursive: true, force: true });
cpSync(PAGE, 'packages/server/dist/page', { recursive: true });
