import { execFileSync } from 'node:child_process';
import { existsSync, globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { needs } from './needs.ts';

const root = path.resolve(import.meta.dirname, '..');
/** The path of this checkout, unless it is directly below / and its name is too common to search for. */
const ownPath = path.dirname(root) === path.parse(root).root ? [] : [root];

interface Locked {
  readonly resolved?: string;
  readonly link?: boolean;
  readonly engines?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}

interface Manifest {
  readonly engines: { readonly node: string };
}

const lock = JSON.parse(readFileSync(path.join(root, 'package-lock.json'), 'utf8')) as {
  readonly packages: Readonly<Record<string, Locked>>;
};

test('the lock file contains no download addresses', () => {
  const entries = Object.entries(lock.packages);
  expect(entries.length).toBeGreaterThan(100);
  expect(entries.filter(([, { link, resolved }]) => resolved && !link)).toEqual([]);
});

test('the lock file contains the binaries of every platform', () => {
  const binaries = Object.values(lock.packages).flatMap((one) => Object.keys(one.optionalDependencies ?? {}));
  for (const platform of ['darwin', 'win32', 'linux-arm64']) expect(binaries.join()).toContain(platform);
  expect(binaries.filter((name) => !lock.packages[`node_modules/${name}`])).toEqual([]);
});

test('no package links node:sqlite, which an old Node lacks, so that core can say which Node is needed', () => {
  const linked = globSync('packages/*/src/**/*.ts', { cwd: root })
    .filter((file) => !file.endsWith('.test.ts'))
    .filter((file) => /^import (?!type)[^;]*'node:sqlite'/m.test(readFileSync(path.join(root, file), 'utf8')));
  expect(linked).toEqual([]);
});

test('the lock file has the engines of package.json', () => {
  const { engines } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8')) as Locked;
  expect(lock.packages['']?.engines).toEqual(engines);
});

test.each(globSync('packages/*/package.json', { cwd: root }))('%s has complete metadata', (file) => {
  const directory = path.dirname(file).replaceAll(path.sep, '/');
  const manifest = JSON.parse(readFileSync(path.join(root, file), 'utf8')) as Record<string, unknown>;
  expect(manifest).toMatchObject({
    description: expect.stringMatching(/\w/),
    keywords: expect.arrayContaining([expect.any(String)]),
    license: 'Apache-2.0',
    homepage: `https://github.com/treadle-dev/treadle/tree/main/${directory}#readme`,
    repository: { type: 'git', url: 'git+https://github.com/treadle-dev/treadle.git', directory },
    bugs: { url: 'https://github.com/treadle-dev/treadle/issues' },
    engines: { node: '>=22.18' },
  });
});

test.runIf(needs('a git checkout', existsSync(path.join(root, '.git'))))(
  'no file contains the address of a registry or a path of one machine',
  () => {
    const git = ['-c', 'safe.directory=*', 'ls-files', '-z', '--cached', '--others', '--exclude-standard'];
    const files = execFileSync('git', git, { cwd: root, encoding: 'utf8' }).split('\0');
    expect(files).toContain('package.json');
    const present = files.filter((file) => file && existsSync(path.join(root, file)));
    expect(present.flatMap((file) => strayLines(file, readFileSync(path.join(root, file), 'utf8')))).toEqual([]);
  },
);

test.each([
  `https://${'registry'}.npmjs.org`,
  `x/-/zod-4.0.0${'.tgz'}`,
  `/${'home'}/dev/x`,
  `C:\\${'Users'}\\dev`,
  ...ownPath,
])('the search for such addresses finds %s', (address) => {
  expect(strayLines('a.md', `one\nsee ${address} there`)).toEqual([`a.md:2: see ${address} there`]);
});

function strayLines(file: string, text: string): string[] {
  const patterns = [
    /\bregistry\.[\w-]+\.\w+/,
    /\/-\/[\w.-]+\.tgz\b/,
    /\/(home|Users)\/(?!user\b|alice\b|bob\b)[\w.-]+\//,
    /\b[A-Z]:\\{1,2}Users\\/,
  ];
  return text
    .split('\n')
    .map((line, index) => ({ line, number: index + 1 }))
    .filter(({ line }) => ownPath.some((own) => line.includes(own)) || patterns.some((pattern) => pattern.test(line)))
    .map(({ line, number }) => `${file}:${number}: ${line}`);
}

const pages = ['*.md', 'docs/*.md', 'packages/*/README.md'].flatMap((pattern) => globSync(pattern, { cwd: root }));

test('no page installs the packages from the registry, because there is no release', () => {
  const lines = pages.flatMap((page) => readFileSync(path.join(root, page), 'utf8').split('\n'));
  expect(lines.filter((line) => /\bnpm (i|install|add)\b.*\s(@treadle\/|treadle\b)/.test(line))).toEqual([]);
});

test('README.md names the versions of Node of package.json', () => {
  const enginesOf = (file: string): string =>
    (JSON.parse(readFileSync(path.join(root, file), 'utf8')) as Manifest).engines.node;
  const workspace = enginesOf('package.json')
    .split(' || ')
    .map((range) => `${range.replace(/^\^|^>=/, '')}+`);
  const packages = enginesOf('packages/core/package.json').replace('>=', '');
  const readme = readFileSync(path.join(root, 'README.md'), 'utf8');
  expect(readme).toContain(`Node ${workspace.slice(0, -1).join(', ')} or ${workspace.at(-1)} and npm 11`);
  expect(readme).toContain(`Node ${packages} or later`);
});

/** The files that a page means by a path, which may start in any of these folders. */
function filesNamed(file: string): readonly string[] {
  const folders = ['.', 'docs', 'test', 'test/*', 'packages/*', 'packages/*/src', 'packages/*/src/*'];
  return globSync(
    folders.map((folder) => path.join(folder, file)),
    { cwd: root },
  );
}

test('pages name only files that exist', () => {
  const missing = pages.flatMap((page) => {
    const text = readFileSync(path.join(root, page), 'utf8');
    const files = [...text.matchAll(/`((?:[\w-]+\/)+[\w.-]+\.ts)`/g)].map(([, file]) => file!);
    return files.filter((file) => filesNamed(file).length === 0);
  });
  expect(missing).toEqual([]);
});

test('the checklists name what is in the files that they name', () => {
  const text = readFileSync(path.join(root, 'CONTRIBUTING.md'), 'utf8');
  const named = [...text.matchAll(/`(\w+)` (?:\(|in )`((?:[\w-]+\/)+[\w.-]+\.ts)`/g)];
  expect(named.length).toBeGreaterThan(15);
  const missing = named.filter(([, name, file]) =>
    filesNamed(file!).every((one) => !new RegExp(`\\b${name}\\b`).test(readFileSync(path.join(root, one), 'utf8'))),
  );
  expect(missing.map(([place]) => place)).toEqual([]);
});
