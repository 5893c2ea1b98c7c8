/**
 * The API reference: what each package exports, as its declarations say. `npm run docs:api` writes it to dist/api; `npm run
 * docs` includes it in the site. It is not committed, because it changes with almost every type.
 *
 * The declarations are emitted from the sources file by file, which `isolatedDeclarations` allows, so nothing is built.
 */
import { globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { format } from 'oxfmt';
import { isolatedDeclarationSync } from 'rolldown/experimental';
import { parseSync, type ESTree } from 'vite';
import { escaped, fenced } from './markdown.ts';

const root = path.resolve(import.meta.dirname, '..');

export interface ApiPage {
  /** The specifier to import, such as `@treadle/core/testing`. */
  readonly entry: string;
  /** The name of the page below `api/`, such as `core-testing.md`. */
  readonly file: string;
  readonly exports: readonly Exported[];
  readonly text: string;
}

interface Exported {
  readonly name: string;
  /** With its modifiers and without its comment, in TypeScript. */
  readonly declaration: string;
  /** Markdown. */
  readonly comment: string;
}

/** A page for each entry point of each package. */
export async function apiPages(): Promise<readonly ApiPage[]> {
  const read = declarationReader();
  const pages: ApiPage[] = [];
  for (const manifest of globSync('packages/*/package.json', { cwd: root }).toSorted()) {
    const {
      name,
      description,
      exports,
      private: isPrivate,
    } = JSON.parse(readFileSync(path.join(root, manifest), 'utf8')) as {
      readonly name: string;
      readonly description: string;
      readonly exports: Readonly<Record<string, { readonly 'treadle-source': string }>>;
      /** It is not published. */
      readonly private?: boolean;
    };
    if (isPrivate) continue;
    for (const [subpath, { 'treadle-source': source }] of Object.entries(exports)) {
      const entry = path.posix.join(name, subpath);
      const found = await read.exportsOf(path.join(root, path.dirname(manifest), source));
      const list = [...found.values()].toSorted((a, b) => a.name.localeCompare(b.name, 'en'));
      const file = `${entry.replace('@treadle/', '').replaceAll('/', '-')}.md`;
      pages.push({ entry, file, exports: list, text: pageText(entry, subpath === '.' ? description : '', list) });
    }
  }
  return pages;
}

function pageText(entry: string, description: string, list: readonly Exported[]): string {
  const lines = list.flatMap(({ name, declaration, comment }) => [
    `## ${escaped(name)}`,
    ...(comment === '' ? [] : [comment]),
    fenced('ts', declaration),
  ]);
  return [`# ${entry}`, ...(description === '' ? [] : [`${description}.`]), ...lines].join('\n\n');
}

/** Reads declarations, each file once. */
function declarationReader(): { exportsOf(file: string): Promise<ReadonlyMap<string, Exported>> } {
  const cache = new Map<string, Promise<ReadonlyMap<string, Exported>>>();
  const exportsOf = (file: string): Promise<ReadonlyMap<string, Exported>> => {
    const known = cache.get(file) ?? readExports(file);
    cache.set(file, known);
    return known;
  };
  return { exportsOf };

  async function readExports(file: string): Promise<ReadonlyMap<string, Exported>> {
    const emitted = isolatedDeclarationSync(file, readFileSync(file, 'utf8'));
    if (emitted.errors.length > 0) throw new Error(`${file}: ${emitted.errors[0]!.message}`);
    const { code } = await format('a.ts', emitted.code, { printWidth: 100, singleQuote: true });
    const { program } = parseSync('a.d.ts', code, { sourceType: 'module' });
    const own = new Map<string, Exported>();
    /** What the file imports, and may export again. */
    const imported = new Map<string, { readonly name: string; readonly source: string }>();
    for (const node of program.body) {
      if (node.type === 'ImportDeclaration') {
        for (const one of node.specifiers) {
          if (one.type !== 'ImportSpecifier') continue;
          imported.set(one.local.name, { name: nameOf(one.imported), source: node.source.value });
        }
      }
      for (const name of declaredNames(node)) {
        const declaration = textOf(node, code);
        const before = own.get(name);
        const overload = before && { ...before, declaration: `${before.declaration}\n${declaration}` };
        own.set(name, overload ?? { name, declaration, comment: commentBefore(node, code) });
      }
    }
    const declared = async (name: string, source: string | undefined): Promise<Exported | undefined> => {
      const origin = source === undefined && !own.has(name) ? imported.get(name) : undefined;
      if (origin) return declared(origin.name, origin.source);
      if (source === undefined) return own.get(name);
      if (source.startsWith('.')) return (await exportsOf(path.resolve(path.dirname(file), source))).get(name);
      return { name, declaration: `export { ${name} } from '${source}';`, comment: `Of the package \`${source}\`.` };
    };
    const exported = new Map<string, Exported>();
    for (const node of program.body) {
      if (node.type !== 'ExportNamedDeclaration') continue;
      for (const name of node.declaration ? declaredNames(node) : []) exported.set(name, own.get(name)!);
      for (const { local, exported: given } of node.specifiers) {
        const [from, name] = [nameOf(local), nameOf(given)];
        const source = node.source?.value;
        const found = await declared(from, source);
        if (!found) throw new Error(`${file} exports ${from}, which has no declaration.`);
        exported.set(name, { ...found, name });
      }
    }
    return exported;
  }
}

function declaredNames(node: ESTree.Node): string[] {
  const declaration = node.type === 'ExportNamedDeclaration' ? node.declaration : node;
  switch (declaration?.type) {
    case 'FunctionDeclaration':
    case 'TSDeclareFunction':
    case 'ClassDeclaration':
    case 'TSInterfaceDeclaration':
    case 'TSTypeAliasDeclaration':
      return declaration.id ? [nameOf(declaration.id)] : [];
    case 'VariableDeclaration':
      return declaration.declarations.map(({ id }) => nameOf(id));
    default:
      return [];
  }
}

function nameOf(node: ESTree.Node): string {
  if (node.type === 'Identifier') return node.name;
  throw new Error(`A declaration has a name of the type ${node.type}.`);
}

function textOf(node: ESTree.Node, code: string): string {
  return code
    .slice(node.start, node.end)
    .replace(/^export /, '')
    .replace(/^declare /, '');
}

function commentBefore(node: ESTree.Node, code: string): string {
  const [, comment = ''] = /\/\*\*((?:(?!\*\/).)*)\*\/\s*$/s.exec(code.slice(0, node.start)) ?? [];
  return comment.replaceAll(/^ *\* ?/gm, '').trim();
}

if (import.meta.main) {
  const folder = path.join(root, 'dist', 'api');
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const pages = await apiPages();
  for (const { file, text } of pages) writeFileSync(path.join(folder, file), `${text}\n`);
  console.log(`dist/api: ${pages.length} pages, ${pages.flatMap((page) => page.exports).length} exports`);
}
