import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { findViolations } from '../scripts/boundaries.ts';

const repository = path.resolve(import.meta.dirname, '..');
const MACHINE = 'packages/core/src/machine';
const SERVER_EXPORTS = { '.': '', './wire': { 'treadle-source': './src/wire.ts' } };
const planted: string[] = [];

afterAll(() => {
  for (const root of planted) rmSync(root, { recursive: true });
});

test('accepts a valid tree', () => {
  expect(findViolations(plant({}))).toEqual([]);
});

test('rejects a tree without sources', () => {
  expect(problems(bare({ 'README.md': '' }))).toEqual([
    expect.stringMatching(/^packages:1: no source files in .*, give the root of the repository$/),
  ]);
});

test('prints every violation and exits with 1 as a command', () => {
  const run = (root: string) => spawnSync(process.execPath, ['scripts/boundaries.ts', root], { cwd: repository });

  const sound = run(plant({}));
  expect([sound.status, sound.stderr.toString()]).toEqual([0, '']);

  const broken = run(plant({ 'packages/core/src/a.ts': "\nimport fs from 'node:fs';\nexport * from './tool.ts';\n" }));
  expect([broken.status, broken.stderr.toString()]).toEqual([
    1,
    'packages/core/src/a.ts:3: `export *` hides what is public, name each export\n' +
      "packages/core/src/a.ts:2: core may not import 'node:fs' from Node, take what it needs through a port\n",
  ]);
});

test.each([
  // Layers, also for tests and for types
  ['packages/core/src/a.ts', "import '@treadle/models';", upward('core', 'models')],
  ['packages/core/src/a.test.ts', "import '@treadle/models';", upward('core', 'models')],
  ['packages/core/src/a.ts', "type A = import('@treadle/models').A;", upward('core', 'models')],
  ['packages/models/src/a.ts', "import '@treadle/tools';", upward('models', 'tools')],
  ['packages/models/src/a.ts', "import 'console-page';", upward('models', 'console')],
  ['packages/console/src/a.ts', "import '@treadle/tools';", upward('console', 'tools')],
  ['packages/server/src/a.ts', "import 'console-page';", upward('server', 'console')],
  // The page has only types of the server
  ['packages/console/src/a.ts', "import { A } from '@treadle/server/wire';", notAsType('@treadle/server/wire')],
  ['packages/console/src/a.ts', "import { type A } from '@treadle/server/wire';", notAsType('@treadle/server/wire')],
  ['packages/console/src/a.ts', "export { A } from '@treadle/server/wire';", notAsType('@treadle/server/wire')],
  ['packages/console/src/a.ts', "await import('@treadle/server/wire');", notAsType('@treadle/server/wire')],
  ['packages/console/src/a.test.ts', "import '@treadle/server/wire';", notAsType('@treadle/server/wire')],
  ['packages/console/src/a.ts', "import type { A } from '@treadle/server';", upward('console', 'server')],
  ['packages/models/src/a.ts', "import type { A } from '@treadle/server/wire';", upward('models', 'server')],
  ['packages/server/src/wire.ts', "export { a } from '@treadle/core';", browser('@treadle/core')],
  // Ways into a package
  ['packages/models/src/a.ts', "import '../../core/src/tool.ts';", crossing('../../core/src/tool.ts')],
  ['packages/core/src/a.test.ts', "import '../../../test/a.ts';", crossing('../../../test/a.ts')],
  ['test/a.test.ts', "import '../packages/core/src/tool.ts';", crossing('../packages/core/src/tool.ts')],
  ['packages/models/src/a.ts', "export { a } from '@treadle/core/src/tool.ts';", deep('@treadle/core/src/tool.ts')],
  ['examples/a.ts', "await import('@treadle/core/dist/tool.js');", deep('@treadle/core/dist/tool.js')],
  [
    'packages/core/src/a.ts',
    "import '@treadle/core';",
    "'@treadle/core' is the package itself, import by a relative path",
  ],
  // Dependencies
  ['packages/core/src/a.ts', "import 'left-pad/deep.js';", undeclared('left-pad', 'packages/core/package.json')],
  ['packages/core/src/a.ts', "import 'vitest';", undeclared('vitest', 'packages/core/package.json')],
  ['bench/a.ts', "import 'left-pad';", undeclared('left-pad', 'bench/package.json')],
  // Databases
  ['packages/server/src/a.ts', "import { DatabaseSync } from 'node:sqlite';", database('node:sqlite')],
  ['packages/server/src/a.ts', "const pg = await import('pg');", database('pg')],
  ['packages/tools/src/a.ts', "import 'pg-pool/lib/index.js';", database('pg-pool/lib/index.js')],
  // The core
  ['packages/core/src/a.ts', "import type { Stats } from 'node:fs';", builtin('node:fs')],
  ['packages/core/src/a.ts', "const fs = await import('fs/promises');", builtin('fs/promises')],
  // The state machine
  [`${MACHINE}/a.ts`, 'const at = Date.now();', impure('Date.now')],
  [`${MACHINE}/a.ts`, 'const at = new Date();', impure('Date')],
  [`${MACHINE}/a.ts`, 'const die = Math.random();', impure('Math.random')],
  [`${MACHINE}/a.ts`, 'Temporal.Now.instant();', impure('Temporal.Now')],
  [`${MACHINE}/a.ts`, 'const { random } = Math;', impure('Math')],
  [`${MACHINE}/finish/a.ts`, 'performance.now();', impure('performance.now')],
  [`${MACHINE}/a.ts`, 'const later = setTimeout;', impure('setTimeout')],
  [`${MACHINE}/a.ts`, 'globalThis.setInterval(f);', impure('globalThis.setInterval')],
  [`${MACHINE}/a.ts`, 'crypto.randomUUID();', impure('crypto.randomUUID')],
  [`${MACHINE}/a.ts`, "await fetch('http://localhost');", impure('fetch')],
  [`${MACHINE}/a.ts`, "import { systemClock } from '../platform.ts';", folder('core/src/machine', '../platform.ts')],
  [`${MACHINE}/a.ts`, "import type { Shell } from '../driver/b.ts';", folder('core/src/machine', '../driver/b.ts')],
  [
    `${MACHINE}/finish/a.ts`,
    "export { a } from '../../journal/b.ts';",
    folder('core/src/machine', '../../journal/b.ts'),
  ],
  [`${MACHINE}/a.ts`, "await import('./b' + '.ts');", 'the argument of import() must be a literal'],
  [`${MACHINE}/a.ts`, 'Date[key]();', impure('Date.?')],
  [`${MACHINE}/a.ts`, "eval('1');", impure('eval')],
  [`${MACHINE}/a.ts`, 'queueMicrotask(f);', impure('queueMicrotask')],
  [`${MACHINE}/a.ts`, 'AbortSignal.timeout(1);', impure('AbortSignal.timeout')],
  [`${MACHINE}/a.ts`, 'new BroadcastChannel("a");', impure('BroadcastChannel')],
  [`${MACHINE}/a.ts`, 'new Intl.DateTimeFormat();', impure('Intl.DateTimeFormat')],
  [`${MACHINE}/a.ts`, "type A = import('../index.ts').A;", folder('core/src/machine', '../index.ts')],
  // The driver and the journal operations
  ['packages/core/src/driver/a.ts', 'const at = Date.now();', 'Date.now is not allowed here, take it from a port'],
  ['packages/core/src/journal/a.ts', 'Math.random();', 'Math.random is not allowed here, take it from a port'],
  [
    'packages/core/src/driver/a.ts',
    "import { systemClock } from '../platform.ts';",
    'import ../platform.ts only as a type, take clock and ids as arguments',
  ],
  ['packages/core/src/journal/a.ts', "import '../driver/b.ts';", folder('core/src/journal', '../driver/b.ts')],
  ['packages/server/src/http/a.ts', "import '../engine/b.ts';", folder('server/src/http', '../engine/b.ts')],
  ...(['engine', 'parse', 'requests', 'openapi'] as const).map((name): [string, string, string] => [
    `packages/server/src/${name}/a.ts`,
    "import '../apis/chat/b.ts';",
    folder(`server/src/${name}`, '../apis/chat/b.ts'),
  ]),
  [
    'packages/server/src/apis/mcp/a.ts',
    "import type { B } from '../chat/b.ts';",
    'server/src/apis/mcp may not import ../chat/b.ts, because apis/chat depends on it; move what both need',
  ],
  // Only one folder of the server drives runs
  ...['runLoop', 'startLoop', 'streamLoop', 'driveRun', 'executeAgent'].map((name): [string, string, string] => [
    'packages/server/src/apis/echo/routes.ts',
    `await ${name}(options);`,
    `${name} drives a run outside of requests/, use \`Requests\` (requests/requests.ts)`,
  ]),
  // Projections are pure
  ...(
    [
      ['apis/echo/projection.ts', "import 'node:fs';", 'a projection is pure, without node:fs'],
      [
        'apis/echo/projection.ts',
        'Date.now();',
        'Date.now is not allowed here, a projection is pure: take it from an event',
      ],
      [
        'requests/projection.ts',
        'setTimeout(f);',
        'setTimeout is not allowed here, a projection is pure: take it from an event',
      ],
    ] as const
  ).map(([file, line, message]): [string, string, string] => [`packages/server/src/${file}`, line, message]),
  // Exports
  ['packages/core/src/a.ts', "export * from './tool.ts';", '`export *` hides what is public, name each export'],
  ['packages/tools/src/index.ts', "import '@treadle/core';", ownStatement()],
  ['packages/core/src/testing/index.ts', 'export const a = 1;', ownStatement()],
  ['packages/core/src/a.ts', 'let = ;', 'Unexpected token, correct the syntax'],
])('rejects %s with %s', (file, line, message) => {
  const root = plant({ [file]: `// A comment with import 'left-pad' in it.\n${line}\n` });
  expect(problems(root)).toEqual([`${file}:2: ${message}`]);
});

test('holds modules that the state machine imports to the same rules', () => {
  const root = plant({
    'packages/core/src/machine/a.ts': "import { b } from '../b.ts'; import type { C } from '../c.ts';",
    'packages/core/src/b.ts': 'export const b = Date.now();',
    'packages/core/src/c.ts': "export type { C } from './driver/d.ts';",
    'packages/core/src/driver/d.ts': 'export type C = 1;',
  });
  expect(problems(root)).toEqual([
    `packages/core/src/c.ts:1: ${folder('core/src/machine', './driver/d.ts')}`,
    `packages/core/src/b.ts:1: ${impure('Date.now')}`,
  ]);
});

test('rejects what the page cannot have in the modules of the wire types', () => {
  const root = plant({
    'packages/server/src/wire.ts': "export type { A } from './apis/chat/wire.ts';",
    'packages/server/src/apis/chat/wire.ts':
      "import type { B } from '../../b.ts';\nimport type { Touch } from '@treadle/core';",
    'packages/server/package.json': manifest('@treadle/server', ['@treadle/core', 'hono'], SERVER_EXPORTS),
    'packages/server/src/b.ts':
      "import type { Socket } from 'node:net';\nimport type { Hono } from 'hono';\nimport { c } from './c.ts';",
    'packages/server/src/c.ts': "import 'node:fs';",
  });
  expect(problems(root)).toEqual([
    `packages/server/src/b.ts:1: ${browser('node:net')}`,
    `packages/server/src/b.ts:2: ${browser('hono')}`,
    `packages/server/src/b.ts:3: ${browser('./c.ts')}`,
  ]);
});

test('rejects a dependency that nothing imports', () => {
  expect(
    problems(plant({ 'packages/models/package.json': manifest('@treadle/models', ['@treadle/core', 'undici']) })),
  ).toEqual(['packages/models/package.json:1: dependency undici is never imported, remove it']);
});

test('rejects a package without a layer', () => {
  expect(problems(plant({ 'packages/extra/package.json': manifest('@treadle/extra', []) }))).toEqual([
    'packages/extra/package.json:1: package extra has no layer, add it to LAYERS in scripts/boundaries.ts',
  ]);
});

test('rejects an import cycle', () => {
  const root = plant({
    'packages/core/src/a.ts': "import { b } from './deep/b.ts';",
    'packages/core/src/deep/b.ts': "export { c } from '../c.ts';",
    'packages/core/src/c.ts': "\nimport { a } from './a.ts';",
  });
  expect(problems(root)).toEqual([
    'packages/core/src/c.ts:2: import cycle a.ts → b.ts → c.ts → a.ts, move what they share to a module of its own',
  ]);
});

test('rejects a cycle between folders of the server, also one of types', () => {
  const root = plant({
    'packages/server/src/engine/a.ts': "import './b.ts';\nimport type { C } from '../http/c.ts';",
    'packages/server/src/engine/b.ts': "import type { A } from './a.ts';",
    'packages/server/src/http/c.ts': "import type { A } from '../ids.ts';",
    'packages/server/src/ids.ts': "import type { B } from './engine/b.ts';",
    'packages/server/src/http/d.ts': "import type { E } from './e.ts';",
    'packages/server/src/http/e.ts': "import type { D } from './d.ts';",
  });
  expect(problems(root)).toEqual([
    'packages/server/src/engine/a.ts:1: engine/a.ts, engine/b.ts, http/c.ts, ids.ts import each other, at least as types, across folders; move the types that they share below both',
  ]);
});

test('allows cycles of types, Node in tests and fakes, and any property name', () => {
  const root = plant({
    'packages/core/src/a.ts': "import type { B } from './b.ts';",
    'packages/core/src/b.ts': "import { a } from './a.ts';",
    'packages/core/src/a.test.ts': "import 'node:fs'; import 'vitest'; import '@treadle/core/testing';",
    'packages/core/src/machine/b.test.ts': 'Date.now();',
    'packages/core/src/testing/files.ts': "import 'node:fs';",
    'packages/core/src/machine/clock.ts':
      "// Date.now()\nconst text = 'Math.random()'; port.crypto({ setTimeout: 1 }); Math.min(1);",
    'test/a.test.ts': "import '@treadle/core'; import 'vitest'; import 'node:fs'; import './b.ts';",
  });
  expect(problems(root)).toEqual([]);
});

function upward(from: string, to: string): string {
  return `${from} may not import ${to}, move what both need to a layer below them`;
}

function notAsType(specifier: string): string {
  return `import '${specifier}' only as a type: the page does not contain the server`;
}

function browser(specifier: string): string {
  return `pages import these types, so import only types here, of core or by a relative path, not '${specifier}'`;
}

function crossing(specifier: string): string {
  return `'${specifier}' crosses the boundary of a package, import that package by its name`;
}

function deep(specifier: string): string {
  return `'${specifier}' is not exported, import @treadle/core or @treadle/core/testing`;
}

function undeclared(name: string, manifestFile: string): string {
  return `${name} is not a dependency, add it to ${manifestFile}`;
}

function database(specifier: string): string {
  return `only the store uses a database, use a port of \`Store\` instead of '${specifier}'`;
}

function builtin(name: string): string {
  return `core may not import '${name}' from Node, take what it needs through a port`;
}

function impure(name: string): string {
  return `${name} is not allowed here, the state machine is pure: take it from an event`;
}

function folder(from: string, specifier: string): string {
  const to = /\.\/(\w+(?:\.ts)?)(?:\/|$)/.exec(specifier.replace(/^(\.\.\/)+/, './'))![1];
  return `${from} may not import ${specifier}, because ${to} depends on it; move what both need`;
}

function ownStatement(): string {
  return "index.ts holds only `export { … } from '…'`, move this to a module of its own";
}

function problems(root: string): string[] {
  return findViolations(root).map(({ file, line, message }) => `${file}:${line}: ${message}`);
}

/** A valid tree with these files added or replaced. */
function plant(files: Readonly<Record<string, string>>): string {
  return bare({
    'package.json': JSON.stringify({ name: 'root', devDependencies: { vitest: '1' } }),
    'packages/core/package.json': manifest('@treadle/core', [], { '.': '', './testing': '' }),
    'packages/core/src/index.ts': "export { tool } from './tool.ts';\n",
    'packages/core/src/tool.ts': 'export const tool = 1;\n',
    'packages/models/package.json': manifest('@treadle/models', ['@treadle/core']),
    'packages/models/src/model.ts': "import { tool } from '@treadle/core';\n",
    'packages/tools/package.json': manifest('@treadle/tools', ['@treadle/core']),
    'packages/tools/src/read.ts': "import { tool } from '@treadle/core';\n",
    'packages/server/package.json': manifest('@treadle/server', ['@treadle/core'], SERVER_EXPORTS),
    'packages/server/src/serve.ts': "import { tool } from '@treadle/core';\n",
    'packages/console/package.json': manifest('console-page', ['@treadle/server']),
    'packages/console/src/page.ts': "import type { A } from '@treadle/server/wire';\n",
    ...files,
  });
}

function bare(files: Readonly<Record<string, string>>): string {
  const root = mkdtempSync(path.join(tmpdir(), 'treadle-boundaries-'));
  planted.push(root);
  for (const [file, text] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(root, file)), { recursive: true });
    writeFileSync(path.join(root, file), text);
  }
  return root;
}

function manifest(name: string, dependencies: readonly string[], exports: object = { '.': '' }): string {
  return JSON.stringify({ name, exports, dependencies: Object.fromEntries(dependencies.map((one) => [one, '0.0.0'])) });
}
