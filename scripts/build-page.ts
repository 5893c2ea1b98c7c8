/**
 * Builds the page of the server, packages/console, if it is not built or older than its sources: `npm run build:page`.
 * `npm start` does it too, so it has to be fast when there is nothing to do.
 */
import { globSync, renameSync, rmSync, statSync } from 'node:fs';
import path from 'node:path';

const CONSOLE = path.resolve(import.meta.dirname, '../packages/console');
/** The folder with the built page. */
export const PAGE: string = path.join(CONSOLE, 'dist');

export async function buildPage(): Promise<void> {
  if (isCurrent()) return;
  const { build, defaultClientConditions } = await import('vite');
  // Several processes may build it at the same time, for example tests.
  const made = `${PAGE}.${process.pid}`;
  const old = `${made}.old`;
  // Vite builds a page for development if a test builds it.
  const environment = process.env['NODE_ENV'];
  process.env['NODE_ENV'] = 'production';
  await build({
    root: CONSOLE,
    configFile: false,
    logLevel: 'warn',
    // The core is not built when the workspace runs from source.
    resolve: { conditions: ['treadle-source', ...defaultClientConditions] },
    oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
    build: {
      target: 'es2024',
      outDir: made,
      emptyOutDir: true,
      // Nothing inline: the security policy of the page forbids it.
      assetsInlineLimit: 0,
      modulePreload: { polyfill: false },
      reportCompressedSize: false,
    },
  }).finally(() => {
    if (environment === undefined) delete process.env['NODE_ENV'];
    else process.env['NODE_ENV'] = environment;
  });
  try {
    rmSync(old, { recursive: true, force: true });
    if (timeOf(PAGE) > 0) renameSync(PAGE, old);
    renameSync(made, PAGE);
  } catch (error) {
    if (!isCurrent()) throw error;
  } finally {
    for (const folder of [made, old]) rmSync(folder, { recursive: true, force: true });
  }
}

function isCurrent(): boolean {
  const built = timeOf(path.join(PAGE, 'index.html'));
  const sources = globSync(['src/**', '*.{html,json}'], { cwd: CONSOLE }).map((file) => path.join(CONSOLE, file));
  const core = globSync('../core/src/**/*.ts', { cwd: CONSOLE }).map((file) => path.join(CONSOLE, file));
  return [...sources, ...core, import.meta.filename].every((file) => timeOf(file) <= built);
}

/** 0 if it does not exist. */
function timeOf(file: string): number {
  return statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0;
}

if (import.meta.main) await buildPage();
