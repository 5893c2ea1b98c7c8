/**
 * Checks the boundaries between packages and the purity of the state machine: `node scripts/boundaries.ts [root]`.
 *
 * 1. A package imports only from lower layers, by the names that the other package exports. The page also has types of the
 *    server, from modules that need nothing of Node.
 * 2. Whatever a package imports is in its package.json, and the other way round.
 * 3. The core runs in any JavaScript runtime. No other package than the store, and tests, uses a database.
 * 4. Folders inside a package import in one direction, as FOLDERS says.
 * 5. The state machine uses no clock, no randomness and no I/O. The driver and the journal operations take clock and ids
 *    from a port.
 * 6. Modules of a package do not import each other in a cycle; those of different folders of the server not even as types.
 * 7. `index.ts` is a list of named exports.
 * 8. In the server, only `requests/` drives runs.
 * 9. What makes the events of a run for the clients of an API uses no clock, no randomness and no I/O.
 */
import { existsSync, globSync, readFileSync } from 'node:fs';
import { isBuiltin } from 'node:module';
import path from 'node:path/posix';
import { COMPUTED, readModules, type Import, type Module } from './modules.ts';

/** Lowest first. A package imports only packages of lower layers. */
const LAYERS = [['core'], ['models', 'store', 'console'], ['tools'], ['edge'], ['server'], ['treadle']];
/** What databases are used by, which only the store imports. */
const DATABASES = /^(node:)?sqlite$|^pg(-|$)/;
/** Packages that no other package imports. The page runs in a browser, where it replays journals with the core. */
const APART = ['console'];
/** The one entry point of a higher layer that a package imports, only as types. */
const WIRE = { importer: 'console', specifier: '@treadle/server/wire' };
/** Folders outside of the packages. They may import every package. */
const OUTSIDE = ['test', 'examples', 'scripts'];
/** Also outside, with dependencies that the workspace does not install. */
const BENCH = 'bench';

/** Folders of a package, and what their modules may not import, not even as a type. */
const FOLDERS: readonly { readonly folder: string; readonly mayNotImport: readonly string[] }[] = [
  {
    folder: 'core/src/machine',
    mayNotImport: ['driver', 'journal', 'tools', 'agents', 'testing', 'platform.ts', 'index.ts'],
  },
  { folder: 'core/src/journal', mayNotImport: ['driver', 'agents', 'testing'] },
  { folder: 'core/src/driver', mayNotImport: ['agents', 'testing'] },
  { folder: 'server/src/http', mayNotImport: ['engine', 'history', 'parse', 'requests', 'apis', 'openapi'] },
  { folder: 'server/src/engine', mayNotImport: ['requests', 'parse', 'apis', 'openapi'] },
  { folder: 'server/src/parse', mayNotImport: ['apis', 'openapi'] },
  { folder: 'server/src/requests', mayNotImport: ['parse', 'apis', 'openapi'] },
  {
    folder: 'server/src/history',
    mayNotImport: ['openapi', 'apis/completions', 'apis/messages', 'apis/mcp', 'apis/runs'],
  },
  { folder: 'server/src/openapi', mayNotImport: ['engine', 'history', 'requests', 'apis'] },
  { folder: 'server/src/apis/runs', mayNotImport: ['apis/completions', 'apis/chat', 'apis/responses', 'apis/mcp'] },
  { folder: 'server/src/apis/completions', mayNotImport: ['apis/chat', 'apis/mcp', 'apis/runs', 'apis/messages'] },
  { folder: 'server/src/apis/messages', mayNotImport: ['apis/chat', 'apis/mcp', 'apis/runs', 'apis/completions'] },
  { folder: 'server/src/apis/responses', mayNotImport: ['apis/completions', 'apis/mcp'] },
  { folder: 'server/src/apis/chat', mayNotImport: ['apis/completions', 'apis/mcp'] },
  { folder: 'server/src/apis/mcp', mayNotImport: ['apis/completions', 'apis/chat', 'apis/responses'] },
];

/** Drives a run. In the server only `requests/` does: it checks the key of a request, and gives back what the request holds. */
const DRIVES = /^(startLoop|runLoop|streamLoop|driveRun|executeAgent)$/;
/** Modules outside of it, and why they may. */
const DRIVERS: Readonly<Record<string, string>> = {
  'apis/chat/titles.ts': 'titles are runs in memory with limits of their own, which nobody resumes',
  'apis/mcp/calls.ts': 'starts agents for `Requests.drive`',
};

const MACHINE = 'packages/core/src/machine/';
/** Driver and journal operations: they get clock and ids as arguments. */
const PORTED = ['packages/core/src/driver/', 'packages/core/src/journal/'];
/** Entry points, which choose the default clock and id, or let the event loop turn during long work. */
const ENTRIES = ['driver/run.ts', 'journal/make-fork.ts', 'journal/replay.ts'].map(
  (file) => `packages/core/src/${file}`,
);

/** What the server makes of the items of a run (`requests/projection.ts`). */
const PROJECTION = /^packages\/server\/src\/.*\/(projection|turn-items|output-items|decisions)\.ts$/;

const CLOCK_OR_RANDOM =
  /^(Date|Date\.now|Math|Math\.random|(performance|Temporal|set(Timeout|Interval|Immediate))(\..*)?|crypto(\.(?!subtle$).*)?)$/;

/** The globals that pure code may use. All others of the platform are refused. */
const PURE_GLOBALS: ReadonlySet<string> = new Set(
  (
    'undefined NaN Infinity Object Array String Number Boolean Symbol BigInt RegExp Map Set WeakMap JSON Math Error Promise ' +
    'AbortSignal TextEncoder structuredClone Uint8Array Uint16Array Uint32Array DataView'
  ).split(' '),
);
/** Members of those that are not pure. */
const IMPURE_MEMBERS = /^(Math|Math\.random|(Math|AbortSignal|Object|Promise)\.\?|AbortSignal\.timeout)$/;
const GLOBALS: ReadonlySet<string> = new Set([
  ...Object.getOwnPropertyNames(globalThis),
  ...'self window document require module EventSource XMLHttpRequest localStorage Temporal'.split(' '),
]);

/** A package, or what lies outside all packages. */
interface Part {
  /** The package's folder under `packages/`; undefined outside. */
  readonly folder: string | undefined;
  readonly manifestFile: string;
  readonly manifest: Manifest;
  readonly modules: readonly Module[];
}

interface Manifest {
  readonly name: string;
  readonly exports?: Readonly<Record<string, unknown>>;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly peerDependencies?: Readonly<Record<string, string>>;
  readonly devDependencies?: Readonly<Record<string, string>>;
}

interface Violation {
  readonly file: string;
  readonly line: number;
  /** What is wrong, and what to do. */
  readonly message: string;
}

export function findViolations(root: string): Violation[] {
  const packages = globSync('packages/*/package.json', { cwd: root })
    .map((file) => path.basename(path.dirname(file.replaceAll('\\', '/'))))
    .toSorted()
    .map((folder) => readPart(root, `packages/${folder}/package.json`, [`packages/${folder}`]));
  const outside = readPart(root, 'package.json', OUTSIDE);
  const bench = readPart(root, `${BENCH}/package.json`, [BENCH]);

  if (!packages.some(({ modules }) => modules.length > 0)) {
    return [{ file: 'packages', line: 1, message: `no source files in ${root}, give the root of the repository` }];
  }
  return [...packages, outside, bench].flatMap((part) => [
    ...packagesWithoutLayer(part),
    ...malformed(part),
    ...misplacedImports(part, packages, outside.manifest),
    ...wireTypesForNode(part),
    ...unusedDependencies(part),
    ...misplacedFolderImports(part),
    ...runsDrivenElsewhere(part),
    ...ambientNames(part),
    ...cycles(part),
    ...cyclesOfFolders(part),
  ]);
}

function* packagesWithoutLayer({ folder, manifestFile }: Part): Iterable<Violation> {
  if (folder === undefined || LAYERS.flat().includes(folder)) return;
  yield {
    file: manifestFile,
    line: 1,
    message: `package ${folder} has no layer, add it to LAYERS in scripts/boundaries.ts`,
  };
}

function* malformed({ folder, modules }: Part): Iterable<Violation> {
  for (const { file, syntaxErrors, starExports, ownStatements } of modules) {
    for (const { line, message } of syntaxErrors) yield { file, line, message: `${message}, correct the syntax` };
    for (const { line } of starExports) {
      yield { file, line, message: '`export *` hides what is public, name each export' };
    }
    if (folder === undefined || path.basename(file) !== 'index.ts') continue;
    for (const { line } of ownStatements) {
      yield { file, line, message: "index.ts holds only `export { … } from '…'`, move this to a module of its own" };
    }
  }
}

function* misplacedImports(part: Part, packages: readonly Part[], root: Manifest): Iterable<Violation> {
  for (const module of part.modules) {
    for (const { line, ...imported } of module.imports) {
      const message = problemOf(imported, module);
      if (message) yield { file: module.file, line, message };
    }
  }

  function problemOf({ specifier, typeOnly }: Omit<Import, 'line'>, { file, isTest }: Module): string | undefined {
    if (specifier === COMPUTED) return undefined;
    if (specifier.startsWith('.')) {
      if (folderOf(path.join(path.dirname(file), specifier)) === part.folder) return undefined;
      return `'${specifier}' crosses the boundary of a package, import that package by its name`;
    }
    const name = packageNameOf(specifier);
    if (DATABASES.test(name) && part.folder !== undefined && part.folder !== 'store' && !isTest) {
      return `only the store uses a database, use a port of \`Store\` instead of '${specifier}'`;
    }
    if (isBuiltin(specifier)) {
      if (part.folder !== 'core' || isTest || file.startsWith('packages/core/src/testing/')) return undefined;
      return `core may not import '${specifier}' from Node, take what it needs through a port`;
    }
    const target = packages.find(({ manifest }) => manifest.name === name);
    if (target && target === part) {
      return isTest ? undefined : `'${specifier}' is the package itself, import by a relative path`;
    }
    if (target) {
      const offered = Object.keys(target.manifest.exports ?? {}).map((key) => path.join(name, key));
      if (!offered.includes(specifier)) return `'${specifier}' is not exported, import ${offered.join(' or ')}`;
      if (part.folder === undefined) return undefined;
      const isWire = part.folder === WIRE.importer && specifier === WIRE.specifier;
      if (isWire && !typeOnly) return `import '${specifier}' only as a type: the page does not contain the server`;
      if (!isWire && !isBelow(target, part)) {
        return `${part.folder} may not import ${target.folder}, move what both need to a layer below them`;
      }
    }
    const { dependencies, peerDependencies, devDependencies } = part.manifest;
    const declared = { ...dependencies, ...peerDependencies };
    if (isTest || part.folder === undefined) Object.assign(declared, devDependencies, root.devDependencies);
    return name in declared ? undefined : `${name} is not a dependency, add it to ${part.manifestFile}`;
  }
}

/** Types of Node would hide in the page that something does not exist in a browser. */
function* wireTypesForNode({ manifest, manifestFile, modules }: Part): Iterable<Violation> {
  const entries = Object.entries(manifest.exports ?? {});
  const [, wire] = entries.find(([key]) => path.join(manifest.name, key) === WIRE.specifier) ?? [];
  if (!wire) return;
  const { 'treadle-source': source } = wire as { readonly 'treadle-source': string };
  const byFile = new Map(modules.map((module) => [module.file, module]));
  const reached = new Set(modules.filter(({ file }) => file === path.join(path.dirname(manifestFile), source)));
  for (const { file, imports } of reached) {
    for (const { line, specifier, typeOnly } of imports) {
      const imported = byFile.get(path.join(path.dirname(file), specifier));
      if (typeOnly && imported) reached.add(imported);
      else if (!typeOnly || packageNameOf(specifier) !== '@treadle/core') {
        const message = `pages import these types, so import only types here, of core or by a relative path, not '${specifier}'`;
        yield { file, line, message };
      }
    }
  }
}

function* unusedDependencies({ manifest, manifestFile, modules }: Part): Iterable<Violation> {
  const imports = modules.filter(({ isTest }) => !isTest).flatMap((module) => module.imports);
  const used = new Set(imports.map(({ specifier }) => packageNameOf(specifier)));
  for (const name of Object.keys(manifest.dependencies ?? {})) {
    if (used.has(name)) continue;
    yield { file: manifestFile, line: 1, message: `dependency ${name} is never imported, remove it` };
  }
}

function* misplacedFolderImports({ modules }: Part): Iterable<Violation> {
  const pure = pureModules(modules);
  for (const module of modules) {
    const { file, isTest, imports } = module;
    const rule = pure.has(module) ? FOLDERS[0] : FOLDERS.find(({ folder }) => file.startsWith(`packages/${folder}/`));
    if (isTest || !rule) continue;
    const source = `packages/${rule.folder.split('/').slice(0, 2).join('/')}/`;
    for (const { line, specifier } of imports) {
      const target = path.join(path.dirname(file), specifier);
      const folder = rule.mayNotImport.find((name) => `${target}/`.startsWith(`${source}${name}/`));
      if (!specifier.startsWith('.') || folder === undefined) continue;
      const message = `${rule.folder} may not import ${specifier}, because ${folder} depends on it; move what both need`;
      yield { file, line, message };
    }
  }
}

function* runsDrivenElsewhere({ folder, modules }: Part): Iterable<Violation> {
  if (folder !== 'server') return;
  for (const { file, isTest, names } of modules) {
    const own = file.replace('packages/server/src/', '');
    if (isTest || own === file || own.startsWith('requests/') || own in DRIVERS) continue;
    for (const { line, name } of names) {
      if (!DRIVES.test(name)) continue;
      yield {
        file,
        line,
        message: `${name} drives a run outside of requests/, use \`Requests\` (requests/requests.ts)`,
      };
    }
  }
}

/** The modules of the state machine, and all that they import, also as types. */
function pureModules(modules: readonly Module[]): ReadonlySet<Module> {
  const byFile = new Map(modules.map((module) => [module.file, module]));
  const pure = new Set(modules.filter(({ file, isTest }) => !isTest && file.startsWith(MACHINE)));
  const forbidden = FOLDERS[0]!.mayNotImport.map((name) => `packages/core/src/${name}`);
  for (const { file, imports } of pure) {
    for (const { specifier } of imports) {
      const target = path.join(path.dirname(file), specifier);
      const imported = byFile.get(target);
      if (imported && !forbidden.some((name) => target === name || target.startsWith(`${name}/`))) pure.add(imported);
    }
  }
  return pure;
}

function* ambientNames({ modules }: Part): Iterable<Violation> {
  const pure = pureModules(modules);
  for (const module of modules) {
    const { file, isTest, names, imports, bindings } = module;
    const isProjection = PROJECTION.test(file);
    const isPure = isProjection || pure.has(module);
    if (isTest || !(isPure || PORTED.some((folder) => file.startsWith(folder)))) continue;
    for (const { line, specifier, typeOnly } of imports) {
      if (isProjection && isBuiltin(specifier))
        yield { file, line, message: `a projection is pure, without ${specifier}` };
      if (isPure && specifier === COMPUTED) yield { file, line, message: 'the argument of import() must be a literal' };
      if (isPure || typeOnly || ENTRIES.includes(file) || !specifier.endsWith('/platform.ts')) continue;
      yield { file, line, message: `import ${specifier} only as a type, take clock and ids as arguments` };
    }
    for (const { line, name } of names) {
      const bare = name.replace(/^globalThis\./, '');
      const [base = ''] = name.split('.');
      const isImpure =
        (GLOBALS.has(base) && !PURE_GLOBALS.has(base) && !bindings.has(base)) || IMPURE_MEMBERS.test(name);
      if (isPure ? !isImpure : !CLOCK_OR_RANDOM.test(bare)) continue;
      const owner = isProjection ? 'a projection' : 'the state machine';
      const remedy = isPure ? `${owner} is pure: take it from an event` : 'take it from a port';
      yield { file, line, message: `${name} is not allowed here, ${remedy}` };
    }
  }
}

function cycles({ modules }: Part): Violation[] {
  const found: Violation[] = [];
  const byFile = new Map(modules.map((module) => [module.file, module]));
  const done = new Set<Module>();
  for (const module of modules) follow(module, []);
  return found;

  function follow(module: Module, trail: readonly Module[]): void {
    if (done.has(module)) return;
    const here = [...trail, module];
    for (const { line, specifier, typeOnly } of module.imports) {
      const next = byFile.get(path.join(path.dirname(module.file), specifier));
      if (typeOnly || !next) continue;
      if (!here.includes(next)) {
        follow(next, here);
        continue;
      }
      const cycle = [...here.slice(here.indexOf(next)), next].map(({ file }) => path.basename(file)).join(' → ');
      const message = `import cycle ${cycle}, move what they share to a module of its own`;
      found.push({ file: module.file, line, message });
    }
    done.add(module);
  }
}

/** Modules of several folders of the server that need each other, also if only as types. */
function* cyclesOfFolders({ folder, modules }: Part): Iterable<Violation> {
  if (folder !== 'server') return;
  for (const group of cyclicGroups(modules.filter(({ isTest }) => !isTest))) {
    const files = group.map(({ file }) => file).toSorted();
    if (new Set(files.map((file) => path.dirname(file))).size === 1) continue;
    const names = files.map((file) => file.replace('packages/server/src/', '')).join(', ');
    const message = `${names} import each other, at least as types, across folders; move the types that they share below both`;
    yield { file: files[0]!, line: 1, message };
  }
}

/** The strongly connected components of more than one module, by Tarjan's algorithm. */
function cyclicGroups(modules: readonly Module[]): readonly (readonly Module[])[] {
  const byFile = new Map(modules.map((module) => [module.file, module]));
  const order = new Map<Module, number>();
  const open: Module[] = [];
  const groups: (readonly Module[])[] = [];
  for (const module of modules) if (!order.has(module)) visit(module);
  return groups;

  /** Returns the place of the first module of its group. */
  function visit(module: Module): number {
    const place = order.size;
    let first = place;
    order.set(module, place);
    open.push(module);
    for (const { specifier } of module.imports) {
      const next = byFile.get(path.join(path.dirname(module.file), specifier));
      if (!next) continue;
      if (!order.has(next)) first = Math.min(first, visit(next));
      else if (open.includes(next)) first = Math.min(first, order.get(next)!);
    }
    if (first === place) {
      const group = open.splice(open.indexOf(module));
      if (group.length > 1) groups.push(group);
    }
    return first;
  }
}

function readPart(root: string, manifestFile: string, sources: readonly string[]): Part {
  const at = path.join(root, manifestFile);
  return {
    folder: folderOf(manifestFile),
    manifestFile,
    manifest: existsSync(at) ? JSON.parse(readFileSync(at, 'utf8')) : { name: '' },
    modules: sources.flatMap((source) => readModules(root, source)),
  };
}

function isBelow(target: Part, part: Part): boolean {
  const [low, high] = [target, part].map(({ folder }) => LAYERS.findIndex((layer) => layer.includes(folder!)));
  return low! >= 0 && low! < high! && !APART.includes(target.folder!);
}

function folderOf(file: string): string | undefined {
  return /^packages\/([^/]+)/.exec(file)?.[1];
}

/** `@scope/name/deep/path` and `name/deep/path` without the path. */
function packageNameOf(specifier: string): string {
  return /^(@[^/]+\/)?[^/]*/.exec(specifier)![0];
}

if (import.meta.main) {
  const violations = findViolations(process.argv[2] ?? '.');
  for (const { file, line, message } of violations) console.error(`${file}:${line}: ${message}`);
  if (violations.length > 0) process.exitCode = 1;
}
