import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { parseSync, type ESTree, type ParseResult } from 'vite';

/** The parts of a source file that the checks use: its imports and the names it refers to. */
export interface Module {
  /** Relative to the root, with forward slashes. */
  readonly file: string;
  readonly isTest: boolean;
  readonly imports: readonly Import[];
  readonly starExports: readonly Line[];
  readonly syntaxErrors: readonly (Line & { readonly message: string })[];
  // What follows is not read in tests and outside of the packages, where no check asks: a syntax tree takes long.
  /** Top-level statements other than `export { … } from '…'`. */
  readonly ownStatements: readonly Line[];
  /** Referenced names, as `name` or `name.property`, without the names of properties and methods. */
  readonly names: readonly Name[];
  /** Names that the module imports or declares. */
  readonly bindings: ReadonlySet<string>;
}

export interface Line {
  readonly line: number;
}

export interface Import extends Line {
  readonly specifier: string;
  /** Erased at run time. `import { type A }` is not erased: it still loads the module. */
  readonly typeOnly: boolean;
}

/** The specifier of an `import()` whose argument is not a literal. */
export const COMPUTED = '<computed>';

export interface Name extends Line {
  readonly name: string;
}

export function readModules(root: string, folder: string): Module[] {
  return globSync(`${folder}/**/*.{ts,tsx}`, { cwd: root, exclude: ['**/node_modules', '**/dist'] })
    .map((file) => file.replaceAll(path.sep, '/'))
    .filter((file) => !file.endsWith('.d.ts'))
    .toSorted()
    .map((file) => parseModule(file, readFileSync(path.join(root, file), 'utf8')));
}

function parseModule(file: string, source: string): Module {
  const isTest = /\.test\.tsx?$/.test(file);
  const parsed = parseSync(file, source, { sourceType: 'module' });
  const lineOf = lineFinder(source);
  const { imports, ...rest } =
    (!isTest && file.startsWith('packages/')) || ONLY_IN_TREE.test(source)
      ? readTree(parsed.program, lineOf)
      : { imports: importsOf(parsed.module, source, lineOf), ...NOT_READ };
  return {
    file,
    isTest,
    imports,
    ...rest,
    starExports: parsed.module.staticExports
      .filter(({ entries }) => entries.some(({ importName }) => importName.kind.startsWith('All')))
      .map(({ start }) => ({ line: lineOf(start) })),
    syntaxErrors: parsed.errors.map(({ message, labels }) => ({ line: lineOf(labels[0]?.start ?? 0), message })),
  };
}

type Read = Pick<Module, 'imports' | 'names' | 'bindings' | 'ownStatements'>;

const NOT_READ = { names: [], bindings: new Set<string>(), ownStatements: [] };

/** Imports that the parser does not list: `import()` of a type, and `export {} from '…'`. */
const ONLY_IN_TREE = /\bimport\s*\(|\bexport\s*\{\s*\}/;

/** The imports that the parser lists, which takes much less time than the syntax tree. */
function importsOf({ staticImports, staticExports }: ParseResult['module'], source: string, lineOf: LineOf): Import[] {
  const statements = [
    ...staticImports.map(({ start, moduleRequest }) => ({ start, specifier: moduleRequest.value })),
    ...staticExports.flatMap(({ start, entries }) => {
      const specifier = entries[0]?.moduleRequest?.value;
      return specifier === undefined ? [] : [{ start, specifier }];
    }),
  ];
  return statements
    .toSorted((a, b) => a.start - b.start)
    .map(({ start, specifier }) => ({
      line: lineOf(start),
      specifier,
      typeOnly: /^(import|export)\s+type\s(?!from\b)/.test(source.slice(start, start + 40)),
    }));
}

function readTree(program: ESTree.Program, lineOf: LineOf): Read {
  const imports: Import[] = [];
  const names: Name[] = [];
  const bindings = new Set<string>();

  function visit(node: ESTree.Node): void {
    const line = lineOf(node.start);
    switch (node.type) {
      case 'ImportDeclaration':
        imports.push({ line, specifier: node.source.value, typeOnly: node.importKind === 'type' });
        break;
      case 'ExportAllDeclaration':
      case 'ExportNamedDeclaration':
        if (node.source) imports.push({ line, specifier: node.source.value, typeOnly: node.exportKind === 'type' });
        break;
      case 'ImportExpression':
        imports.push({ line, specifier: isText(node.source) ? node.source.value : COMPUTED, typeOnly: false });
        break;
      case 'TSImportType':
        imports.push({ line, specifier: node.source.value, typeOnly: true });
        break;
      case 'ImportSpecifier':
      case 'ImportDefaultSpecifier':
      case 'ImportNamespaceSpecifier':
        bindings.add(node.local.name);
        break;
      case 'FunctionDeclaration':
      case 'ClassDeclaration':
      case 'VariableDeclarator':
      case 'TSInterfaceDeclaration':
      case 'TSTypeAliasDeclaration':
        if (node.id?.type === 'Identifier') bindings.add(node.id.name);
        break;
      case 'MemberExpression':
        if (node.object.type !== 'Identifier') break;
        names.push({ line, name: `${node.object.name}.${propertyOf(node)}` });
        if (node.computed) visit(node.property);
        return;
      case 'Identifier':
        names.push({ line, name: node.name });
        break;
    }
    visitChildren(node, visit);
  }
  visit(program);

  const ownStatements = program.body.filter((node) => !isReexport(node)).map(({ start }) => ({ line: lineOf(start) }));
  return { imports, names, bindings, ownStatements };
}

function isReexport(node: ESTree.Node): boolean {
  if (node.type === 'ExportAllDeclaration') return true;
  if (node.type !== 'ExportNamedDeclaration' || node.declaration) return false;
  return node.source !== null || node.specifiers.length === 0;
}

function isText(node: ESTree.Node): node is ESTree.StringLiteral {
  return node.type === 'Literal' && typeof node.value === 'string';
}

function propertyOf(node: ESTree.MemberExpression): string {
  if (!node.computed && node.property.type === 'Identifier') return node.property.name;
  return isText(node.property) ? node.property.value : '?';
}

/** Skips the names of properties, which are not references. */
function visitChildren(node: ESTree.Node, visit: (child: ESTree.Node) => void): void {
  for (const field of Object.keys(node)) {
    const isPropertyName = (field === 'key' || field === 'property') && 'computed' in node && !node.computed;
    if (isPropertyName) continue;
    const value: unknown = node[field as keyof ESTree.Node];
    if (!Array.isArray(value)) {
      if (isNode(value)) visit(value);
    } else for (const child of value) if (isNode(child)) visit(child);
  }
}

function isNode(value: unknown): value is ESTree.Node {
  return typeof value === 'object' && value !== null && 'type' in value && 'start' in value;
}

type LineOf = (offset: number) => number;

function lineFinder(source: string): LineOf {
  const starts = [0];
  for (let at = source.indexOf('\n'); at >= 0; at = source.indexOf('\n', at + 1)) starts.push(at + 1);
  // Between `from`, which starts at or before the offset, and `to`, which starts after it.
  return (offset) => {
    let [from, to] = [0, starts.length];
    while (to - from > 1) {
      const middle = (from + to) >> 1;
      if (starts[middle]! <= offset) from = middle;
      else to = middle;
    }
    return from + 1;
  };
}
