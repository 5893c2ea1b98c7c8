import { execFileSync } from 'node:child_process';
import { existsSync, globSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Entry } from '../contenders/list.ts';
import type { Verdict } from './job.ts';

const BENCH = path.resolve(import.meta.dirname, '..');
const ROOT = path.resolve(BENCH, '..');

/** The installed size of a contender: bytes and packages. */
export function installed({ kind, imports }: Entry): Verdict {
  const names = [...new Set(imports.map((name) => /^(@[^/]+\/)?[^/]+/.exec(name)![0]))];
  if (kind === 'ours') return packed(names);
  const home = [BENCH, ROOT].find((folder) =>
    names.every((name) => existsSync(path.join(folder, 'node_modules', name))),
  );
  if (home === undefined) return { type: 'failed', what: 'not installed' };
  const found = new Set<string>();
  for (const name of names) follow(home, lockOf(home), `node_modules/${name}`, found);
  return measured([...found].map((place) => path.join(home, place)));
}

interface Locked {
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
  readonly peerDependencies?: Readonly<Record<string, string>>;
  readonly peerDependenciesMeta?: Readonly<Record<string, { optional?: boolean }>>;
}

function lockOf(home: string): Readonly<Record<string, Locked>> {
  const text = readFileSync(path.join(home, 'package-lock.json'), 'utf8');
  return (JSON.parse(text) as { packages: Readonly<Record<string, Locked>> }).packages;
}

/** Adds the folders of a package and of all its dependencies, as Node resolves them. */
function follow(home: string, lock: Readonly<Record<string, Locked>>, place: string, found: Set<string>): void {
  if (found.has(place) || !existsSync(path.join(home, place))) return;
  found.add(place);
  const { dependencies, optionalDependencies, peerDependencies, peerDependenciesMeta } = lock[place] ?? {};
  const peers = Object.keys(peerDependencies ?? {}).filter((name) => !peerDependenciesMeta?.[name]?.optional);
  for (const name of [...Object.keys({ ...dependencies, ...optionalDependencies }), ...peers]) {
    for (let from = place; ; from = from.slice(0, Math.max(0, from.lastIndexOf('/node_modules/')))) {
      const candidate = from === '' ? `node_modules/${name}` : `${from}/node_modules/${name}`;
      if (candidate in lock) follow(home, lock, candidate, found);
      if (candidate in lock || from === '') break;
    }
  }
}

/** Packs our packages as for publication and installs them into an empty folder. */
function packed(names: readonly string[]): Verdict {
  const folder = mkdtempSync(path.join(tmpdir(), 'treadle-install-'));
  try {
    const spaces = names.flatMap((name) => ['--workspace', name]);
    const npm = (args: readonly string[], cwd: string): void =>
      void execFileSync('npm', args, { cwd, stdio: 'ignore', shell: process.platform === 'win32' });
    npm(['pack', ...spaces, '--pack-destination', folder], ROOT);
    const tarballs = globSync('*.tgz', { cwd: folder }).map((file) => `./${file}`);
    writeFileSync(path.join(folder, 'package.json'), '{ "private": true }');
    npm(['install', '--no-audit', '--no-fund', ...tarballs], folder);
    const places = Object.keys(lockOf(folder)).filter((place) => place !== '');
    return measured(places.map((place) => path.join(folder, place)));
  } catch (thrown) {
    return { type: 'failed', what: String(thrown).split('\n', 1)[0]! };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function measured(places: readonly string[]): Verdict {
  const bytes = places.map(sizeOf).reduce((sum, size) => sum + size, 0);
  return { type: 'measured', values: { megabytes: bytes / 1e6, packages: places.length } };
}

/** Without nested packages, which are counted separately. */
function sizeOf(place: string): number {
  const files = globSync('**/*', { cwd: place, exclude: ['node_modules', '**/node_modules'] });
  return files.reduce((sum, file) => sum + fileSize(path.join(place, file)), 0);
}

function fileSize(file: string): number {
  const stat = statSync(file, { throwIfNoEntry: false });
  return stat?.isFile() ? stat.size : 0;
}
